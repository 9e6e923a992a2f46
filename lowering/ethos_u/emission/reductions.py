"""Sums and means over any axes, extremes, and the places of the largest."""

from __future__ import annotations

from math import prod

from ...base.errors import LoweringError
from ..tosa.graph import Builder
from .requantize import Target, add_rescale, clamp
from .values import Integers, Number, reorder

SUMS = frozenset({"ReduceSum", "ReduceMean"})
EXTREMES = {"ReduceMax": "REDUCE_MAX", "ReduceMin": "REDUCE_MIN"}
_MOST_ADDENDS = 1 << 23
"""Integers of 9 bits whose sum fits 32 bits."""


def _axes(value: Number, x: Integers) -> list[int]:
    given = value.attributes["axes"]
    axes = range(len(x.shape)) if given is None or not len(given) else given
    return sorted(int(axis) % len(x.shape) for axis in axes)


def add_up(builder: Builder, value: Number, x: Integers, target: Target) -> Integers:
    """A sum or mean of integers, rounded once. Raises LoweringError for sums that do not fit 32 bits."""
    axes = _axes(value, x)
    count = prod(x.shape[axis] for axis in axes)
    if count > _MOST_ADDENDS:
        raise LoweringError(f"node {value.node!r} ({value.op}): a sum of {count} numbers does not fit 32 bits")
    tensor = add_rescale(builder, x.tensor, 1.0, x.zero, 0, "int32")
    shape = list(tensor.shape)
    for axis in axes:
        place = x.order.index(axis)
        shape[place] = 1
        tensor = builder.add("REDUCE_SUM", [tensor], "int32", shape, value.node, axis=place)
    factor = x.scale / target.scale / (count if value.op == "ReduceMean" else 1)
    rounded = clamp(builder, add_rescale(builder, tensor, factor, 0, target.zero, "int8", value.node), target)
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    return _without_axes(builder, value, Integers(rounded, kept, x.order, target.scale, target.zero))


def take_extreme(builder: Builder, value: Number, x: Integers) -> Integers:
    """The largest or least integers along axes, which have the scale of the operand."""
    tensor, shape = x.tensor, list(x.tensor.shape)
    axes = _axes(value, x)
    for axis in axes:
        place = x.order.index(axis)
        shape[place] = 1
        tensor = builder.add(
            EXTREMES[value.op], [tensor], "int8", shape, value.node, axis=place, nan_mode="PROPAGATE"
        )  # fmt: skip
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    return _without_axes(builder, value, Integers(tensor, kept, x.order, x.scale, x.zero))


def _without_axes(builder: Builder, value: Number, x: Integers) -> Integers:
    """In the shape of the result, which has lost axes of one element."""
    if x.shape == value.shape:
        return x
    left = iter(range(len(value.shape)))
    axes = _axes(value, x)
    numbers = {axis: next(left) for axis in range(len(x.shape)) if axis not in axes}
    order = tuple(numbers[axis] for axis in x.order if axis in numbers)
    shape = [value.shape[axis] for axis in order]
    tensor = builder.add("RESHAPE", [x.tensor, builder.sizes(*shape)], x.tensor.dtype, shape)
    return Integers(tensor, value.shape, order, x.scale, x.zero)


def largest_places(builder: Builder, value: Number, x: Integers) -> Integers:
    """The places of the largest integers along an axis, as integers of 32 bits that stand for themselves."""
    axis = int(value.attributes["axis"]) % len(x.shape)
    if value.attributes["select_last_index"]:
        raise LoweringError(f"node {value.node!r} (ArgMax): takes the last of equal numbers, and the NPU the first")
    x = reorder(builder, x, (*(each for each in x.order if each != axis), axis))  # U55 and U65 search the last axis
    shape = x.tensor.shape[:-1]
    tensor = builder.add("ARGMAX", [x.tensor], "int32", shape, value.node, axis=len(shape), nan_mode="PROPAGATE")
    if not value.attributes["keepdims"]:
        order = tuple(each - (each > axis) for each in x.order[:-1])
        return Integers(tensor, value.shape, order, 1.0, 0)
    tensor = builder.add("RESHAPE", [tensor, builder.sizes(*shape, 1)], "int32", (*shape, 1))
    return Integers(tensor, value.shape, x.order, 1.0, 0)
