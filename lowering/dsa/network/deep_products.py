"""Products with deep reductions, cut into sums of shallower ones: ``x W = x1 W1 + x2 W2 + ...``.

The small buffer that LB has for weights holds a tile of them: some columns, each as long as the reduction is deep.
Where it is too deep, so few columns fit that most of the matrix unit's stand idle. Cut into pieces, each piece's
weights are wide enough. The partial sums are layers' outputs like any other; floats are rounded to their type in
between. Where the data of a product is made by another one just for it, that is made in pieces too (hidden_pieces.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ....costmodels.dsa_device import DsaDevice
from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.operators.linear import is_convolution
from ....ir.types import TensorType
from .constant_slices import ConstantSlice, SplitProducts, made_graph
from .hidden_pieces import Hidden, HiddenPieces, hidden_of
from .subgraphs import Layer

_HIDDEN = 512
"""How deep the pieces of a hidden layer are: LB holds one at a time."""


@dataclass(frozen=True)
class _Reduction:
    """Where a product sums: the axis of its data and of its weights, which have `columns` outputs of `width` each."""

    depth: int
    data_axis: int
    weight_axis: int
    columns: int
    width: int
    """Elements of the weights per index of the reduction and column: a convolution's window."""


def split_products(
    graph: OperatorGraph, layers: Sequence[Layer], device: DsaDevice, element_size: int
) -> SplitProducts:
    """Cut the products whose weights are too deep for a device. Graphs without one come back as they are."""
    units = [unit for unit in device.units if unit.kind == "matrix"]
    if not units:
        return SplitProducts(graph, tuple(map(tuple, layers)), {})
    room = device.weight_buffer // 2 // element_size
    width = min(min(unit.rows, unit.columns) for unit in units)
    splitter = _Splitter(graph, room, width)
    return _with_hidden_pieces(splitter.run(layers), splitter.data)


def _with_hidden_pieces(split: SplitProducts, data: Mapping[int, list[int]]) -> SplitProducts:
    """Where the slices of a product's data can be made one by one, they are."""
    chains: dict[int, Hidden] = {}
    for slicing in data.values():
        first = split.graph.operators[slicing[0]]
        source, axes = first.inputs[0], first.attributes["axes"]
        assert source is not None
        assert isinstance(axes, tuple)
        hidden = hidden_of(split.graph, frozenset(slicing), source, int(axes[0]))
        if hidden is not None:
            chains |= dict.fromkeys(slicing, hidden)
    if not chains:
        return split
    found = HiddenPieces(split.graph, chains).run(split.layers)
    return SplitProducts(found.graph, found.layers, {**split.slices, **found.slices})


def _reduction(graph: OperatorGraph, operator: Operator) -> _Reduction | None:
    """Of a product with constant weights; None for any other operator."""
    if operator.is_opaque or len(operator.inputs) < 2 or operator.inputs[1] is None or operator.inputs[0] is None:
        return None
    weights, data = graph.values[operator.inputs[1]], graph.values[operator.inputs[0]]
    if not weights.is_constant or data.is_constant:
        return None
    shape, rank = weights.extent.dimensions, len(data.extent.dimensions)
    if is_convolution(operator.op) and operator.attributes.get("group", 1) == 1 and shape[1] > 1:
        return _Reduction(shape[1], 1, 1, shape[0], int(np.prod(shape[2:])))
    if operator.op == "MatMul" and len(shape) == 2 and rank >= 2:
        return _Reduction(shape[0], rank - 1, 0, shape[1], 1)
    if operator.op == "Gemm" and not operator.attributes.get("transA") and _is_plain(operator):
        axis = 1 if operator.attributes.get("transB") else 0
        return _Reduction(shape[axis], 1, axis, shape[1 - axis], 1)
    return None


def _is_plain(operator: Operator) -> bool:
    return operator.attributes.get("alpha", 1.0) == 1.0 and operator.attributes.get("beta", 1.0) == 1.0


@dataclass
class _Splitter:
    graph: OperatorGraph
    room: int
    """Elements of weights that a tile may have."""
    width: int
    """Columns that keep the matrix unit busy."""
    values: list[Value] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    slices: dict[str, ConstantSlice] = field(default_factory=dict)
    data: dict[int, list[int]] = field(default_factory=dict)
    """Per product that was cut, the operators that slice its data."""

    def run(self, layers: Sequence[Layer]) -> SplitProducts:
        self.values = list(self.graph.values)
        pieces = {index: self._pieces(operator) for index, operator in enumerate(self.graph.operators)}
        place: dict[int, list[int]] = {}
        for index, operator in enumerate(self.graph.operators):
            place[index] = list(self._emit(operator, pieces[index]))
        for layer in layers:
            self.layers += self._relayered(tuple(layer), pieces, place)
        return SplitProducts(made_graph(self.operators, self.values), tuple(self.layers), self.slices)

    def _pieces(self, operator: Operator) -> list[tuple[int, int]]:
        """The parts of a reduction; one where it is left alone."""
        found = _reduction(self.graph, operator)
        if found is None:
            return [(0, 0)]
        columns = min(self.width, found.columns)
        deepest = max(1, self.room // (columns * found.width))
        if operator.op == "MatMul" and found.depth >= 2 * _HIDDEN and self._is_hidden(operator):
            deepest = min(deepest, _HIDDEN)
        if found.depth <= deepest:
            return [(0, 0)]
        count = next(n for n in range(-(-found.depth // deepest), found.depth + 1) if found.depth % n == 0)
        step = found.depth // count
        return [(start, start + step) for start in range(0, found.depth, step)]

    def _is_hidden(self, operator: Operator) -> bool:
        """Whether its data can be made piece by piece."""
        source = operator.inputs[0]
        assert source is not None
        rank = len(self.graph.values[source].extent.dimensions)
        reader = next(i for i, each in enumerate(self.graph.operators) if each is operator)
        return hidden_of(self.graph, frozenset({reader}), source, rank - 1) is not None

    def _emit(self, operator: Operator, pieces: list[tuple[int, int]]) -> Iterator[int]:
        """The operators that stand for one: three per piece but for the first, which has no sum to add to."""
        if len(pieces) == 1:
            yield self._append(operator)
            return
        found = _reduction(self.graph, operator)
        assert found is not None
        result, total = operator.outputs[0], None
        for number, (start, stop) in enumerate(pieces):
            is_last = number == len(pieces) - 1
            name = f"{self.graph.values[result].name}[{start}:{stop}]"
            part = self._data(operator, found, start, stop, name)
            slicing = self._append(part)
            self.data.setdefault(result, []).append(slicing)
            yield slicing
            product = self._product(operator, found, part.outputs[0], (start, stop), name, is_last)
            yield self._append(product)
            if total is not None:
                out = result if is_last else self._value(f"{name}+", self.graph.values[result].type)
                yield self._append(Operator(f"{name}+", "Add", {}, (total, product.outputs[0]), (out,)))
                total = out
            else:
                total = product.outputs[0]

    def _append(self, operator: Operator) -> int:
        self.operators.append(operator)
        return len(self.operators) - 1

    def _value(self, name: str, type_: TensorType | None, is_constant: bool = False) -> int:
        self.values.append(Value(name, type_, None, is_constant))
        return len(self.values) - 1

    def _data(self, operator: Operator, found: _Reduction, start: int, stop: int, name: str) -> Operator:
        source = operator.inputs[0]
        assert source is not None
        out = self._value(f"{name}.data", self._cut_type(source, found.data_axis, stop - start))
        attributes = {"starts": (start,), "ends": (stop,), "axes": (found.data_axis,), "steps": (1,)}
        return Operator(f"{name}.data", "Slice", attributes, (source,), (out,))

    def _product(
        self, operator: Operator, found: _Reduction, data: int, cut: tuple[int, int], name: str, is_last: bool
    ) -> Operator:
        """One piece; the last one adds the bias."""
        source = operator.inputs[1]
        assert source is not None
        type_ = self._cut_type(source, found.weight_axis, cut[1] - cut[0])
        label = f"{self.values[source].name}[{name}]"
        weights = self._value(label, type_, is_constant=True)
        self.slices[label] = ConstantSlice(self.values[source].name, found.weight_axis, *cut)
        rest = operator.inputs[2:] if is_last else ()
        out = self._value(f"{name}.sum", self.graph.values[operator.outputs[0]].type)
        return replace(operator, name=name, inputs=(data, weights, *rest), outputs=(out,))

    def _cut_type(self, value: int, axis: int, extent: int) -> TensorType | None:
        known = self.values[value].type
        assert known is not None
        assert known.shape is not None
        return TensorType(known.dtype, (*known.shape[:axis], extent, *known.shape[axis + 1 :]))

    def _relayered(
        self, layer: Layer, pieces: Mapping[int, list[tuple[int, int]]], place: Mapping[int, list[int]]
    ) -> Iterator[Layer]:
        """A layer with a long product becomes several: what comes before it, the pieces, the last with the rest."""
        long = [index for index in layer if len(pieces[index]) > 1]
        if not long:
            yield tuple(new for index in layer for new in place[index])
            return
        (anchor, *others) = long
        before = [index for index in layer if index < anchor]
        after = [index for index in layer if index > anchor]
        if before:
            yield tuple(new for index in before for new in place[index])
        own = place[anchor]
        firsts = [own[:2], *(own[at : at + 3] for at in range(2, len(own), 3))]
        yield from map(tuple, firsts[:-1])
        if others:
            yield tuple(firsts[-1])
            yield from self._relayered(tuple(after), pieces, place)
        else:
            yield (*firsts[-1], *(new for index in after for new in place[index]))
