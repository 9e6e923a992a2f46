"""Normalisations and softmaxes."""

from __future__ import annotations

from math import prod

import numpy as np

from ..index_maps import (
    Index,
    IndexMaps,
    OperatorCall,
    Quotient,
    aligned_map,
    along_axis_maps,
    channel_maps,
    mixing_maps,
    whole_maps,
)
from .arithmetic import Arithmetic, Array, Unsupported, floats_only
from .elementwise import Expression
from .reduction import mean
from .schema import Family, per_input

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


_STASHED = {1: ("float32", 4), 11: ("float64", 8)}
"""The wide types that `stash_type` may ask for by ONNX's numbers, and their bytes."""


def _wide(arithmetic: Arithmetic, x: Array, stash: int) -> Array:
    """Narrower floats are normalized in the type that the operator names; wider ones in their own."""
    name, size = _STASHED.get(stash, ("", 0))
    return arithmetic.cast(x, name) if x.dtype != object and x.dtype.itemsize < size else x


def _narrow(arithmetic: Arithmetic, value: Array, x: Array) -> Array:
    """Back in the type of the operand."""
    return value if value.dtype == x.dtype else arithmetic.cast(value, x.dtype.name)


def _standardize(arithmetic: Arithmetic, x: Array, axes: Ints, epsilon: float) -> Array:
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
    value = _standardize(arithmetic, x, tuple(range(2, x.ndim)), epsilon)
    return _affine(arithmetic, value, _along_channels(x, scale), _along_channels(x, shift))


def _group(
    arithmetic: Arithmetic, x: Array, scale: Array, shift: Array, epsilon: float, groups: int, stash: int
) -> Array:
    if x.ndim < 3 or x.shape[1] % groups:
        raise Unsupported("the groups do not divide the channels")
    parts = _wide(arithmetic, x, stash).reshape((x.shape[0], groups, prod(x.shape[1:]) // groups))
    value = _standardize(arithmetic, parts, (2,), epsilon).reshape(x.shape)
    return _affine(arithmetic, _narrow(arithmetic, value, x), _along_channels(x, scale), _along_channels(x, shift))


def layer(
    arithmetic: Arithmetic, x: Array, scale: Array, shift: Array | None, axis: int, epsilon: float, stash: int
) -> Array:
    """ONNX's LayerNormalization over the axes from `axis` on; the result has the shape of x. Raises Unsupported without
    such an axis.
    """
    if not 0 <= axis < x.ndim:
        raise Unsupported("there is no such axis")
    value = _standardize(arithmetic, _wide(arithmetic, x, stash), tuple(range(axis, x.ndim)), epsilon)
    return _affine(arithmetic, _narrow(arithmetic, value, x), scale, shift)


def root_mean_square(arithmetic: Arithmetic, x: Array, scale: Array, axis: int, epsilon: float, stash: int) -> Array:
    """ONNX's RMSNormalization over the axes from `axis` on; the result has the shape of x. Raises Unsupported without
    such an axis.
    """
    if not 0 <= axis < x.ndim:
        raise Unsupported("there is no such axis")
    value = Expression(arithmetic, _wide(arithmetic, x, stash))
    square = Expression(arithmetic, mean(arithmetic, (value * value).array, tuple(range(axis, x.ndim)), 1))
    normalized = (value / (square + epsilon)("sqrt")).array
    return _affine(arithmetic, _narrow(arithmetic, normalized, x), scale, None)


def softmax(arithmetic: Arithmetic, x: Array, axis: int) -> Array:
    """exp(x) over its sum along `axis`; the result has the shape of x."""
    powers = arithmetic.apply("exp", _subtract_highest(arithmetic, x, axis))
    return arithmetic.apply("divide", powers, arithmetic.reduce("add", powers, (axis,), True))


def _log_softmax(arithmetic: Arithmetic, x: Array, axis: int) -> Array:
    x = _subtract_highest(arithmetic, x, axis)
    total = arithmetic.reduce("add", arithmetic.apply("exp", x), (axis,), True)
    return arithmetic.apply("subtract", x, arithmetic.apply("log", total))


def _subtract_highest(arithmetic: Arithmetic, x: Array, axis: int) -> Array:
    """Numbers less the largest, as every implementation computes it; over the reals it makes no difference."""
    if not 0 <= axis < x.ndim:
        raise Unsupported("there is no such axis")
    if x.dtype == object or not x.size:
        return x
    return arithmetic.apply("subtract", x, arithmetic.reduce("maximum", x, (axis,), True))


def _hardmax(arithmetic: Arithmetic, x: Array, axis: int) -> Array:
    if x.dtype == object or not 0 <= axis < x.ndim:
        raise Unsupported("the place of the largest of symbols, or along an axis that is none")
    floats_only(x)
    result = np.zeros_like(x)
    if not x.shape[axis]:
        return result
    np.put_along_axis(result, np.expand_dims(np.argmax(x, axis), axis), 1, axis)
    return result


def _from_axis_maps(call: OperatorCall) -> IndexMaps | None:
    """All axes from ``axis`` on are read whole; mean and deviation, the further results, have no maps."""
    if call.number:
        return None
    return whole_maps(call, range(call.axis(-1), len(call.data)), lambda shape: aligned_map(shape, call.axes))


def _instance_maps(call: OperatorCall) -> IndexMaps:
    """Every feature map is read whole; a scale and a bias belong to each channel."""
    return whole_maps(call, range(2, len(call.data)), lambda shape: call.axes[1:2])


def _group_maps(call: OperatorCall) -> IndexMaps:
    """The channels of a group are read whole; scale and bias belong to a channel, before opset 21 to a group."""
    channel = call.axes[1]

    def own(shape: tuple[int, ...]) -> tuple[Index, ...]:
        members, rest = divmod(channel.extent, max(1, shape[0]))
        return (Quotient(channel, members) if members > 1 and not rest else channel,)

    return whole_maps(call, range(1, len(call.data)), own)


_normalization = Family("normalization", mixing_maps, per_input(7))
_softmax = Family("normalization", along_axis_maps, per_input(5), is_total=True)

OPERATORS = (
    _normalization(
        "BatchNormalization",
        "X scale B input_mean input_var | epsilon:f64=1e-05",
        _batch,
        index_maps=channel_maps,
        flops=per_input(2),
    ),
    _normalization("InstanceNormalization", "input scale B | epsilon:f64=1e-05", _instance, index_maps=_instance_maps),
    _normalization(
        "LayerNormalization",
        "X Scale B? | axis:i64=-1 epsilon:f64=1e-05 stash_type:i64=1",
        layer,
        index_maps=_from_axis_maps,
        is_total=True,
    ),
    _normalization(
        "RMSNormalization",
        "X scale | axis:i64=-1 epsilon:f64=1e-05 stash_type:i64=1",
        root_mean_square,
        index_maps=_from_axis_maps,
        flops=per_input(4),
    ),
    _normalization(
        "GroupNormalization",
        "X scale bias | epsilon:f64=1e-05 num_groups:i64 stash_type:i64=1",
        _group,
        index_maps=_group_maps,
    ),
    _softmax("Softmax", "input | axis:i64=-1", softmax),
    _softmax("LogSoftmax", "input | axis:i64=-1", _log_softmax),
    _normalization("Hardmax", "input | axis:i64=-1", _hardmax, index_maps=along_axis_maps, flops=per_input(1)),
    *Family("normalization", _group_maps).hidden("LRN"),
    *Family("normalization", mixing_maps).hidden("LpNormalization MeanVarianceNormalization DynamicQuantizeLinear"),
)
