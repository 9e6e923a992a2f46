"""Operators that move, drop, repeat and join elements."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from .arithmetic import Arithmetic, Array, Unsupported
from .resize import resize

Ints = tuple[int, ...]


def _axes(axes: Ints, rank: int) -> Ints:
    if any(not 0 <= a < rank for a in axes) or len(set(axes)) != len(axes):
        raise Unsupported("there is no such axis")
    return axes


def _reshape(arithmetic: Arithmetic, x: Array, shape: Ints) -> Array:
    if min(shape, default=0) < 0 or prod(shape) != x.size:
        raise Unsupported("the shape has another number of elements")
    return x.reshape(shape)


def _flatten(arithmetic: Arithmetic, x: Array, axis: int) -> Array:
    if not 0 <= axis <= x.ndim:
        raise Unsupported("there is no such axis")
    return x.reshape((prod(x.shape[:axis]), prod(x.shape[axis:])))


def _squeeze(arithmetic: Arithmetic, x: Array, axes: Ints) -> Array:
    if any(x.shape[a] != 1 for a in _axes(axes, x.ndim)):
        raise Unsupported("the axis has more than one element")
    return x.reshape([n for i, n in enumerate(x.shape) if i not in axes])


def _unsqueeze(arithmetic: Arithmetic, x: Array, axes: Ints) -> Array:
    return np.expand_dims(x, _axes(axes, x.ndim + len(axes)))


def _transpose(arithmetic: Arithmetic, x: Array, perm: Ints) -> Array:
    if sorted(perm) != list(range(x.ndim)):
        raise Unsupported("the permutation has another rank")
    return x.transpose(perm)


def _expand(arithmetic: Arithmetic, x: Array, shape: Ints) -> Array:
    result = np.broadcast_to(x, shape)
    return np.array(result)


def _tile(arithmetic: Arithmetic, x: Array, repeats: Ints) -> Array:
    if len(repeats) != x.ndim or min(repeats, default=0) < 0:
        raise Unsupported("one number of repetitions for each axis is needed")
    return np.tile(x, repeats)


def _slice(arithmetic: Arithmetic, x: Array, starts: Ints, ends: Ints, axes: Ints, steps: Ints) -> Array:
    if not len(starts) == len(ends) == len(steps) == len(_axes(axes, x.ndim)) or 0 in steps:
        raise Unsupported("starts, ends, axes and steps do not fit")
    cut = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        cut[axis] = _cut(start, end, step, x.shape[axis])
    return _at(x, *cut)


def _at(x: Array, *cut: Any) -> Array:
    """A part of a tensor; without the ellipsis the part of a scalar would be no array."""
    return np.asarray(x[(*cut, ...)])


def _cut(start: int, end: int, step: int, size: int) -> slice:
    """A negative position counts from the end; ONNX cuts off what lies beyond either."""
    start, end = (p + size if p < 0 else p for p in (start, end))
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    first, last = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(first, None if last < 0 else last, step)


def _gather(arithmetic: Arithmetic, x: Array, indices: Array, axis: int) -> Array:
    _axes((axis,), x.ndim)
    if indices.dtype.kind not in "iu":
        raise Unsupported("indices are integers")
    size = x.shape[axis]
    if not bool(np.all((indices >= -size) & (indices < size))):
        raise Unsupported("an index lies outside")
    return np.asarray(np.take(x, indices, axis))


def _pad(arithmetic: Arithmetic, x: Array, pads: Ints, fill: Array | None, mode: str) -> Array:
    if len(pads) != 2 * x.ndim:
        raise Unsupported("one pad for each end of each axis is needed")
    pairs = [(pads[i], pads[x.ndim + i]) for i in range(x.ndim)]
    if any(n + min(a, 0) + min(b, 0) < 0 for n, (a, b) in zip(x.shape, pairs, strict=True)):
        raise Unsupported("more is cut off than there is")
    inner = _at(x, *(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape, pairs, strict=True)))
    grown = [(max(0, a), max(0, b)) for a, b in pairs]
    if mode != "constant":
        return _repeated(inner, grown, mode)
    result = np.empty([n + a + b for n, (a, b) in zip(inner.shape, grown, strict=True)], x.dtype)
    result[...] = arithmetic.constant(0, x) if fill is None else _fill(x, fill)
    place: list[Any] = [slice(a, a + n) for n, (a, _) in zip(inner.shape, grown, strict=True)]
    result[(*place, ...)] = inner  # without the ellipsis a scalar of symbols would become an array within the array
    return result


def _fill(x: Array, fill: Array) -> Array:
    if fill.size != 1 or fill.dtype != x.dtype:
        raise Unsupported("one element of the tensor's type fills")
    return fill.reshape(())


def _repeated(x: Array, pairs: list[tuple[int, int]], mode: str) -> Array:
    """Padding with elements of the tensor itself."""
    for axis, (before, after) in enumerate(pairs):
        if not before and not after:
            continue
        size, reach = x.shape[axis], max(before, after)
        if not size or (mode == "reflect" and reach >= size) or mode not in ("edge", "reflect", "wrap"):
            raise Unsupported(f"the tensor has too few elements to pad it by {mode}")
        places = np.arange(-before, size + after)
        if mode == "edge":
            places = np.clip(places, 0, size - 1)
        elif mode == "wrap":
            places %= size
        else:
            places = np.abs(places)
            places = np.where(places >= size, 2 * (size - 1) - places, places)
        x = np.take(x, places, axis)
    return x


def _depth_to_space(arithmetic: Arithmetic, x: Array, block: int, mode: str) -> Array:
    if x.ndim != 4 or x.shape[1] % block**2:
        raise Unsupported("the channels do not divide into blocks")
    n, c, h, w = x.shape
    if mode == "DCR":
        parts = x.reshape((n, block, block, c // block**2, h, w)).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape((n, c // block**2, block, block, h, w)).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape((n, c // block**2, h * block, w * block))


def _space_to_depth(arithmetic: Arithmetic, x: Array, block: int) -> Array:
    if x.ndim != 4 or x.shape[2] % block or x.shape[3] % block:
        raise Unsupported("the tensor does not divide into blocks")
    n, c, h, w = x.shape
    parts = x.reshape((n, c, h // block, block, w // block, block)).transpose(0, 3, 5, 1, 2, 4)
    return parts.reshape((n, c * block**2, h // block, w // block))


def _concat(arithmetic: Arithmetic, a: Array, b: Array, axis: int) -> Array:
    if a.ndim != b.ndim or a.dtype != b.dtype:
        raise Unsupported("only tensors of one rank and type are joined")
    _axes((axis,), a.ndim)
    if any(m != n for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)) if i != axis):
        raise Unsupported("the other dimensions differ")
    return np.concatenate([a, b], axis)


def _split(arithmetic: Arithmetic, x: Array, sizes: Ints, axis: int) -> tuple[Array, ...]:
    _axes((axis,), x.ndim)
    if sum(sizes) != x.shape[axis] or min(sizes, default=-1) < 0:
        raise Unsupported("the parts do not make up the whole")
    before = (slice(None),) * axis
    ends = accumulate(sizes)
    return tuple(x[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True))


MEANINGS: dict[str, Callable[..., Any]] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Slice": _slice,
    "Gather": _gather,
    "Pad": _pad,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Concat": _concat,
    "Split": _split,
    "Resize": resize,
}
