"""Pieces of a hidden layer made only when they are summed up: ``f(x W1) W2 = sum over i of f(x W1i) W2i``.

Where a reduction is cut into pieces (deep_products.py) and its data comes from a product through element-wise
operators, and nothing else reads it, the pieces of that product need never be there all at once. So the cuts move up
through element-wise operators to the columns of the product that is first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....ir.graph import Operator, OperatorGraph
from ....ir.operators import ELEMENTWISE
from ....ir.types import TensorType
from .constant_slices import ConstantSlice, SplitProducts, made_graph
from .subgraphs import Layer


@dataclass(frozen=True)
class Hidden:
    """The operators that make the data of a product, a product with constant weights first, and the cut axis of each
    one's result; `columns` is the axis of its weights that the cut is along."""

    chain: tuple[int, ...]
    axis: int
    columns: int


def hidden_of(graph: OperatorGraph, consumers: frozenset[int], data: int, axis: int) -> Hidden | None:
    """What makes the data of `consumers`, where it can be cut along `axis` there as well, and nothing else reads it."""
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
        if _columns(graph, graph.operators[index]) is not None:
            products.add(index)
            continue
        sources = _elementwise(graph, graph.operators[index], value)
        if sources is None:
            return None
        queue += sources
    inside = cone | consumers
    closed = all(set(graph.consumers[v]) <= inside for index in cone for v in graph.operators[index].outputs)
    if len(products) != 1 or not closed or axis != rank - 1:
        return None
    columns = _columns(graph, graph.operators[min(products)])
    assert columns is not None
    return Hidden(tuple(sorted(cone)), axis, columns)


def _columns(graph: OperatorGraph, operator: Operator) -> int | None:
    """The axis of a product's constant weights that makes its last axis."""
    if operator.op == "MatMul" and not operator.is_opaque and operator.inputs[1] is not None:
        weights = graph.values[operator.inputs[1]]
        return 1 if weights.is_constant and len(weights.extent.dimensions) == 2 else None
    return None


def _elementwise(graph: OperatorGraph, operator: Operator, result: int) -> list[int] | None:
    """The operands of an element-wise operator that are not constant, where all have the result's shape."""
    if operator.is_opaque or operator.op not in ELEMENTWISE:
        return None
    shape = graph.values[result].extent.dimensions
    read = {v for v in operator.inputs if v is not None}
    varying = sorted(v for v in read if not graph.values[v].is_constant)
    fits = all(graph.values[v].extent.dimensions == shape for v in varying)
    constants = all(len(graph.values[v].extent.dimensions) <= len(shape) for v in read.difference(varying))
    return varying if varying and fits and constants and len(operator.outputs) == 1 else None


def cut_constant(graph: OperatorGraph, value: int, rank: int, axis: int) -> int | None:
    """The axis of a constant operand that goes with an axis of a result of that rank; None where it is broadcast."""
    shape = graph.values[value].extent.dimensions
    own = axis - (rank - len(shape))
    return own if own >= 0 and shape[own] > 1 else None


class HiddenPieces:
    """Rewrites a graph: the slices of hidden data are made by themselves, each just before it is read."""

    def __init__(self, graph: OperatorGraph, chains: Mapping[int, Hidden]) -> None:
        """`chains`: per slicing operator, what makes its data."""
        self.graph, self.chains = graph, chains
        self.values, self.operators = list(graph.values), list[Operator]()
        self.slices: dict[str, ConstantSlice] = {}
        self.place: dict[int, list[int]] = {}
        """Per operator of the old graph, those of the new one that stand for it."""

    def run(self, layers: Sequence[Layer]) -> SplitProducts:
        """The graph, its layers, and the new constants."""
        gone = {index for hidden in self.chains.values() for index in hidden.chain}
        for index, operator in enumerate(self.graph.operators):
            start = len(self.operators)
            if index in self.chains:
                self._copy(self.chains[index], operator)
            elif index not in gone:
                self.operators.append(operator)
            self.place[index] = list(range(start, len(self.operators)))
        found = [layer for old in layers for layer in self._layers(old)]
        return SplitProducts(made_graph(self.operators, self.values), tuple(found), self.slices)

    def _layers(self, layer: Layer) -> list[Layer]:
        """The copies that stand for a slice are a layer of their own, before the one that reads it."""
        own = [tuple(self.place[index]) for index in layer if index in self.chains]
        rest = tuple(new for index in layer if index not in self.chains for new in self.place[index])
        return [*own, rest] if rest else own

    def _copy(self, hidden: Hidden, slicing: Operator) -> None:
        start, stop = (_only(slicing.attributes[name]) for name in ("starts", "ends"))
        renamed: dict[int, int] = {}
        data = slicing.inputs[0]
        for index in hidden.chain:
            operator = self.graph.operators[index]
            (result,) = operator.outputs
            is_last = result == data
            label = f"[{start}:{stop}]"
            renamed[result] = slicing.outputs[0] if is_last else self._value(result, hidden.axis, start, stop, label)
            inputs = tuple(self._operand(hidden, index, v, renamed, start, stop, label) for v in operator.inputs)
            copy = replace(operator, name=operator.name + label, inputs=inputs, outputs=(renamed[result],))
            self.operators.append(copy)

    def _operand(
        self,
        hidden: Hidden,
        index: int,
        value: int | None,
        renamed: Mapping[int, int],
        start: int,
        stop: int,
        label: str,
    ) -> int | None:
        if value is None or value in renamed:
            return None if value is None else renamed[value]
        if not self.graph.values[value].is_constant:
            return value
        rank = len(self.graph.values[self.graph.operators[index].outputs[0]].extent.dimensions)
        is_product = _columns(self.graph, self.graph.operators[index]) is not None
        axis = hidden.columns if is_product else cut_constant(self.graph, value, rank, hidden.axis)
        if axis is None:
            return value
        made = self._value(value, axis, start, stop, label)
        name = self.values[made].name
        self.slices[name] = ConstantSlice(self.graph.values[value].name, axis, start, stop)
        return made

    def _value(self, value: int, axis: int, start: int, stop: int, label: str) -> int:
        old = self.values[value]
        assert old.type is not None
        assert old.type.shape is not None
        shape = (*old.type.shape[:axis], stop - start, *old.type.shape[axis + 1 :])
        self.values.append(replace(old, name=old.name + label, type=TensorType(old.type.dtype, shape), producer=None))
        return len(self.values) - 1


def _only(attribute: object) -> int:
    """The one integer of a list."""
    assert isinstance(attribute, tuple)
    return int(attribute[0])
