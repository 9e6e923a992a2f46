"""Reductions and running sums."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..index_maps import IndexMaps, OperatorCall, along_axis_maps, mixing_maps, reduced_maps
from .arithmetic import Arithmetic, Array, Reduction, Unsupported
from .schema import Family, per_input

Ints = tuple[int, ...]


def _axes(x: Array, axes: Ints) -> Ints:
    if any(not 0 <= a < x.ndim for a in axes) or len(set(axes)) != len(axes):
        raise Unsupported("there is no such axis")
    return axes


def _plain(function: Reduction) -> Callable[..., Array]:
    return lambda arithmetic, x, axes, keepdims: arithmetic.reduce(function, x, _axes(x, axes), bool(keepdims))


def _extreme(function: Reduction, sign: int) -> Callable[..., Array]:
    """The largest or the least element; of no numbers it is the end of their type. Raises Unsupported for that of no
    truth values, which ONNX Runtime does not have."""

    def apply(arithmetic: Arithmetic, x: Array, axes: Ints, keepdims: int) -> Array:
        if x.dtype.kind in "Ob" or all(x.shape[axis] for axis in _axes(x, axes)):
            return arithmetic.reduce(function, x, _axes(x, axes), bool(keepdims))
        shape = np.sum(np.empty(x.shape, bool), axis=axes, keepdims=bool(keepdims)).shape
        if x.dtype.kind in "iu":
            limits = np.iinfo(x.dtype)
            return np.full(shape, limits.min if sign < 0 else limits.max, x.dtype)
        return np.full(shape, sign * np.inf, x.dtype)

    return apply


def total(arithmetic: Arithmetic, x: Array, axes: Ints, keepdims: int) -> Array:
    """The sum along axes."""
    return arithmetic.reduce("add", x, _axes(x, axes), bool(keepdims))


def mean(arithmetic: Arithmetic, x: Array, axes: Ints, keepdims: int) -> Array:
    """The mean along axes. Raises Unsupported for the mean of nothing.

    Of two-byte floats it is computed in float32, as in ONNX Runtime: their sum may overflow although the mean does not.
    """
    if x.dtype != object and x.dtype.kind in "fV" and x.dtype.itemsize == 2:
        return arithmetic.cast(mean(arithmetic, arithmetic.cast(x, "float32"), axes, keepdims), x.dtype.name)
    count = prod(x.shape[a] for a in _axes(x, axes))
    if not count:
        raise Unsupported("the mean of no elements")
    whole = total(arithmetic, x, axes, keepdims)
    return arithmetic.apply("divide", whole, arithmetic.constant(count, whole))


def _after(outer: str, inner: str) -> Callable[..., Array]:
    """A function of the sum of a function of the elements; "" for none.

    For integers, a root or a logarithm is computed in float64 and loses its fraction, as in ONNX Runtime.
    """

    def apply(arithmetic: Arithmetic, x: Array, axes: Ints, keepdims: int) -> Array:
        if outer and x.dtype.kind in "iu":
            return arithmetic.cast(apply(arithmetic, arithmetic.cast(x, "float64"), axes, keepdims), x.dtype.name)
        if inner == "square":
            x = arithmetic.apply("multiply", x, x)
        elif inner:
            x = arithmetic.apply(inner, x)
        whole = total(arithmetic, x, axes, keepdims)
        return arithmetic.apply(outer, whole) if outer else whole

    return apply


def _log_sum_exp(arithmetic: Arithmetic, x: Array, axes: Ints, keepdims: int) -> Array:
    if x.dtype.kind in "Oiu" or x.size == 0:
        return _after("log", "exp")(arithmetic, x, axes, keepdims)
    highest = arithmetic.reduce("maximum", x, _axes(x, axes), True)
    highest = np.where(np.isfinite(highest), highest, np.zeros_like(highest))
    inner = _after("log", "exp")(arithmetic, arithmetic.apply("subtract", x, highest), axes, keepdims)
    return arithmetic.apply("add", inner, highest if keepdims else highest.reshape(inner.shape))


def _position_of(find: Callable[..., Any]) -> Callable[..., Array]:
    """The position of the largest or smallest element, the first or the last of several."""

    def apply(arithmetic: Arithmetic, x: Array, axis: int, keepdims: int, last: int) -> Array:
        (along,) = _axes(x, (axis,))
        if x.dtype == object:
            raise Unsupported("numbers decide which element is the largest")
        if not x.shape[along]:
            raise Unsupported("the position of no element")
        position = find(np.flip(x, along) if last else x, axis=along, keepdims=bool(keepdims))
        return np.asarray(x.shape[along] - 1 - position if last else position, np.int64)

    return apply


def _running_sum(arithmetic: Arithmetic, x: Array, axis: Ints, exclusive: int, reverse: int) -> Array:
    (along,) = _axes(x, axis)
    moved = np.moveaxis(x, along, 0)
    moved = moved[::-1] if reverse else moved
    result = np.empty_like(moved)
    so_far = np.broadcast_to(arithmetic.constant(0, x), moved.shape[1:])
    for i in range(len(moved)):
        after = arithmetic.apply("add", so_far, moved[i, ...])
        result[i, ...] = so_far if exclusive else after
        so_far = after
    return np.moveaxis(result[::-1] if reverse else result, 0, along)


def _reduction_maps(call: OperatorCall) -> IndexMaps:
    """No axes stand for all of them."""
    rank = len(call.data)
    axes = {axis % max(1, rank) for axis in call.integers("axes")} or set(range(rank))
    return reduced_maps(call, axes)


def _argument_maps(call: OperatorCall) -> IndexMaps:
    return reduced_maps(call, {call.axis(0)})


_reduction = Family("reduction", _reduction_maps, per_input(1))

_argument = Family("reduction", _argument_maps, per_input(1))

OPERATORS = (
    _reduction("ReduceSum", "data axes:Ints@13 | keepdims:i64=1", _plain("add")),
    _reduction("ReduceMean", "data axes:Ints@18 | keepdims:i64=1", mean),
    _reduction("ReduceMax", "data axes:Ints@18 | keepdims:i64=1", _extreme("maximum", -1)),
    _reduction("ReduceMin", "data axes:Ints@18 | keepdims:i64=1", _extreme("minimum", 1)),
    _reduction("ReduceProd", "data axes:Ints@18 | keepdims:i64=1", _plain("multiply")),
    _reduction("ReduceL1", "data axes:Ints@18 | keepdims:i64=1", _after("", "absolute"), flops=per_input(2)),
    _reduction("ReduceL2", "data axes:Ints@18 | keepdims:i64=1", _after("sqrt", "square"), flops=per_input(2)),
    _reduction("ReduceSumSquare", "data axes:Ints@18 | keepdims:i64=1", _after("", "square"), flops=per_input(2)),
    _reduction("ReduceLogSum", "data axes:Ints@18 | keepdims:i64=1", _after("log", "")),
    _reduction("ReduceLogSumExp", "data axes:Ints@18 | keepdims:i64=1", _log_sum_exp, flops=per_input(2)),
    _reduction("CumSum", "x axis:Ints@1 | exclusive:i64=0 reverse:i64=0", _running_sum, index_maps=along_axis_maps),
    _argument("ArgMax", "data | axis:i64=0 keepdims:i64=1 select_last_index:i64=0", _position_of(np.argmax)),
    _argument("ArgMin", "data | axis:i64=0 keepdims:i64=1 select_last_index:i64=0", _position_of(np.argmin)),
    *Family("reduction", mixing_maps).hidden("TopK"),
)
