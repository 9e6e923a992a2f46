"""Reductions and running sums."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from .arithmetic import Arithmetic, Array, Reduction, Unsupported

Ints = tuple[int, ...]


def _axes(x: Array, axes: Ints) -> Ints:
    if any(not 0 <= a < x.ndim for a in axes) or len(set(axes)) != len(axes):
        raise Unsupported("there is no such axis")
    return axes


def _plain(function: Reduction) -> Callable[..., Array]:
    return lambda arithmetic, x, axes, keepdims: arithmetic.reduce(function, x, _axes(x, axes), bool(keepdims))


def total(arithmetic: Arithmetic, x: Array, axes: Ints, keepdims: int) -> Array:
    """The sum along axes."""
    return arithmetic.reduce("add", x, _axes(x, axes), bool(keepdims))


def mean(arithmetic: Arithmetic, x: Array, axes: Ints, keepdims: int) -> Array:
    """The mean along axes. Raises Unsupported for the mean of nothing."""
    count = prod(x.shape[a] for a in _axes(x, axes))
    if not count:
        raise Unsupported("the mean of no elements")
    whole = total(arithmetic, x, axes, keepdims)
    return arithmetic.apply("divide", whole, arithmetic.constant(count, whole))


def _after(outer: str, inner: str) -> Callable[..., Array]:
    """A function of the sum of a function of the elements; "" for none.

    Of integers, a root or a logarithm is computed in float64 and loses its fraction, as in ONNX Runtime.
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


MEANINGS: dict[str, Callable[..., Any]] = {
    "ReduceSum": _plain("add"),
    "ReduceMean": mean,
    "ReduceMax": _plain("maximum"),
    "ReduceMin": _plain("minimum"),
    "ReduceProd": _plain("multiply"),
    "ReduceL1": _after("", "absolute"),
    "ReduceL2": _after("sqrt", "square"),
    "ReduceSumSquare": _after("", "square"),
    "ReduceLogSum": _after("log", ""),
    "ReduceLogSumExp": _log_sum_exp,
    "CumSum": _running_sum,
}
