"""Integers of one scale as integers of another, and sums and products of two."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...base.errors import LoweringError
from ..tosa.graph import Array, Builder, ElementType, Tensor
from ..tosa.scaling import Scaling, scaling_of
from .values import Integers, Number, memory_order, reorder

_LOWEST, _HIGHEST = -128, 127
_HEADROOM = 20
"""Bits behind the point that addends keep: with these the sum of two scaled integers of 8 bits fits 32 bits."""


@dataclass(frozen=True)
class Target:
    """The integers that are wanted: their scale and zero point, and the bounds of an activation behind them."""

    scale: float
    zero: int
    low: float = -np.inf
    high: float = np.inf

    def bounded(self, low: float, high: float) -> Target:
        """With the bounds of an activation that comes before those that are known."""
        low, high = (float(np.clip(each, self.low, self.high)) for each in (low, high))
        return replace(self, low=low, high=high)

    @property
    def unbounded(self) -> Target:
        """Without bounds."""
        return Target(self.scale, self.zero)

    @property
    def is_bounded(self) -> bool:
        """Whether the bounds are narrower than those of integers of 8 bits."""
        return self.limits != (_LOWEST, _HIGHEST)

    @property
    def limits(self) -> tuple[int, int]:
        """The bounds as integers."""
        low, high = (
            int(np.clip(np.rint(np.clip(each / self.scale, -1e6, 1e6)) + self.zero, _LOWEST, _HIGHEST))
            for each in (self.low, self.high)
        )
        return low, high


def zero_of(builder: Builder, zero: int, dtype: ElementType = "int8") -> Tensor:
    """A zero point as an operand."""
    return builder.constant([zero], dtype, "zero")


def add_rescale(
    builder: Builder, x: Tensor, factors: Array | float, zero: int, result_zero: int, dtype: ElementType,
    label: str = "",
) -> Tensor:
    """A RESCALE of a tensor to the type `dtype`; one factor, or one for each position of the last axis."""
    scaling: Scaling = scaling_of(factors)
    return builder.add(
        "RESCALE",
        [
            x,
            builder.constant(scaling.multiplier, "int32", "multiplier"),
            builder.constant(scaling.shift, "int8", "shift"),
            zero_of(builder, zero, x.dtype),
            zero_of(builder, result_zero, dtype),
        ],
        dtype,
        x.shape,
        label,
        scale32=True,
        rounding_mode="SINGLE_ROUND",
        per_channel=scaling.is_per_channel,
        input_unsigned=False,
        output_unsigned=False,
    )


def clamp(builder: Builder, x: Tensor, target: Target) -> Tensor:
    """The tensor within the bounds of an activation."""
    if not target.is_bounded:
        return x
    low, high = target.limits
    return builder.add("CLAMP", [x], "int8", x.shape, min_val=low, max_val=high, nan_mode="PROPAGATE")


def rescale(builder: Builder, integers: Integers, target: Target) -> Integers:
    """The same numbers as integers of another scale and zero point."""
    tensor = integers.tensor
    if (integers.scale, integers.zero) != (target.scale, target.zero):
        tensor = add_rescale(builder, tensor, integers.scale / target.scale, integers.zero, target.zero, "int8")
    return replace(integers, tensor=clamp(builder, tensor, target), scale=target.scale, zero=target.zero)


def _aligned(builder: Builder, left: Integers, right: Integers, value: Number) -> tuple[Integers, Integers]:
    """Two operands of the same rank, with their axes in the same order; the shape of one may broadcast."""
    if left.columns is not None or right.columns is not None:
        raise LoweringError(f"node {value.node!r} ({value.op}): reads a feature map that was flattened")
    rank = len(value.shape)
    left, right = (_of_rank(builder, each, rank) for each in (left, right))
    order = left.order if np.prod(left.shape) >= np.prod(right.shape) else right.order
    return reorder(builder, left, order), reorder(builder, right, order)


def _of_rank(builder: Builder, integers: Integers, rank: int) -> Integers:
    if len(integers.shape) == rank:
        return integers
    plain = reorder(builder, integers, tuple(range(len(integers.shape))))
    shape = (*(1,) * (rank - len(plain.shape)), *plain.shape)
    tensor = builder.add("RESHAPE", [plain.tensor, builder.sizes(*shape)], "int8", shape)
    return Integers(tensor, shape, tuple(range(rank)), integers.scale, integers.zero)


def _finish(builder: Builder, total: Tensor, factor: float, target: Target, left: Integers, value: Number) -> Integers:
    tensor = clamp(builder, add_rescale(builder, total, factor, 0, target.zero, "int8", value.node), target)
    return Integers(tensor, value.shape, left.order, target.scale, target.zero)


def add_integers(builder: Builder, left: Integers, right: Integers, target: Target, value: Number) -> Integers:
    """Sum or difference of two: both with the same scale and 20 bits behind the point, then rounded once."""
    left, right = _aligned(builder, left, right, value)
    unit = 2 * max(left.scale, right.scale)
    a, b = (
        add_rescale(builder, each.tensor, each.scale / unit * (1 << _HEADROOM), each.zero, 0, "int32")
        for each in (left, right)
    )
    shape = [value.shape[axis] for axis in left.order]
    total = builder.add("SUB" if value.op == "Sub" else "ADD", [a, b], "int32", shape)
    return _finish(builder, total, unit / (target.scale * (1 << _HEADROOM)), target, left, value)


def multiply_integers(builder: Builder, left: Integers, right: Integers, target: Target, value: Number) -> Integers:
    """Product of two, exact in 32 bits, then rounded once."""
    left, right = _aligned(builder, left, right, value)
    a, b = (add_rescale(builder, each.tensor, 1.0, each.zero, 0, "int32") for each in (left, right))
    shape = [value.shape[axis] for axis in left.order]
    product = builder.add("MUL", [a, b, builder.constant([0], "int8", "shift")], "int32", shape)
    return _finish(builder, product, left.scale * right.scale / target.scale, target, left, value)


def as_map(integers: Integers, builder: Builder) -> Integers:
    """A feature map with its channels last."""
    return reorder(builder, integers, memory_order(len(integers.shape), is_map=True))
