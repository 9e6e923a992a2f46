"""Sizes as ONNX nodes, which compute them from the shapes of tensors: ``(H + 1)//2 => Div(Add(Shape(X)[2], 1), 2)``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...engine.onnx.typing import dtype_of
from ...ir.sizes import Atom, Size
from .sizes import Extent, Solution, size_of, solve_sizes


@dataclass
class SizeNodes:
    """Nodes that compute shapes from those of `tensors`, by their names; each size once."""

    tensors: Mapping[str, Sequence[Extent]] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    _names: dict[Size, str] = field(default_factory=dict)

    def add_shape(self, name: str, shape: Iterable[Extent], dtype: str = "int64") -> None:
        """A list of sizes as the value `name`. Raises ValueError with the name of a size that no tensor tells."""
        sizes = [self._size(size_of(extent)) for extent in shape]
        joined = self._add("Concat", *sizes, axis=0)
        self.nodes.append(helper.make_node("Cast", [joined], [name], to=int(dtype_of(dtype))))

    @property
    def results(self) -> set[str]:
        """The values that the nodes compute."""
        return {node.output[0] for node in self.nodes}

    @property
    def read(self) -> tuple[str, ...]:
        """The tensors whose shapes are read."""
        return tuple(dict.fromkeys(node.input[0] for node in self.nodes if node.op_type == "Shape"))

    def _size(self, size: Size) -> str:
        if size not in self._names:
            self._names[size] = self._solve(size) if size.atom and size.atom.kind == "symbol" else self._sum(size)
        return self._names[size]

    def _sum(self, size: Size) -> str:
        if size.number is not None:
            return self._constant(size.number)
        terms = [
            reduce(lambda a, b: self._add("Mul", a, b), map(self._atom, factors), self._constant(coefficient))
            for factors, coefficient in size.terms
        ]
        return reduce(lambda a, b: self._add("Add", a, b), terms)

    def _atom(self, atom: Atom) -> str:
        if atom.kind == "symbol":
            return self._size(Size((((atom,), 1),)))
        parts = [self._size(part) for part in atom.parts]
        return self._add({"floor": "Div", "min": "Min", "max": "Max"}[atom.kind], *parts)

    def _solve(self, size: Size) -> str:
        (name,) = size.names()
        ports = list(self.tensors)
        steps = solve_sizes([self.tensors[port] for port in ports])
        found = next((step for step in steps if isinstance(step, Solution) and step.name == name), None)
        if found is None:
            raise ValueError(name)
        shape = self._add("Shape", ports[found.port])
        extent = self._add("Gather", shape, self._constant(found.axis))
        rest = self._add("Sub", extent, self._size(found.rest))
        return self._add("Div", rest, self._constant(found.factor))

    def _constant(self, number: int) -> str:
        name = f"{_PREFIX}{len(self.nodes)}"
        value = numpy_helper.from_array(np.array([number], np.int64))
        self.nodes.append(helper.make_node("Constant", [], [name], value=value))
        return name

    def _add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"{_PREFIX}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name


_PREFIX = "eqfuse.size"
"""What the names of values begin with; a number follows."""
