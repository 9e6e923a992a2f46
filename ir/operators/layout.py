"""Operators that move, drop, repeat and join elements."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from ..index_maps import (
    ZERO,
    Axis,
    Index,
    IndexMaps,
    OperandMap,
    OperatorCall,
    Quotient,
    Reduction,
    Remainder,
    Resized,
    Sum,
    Unknown,
    broadcast_maps,
    reshaped_map,
    sum_of,
)
from ..operation import Operation
from .arithmetic import Arithmetic, Array, Unsupported
from .resize import resize
from .schema import Family, no_flops, per_output

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
    """A negative position counts from the end; ONNX ignores positions beyond either end."""
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
        return _pad_by_elements(inner, grown, mode)
    result = np.empty([n + a + b for n, (a, b) in zip(inner.shape, grown, strict=True)], x.dtype)
    result[...] = arithmetic.constant(0, x) if fill is None else _fill(x, fill)
    place: list[Any] = [slice(a, a + n) for n, (a, _) in zip(inner.shape, grown, strict=True)]
    result[(*place, ...)] = inner  # without the ellipsis a scalar of symbols would become an array within the array
    return result


def _fill(x: Array, fill: Array) -> Array:
    if fill.size != 1 or fill.dtype != x.dtype:
        raise Unsupported("one element of the tensor's type fills")
    return fill.reshape(())


def _pad_by_elements(x: Array, pairs: list[tuple[int, int]], mode: str) -> Array:
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


def _one_operand(call: OperatorCall, operand: OperandMap) -> IndexMaps:
    """The maps of a call that reads its first operand by `operand`, and the scalars beside it at every element."""
    return IndexMaps(call.axes, (operand, *(None if shape is None else () for shape in call.operands[1:])))


def _reshape_maps(call: OperatorCall) -> IndexMaps:
    return _one_operand(call, reshaped_map(call.data, call.axes))


def _transpose_maps(call: OperatorCall) -> IndexMaps:
    rank = len(call.data)
    perm = call.integers("perm") or tuple(reversed(range(rank)))
    return _one_operand(call, tuple(call.axes[perm.index(axis)] for axis in range(rank)))


def _tile_maps(call: OperatorCall) -> IndexMaps:
    pairs = zip(call.data, call.axes, strict=True)
    return _one_operand(call, tuple(a if a.extent == n else Remainder(a, n) if n > 1 else ZERO for n, a in pairs))


def _slice_maps(call: OperatorCall) -> IndexMaps:
    data, indices = call.data, list[Index](call.axes)
    axes = call.integers("axes") or tuple(range(len(data)))
    steps = call.integers("steps") or (1,) * len(axes)
    for axis, start, step in zip(axes, call.integers("starts"), steps, strict=True):
        extent = data[axis]
        start = max(0, min(start + extent if start < 0 else start, extent - 1 if step < 0 else extent))
        indices[axis] = sum_of(start, (step, call.axes[axis]))
    return _one_operand(call, tuple(indices))


def _gather_maps(call: OperatorCall) -> IndexMaps:
    axis, axes, indices = call.axis(0), call.axes, call.operand(1) or ()
    behind = axis + len(indices)
    picked = Unknown(axes[axis:behind], call.data[axis])
    return IndexMaps(axes, ((*axes[:axis], picked, *axes[behind:]), axes[axis:behind]))


def _pad_maps(call: OperatorCall) -> IndexMaps | None:
    """A constant is read from no element; other modes mirror or repeat elements of the tensor."""
    rank, pads = len(call.data), call.integers("pads")
    if len(pads) != 2 * rank:
        return None
    is_constant = call.attributes.get("mode", "constant") == "constant"
    indices: list[Index] = []
    for axis, extent in zip(call.axes, call.data, strict=True):
        before, after = pads[axis.number], pads[axis.number + rank]
        shifted = is_constant or (before <= 0 and after <= 0)
        indices.append(sum_of(-before, (1, axis)) if shifted else Unknown((axis,), extent, is_data=False))
    return _one_operand(call, tuple(indices))


def _depth_to_space_maps(call: OperatorCall) -> IndexMaps:
    batch, kept, row, column = call.axes
    block = call.integer("blocksize", 1)
    if block == 1:
        return _one_operand(call, call.axes)
    down, across = Remainder(row, block), Remainder(column, block)
    if call.attributes.get("mode", "DCR") == "DCR":
        channel = sum_of(0, (block * kept.extent, down), (kept.extent, across), (1, kept))
    else:
        channel = sum_of(0, (block * block, kept), (block, down), (1, across))
    return _one_operand(call, (batch, channel, Quotient(row, block), Quotient(column, block)))


def _space_to_depth_maps(call: OperatorCall) -> IndexMaps:
    batch, channel, row, column = call.axes
    block, kept = call.integer("blocksize", 1), call.data[1]
    if block == 1:
        return _one_operand(call, call.axes)
    down = sum_of(0, (block, row), (1, Quotient(channel, block * kept)))
    across = sum_of(0, (block, column), (1, Remainder(Quotient(channel, kept), block)))
    return _one_operand(call, (batch, Remainder(channel, kept) if kept > 1 else ZERO, down, across))


def _concat_maps(call: OperatorCall) -> IndexMaps:
    along = call.integer("axis", 0) % max(1, len(call.axes))
    before = accumulate((shape[along] if shape else 0 for shape in call.operands), initial=0)
    return IndexMaps(call.axes, tuple(_shift_map(call.axes, along, -start) for start in list(before)[:-1]))


def _split_maps(call: OperatorCall) -> IndexMaps:
    along = call.axis(0)
    before = sum(shape[along] for shape in call.results[: call.number])
    return IndexMaps(call.axes, (_shift_map(call.axes, along, before),))


def _shift_map(axes: tuple[Axis, ...], along: int, start: int) -> OperandMap:
    return (*axes[:along], Sum(start, ((1, axes[along]),)), *axes[along + 1 :])


_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Elements along one axis from which an interpolated one is computed."""


def _resize_maps(call: OperatorCall) -> IndexMaps:
    taps = _TAPS.get(str(call.attributes.get("mode", "nearest")), 2)
    pairs = zip(call.data, call.axes, strict=True)
    return _one_operand(call, tuple(a if a.extent == n else Resized(a, n, taps) for n, a in pairs))


def _resize_flops(operation: Operation) -> float:
    """A multiplication and an addition for each tap of interpolated elements."""
    taps = _TAPS.get(str(operation.attributes.get("mode", "nearest")), 1)
    before, after = operation.operand(0).dimensions, operation.output.dimensions
    axes = sum(a != b for a, b in zip(before, after, strict=False))
    return float(2 * taps**axes * operation.output.elements if taps > 1 and axes else 0)


def _no_element_maps(call: OperatorCall) -> IndexMaps:
    return IndexMaps(call.axes, (None,) * len(call.operands))


def _gather_elements_maps(call: OperatorCall) -> IndexMaps:
    """The tensor may be longer than the indices along the axes that have no index."""
    axes, along = call.axes, call.axis(0)
    places = [axis if axis.extent == n else Sum(0, ((1, axis),)) for n, axis in zip(call.data, axes, strict=True)]
    picked = Unknown(axes, call.data[along])
    return IndexMaps(axes, ((*places[:along], picked, *places[along + 1 :]), axes))


def _range_maps(call: OperatorCall) -> IndexMaps:
    """Start and step are read for each element; the end determines their number."""
    return IndexMaps(call.axes, tuple(None if n == 1 else () for n in range(len(call.operands))))


def _grid_sample_maps(call: OperatorCall) -> IndexMaps:
    """All channels of a pixel are read at the place that the grid says, a list of coordinates."""
    batch, channel, *plane = call.axes
    places: OperandMap = (batch, *plane, Reduction(len(call.axes), len(plane)))
    picked = (Unknown((batch, *plane), extent) for extent in call.data[2:])
    return IndexMaps(call.axes, ((batch, channel, *picked), places))


def _gather_nd_maps(call: OperatorCall) -> IndexMaps:
    """Tuples of indices along the last axis: each selects one element of the result or more."""
    axes, indices, batch = call.axes, call.operand(1) or (), call.integer("batch_dims", 0)
    outer, chosen = axes[: len(indices) - 1], batch + indices[-1]
    places = (Unknown(outer, extent) for extent in call.data[batch:chosen])
    data: OperandMap = (*axes[:batch], *places, *axes[len(outer) :])
    return IndexMaps(axes, (data, (*outer, Reduction(len(axes), indices[-1]))))


def _scatter_maps(call: OperatorCall) -> IndexMaps:
    """Indices may select any element; each update goes to one, unless several are combined."""
    axes, rank = call.axes, len(call.axes)
    indices, updates = call.operand(1) or (), call.operand(2) or ()
    everything: OperandMap = tuple(Reduction(rank + place, extent) for place, extent in enumerate(indices))
    is_combined = call.attributes.get("reduction", "none") != "none"
    own: OperandMap = tuple(
        Reduction(rank + place, extent) if is_combined else Unknown(axes, extent, repeats=False)
        for place, extent in enumerate(updates, len(indices))
    )
    return IndexMaps(axes, (axes, everything, own))


def _one_hot_maps(call: OperatorCall) -> IndexMaps:
    along = call.integer("axis", -1) % max(1, len(call.axes))
    indices = (*call.axes[:along], *call.axes[along + 1 :])
    others = (None if shape is None else tuple(Unknown((), n) for n in shape) for shape in call.operands[1:])
    return IndexMaps(call.axes, (indices, *others))


def _reverse_sequence_maps(call: OperatorCall) -> IndexMaps:
    time, batch = call.integer("time_axis", 0), call.integer("batch_axis", 1)
    turned = Unknown((call.axes[time], call.axes[batch]), call.data[time], repeats=False)
    return IndexMaps(call.axes, ((*call.axes[:time], turned, *call.axes[time + 1 :]), call.axes[batch : batch + 1]))


_layout = Family("layout", None, no_flops)
_multiple = Family("multiple-output", None, no_flops)

OPERATORS = (
    _layout("Reshape", "data shape:Ints@1", _reshape, index_maps=_reshape_maps, is_view=True),
    _layout("Flatten", "input | axis:i64=1", _flatten, index_maps=_reshape_maps, is_view=True),
    _layout("Squeeze", "data axes:Ints@13", _squeeze, index_maps=_reshape_maps, is_view=True),
    _layout("Unsqueeze", "data axes:Ints@13", _unsqueeze, index_maps=_reshape_maps, is_view=True),
    _layout("Transpose", "data | perm:Ints", _transpose, index_maps=_transpose_maps, is_total=True),
    _layout("Expand", "input shape:Ints@1", _expand, index_maps=broadcast_maps),
    _layout("Tile", "input repeats:Ints@1", _tile, index_maps=_tile_maps),
    _layout("Slice", "data starts:Ints@1 ends:Ints@1 axes:Ints@1 steps:Ints@1", _slice, index_maps=_slice_maps),
    _layout("Gather", "data indices | axis:i64=0", _gather, index_maps=_gather_maps),
    _layout("Pad", "data pads:Ints@1 constant_value? | mode:String=constant", _pad, index_maps=_pad_maps),
    _layout("DepthToSpace", "input | blocksize:i64 mode:String=DCR", _depth_to_space, index_maps=_depth_to_space_maps),
    _layout("SpaceToDepth", "input | blocksize:i64", _space_to_depth, index_maps=_space_to_depth_maps),
    _layout("Concat", "A B | axis:i64", _concat, index_maps=_concat_maps),
    _layout("Resize", "X | mode:String config:String", resize, index_maps=_resize_maps, flops=_resize_flops),
    _multiple("Split", "input split:Ints@13 | axis:i64=0", _split, index_maps=_split_maps),
    *Family("layout", _resize_maps, _resize_flops).hidden("Upsample"),
    *_layout.hidden("Shape Size", index_maps=_no_element_maps, is_total=True),
    *_layout.hidden("GatherElements", index_maps=_gather_elements_maps),
    *_layout.hidden("GatherND", index_maps=_gather_nd_maps),
    *_layout.hidden("ScatterElements ScatterND", index_maps=_scatter_maps),
    *_layout.hidden("OneHot", index_maps=_one_hot_maps),
    *Family("layout", _reverse_sequence_maps).hidden("ReverseSequence"),
    *_layout.hidden("Range", index_maps=_range_maps),
    *_layout.hidden("ConstantOfShape EyeLike Compress"),
    *Family("layout", _grid_sample_maps, per_output(8)).hidden("GridSample"),
)
