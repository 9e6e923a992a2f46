"""Hidden layers computed piece by piece, as they are summed up: ``f(x W1) W2 = sum over i of f(x W1i) W2i``.

Where a reduction is cut into pieces (deep_products.py) and its data comes from a product through element-wise
operators, and nothing else reads it, the pieces of that product need never be there all at once. So the cuts move up
through element-wise operators to the columns of the first product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....ir.graph import Operator, OperatorGraph
from ....ir.operators import ELEMENTWISE
from .rewriting import GraphRewriter, SplitProducts
from .subgraphs import Layer

_WEIGHT_COLUMNS = 1
"""The axis of a MatMul's weights that makes the last axis of its result."""


@dataclass(frozen=True)
class HiddenLayer:
    """The operators that make the data of a product, one of which is a product with constant weights.

    `axis` is the axis of every result that the cuts are along.
    """

    operators: tuple[int, ...]
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
    return HiddenLayer(tuple(sorted(cone)), axis) if len(products) == 1 and closed and axis == rank - 1 else None


def _has_weight_matrix(graph: OperatorGraph, operator: Operator) -> bool:
    """Whether an operator is a product with a constant matrix."""
    if operator.op != "MatMul" or operator.is_opaque or operator.inputs[1] is None:
        return False
    weights = graph.values[operator.inputs[1]]
    return weights.is_constant and len(weights.extent.dimensions) == 2


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
        """The axis of a constant operand that is cut with the result; None where it is broadcast, or not constant."""
        if not self.graph.values[value].is_constant:
            return None
        if _has_weight_matrix(self.graph, operator):
            return _WEIGHT_COLUMNS
        shape = self.graph.values[value].extent.dimensions
        axis = hidden.axis - (len(self.graph.values[operator.outputs[0]].extent.dimensions) - len(shape))
        return axis if axis >= 0 and shape[axis] > 1 else None
