"""Graphs of TOSA operators on integers, and how they are built.

Feature maps are NHWC, weights OHWI (those of a depthwise convolution HWCM), as the specification of TOSA 1.0 has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, Any]
ElementType = Literal["bool", "int8", "int16", "int32", "shape"]
"""The types of elements; a list of sizes (`shape`) is a constant of its own kind."""
Attribute = bool | int | str | tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor; `data` are the elements of a constant."""

    name: str
    dtype: ElementType
    shape: tuple[int, ...]
    data: Array | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Operator:
    """One operator; inputs and the output are names of tensors, in the order of the specification."""

    op: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    """Operators in an order in which they can run; `inputs` and `outputs` are names of tensors."""

    operators: tuple[Operator, ...]
    tensors: Mapping[str, Tensor] = field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def producers(self) -> Mapping[str, Operator]:
        """The operator that makes a tensor, by the tensor's name."""
        return {operator.output: operator for operator in self.operators}

    @cached_property
    def readers(self) -> Mapping[str, tuple[Operator, ...]]:
        """The operators that read a tensor, by its name."""
        readers: dict[str, list[Operator]] = {name: [] for name in self.tensors}
        for operator in self.operators:
            for name in dict.fromkeys(operator.inputs):
                readers[name].append(operator)
        return {name: tuple(each) for name, each in readers.items()}

    @cached_property
    def digest(self) -> str:
        """The same for graphs that compute the same by the same operators, whatever the names of their tensors."""
        return self._digest(reads_constants=True)

    @cached_property
    def form(self) -> str:
        """The same for graphs whose operators, shapes and types are the same, whatever their weights."""
        return self._digest(reads_constants=False)

    def _digest(self, *, reads_constants: bool) -> str:
        numbers: dict[str, int] = {}
        content = sha256()
        for operator in self.operators:
            for name in (*operator.inputs, operator.output):
                if name in numbers:
                    continue
                numbers[name] = len(numbers)
                tensor = self.tensors[name]
                place = self.inputs.index(name) if name in self.inputs else -1
                content.update(repr((tensor.dtype, tensor.shape, place)).encode())
                is_read = tensor.data is not None and (reads_constants or tensor.dtype == "shape")
                content.update(tensor.data.tobytes() if is_read and tensor.data is not None else b"")
            places = [numbers[name] for name in (*operator.inputs, operator.output)]
            content.update(repr((operator.op, places, sorted(operator.attributes.items()))).encode())
        content.update(repr([numbers.get(name) for name in self.outputs]).encode())
        return content.hexdigest()

    def without_unread(self) -> Graph:
        """The graph without operators and constants that no output needs."""
        read, kept = {*self.outputs}, []
        for operator in reversed(self.operators):
            if operator.output in read:
                read.update(operator.inputs)
                kept.append(operator)
        tensors = {name: tensor for name, tensor in self.tensors.items() if name in read or name in self.inputs}
        return replace(self, operators=tuple(kept[::-1]), tensors=tensors)


class Builder:
    """A graph that grows. Equal constants are one tensor."""

    def __init__(self) -> None:
        self._operators: list[Operator] = []
        self._tensors: dict[str, Tensor] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Tensor] = {}
        self._inputs: list[str] = []

    def input(self, name: str, dtype: ElementType, shape: Sequence[int]) -> Tensor:
        """An input of the graph."""
        tensor = self._name(Tensor(name, dtype, tuple(shape)))
        self._inputs.append(tensor.name)
        return tensor

    def constant(self, data: Any, dtype: ElementType, name: str = "constant") -> Tensor:
        """A constant."""
        array = np.ascontiguousarray(data, np.int64 if dtype == "shape" else np.dtype(dtype))
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._name(Tensor(name, dtype, array.shape, array))
        return self._constants[key]

    def tensor(self, name: str) -> Tensor:
        """The tensor of a name."""
        return self._tensors[name]

    def sizes(self, *sizes: int) -> Tensor:
        """A list of sizes, such as the new shape for a RESHAPE."""
        return self.constant(sizes, "shape", "sizes")

    def add(
        self, op: str, inputs: Iterable[Tensor], dtype: ElementType, shape: Sequence[int], label: str = "",
        **attributes: Attribute,
    ) -> Tensor:  # fmt: skip
        """The result of an operator; `label` begins its name."""
        result = self._name(Tensor(label or op.lower(), dtype, tuple(map(int, shape))))
        self._operators.append(Operator(op, tuple(each.name for each in inputs), result.name, attributes))
        return result

    def finish(self, outputs: Sequence[Tensor]) -> Graph:
        """The graph with these outputs, which are copied if an output is an input or comes twice."""
        names: list[str] = []
        for tensor in outputs:
            if tensor.name in names or tensor.name in self._inputs or tensor.data is not None:
                tensor = self.add("IDENTITY", [tensor], tensor.dtype, tensor.shape)
            names.append(tensor.name)
        return Graph(tuple(self._operators), dict(self._tensors), tuple(self._inputs), tuple(names)).without_unread()

    def _name(self, tensor: Tensor) -> Tensor:
        number, name = 1, tensor.name
        while name in self._tensors:
            number += 1
            name = f"{tensor.name}.{number}"
        named = replace(tensor, name=name)
        self._tensors[name] = named
        return named

