"""What alternatives are, and what they are made with: graphs with other operators in place of some."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..tosa.graph import Array, Attribute, ElementType, Graph, Operator, Tensor


@dataclass(frozen=True)
class Alternative:
    """Another graph, and in words how it differs. `place` is a tensor that is made in another way: of the alternatives
    for one place, a graph can have one. `make` gives None if the change is not possible."""

    label: str
    place: str
    make: Callable[[], Graph | None] = field(repr=False, compare=False)

    @cached_property
    def graph(self) -> Graph | None:
        """The other graph, made once."""
        return self.make()


class Edit:
    """A graph with new tensors, and with operators in place of others."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._tensors = graph, dict(graph.tensors)
        self._instead: dict[str, tuple[Operator, ...]] = {}
        self._numbers: dict[str, int] = {}

    def tensor(self, like: str, shape: Sequence[int], data: Array | None = None) -> str:
        """The name of a new tensor of the type of another."""
        number = self._numbers.get(like, 2)
        while (name := f"{like}.{number}") in self._tensors:
            number += 1
        self._numbers[like] = number + 1
        dtype = self._tensors[like].dtype
        made = None if data is None else np.ascontiguousarray(data, np.int64 if dtype == "shape" else np.dtype(dtype))
        self._tensors[name] = Tensor(name, dtype, tuple(shape), made)
        return name

    def constant(self, like: str, data: Array) -> str:
        """The name of a new constant of the type of another."""
        return self.tensor(like, data.shape, data)

    def new(self, dtype: ElementType, data: Any) -> str:
        """The name of a new constant of a type."""
        number = len(self._tensors)
        while (name := f"constant.{number}") in self._tensors:
            number += 1
        array = np.ascontiguousarray(data, np.int64 if dtype == "shape" else np.dtype(dtype))
        self._tensors[name] = Tensor(name, dtype, array.shape, array)
        return name

    def wide(self, shape: Sequence[int]) -> str:
        """The name of a new tensor of 32 bits."""
        number = len(self._tensors)
        while (name := f"wide.{number}") in self._tensors:
            number += 1
        self._tensors[name] = Tensor(name, "int32", tuple(shape))
        return name

    def sizes(self, *sizes: int) -> str:
        """The name of a new list of sizes."""
        return self.new("shape", sizes)

    def put(self, instead_of: str, *operators: Operator) -> None:
        """Operators in place of the one that makes a tensor."""
        self._instead[instead_of] = operators

    def finish(self) -> Graph:
        """The whole graph."""
        operators = [
            each for operator in self._graph.operators for each in self._instead.get(operator.output, (operator,))
        ]
        return replace(self._graph, operators=tuple(operators), tensors=self._tensors).without_unread()


def data_of(graph: Graph, name: str) -> Array:
    """The elements of a constant."""
    data = graph.tensors[name].data
    assert data is not None, "the operand is a constant"
    return data


def integers_of(attributes: Mapping[str, Attribute], name: str) -> tuple[int, ...]:
    """An attribute that is a list of integers."""
    value = attributes[name]
    assert isinstance(value, tuple)
    return value


@dataclass(frozen=True)
class Chain:
    """A convolution, its RESCALE and, if it has one, its CLAMP, each read by the next one alone."""

    product: Operator
    rescale: Operator
    clamp: Operator | None

    @property
    def result(self) -> str:
        """The tensor at its end."""
        return (self.clamp or self.rescale).output


def chain_of(graph: Graph, product: Operator) -> Chain | None:
    """The chain that begins with a convolution; None if its sums are read by anything but one RESCALE."""
    rescale = only_reader(graph, product.output)
    if rescale is None or rescale.op != "RESCALE":
        return None
    clamp = only_reader(graph, rescale.output)
    return Chain(product, rescale, clamp if clamp is not None and clamp.op == "CLAMP" else None)


def only_reader(graph: Graph, name: str) -> Operator | None:
    """The one operator that reads a tensor; None for several, and for a result of the graph."""
    readers = graph.readers[name]
    return readers[0] if len(readers) == 1 and name not in graph.outputs else None
