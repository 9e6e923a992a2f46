"""What a value of an ONNX graph is during emission: integers in the TOSA graph, or numbers that are not rounded yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import LoweringError
from ..tosa.graph import Array, Builder, Tensor

_CHANNELS_LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1)}
"""For each rank of a feature map, the axes of ONNX in the order in which TOSA has them."""


def memory_order(rank: int, is_map: bool) -> tuple[int, ...]:
    """The axes of a value of ONNX as they lie in memory, the outermost first; feature maps have their channels last."""
    return _CHANNELS_LAST.get(rank, tuple(range(rank))) if is_map else tuple(range(rank))


@dataclass(frozen=True, eq=False)
class Integers:
    """Integers of 8 bits with one scale: each stands for (integer - zero) * scale.

    `shape` is that of ONNX, `order` its axes as they lie in memory. `columns` are the places in ONNX's order of the
    elements along the last axis, if these were flattened from a feature map and lie in another order.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    order: tuple[int, ...]
    scale: float
    zero: int
    columns: Array | None = None

    @property
    def lowest(self) -> float:
        """The least number that the integers can stand for."""
        return (-128 - self.zero) * self.scale


@dataclass(frozen=True, eq=False)
class Constant:
    """Numbers that are known; of those that integers stand for the `integers` without their zero point, and `scales`,
    which broadcast."""

    numbers: Array
    integers: Array | None = None
    scales: Array | None = None


@dataclass(frozen=True, eq=False)
class Number:
    """Numbers that are the result of an operator, not rounded to integers of 8 bits."""

    op: str
    operands: tuple[Value | None, ...]
    attributes: Mapping[str, Any] = field(repr=False)
    shape: tuple[int, ...]
    node: str


Value = Integers | Constant | Number


def reorder(builder: Builder, integers: Integers, order: tuple[int, ...]) -> Integers:
    """The integers with their axes in this order; elements that were flattened get ONNX's order."""
    if integers.columns is not None:
        raise AssertionError("the caller reads flattened elements in their own order")
    if integers.order == order:
        return integers
    permutation = tuple(integers.order.index(axis) for axis in order)
    shape = tuple(integers.shape[axis] for axis in order)
    long = [axis for axis in integers.order if integers.shape[axis] > 1]
    if long == [axis for axis in order if integers.shape[axis] > 1]:
        tensor = builder.add("RESHAPE", [integers.tensor, builder.sizes(*shape)], integers.tensor.dtype, shape)
    else:
        tensor = builder.add("TRANSPOSE", [integers.tensor], integers.tensor.dtype, shape, perms=permutation)
    return Integers(tensor, integers.shape, order, integers.scale, integers.zero)


def refuse(value: Number, reason: str) -> LoweringError:
    """The error about a node that the NPU does not take, with the reason."""
    return LoweringError(f"node {value.node!r} ({value.op}): {reason}")
