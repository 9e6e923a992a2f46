"""Hidden layers in pieces, as they are summed up: ``f(x W1) W2 = sum over i of f(x W1i) W2i``.

If the data of a product with a deep reduction comes from another product through element-wise operators, and nothing
else reads it, the pieces of that product need never be there all at once. So the reduction is cut, and the cuts move up
through element-wise operators to the columns of the first product. The partial sums are layers' outputs like any other;
floats are rounded to their type in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.operators import ELEMENTWISE
from .rewriting import GraphRewriter, SplitProducts
from .subgraphs import Layer
from .sums import Reduction, reduction_of

_PRODUCTS = ("MatMul", "Gemm")
"""The products of floats whose data and weights may be cut."""


@dataclass(frozen=True)
class HiddenLayer:
    """The operators that make the data of a product, one of which, `product`, multiplies with constant weights.

    `axis` is the axis of every result that the cuts are along.
    """

    operators: tuple[int, ...]
    product: int
    axis: int


def find_hidden_layer(graph: OperatorGraph, consumers: frozenset[int], data: int, axis: int) -> HiddenLayer | None:
    """The operators that make the data of `consumers`, if they can be cut along `axis`, and nothing else reads it."""
    rank = len(graph.values[data].extent.dimensions)
    cone, products, queue = set[int](), set[int](), [data]
    while queue:
        value = queue.pop()
        index = graph.values[value].producer
        if index is None or graph.values[value].is_output:
            return None
        if index in cone:
            continue
        cone.add(index)
        if _has_weight_matrix(graph, graph.operators[index]):
            products.add(index)
            continue
        sources = _varying_operands(graph, graph.operators[index], value)
        if not sources:
            return None
        queue += sources
    inside = cone | consumers
    closed = all(set(graph.consumers[v]) <= inside for index in cone for v in graph.operators[index].outputs)
    if len(products) != 1 or not closed or axis != rank - 1:
        return None
    return HiddenLayer(tuple(sorted(cone)), products.pop(), axis)


def _has_weight_matrix(graph: OperatorGraph, operator: Operator) -> bool:
    """Whether an operator is a product of floats with a constant matrix, and what it adds is constant."""
    if operator.op not in _PRODUCTS or operator.is_opaque or operator.attributes.get("transA"):
        return False
    weights, *added = (None if value is None else graph.values[value] for value in operator.inputs[1:])
    if weights is None or not weights.is_constant or len(weights.extent.dimensions) != 2:
        return False
    return all(value is None or value.is_constant for value in added)


def _varying_operands(graph: OperatorGraph, operator: Operator, result: int) -> list[int]:
    """The operands of an element-wise operator that are not constant; none unless all have the result's shape."""
    if operator.is_opaque or operator.op not in ELEMENTWISE or len(operator.outputs) != 1:
        return []
    shape = graph.values[result].extent.dimensions
    read = {v for v in operator.inputs if v is not None}
    varying = sorted(v for v in read if not graph.values[v].is_constant)
    fits = all(graph.values[v].extent.dimensions == shape for v in varying)
    constants = all(len(graph.values[v].extent.dimensions) <= len(shape) for v in read.difference(varying))
    return varying if fits and constants else []


def cut_hidden_layers(
    graph: OperatorGraph, layers: Sequence[Layer], hidden: Mapping[int, HiddenLayer]
) -> SplitProducts:
    """Compute the slices of hidden data by themselves, each just before it is read.

    `hidden`: per operator that slices data, what makes it.
    """
    rewriter = _HiddenLayerCutter(graph)
    gone = {index for each in hidden.values() for index in each.operators}
    place: dict[int, tuple[int, ...]] = {}
    """Per operator of the old graph, those of the new one that stand for it."""
    for index, operator in enumerate(graph.operators):
        start = len(rewriter.operators)
        if index in hidden:
            rewriter.copy_slice(hidden[index], operator)
        elif index not in gone:
            rewriter.add_operator(operator)
        place[index] = tuple(range(start, len(rewriter.operators)))
    new_layers: list[Layer] = []
    for layer in layers:  # the copies that stand for a slice are a layer of their own
        new_layers += [place[index] for index in layer if index in hidden]
        rest = tuple(new for index in layer if index not in hidden for new in place[index])
        new_layers += [rest] if rest else []
    return rewriter.result(new_layers)


class _HiddenLayerCutter(GraphRewriter):
    def copy_slice(self, hidden: HiddenLayer, slicing: Operator) -> None:
        """Add the operators of a hidden layer, for the part of its result that an operator slices."""
        starts, stops = slicing.attributes["starts"], slicing.attributes["ends"]
        assert isinstance(starts, tuple)
        assert isinstance(stops, tuple)
        start, stop = int(starts[0]), int(stops[0])
        label = f"[{start}:{stop}]"
        renamed: dict[int, int] = {}
        for operator in map(self.graph.operators.__getitem__, hidden.operators):
            (result,) = operator.outputs
            if result == slicing.inputs[0]:
                renamed[result] = slicing.outputs[0]
            else:
                old, type_ = self.values[result], self.cut_type(result, hidden.axis, stop - start)
                renamed[result] = self.add_value(replace(old, name=old.name + label, type=type_, producer=None))
            inputs: list[int | None] = []
            for value in operator.inputs:
                axis = None if value is None or value in renamed else self._cut_axis(hidden, operator, value)
                if value is not None and axis is not None:
                    name = self.values[value].name + label
                    inputs.append(self.cut_constant(name, value, axis, start, stop))
                else:
                    inputs.append(None if value is None else renamed.get(value, value))
            name = operator.name + label
            self.add_operator(replace(operator, name=name, inputs=tuple(inputs), outputs=(renamed[result],)))

    def _cut_axis(self, hidden: HiddenLayer, operator: Operator, value: int) -> int | None:
        """The axis of a constant operand that is cut with the result; None if it is broadcast, or not constant."""
        if not self.graph.values[value].is_constant:
            return None
        if value == operator.inputs[1] and _has_weight_matrix(self.graph, operator):
            return 0 if operator.attributes.get("transB") else 1
        shape = self.graph.values[value].extent.dimensions
        axis = hidden.axis - (len(self.graph.values[operator.outputs[0]].extent.dimensions) - len(shape))
        return axis if axis >= 0 and shape[axis] > 1 else None


_HIDDEN_DEPTH = 512
"""The most elements along the reduction in a piece of a hidden layer: LB holds one piece at a time."""
_WIDER = 2
"""How many times as wide as what it is made of, and as what is made of it, a hidden layer has to be. Each piece adds to
sums as wide as the result: a perceptron whose layers are equally wide, as DLRM's, took 1.06 times as long in pieces.
Transformers' are four times as wide."""


class _Piece(NamedTuple):
    """A range of indices of a reduction."""

    start: int
    stop: int


def split_hidden_layers(graph: OperatorGraph, layers: Sequence[Layer]) -> SplitProducts:
    """Cut the products whose data is a large hidden layer. Graphs without one come back as they are."""
    splitter = _Splitter(graph)
    split = splitter.run(layers)
    hidden: dict[int, HiddenLayer] = {}
    for slicing in splitter.slicing.values():
        first = split.graph.operators[slicing[0]]
        source, axes = first.inputs[0], first.attributes["axes"]
        assert source is not None
        assert isinstance(axes, tuple)
        layer = find_hidden_layer(split.graph, frozenset(slicing), source, int(axes[0]))
        if layer is not None:
            hidden |= dict.fromkeys(slicing, layer)
    if not hidden:
        return split
    cut = cut_hidden_layers(split.graph, split.layers, hidden)
    return SplitProducts(cut.graph, cut.layers, {**split.slices, **cut.slices})


class _Splitter(GraphRewriter):
    def __init__(self, graph: OperatorGraph) -> None:
        super().__init__(graph)
        self.slicing: dict[int, list[int]] = {}
        """The operators that slice the data of each product that was cut, by the value that it makes."""

    def run(self, layers: Sequence[Layer]) -> SplitProducts:
        place: dict[int, list[int]] = {}
        """Per operator of the old graph, those of the new one that stand for it."""
        cut: set[int] = set()
        for index, operator in enumerate(self.graph.operators):
            reduction = reduction_of(self.graph, index)
            pieces = [] if reduction is None else self._pieces(index, reduction)
            if reduction is None or len(pieces) < 2:
                place[index] = [self.add_operator(operator)]
            else:
                place[index] = list(self._add_pieces(operator, reduction, pieces))
                cut.add(index)
        return self.result(new for layer in layers for new in _split_layer(tuple(layer), cut, place))

    def _pieces(self, index: int, reduction: Reduction) -> list[_Piece]:
        """The pieces of a reduction; none if its data is no large hidden layer."""
        operator = self.graph.operators[index]
        source = operator.inputs[0]
        if reduction.depth < 2 * _HIDDEN_DEPTH or operator.op not in _PRODUCTS or source is None:
            return []
        hidden = find_hidden_layer(self.graph, frozenset({index}), source, reduction.data_axis)
        first = None if hidden is None else reduction_of(self.graph, hidden.product)
        if first is None or reduction.depth < _WIDER * max(first.depth, reduction.columns):
            return []
        fewest = -(-reduction.depth // _HIDDEN_DEPTH)
        count = next(n for n in range(fewest, reduction.depth + 1) if reduction.depth % n == 0)
        step = reduction.depth // count
        return [_Piece(start, start + step) for start in range(0, reduction.depth, step)]

    def _add_pieces(self, operator: Operator, reduction: Reduction, pieces: Sequence[_Piece]) -> Iterator[int]:
        """The operators that stand for one: three per piece but for the first, which has no sum to add to."""
        (data, weights), result, total = operator.inputs[:2], operator.outputs[0], None
        assert data is not None
        assert weights is not None
        type_ = self.values[result].type
        for start, stop in pieces:
            is_last = stop == reduction.depth
            name = f"{self.values[result].name}[{start}:{stop}]"
            cut = self.add_value(Value(f"{name}.data", self.cut_type(data, reduction.data_axis, stop - start)))
            attributes = {"starts": (start,), "ends": (stop,), "axes": (reduction.data_axis,), "steps": (1,)}
            slicing = self.add_operator(Operator(f"{name}.data", "Slice", attributes, (data,), (cut,)))
            self.slicing.setdefault(result, []).append(slicing)
            yield slicing
            label = f"{self.values[weights].name}[{name}]"
            cut_weights = self.cut_constant(label, weights, reduction.weight_axis, start, stop)
            bias = operator.inputs[2:] if is_last else ()
            product = self.add_value(Value(f"{name}.sum", type_))
            yield self.add_operator(replace(operator, name=name, inputs=(cut, cut_weights, *bias), outputs=(product,)))
            if total is None:
                total = product
            else:
                out = result if is_last else self.add_value(Value(f"{name}+", type_))
                yield self.add_operator(Operator(f"{name}+", "Add", {}, (total, product), (out,)))
                total = out


def _split_layer(layer: Layer, cut: set[int], place: Mapping[int, list[int]]) -> Iterator[Layer]:
    """A layer with a product that is cut becomes several: what comes before it, the pieces, the last with the rest."""
    anchors = [index for index in layer if index in cut]
    if not anchors:
        yield tuple(new for index in layer for new in place[index])
        return
    anchor, *others = anchors
    before = tuple(new for index in layer if index < anchor for new in place[index])
    after = tuple(index for index in layer if index > anchor)
    if before:
        yield before
    own = place[anchor]
    *pieces, last = [own[:2], *(own[at : at + 3] for at in range(2, len(own), 3))]
    yield from map(tuple, pieces)
    if others:
        yield tuple(last)
        yield from _split_layer(after, cut, place)
    else:
        yield (*last, *(new for index in after for new in place[index]))
