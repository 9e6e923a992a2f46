"""Chains of point-wise operators and data movement.

    for i, j: T = f(X); for i, j: Y = g(T)   =>   parallel i..: for j_outer: vectorised j_inner: Y = g(f(X))

The axes that every access either runs along contiguously or does not use at all are fused and vectorised. Padding is
filled, then copied. What remains (gathers, selections along the innermost axis) is left to LLVM's loop vectoriser.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import gcd, prod
from typing import Any

from tvm import tirx

from ....costmodels.device import WIDE, Device
from ..base.blocks import BlockInfo, BufferAccess
from ..base.draft import Draft
from ..base.extents import is_symbolic
from ..base.preparation import PARALLEL_ELEMENTS, pad_in_place
from ..base.tiled import Tiled
from ..tiling.tiles import largest_divisor

BLOCK_ALONG, BLOCK_COLUMNS = 32, 64
"""The largest block of a transposition: two lines of memory of each column fit the first cache."""

WORD = 4
"""Bytes of a word: channels that products of bytes take together."""


def pointwise(draft: Draft) -> Iterator[Tiled]:
    """The rule: matches a function without reductions."""
    if not inline_pointwise(draft):
        return
    for block in draft.blocks():
        schedule_pointwise(draft, block, draft.loops(block))
    yield Tiled(draft, "pointwise")


def inline_pointwise(draft: Draft) -> bool:
    """Inline every block that is not an output; False if a block is not point-wise: then nothing is changed."""
    if not all(block.is_pointwise() for block in draft.blocks()):
        return False
    for block in draft.blocks():
        if draft.may_inline(block):
            draft.inline(block)
    return True


def schedule_pointwise(draft: Draft, block: BlockInfo, loops: list[Any]) -> None:
    """Schedule the block's own `loops` (one for each iterator; further out nothing is touched)."""
    schedule = draft.schedule
    fused = count_vector_axes(draft, block)
    selective = block.is_selective()
    other = None if fused or selective else _transposed_axis(block)
    if other is not None and len(loops) == len(block.extents):
        _schedule_transposition(draft, block, loops, other)
        return
    outer, inner = loops[: len(loops) - fused], loops[len(loops) - fused :]
    vector = None
    if not inner or selective:
        outer = loops[:-1]
        if selective and len(loops) > 1 and _is_word(block) and not draft.is_padding(block, loops[-1]):
            schedule.unroll(loops[-1])
            outer.pop()
    else:
        loop = draft.fuse(inner)
        width = vector_width(draft.extent(loop), draft.device)
        if width > 1:
            loop, vector = schedule.split(loop, [None, width])
        outer = [*outer, loop]
    if draft.threads > 1 and outer and decide_parallel(draft, prod(block.extents)):
        schedule.parallel(draft.fuse(outer))
    if vector is not None:
        schedule.vectorize(vector)
    elif selective and len(loops) > 1 and draft.is_padding(block, loops[-1]):
        schedule.decompose_padding(block.block, loops[-1])


def _is_word(block: BlockInfo) -> bool:
    """Whether the block writes channels that are as many as a word has bytes, or fewer, next to each other.

    Each has its own condition if the loop over them is unrolled, which says which channels are there, and LLVM makes
    vectors of the next loop: three colours rounded and padded to words, of 112 x 112, take 8 us in place of 18, and
    with that loop shared by threads 48 (AVX2).
    """
    extent = block.extents[-1]
    return not is_symbolic(extent) and 1 < extent <= WORD and block.write.is_unit_stride(len(block.extents) - 1)


def _transposed_axis(block: BlockInfo) -> int | None:
    """The iterator that a read runs along element by element while the write runs along another; None without one."""
    last = len(block.extents) - 1
    for read in block.reads:
        along = [i for i in range(last) if block.extents[i] > 1 and read.is_unit_stride(i)]
        if along and last in read.used and block.write.is_unit_stride(last):
            return along[0]
    return None


def _schedule_transposition(draft: Draft, block: BlockInfo, loops: list[Any], other: int) -> None:
    """A transposition block by block, so that each line of memory is still in the first cache when it is needed again.

    for c: for w: Y[c, w] = X[w, c]    =>    parallel c block: for w block: for c, w inside: Y[c, w] = X[w, c]
    """
    schedule = draft.schedule
    *outer, last = loops
    along = outer.pop(other)
    is_divided = is_symbolic(block.extents[-1]) and _is_inside(draft, block)
    if other != len(loops) - 2 and not is_divided and _are_one_axis(block, len(loops) - 2):
        last = schedule.fuse(outer.pop(), last)
    blocks, inside = schedule.split(along, [None, largest_divisor(block.extents[other], BLOCK_ALONG)])
    columns, column = schedule.split(last, [None, largest_divisor(draft.extent(last), BLOCK_COLUMNS)])
    schedule.reorder(*outer, blocks, columns, inside, column)
    if draft.threads > 1 and decide_parallel(draft, prod(block.extents)):
        schedule.parallel(schedule.fuse(*outer, blocks))


def _are_one_axis(block: BlockInfo, iterator: int) -> bool:
    """Whether every access with the iterator has the next one right behind it, in full: rows of an image."""
    pair = {iterator, iterator + 1}
    extent = block.extents[iterator + 1]

    def has_both(access: BufferAccess) -> bool:
        dimensions = zip(access.iterators, access.indices, access.shape, strict=True)
        return any(
            first == {iterator} and second == {iterator + 1} and size == extent
            and isinstance(index, tirx.Var) and isinstance(other, tirx.Var)
            for (first, index, _), (second, other, size) in pairwise(dimensions)
        )  # fmt: skip

    return all(has_both(access) for access in (*block.reads, block.write) if pair & access.used)


def decide_parallel(draft: Draft, elements: int) -> bool:
    """Whether threads share the work on that many elements: from PARALLEL_ELEMENTS on, if nothing else is decided."""
    return draft.trace.decide_flag("parallel", elements >= PARALLEL_ELEMENTS)


def schedule_prologues(draft: Draft, epilogue: BlockInfo) -> None:
    """Schedule point-wise blocks in loops of their own in front of the rest; paddings fill the border first.

    for n, c, h, w: P = if inside: X else 0    =>    parallel n, c: { for h, w: P = 0; for h, w inside: P = X }
    """
    for block in draft.blocks():
        loops = draft.loops(block)
        if not block.is_pointwise() or len(loops) != len(block.extents) or block.name == epilogue.name:
            continue
        if len(loops) > 1 and draft.is_padding(block, loops[-2]):
            pad_in_place(draft, block, loops)
        else:
            schedule_pointwise(draft, block, loops)


def vector_width(extent: int, device: Device) -> int:
    """The widest power of two that fits both the vector registers and the extent."""
    width: int = device.lanes
    while width > extent:
        width //= 2
    return max(width, 1)


def count_vector_axes(draft: Draft, block: BlockInfo) -> int:
    """The number of trailing iterators that become one vectorised loop.

    Not rows and columns if their number would have to be divided by a dynamic width: that of a
    buffer inside of the function, whose places `join_pixels` leaves alone.
    """
    count = count_contiguous_axes(block, draft.device.lanes)
    is_divided = any(map(is_symbolic, block.extents[len(block.extents) - count + 1 :]))
    return (
        count_contiguous_axes(block, draft.device.lanes, most=1) if is_divided and _is_inside(draft, block) else count
    )


def _is_inside(draft: Draft, block: BlockInfo) -> bool:
    """Whether it reads or writes a buffer that no caller of the function gives."""
    outside = draft.parameters_outside()
    return any(not any(a.buffer.same_as(p) for p in outside) for a in (*block.reads, *block.writes))


def count_contiguous_axes(block: BlockInfo, lanes: int, most: int | None = None) -> int:
    """The number of trailing iterators that every access runs along as one; 0 if not even along the last one.

    No more than `most`, than it takes for whole vectors, and than two that are longer than 1: TVM does not find the
    flat index again behind more.
    """
    count = elements = 0
    for size in range(1, len(block.extents[:most]) + 1):
        suffix = range(len(block.extents) - size, len(block.extents))
        extents = [block.extents[i] for i in suffix]
        if not all(_runs_along(access, suffix, block) for access in (*block.reads, block.write)):
            continue
        if sum(e > 1 for e in extents) > 2 or (elements and elements % lanes == 0):
            break
        count, elements = size, prod(extents)
    return count


def _runs_along(access: BufferAccess, suffix: range, block: BlockInfo) -> bool:
    """Whether the access has none of the iterators, or exactly these, one by one, as its last full dimensions."""
    if not access.used & set(suffix):
        return access is not block.write and (not access.is_computed or len(suffix) == 1)
    if access.is_part and sum(block.extents[i] > 1 for i in suffix) > 1:
        return False
    tail = access.iterators[len(access.iterators) - len(suffix) :]
    if len(tail) != len(suffix) or any(u & set(suffix) for u in access.iterators[: -len(suffix)]):
        return False
    plain = all(isinstance(i, tirx.Var) for i in access.indices[len(access.indices) - len(suffix) :])
    first = suffix[0]
    full = all(access.shape[n - len(suffix)] == block.extents[i] for n, i in enumerate(suffix) if i != first)
    return plain and full and all(used == {i} for used, i in zip(tail, suffix, strict=True))


def vectorise_last(draft: Draft, block: Any) -> None:
    """Make vectors of the last axis of a block, as wide as divides it: of numbers of 16 bits a power of two."""
    last, lanes = draft.schedule.get_loops(block)[-1], draft.device.lanes
    extent = draft.extent(last)
    is_wide = str(draft.inspect(block).write.buffer.dtype) == WIDE
    width = gcd(extent, 2 * lanes) if is_wide else largest_divisor(extent, lanes)
    *_, vector = draft.schedule.split(last, [None, width])
    draft.schedule.vectorize(vector)
