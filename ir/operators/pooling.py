"""Pooling over sliding windows, and over everything."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from ..index_maps import IndexMaps, OperatorCall, Reduction, reduced_maps
from ..operation import LIMIT, Operation
from .arithmetic import Arithmetic, Array, Unsupported, constants, floats_only
from .linear import window_positions
from .reduction import mean
from .schema import Family, per_input
from .windows import padded, positions, windows

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """How windows slide over spatial axes of these sizes. `pads`: all begins, then all ends."""

    sizes: Ints
    kernel: Ints
    pads: Ints
    strides: Ints
    dilations: Ints
    ceil: bool


@lru_cache(maxsize=1024)
def _extents(window: Window) -> tuple[Ints, Ints]:
    """Positions along each axis, and the pads with which the windows there fit."""
    spatial = len(window.sizes)
    if not spatial or len(window.pads) != 2 * spatial or min((*window.strides, *window.dilations)) < 1:
        raise Unsupported("the window does not fit the tensor")
    pads = window.pads[:spatial], window.pads[spatial:]
    axes = zip(window.sizes, window.kernel, *pads, window.strides, window.dilations, strict=True)
    extents = [positions(n, k, before, after, s, d, window.ceil) for n, k, before, after, s, d in axes]
    if any(count < 1 for count, _ in extents):
        raise Unsupported("the window is larger than the tensor")
    return tuple(c for c, _ in extents), (*pads[0], *(end for _, end in extents))


def _seen(x: Array, fill: Array, counts: Ints, pads: Ints, window: Window) -> Array:
    """The elements under each window: (batch, channels, positions..., kernel...)."""
    seen = windows(padded(x, pads, fill), window.kernel, window.strides, window.dilations)
    return seen[(slice(None), slice(None), *(slice(c) for c in counts))]


def _kernel_axes(seen: Array) -> Ints:
    half = (seen.ndim - 2) // 2
    return tuple(range(2 + half, seen.ndim))


@lru_cache(maxsize=1024)
def _count_elements(window: Window, with_pads: bool) -> Array:
    """How many elements of the tensor each window covers, and with its pads if asked for.

    Padding that only makes room for the last window of a rounded-up count never counts.
    Raises Unsupported if a window covers no element.
    """
    counts, wide = _extents(window)
    whole = np.ones((1, 1, *window.sizes), np.int64)
    if with_pads:
        whole = padded(whole, window.pads, np.asarray(1))
        wide = tuple(w - p for w, p in zip(wide, window.pads, strict=True))
    seen = _seen(whole, np.asarray(0), counts, wide, window)
    number = np.asarray(seen.sum(axis=_kernel_axes(seen)))
    if not number.all():
        raise Unsupported("a window sees nothing but padding")
    return number


def _average(
    arithmetic: Arithmetic,
    x: Array,
    kernel: Ints,
    pads: Ints,
    strides: Ints,
    dilations: Ints,
    ceil: int,
    count_pads: int,
) -> Array:
    floats_only(x)
    if x.dtype != object and x.dtype.itemsize == 2:  # the sum may overflow although the mean does not
        wide = arithmetic.cast(x, "float32")
        average = _average(arithmetic, wide, kernel, pads, strides, dilations, ceil, count_pads)
        return arithmetic.cast(average, x.dtype.name)
    window = Window(x.shape[2:], kernel, pads, strides, dilations, bool(ceil))
    divisor = constants(arithmetic, _count_elements(window, bool(count_pads)), x)
    seen = _seen(x, arithmetic.constant(0.0, x), *_extents(window), window)
    return arithmetic.apply("divide", arithmetic.reduce("add", seen, _kernel_axes(seen), False), divisor)


def _largest(
    arithmetic: Arithmetic,
    x: Array,
    kernel: Ints,
    pads: Ints,
    strides: Ints,
    dilations: Ints,
    ceil: int,
    order: int,
) -> Array:
    window = Window(x.shape[2:], kernel, pads, strides, dilations, bool(ceil))
    _count_elements(window, False)
    if x.dtype == object:
        return _largest_symbol(arithmetic, x, window)
    low = -np.inf if x.dtype.kind in "fV" else np.iinfo(x.dtype).min
    seen = _seen(x, arithmetic.constant(low, x), *_extents(window), window)
    return arithmetic.reduce("maximum", seen, _kernel_axes(seen), False)


def _largest_symbol(arithmetic: Arithmetic, x: Array, window: Window) -> Array:
    """The largest of the elements; padding is none."""
    seen = _seen(x, np.asarray(None, object), *_extents(window), window)
    shape = seen.shape[: 2 + len(window.kernel)]
    result = np.empty(shape, object)
    for at in np.ndindex(shape):
        there = [e for e in seen[at].flat if e is not None]
        elements = np.empty(len(there), object)
        elements[:] = there
        result[at] = arithmetic.reduce("maximum", elements, (0,), False)[()]
    return result


def _everything(x: Array) -> Ints:
    floats_only(x)
    if x.ndim < 3:
        raise Unsupported("there are no spatial axes")
    return tuple(range(2, x.ndim))


def window_size(operation: Operation) -> int:
    """Input elements under one window of a pooling: a kernel larger than the input covers the input."""
    kernel = operation.integers("kernel_shape")
    sides = operation.operand(0).dimensions[2:]
    if len(sides) == len(kernel):
        kernel = tuple(map(min, kernel, sides))
    return min(max(1, prod(kernel)), LIMIT)


def _pool_flops(operation: Operation) -> float:
    return float(operation.output.elements * window_size(operation))


def _pool_maps(call: OperatorCall) -> IndexMaps | None:
    axes, kernel = call.axes, call.integers("kernel_shape")
    if len(kernel) != len(axes) - 2:
        return None
    window = tuple(Reduction(len(axes) + place, extent) for place, extent in enumerate(kernel))
    return IndexMaps(axes, ((*axes[:2], *window_positions(call, window)),))


def _global_pool_maps(call: OperatorCall) -> IndexMaps:
    return reduced_maps(call, set(range(2, len(call.data))))


_pooling = Family("pooling", _pool_maps, _pool_flops)

OPERATORS = (
    _pooling(
        "AveragePool",
        "X | kernel_shape:Ints pads:Ints strides:Ints dilations:Ints ceil_mode:i64=0 count_include_pad:i64=0",
        _average,
    ),
    _pooling(
        "MaxPool",
        "X | kernel_shape:Ints pads:Ints strides:Ints dilations:Ints ceil_mode:i64=0 storage_order:i64=0",
        _largest,
    ),
    _pooling(
        "GlobalAveragePool",
        "X",
        lambda arithmetic, x: mean(arithmetic, x, _everything(x), 1),
        index_maps=_global_pool_maps,
        flops=per_input(1),
    ),
    _pooling(
        "GlobalMaxPool",
        "X",
        lambda arithmetic, x: arithmetic.reduce("maximum", x, _everything(x), True),
        index_maps=_global_pool_maps,
        flops=per_input(1),
    ),
    *_pooling.hidden("LpPool"),
    *Family("pooling", _global_pool_maps).hidden("GlobalLpPool"),
)
