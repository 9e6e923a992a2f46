"""Feature maps in memory with their channels last, ``N, H, W, C``: loops, buffers, and which values are stored so.

    for n, c, h, w: Y[n, c, h, w] = f(X[n, c, h, w])    =>    for n, h, w, c: Y[n, h, w, c] = f(X[n, h, w, c])

A vector then holds channels of one pixel, whatever the size, stride and padding of a plane, and pixels are the rows of
a matrix. TVM's layout pass is not used: it knows few operators, and needs conversions between the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import numpy as np
from tvm import s_tir, tirx

from ...extract.partition.feature_maps import FeatureMaps
from ...ir.graph import OperatorGraph, Value
from ...ir.operators import RECURRENT
from ..schedules.base.blocks import FUNCTION, BlockInfo, BufferAccess, find_blocks, index_map, parameter_index
from .steps import Step, View

D = TypeVar("D")
_RANKS = range(3, 6)
"""Ranks of a feature map: batch, channels, and one to three axes of space."""


def channels_last_values(graph: OperatorGraph, steps: Iterable[Step]) -> frozenset[int]:
    """The values to store so: feature maps that kernels make and read, and nobody outside sees.

    Inputs and outputs of the model, and both ends of a view, which moves nothing, stay as ONNX has them; so do the
    states of recurrent networks, what an If chooses from, and maps of one pixel, for which both are the same.
    """
    viewed = {value for step in steps if isinstance(step, View) for value in (step.source, step.result)}
    viewed |= {v for o in graph.operators if o.op == "If" for v in (*o.inputs, *o.outputs) if v is not None}

    def may_move(value: Value) -> bool:
        shape = value.type.shape if value.type is not None else None
        if shape is None or len(shape) not in _RANKS or value.producer is None or value.is_output:
            return False
        if graph.operators[value.producer].op in RECURRENT:
            return False
        return any(extent != 1 for extent in shape[2:])

    return frozenset(number for number in FeatureMaps(graph).values - viewed if may_move(graph.values[number]))


def last_shape(shape: tuple[D, ...]) -> tuple[D, ...]:
    """The shape in memory of a value of that shape."""
    return (shape[0], *shape[2:], shape[1])


def last_axis(axis: int, rank: int) -> int:
    """The axis in memory of an axis of a value of that rank."""
    return axis if axis == 0 else (rank - 1 if axis == 1 else axis - 1)


def to_last(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements in memory order."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


def from_last(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements in ONNX's order, from that of memory."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 1))


def channels_last(function: tirx.PrimFunc, parameters: Collection[int]) -> tirx.PrimFunc:
    """The function with those parameters stored channels last, and with loops in the order of the elements written.

    Intermediate results follow: those computed from such a parameter, every reduction that ends in one, and the
    operands that such a reduction reads channel by channel.
    """
    if not parameters:
        return function
    schedule = s_tir.Schedule(function)
    moved = {str(function.params[p].name) for p in parameters}
    blocks = find_blocks(schedule)
    internal = {block.name for block in blocks if parameter_index(function, block.write.buffer) is None}
    ends_in_moved = any(block.name in moved for block in blocks)
    for block in blocks:
        rank = len(block.write.shape)
        alike = any(read.name in moved and rank in (len(read.shape), _rank_of_images(read)) for read in block.reads)
        follows = alike and any(extent != 1 for extent in block.write.shape[2:])  # one pixel is the same both ways
        if block.name in internal and rank in _RANKS and (follows or (ends_in_moved and (alike or block.reduced))):
            moved.add(block.name)
    for block in reversed(blocks):
        if block.reduced and block.name in moved:
            channel, rank = block.write.iterators[1], len(block.write.shape)
            operands = [read for read in block.reads if read.name in internal and len(read.shape) == rank]
            moved |= {read.name for read in operands if channel and read.iterators[1] == channel}
    left = set(moved)
    for block in blocks:
        reads = [str(region.source.name) for region in schedule.get(block.block).reads]
        for place, name in ((("write", 0), block.name), *((("read", n), name) for n, name in enumerate(reads))):
            if name in left:
                left.remove(name)
                schedule.transform_layout(block.block, place, lambda *i: [i[0], *i[2:], i[1]])
    for block in find_blocks(schedule):
        _reorder(schedule, block, moved)
    result = schedule.mod[FUNCTION].with_attrs(dict(function.attrs.items()))
    return _declare_moved(result, [p for p in parameters if str(function.params[p].name) in left])


def _declare_moved(function: tirx.PrimFunc, unread: Collection[int]) -> tirx.PrimFunc:
    """The function whose parameters of which it reads no element, but the shape alone, have the shape in memory."""
    if not unread:
        return function
    params = list(function.params)
    for place in unread:
        stored = params[place]
        params[place] = tirx.decl_buffer(last_shape(tuple(stored.shape)), str(stored.dtype), str(stored.name))
    return tirx.PrimFunc(params, function.body, function.ret_type, function.attrs)


def _rank_of_images(read: BufferAccess) -> int:
    """The rank of a map without its samples, if it has one: images along the depth take their place."""
    return len(read.shape) - 1 if read.shape[0] == 1 and not read.iterators[0] else len(read.shape)


def _reorder(schedule: s_tir.Schedule, block: BlockInfo, moved: set[str]) -> None:
    """Put loops over the output in the order of memory; then those over a reduction, the one along the channels last.

    TVM takes reduced iterators of extent 1 for others, so they are left out; if there are only such, nothing moves.
    """
    long = [i for i in sorted(block.reduced) if block.extents[i] > 1]
    if block.reduced and not long:
        return
    spatial = [i for used in block.write.iterators for i in sorted(used)]
    if len(set(spatial)) != len(spatial) or set(spatial) != set(block.spatial):
        spatial = list(block.spatial)
    channels = {i for read in block.reads if read.name in moved for i in read.iterators[-1]}
    order = [*spatial, *sorted(long, key=channels.__contains__)]
    if order != list(range(len(block.extents))):
        permuted = index_map(lambda *i: [i[n] for n in order], len(block.extents))
        schedule.transform_block_layout(block.block, permuted)
