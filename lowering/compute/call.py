"""One operator on its way to tensor expressions: the operands and attributes of a lowering, and its stages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tvm import te, tirx

from ...ir.graph import Operator
from ...ir.types import TensorType
from ..base.errors import LoweringError
from .extents import Extent, Extents, is_number, may_differ

Expr = Any
"""A scalar expression of TVM (``tirx.PrimExpr``)."""
Shape = tuple[Extent, ...]

BYTE = "uint8"
"""The type of a boolean in memory, 0 or 1."""
ANCHOR = "eqfuse.anchor"
"""Attribute of the block that does the multiplications of a product or convolution; its value is the operator."""
OPERATOR = "eqfuse.operator"
"""Attribute of every block: the operator that it is part of."""


class NotLowered(LoweringError):
    """An operator that has no lowering, or none for its types and settings."""


@dataclass(frozen=True)
class Immediate:
    """A constant of one element, read like a tensor but written into the code."""

    value: Expr
    shape: Shape
    dtype: str

    @staticmethod
    def of(array: np.ndarray[Any, Any]) -> Immediate:
        """The one element of an array. Raises ValueError if there are more."""
        return Immediate(tirx.const(array.item(), array.dtype.name), array.shape, array.dtype.name)

    def __call__(self, *indices: Expr) -> Expr:
        """The element, whatever the indices."""
        return self.value


@dataclass(frozen=True)
class Tensor:
    """A tensor expression with the extents that the graph says it has: equal ones are the same expression.

    Booleans are bytes in the expression (BYTE): TVM loads a vector of booleans as bits, and memory has bytes.
    """

    tensor: te.Tensor
    shape: Shape
    dtype: str

    def __call__(self, *indices: Expr) -> Expr:
        """The element at the indices."""
        element = self.tensor(*indices)
        return tirx.NE(element, tirx.const(0, BYTE)) if self.dtype == "bool" else element


class Operand(Protocol):
    """An operand: a ``te.Tensor``, one with its extents, or an Immediate."""

    @property
    def shape(self) -> Sequence[Any]: ...

    def __call__(self, *indices: Expr) -> Expr: ...


def sizes(x: Operand) -> Shape:
    """The shape, its constants as plain integers."""
    return tuple(int(d) if isinstance(d, int | tirx.IntImm) else d for d in x.shape)


def read(x: Operand, indices: Sequence[Expr], shape: Shape) -> Expr:
    """An element at indices of the result, of `shape`, that `x` is broadcast to by ONNX's rules."""
    return x(*broadcast(sizes(x), indices, shape))


def broadcast(own: Shape, indices: Sequence[Expr], shape: Shape) -> list[Expr]:
    """Indices of a tensor from those of the shape that it is broadcast to.

    The index of an axis that has one element in both stays a variable: schedules match iterators with axes. An axis
    that has as many elements as the shape in one call, and one in another, is read at its last element or before.
    """
    skipped = len(shape) - len(own)
    axes = zip(own, indices[skipped:], shape[skipped:], strict=True)
    return [_broadcast_index(size, index, whole) for size, index, whole in axes]


def _broadcast_index(size: Extent, index: Expr, whole: Extent) -> Expr:
    if not may_differ(size, whole) or (isinstance(size, int) and size != 1):
        return index
    return 0 if is_number(size, 1) else te.min(index, size - 1)


@dataclass(frozen=True)
class TensorCall:
    """An operator, its operands (None: absent) and the types of its results; a type is known if anything reads the
    result."""

    operator: Operator
    sources: tuple[Operand | None, ...]
    results: tuple[TensorType | None, ...]
    extents: Extents
    types: tuple[TensorType | None, ...] = ()
    """The types of its operands."""

    @property
    def shape(self) -> Shape:
        """The shape of the first result."""
        return self.extents.shape(self._result)

    @property
    def dtype(self) -> str:
        """The element type of the first result."""
        return self._result.dtype

    @property
    def _result(self) -> TensorType:
        result = self.results[0]
        assert result is not None
        return result

    def source(self, position: int) -> Operand:
        """An input that has to be there. Raises NotLowered if it is absent."""
        operand = self.optional(position)
        if operand is None:
            raise NotLowered(f"input {position} is absent")
        return operand

    def optional(self, position: int) -> Operand | None:
        """An input; None if it is absent."""
        return self.sources[position] if position < len(self.sources) else None

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The inputs that are there."""
        return tuple(s for s in self.sources if s is not None)

    def ints(self, name: str) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        value = self._attribute(name, None)
        if not isinstance(value, tuple) or not all(isinstance(v, int) for v in value):
            raise NotLowered(f"{name} is not known")
        return value

    def numbers(self, position: int) -> tuple[int, ...]:
        """The shape of an input. Raises NotLowered if it is absent or dynamic."""
        shape = sizes(self.source(position))
        if not all(isinstance(extent, int) for extent in shape):
            raise NotLowered(f"the shape of input {position} is not fixed")
        return shape

    def integer(self, name: str, default: int | None = None) -> int:
        """An attribute that is an integer."""
        return int(self._attribute(name, default))

    def number(self, name: str, default: float | None = None) -> float:
        """An attribute that is a float."""
        return float(self._attribute(name, default))

    def text(self, name: str, default: str | None = None) -> str:
        """An attribute that is a string."""
        return str(self._attribute(name, default))

    def _attribute(self, name: str, default: Any) -> Any:
        value = self.operator.attributes.get(name, default)
        if value is None:
            raise NotLowered(f"it has no {name}")
        return value

    def constant(self, value: float) -> Expr:
        """A number of the type of the first result."""
        return tirx.const(value, self.dtype)

    def reciprocal(self, extent: Extent) -> Expr:
        """One over an extent, of the type of the first result; 1 for none, whose mean is 0 as in ONNX Runtime."""
        if isinstance(extent, int):
            return self.constant(1 / max(extent, 1))
        return self.constant(1) / te.max(extent, 1).astype(self.dtype)

    def stage(
        self, shape: Iterable[Extent], function: Callable[..., Expr], part: str = "", anchor: bool = False
    ) -> te.Tensor:
        """A tensor computed element by element; booleans become bytes."""
        op = self.operator.op
        attributes = {OPERATOR: op} | ({ANCHOR: op} if anchor else {})
        extents, name = tuple(shape), self.block_name(part)
        tensor = te.compute(extents, function, name=name, attrs=attributes)
        if str(tensor.dtype) != "bool":
            return tensor
        return te.compute(extents, lambda *i: function(*i).astype(BYTE), name=name, attrs=attributes)

    def block_name(self, part: str = "") -> str:
        """The name of a block: operator, node, `part` and the value that the operator computes.

        Exporters put the operator in a node's name; then it is not said twice.
        """
        op = self.operator.op
        node = re.sub(r"\W+", "_", self.operator.name).strip("_")
        whole = node if op.lower() in node.lower() else f"{op}_{node}"
        whole = f"_{whole}" if whole[:1].isdigit() else whole
        return "_".join(filter(None, (whole, part, str(self.operator.outputs[0]))))

    def reduce_axes(self, extents: Iterable[Extent], name: str = "k") -> list[Any]:
        """Reduction axes of these extents, named by their position."""
        return [te.reduce_axis((0, extent), name=f"{name}{i}") for i, extent in enumerate(extents)]


Lowering = Callable[[TensorCall], te.Tensor | tuple[te.Tensor, ...]]
"""The results of a call as tensor expressions. Raises NotLowered."""
