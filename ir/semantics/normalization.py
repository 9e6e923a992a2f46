"""Normalisations and softmaxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .arithmetic import Arithmetic, Array, Unsupported, floats_only
from .elementwise import Expression
from .reduction import mean

Ints = tuple[int, ...]


def _along_channels(x: Array, values: Array) -> Array:
    if values.shape != x.shape[1:2]:
        raise Unsupported("one value for each channel is needed")
    return values.reshape((-1, *(1,) * (x.ndim - 2)))


def _affine(arithmetic: Arithmetic, x: Array, scale: Array, shift: Array | None) -> Array:
    result = arithmetic.apply("multiply", x, scale)
    result = result if shift is None else arithmetic.apply("add", result, shift)
    if result.shape != x.shape:
        raise Unsupported("scale and shift widen the tensor")
    return result


def _wide(arithmetic: Arithmetic, x: Array, stash: int) -> Array:
    """Two-byte floats are normalized in float32 where the operator says so."""
    return arithmetic.cast(x, "float32") if stash == 1 and x.dtype.itemsize == 2 and x.dtype != object else x


def _narrow(arithmetic: Arithmetic, value: Array, x: Array) -> Array:
    """Back in the type of the operand."""
    return value if value.dtype == x.dtype else arithmetic.cast(value, x.dtype.name)


def _standardized(arithmetic: Arithmetic, x: Array, axes: Ints, epsilon: float) -> Array:
    centre = Expression(arithmetic, x) - Expression(arithmetic, mean(arithmetic, x, axes, 1))
    variance = Expression(arithmetic, mean(arithmetic, (centre * centre).array, axes, 1))
    return (centre / (variance + epsilon)("sqrt")).array


def _batch(
    arithmetic: Arithmetic, x: Array, scale: Array, shift: Array, centre: Array, variance: Array, epsilon: float
) -> Array:
    spread = [Expression(arithmetic, _along_channels(x, v)) for v in (scale, shift, centre, variance)]
    value = (Expression(arithmetic, x) - spread[2]) / (spread[3] + epsilon)("sqrt")
    return (value * spread[0] + spread[1]).array


def _instance(arithmetic: Arithmetic, x: Array, scale: Array, shift: Array, epsilon: float) -> Array:
    if x.ndim < 3:
        raise Unsupported("an instance has spatial axes")
    value = _standardized(arithmetic, x, tuple(range(2, x.ndim)), epsilon)
    return _affine(arithmetic, value, _along_channels(x, scale), _along_channels(x, shift))


def _group(
    arithmetic: Arithmetic, x: Array, scale: Array, shift: Array, epsilon: float, groups: int, stash: int
) -> Array:
    if x.ndim < 3 or x.shape[1] % groups:
        raise Unsupported("the groups do not divide the channels")
    parts = _wide(arithmetic, x, stash).reshape((x.shape[0], groups, -1))
    value = _standardized(arithmetic, parts, (2,), epsilon).reshape(x.shape)
    return _affine(arithmetic, _narrow(arithmetic, value, x), _along_channels(x, scale), _along_channels(x, shift))


def _layer(
    arithmetic: Arithmetic, x: Array, scale: Array, shift: Array | None, axis: int, epsilon: float, stash: int
) -> Array:
    if not 0 <= axis < x.ndim:
        raise Unsupported("there is no such axis")
    value = _standardized(arithmetic, _wide(arithmetic, x, stash), tuple(range(axis, x.ndim)), epsilon)
    return _affine(arithmetic, _narrow(arithmetic, value, x), scale, shift)


def _root_mean_square(arithmetic: Arithmetic, x: Array, scale: Array, axis: int, epsilon: float, stash: int) -> Array:
    if not 0 <= axis < x.ndim:
        raise Unsupported("there is no such axis")
    value = Expression(arithmetic, _wide(arithmetic, x, stash))
    square = Expression(arithmetic, mean(arithmetic, (value * value).array, tuple(range(axis, x.ndim)), 1))
    normalized = (value / (square + epsilon)("sqrt")).array
    return _affine(arithmetic, _narrow(arithmetic, normalized, x), scale, None)


def _softmax(arithmetic: Arithmetic, x: Array, axis: int) -> Array:
    powers = arithmetic.apply("exp", _lowered(arithmetic, x, axis))
    return arithmetic.apply("divide", powers, arithmetic.reduce("add", powers, (axis,), True))


def _log_softmax(arithmetic: Arithmetic, x: Array, axis: int) -> Array:
    x = _lowered(arithmetic, x, axis)
    total = arithmetic.reduce("add", arithmetic.apply("exp", x), (axis,), True)
    return arithmetic.apply("subtract", x, arithmetic.apply("log", total))


def _lowered(arithmetic: Arithmetic, x: Array, axis: int) -> Array:
    """Numbers lowered by the largest, as every implementation does; over the reals it makes no difference."""
    if not 0 <= axis < x.ndim:
        raise Unsupported("there is no such axis")
    if x.dtype == object or not x.size:
        return x
    return arithmetic.apply("subtract", x, arithmetic.reduce("maximum", x, (axis,), True))


def _hardmax(arithmetic: Arithmetic, x: Array, axis: int) -> Array:
    if x.dtype == object or not 0 <= axis < x.ndim or not x.shape[axis]:
        raise Unsupported("the place of the largest of symbols, or of nothing")
    floats_only(x)
    result = np.zeros_like(x)
    np.put_along_axis(result, np.expand_dims(np.argmax(x, axis), axis), 1, axis)
    return result


MEANINGS: dict[str, Callable[..., Any]] = {
    "BatchNormalization": _batch,
    "InstanceNormalization": _instance,
    "GroupNormalization": _group,
    "LayerNormalization": _layer,
    "RMSNormalization": _root_mean_square,
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "Hardmax": _hardmax,
}
