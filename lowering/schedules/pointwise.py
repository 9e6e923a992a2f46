"""Chains of point-wise operators and data movement.

    for i, j: T = f(X); for i, j: Y = g(T)   =>   parallel i..: for j_outer: vectorised j_inner: Y = g(f(X))

The axes that every access either runs along contiguously or does not use at all are fused and vectorised. Padding is
filled, then copied. What remains (gathers, selections along the innermost axis) is left to LLVM's loop vectoriser.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import ir, s_tir, tirx

from ...costmodels.device import Device
from .decisions import decide_number
from .packing import Scheduled
from .preparation import PARALLEL_ELEMENTS, can_decompose, pad_in_place
from .stages import FUNCTION, Access, Stage, is_parameter, is_unit_stride, may_inline, stages, walk
from .tails import overlap_tails
from .tiling.tiles import largest_divisor

BLOCK_ALONG, BLOCK_COLUMNS = 32, 64
"""Of a block of a transposition, at most: two lines of memory of each of so many columns fit the first cache."""


def pointwise(function: tirx.PrimFunc, device: Device, threads: int = 1) -> Scheduled | None:
    """The rule: matches a function without reductions."""
    schedule = s_tir.Schedule(function)
    if not all(s.is_pointwise() for s in stages(schedule)):
        return None
    inline_all(schedule)
    for current in stages(schedule):
        schedule_pointwise(schedule, current, schedule.get_loops(current.block), device, threads)
    return Scheduled(overlap_tails(schedule), (), "pointwise")


def inline_all(schedule: s_tir.Schedule) -> None:
    """Inlines every block that is not an output."""
    for current in stages(schedule):
        if not is_parameter(schedule.mod[FUNCTION], current.write.buffer) and may_inline(stages(schedule), current):
            schedule.compute_inline(current.block)


def schedule_pointwise(
    schedule: s_tir.Schedule, current: Stage, loops: list[Any], device: Device, threads: int = 1
) -> None:
    """Schedules the block's own `loops` (one for each iterator; further out nothing is touched)."""
    fused = contiguous_axes(current, device.lanes)
    selective = is_selective(current)
    other = None if fused or selective else transposed_axis(current)
    if other is not None and len(loops) == len(current.extents):
        _in_blocks(schedule, current, loops, other, threads)
        return
    outer, inner = loops[: len(loops) - fused], loops[len(loops) - fused :]
    if not inner or selective or current.has_booleans():
        outer, inner = loops[:-1], []
    chunks, vector = _vectors(schedule, inner, device) if inner else ([], None)
    if threads > 1 and (outer or chunks) and is_shared(prod(current.extents)):
        schedule.parallel(schedule.fuse(*outer, *chunks) if len(outer) + len(chunks) > 1 else [*outer, *chunks][0])
    if vector is not None:
        schedule.vectorize(vector)
    elif selective and len(loops) > 1 and can_decompose(schedule, current, loops[-1]):
        schedule.decompose_padding(current.block, loops[-1])


def transposed_axis(current: Stage) -> int | None:
    """The iterator that something is read along element by element while another is written so; None where none is."""
    last = len(current.extents) - 1
    for read in current.reads:
        along = [i for i in range(last) if current.extents[i] > 1 and is_unit_stride(read, i)]
        if along and last in read.used() and is_unit_stride(current.write, last):
            return along[0]
    return None


def _in_blocks(schedule: s_tir.Schedule, current: Stage, loops: list[Any], other: int, threads: int) -> None:
    """A transposition block by block, so that each line of memory is still in the first cache when it is needed again.

    for c: for w: Y[c, w] = X[w, c]    =>    parallel c block: for w block: for c, w inside: Y[c, w] = X[w, c]
    """
    *outer, last = loops
    along = outer.pop(other)
    if other != len(loops) - 2 and _are_one(current, len(loops) - 2):
        last = schedule.fuse(outer.pop(), last)
    blocks, inside = schedule.split(along, [None, largest_divisor(current.extents[other], BLOCK_ALONG)])
    columns, column = schedule.split(last, [None, largest_divisor(int(schedule.get(last).extent), BLOCK_COLUMNS)])
    schedule.reorder(*outer, blocks, columns, inside, column)
    if threads > 1 and is_shared(prod(current.extents)):
        schedule.parallel(schedule.fuse(*outer, blocks))


def _are_one(current: Stage, iterator: int) -> bool:
    """Whether everything that has the iterator has the next one right behind it, in full: rows of an image, and it."""
    accesses = [a for a in (*current.reads, current.write) if {iterator, iterator + 1} & a.used()]
    return all(_follows(access, iterator, current.extents[iterator + 1]) for access in accesses)


def _follows(access: Access, iterator: int, extent: int) -> bool:
    found, indices = access.iterators, access.indices
    pairs = zip(found, found[1:], indices, indices[1:], access.shape[1:], strict=False)
    return any(
        first == {iterator} and second == {iterator + 1} and size == extent
        and isinstance(one, tirx.Var) and isinstance(other, tirx.Var)
        for first, second, one, other, size in pairs
    )  # fmt: skip


def is_shared(elements: int) -> bool:
    """Whether several threads do that many elements: from PARALLEL_ELEMENTS on, if nothing else is decided."""
    usual = elements >= PARALLEL_ELEMENTS
    return bool(decide_number("parallel", (0, 1), lambda number: 1.0 + abs(number - usual)))


def _vectors(schedule: s_tir.Schedule, inner: list[Any], device: Device) -> tuple[list[Any], Any | None]:
    loop = schedule.fuse(*inner) if len(inner) > 1 else inner[0]
    width = vector_width(int(schedule.get(loop).extent), device)
    if width == 1:
        return [loop], None
    chunk, vector = schedule.split(loop, [None, width])
    return [chunk], vector


def schedule_before(schedule: s_tir.Schedule, epilogue: Stage, device: Device, threads: int) -> None:
    """Point-wise blocks that stand in loops of their own in front of the rest; paddings fill the border first.

    for n, c, h, w: P = if inside: X else 0    =>    parallel n, c: { for h, w: P = 0; for h, w inside: P = X }
    """
    for current in stages(schedule):
        loops = schedule.get_loops(current.block)
        if (
            not current.is_pointwise()
            or len(loops) != len(current.extents)
            or current.write.name == epilogue.write.name
        ):
            continue
        if len(loops) > 1 and can_decompose(schedule, current, loops[-2]):
            pad_in_place(schedule, current, loops, threads)
        else:
            schedule_pointwise(schedule, current, loops, device, threads)


def vector_width(extent: int, device: Device) -> int:
    """The widest power of two that fits both the vector registers and the extent."""
    width: int = device.lanes
    while width > extent:
        width //= 2
    return max(width, 1)


def contiguous_axes(current: Stage, lanes: int) -> int:
    """How many trailing iterators become one vectorised loop; 0 if not even the last one can.

    No more than it takes for whole vectors, and at most two that are longer than 1: TVM does not find the flat index
    again behind more.
    """
    count = elements = 0
    for size in range(1, len(current.extents) + 1):
        suffix = range(len(current.extents) - size, len(current.extents))
        extents = [current.extents[i] for i in suffix]
        if not all(_runs_along(access, suffix, current) for access in (*current.reads, current.write)):
            continue
        if sum(e > 1 for e in extents) > 2 or (elements and elements % lanes == 0):
            break
        count, elements = size, prod(extents)
    return count


def _runs_along(access: Access, suffix: range, current: Stage) -> bool:
    """Whether the access has none of the iterators, or exactly these, one by one, as its last full dimensions."""
    if not access.used() & set(suffix):
        return access is not current.write
    tail = access.iterators[len(access.iterators) - len(suffix) :]
    if len(tail) != len(suffix) or any(u & set(suffix) for u in access.iterators[: -len(suffix)]):
        return False
    plain = all(isinstance(i, tirx.Var) for i in access.indices[len(access.indices) - len(suffix) :])
    first = suffix[0]
    full = all(access.shape[n - len(suffix)] == current.extents[i] for n, i in enumerate(suffix) if i != first)
    return plain and full and all(used == {i} for used, i in zip(tail, suffix, strict=True))


def vectorise_last(schedule: s_tir.Schedule, block: Any, device: Device) -> None:
    """Vectors along the last axis of a block, as wide as divides it."""
    last = schedule.get_loops(block)[-1]
    lanes = largest_divisor(int(schedule.get(last).extent), device.lanes)
    *_, vector = schedule.split(last, [None, lanes])
    schedule.vectorize(vector)


def is_selective(current: Stage) -> bool:
    """Whether it computes some elements from others than the rest: padding, for one."""
    return any(isinstance(p, ir.Call) and "if_then_else" in str(p.op) for p in walk(current.value))
