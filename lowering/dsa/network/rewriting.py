"""Graphs with other operators, some of whose constants are parts of the model's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.types import TensorType
from .subgraphs import Layer


@dataclass(frozen=True)
class ConstantSlice:
    """Elements `start` to `stop` along an axis of a constant."""

    of: str
    axis: int
    start: int
    stop: int

    def of_array(self, array: np.ndarray) -> np.ndarray:
        """The slice."""
        return array[(slice(None),) * self.axis + (slice(self.start, self.stop),)]


@dataclass(frozen=True)
class SplitProducts:
    """The graph and its layers with long reductions cut, and of which constants the new ones are slices, by name."""

    graph: OperatorGraph
    layers: tuple[Layer, ...]
    slices: Mapping[str, ConstantSlice]


class GraphRewriter:
    """Adds operators in running order. Values of the old graph keep their numbers; unused ones stay."""

    def __init__(self, graph: OperatorGraph) -> None:
        self.graph = graph
        self.values, self.operators = list(graph.values), list[Operator]()
        self.slices: dict[str, ConstantSlice] = {}

    def add_operator(self, operator: Operator) -> int:
        """The number of a new operator."""
        self.operators.append(operator)
        return len(self.operators) - 1

    def add_value(self, value: Value) -> int:
        """The number of a new value."""
        self.values.append(value)
        return len(self.values) - 1

    def cut_type(self, value: int, axis: int, extent: int) -> TensorType:
        """The type of a slice of a value."""
        type_ = self.values[value].type
        assert type_ is not None
        assert type_.shape is not None
        return TensorType(type_.dtype, (*type_.shape[:axis], extent, *type_.shape[axis + 1 :]))

    def cut_constant(self, name: str, value: int, axis: int, start: int, stop: int) -> int:
        """The number of a new constant, which is a slice of another one."""
        self.slices[name] = ConstantSlice(self.values[value].name, axis, start, stop)
        return self.add_value(Value(name, self.cut_type(value, axis, stop - start), None, is_constant=True))

    def result(self, layers: Iterable[Layer]) -> SplitProducts:
        """The new graph."""
        producers = {value: index for index, operator in enumerate(self.operators) for value in operator.outputs}
        values = tuple(replace(value, producer=producers.get(index)) for index, value in enumerate(self.values))
        return SplitProducts(OperatorGraph(tuple(self.operators), values), tuple(layers), self.slices)
