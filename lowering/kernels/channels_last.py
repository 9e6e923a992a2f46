"""Feature maps in memory with their channels last, ``N, H, W, C``: loops, buffers, and which values are stored so.

    for n, c, h, w: Y[n, c, h, w] = f(X[n, c, h, w])    =>    for n, h, w, c: Y[n, h, w, c] = f(X[n, h, w, c])

A vector then holds channels of one pixel, whatever the size, stride and padding of a plane, and pixels are the rows of
a matrix. TVM's layout pass is not used: it knows few operators, and needs conversions between the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from tvm import s_tir, tirx

from ...extract.partition.layouts.feature_maps import FeatureMaps
from ...ir.graph import OperatorGraph
from ..schedules.blocks import FUNCTION, BlockInfo, find_blocks, index_map, parameter_index
from .steps import Step, View

_RANKS = range(3, 6)


def channels_last_values(graph: OperatorGraph, steps: Iterable[Step]) -> frozenset[int]:
    """The values to store so: feature maps that kernels make and read, and nobody outside sees.

    What the caller gives or gets, and both ends of a view, which moves nothing, stay as ONNX has them; so do maps of
    one pixel, where both are the same.
    """
    viewed = {value for step in steps if isinstance(step, View) for value in (step.source, step.result)}
    found = FeatureMaps(graph).values - viewed
    return frozenset(value for value in found if _may_move(graph, value))


def _may_move(graph: OperatorGraph, number: int) -> bool:
    value = graph.values[number]
    shape = value.type.shape if value.type is not None and value.type.is_static else None
    if shape is None or len(shape) not in _RANKS or value.producer is None or value.is_output:
        return False
    return any(extent != 1 for extent in shape[2:])


def last_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in memory of a value of that shape."""
    return (shape[0], *shape[2:], shape[1])


def to_last(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements in memory order."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


def from_last(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What `to_last` was given."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 1))


def channels_last(function: tirx.PrimFunc, parameters: Collection[int]) -> tirx.PrimFunc:
    """The function with those parameters stored channels last, and with loops in the order of what they write.

    Intermediate results follow: what is computed from such a parameter, every reduction that ends in one, and what such
    a reduction reads channel by channel.
    """
    if not parameters:
        return function
    schedule = s_tir.Schedule(function)
    moved = {str(function.params[p].name) for p in parameters}
    outputs = _written(schedule) & moved
    for current in find_blocks(schedule):
        if _follows(current, moved, outputs, function):
            moved.add(current.write.name)
    for current in reversed(find_blocks(schedule)):
        if current.reduced and current.write.name in moved:
            moved |= _read_by_channel(current, _written(schedule), function)
    done: set[str] = set()
    for current in find_blocks(schedule):
        _move_buffers(schedule, current, moved, done)
    for current in find_blocks(schedule):
        _reorder(schedule, current, moved)
    return schedule.mod[FUNCTION].with_attrs(dict(function.attrs.items()))


def _written(schedule: s_tir.Schedule) -> set[str]:
    return {current.write.name for current in find_blocks(schedule)}


def _follows(current: BlockInfo, moved: set[str], outputs: set[str], function: tirx.PrimFunc) -> bool:
    write = current.write
    if len(write.shape) not in _RANKS or parameter_index(function, write.buffer) is not None:
        return False
    alike = any(read.name in moved and len(read.shape) == len(write.shape) for read in current.reads)
    return alike or bool(current.reduced and outputs)


def _read_by_channel(current: BlockInfo, computed: set[str], function: tirx.PrimFunc) -> set[str]:
    """Intermediate results of which a channel of a reduction needs that channel alone."""
    channel = current.write.iterators[1]
    inside = [r for r in current.reads if r.name in computed and parameter_index(function, r.buffer) is None]
    alike = [read for read in inside if len(read.shape) == len(current.write.shape)]
    return {read.name for read in alike if channel and read.iterators[1] == channel}


def _move_buffers(schedule: s_tir.Schedule, current: BlockInfo, moved: set[str], done: set[str]) -> None:
    accesses = [("write", 0, current.write), *(("read", n, read) for n, read in enumerate(_reads(schedule, current)))]
    for kind, number, access in accesses:
        if access.name in moved - done:
            done.add(access.name)
            schedule.transform_layout(current.block, (kind, number), _last)


def _reads(schedule: s_tir.Schedule, current: BlockInfo) -> list[Any]:
    return [region.source for region in schedule.get(current.block).reads]


def _last(*indices: Any) -> list[Any]:
    return [indices[0], *indices[2:], indices[1]]


def _reorder(schedule: s_tir.Schedule, current: BlockInfo, moved: set[str]) -> None:
    """Loops over the output as it lies in memory; then those over a reduction, the one along the channels last.

    TVM takes reduced iterators of extent 1 for others, so they are left out; where there are only such, nothing moves.
    """
    long = [i for i in sorted(current.reduced) if current.extents[i] > 1]
    if current.reduced and not long:
        return
    order = [*_spatial(current), *sorted(long, key=lambda i: _along(current, i, moved))]
    if order != list(range(len(current.extents))):
        permuted = index_map(lambda *i: [i[n] for n in order], len(current.extents))
        schedule.transform_block_layout(current.block, permuted)


def _spatial(current: BlockInfo) -> list[int]:
    written = [i for used in current.write.iterators for i in sorted(used)]
    if len(set(written)) != len(written) or set(written) != set(current.spatial):
        return list(current.spatial)
    return written


def _along(current: BlockInfo, iterator: int, moved: set[str]) -> bool:
    return any(read.name in moved and iterator in read.iterators[-1] for read in current.reads)
