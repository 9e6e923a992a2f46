"""Graphs whose constants are parts of the model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....ir.graph import Operator, OperatorGraph, Value
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
    """The graph and its layers with long reductions cut, and what the new constants are, by name."""

    graph: OperatorGraph
    layers: tuple[Layer, ...]
    slices: Mapping[str, ConstantSlice]


def made_graph(operators: Sequence[Operator], values: Sequence[Value]) -> OperatorGraph:
    """The graph of these operators, in running order; values know who makes them. Unused ones stay."""
    producers = {value: index for index, operator in enumerate(operators) for value in operator.outputs}
    known = tuple(replace(value, producer=producers.get(index)) for index, value in enumerate(values))
    return OperatorGraph(tuple(operators), known)
