"""Before the tiling of a reduction: prologues and epilogues are inlined, but for padding and one epilogue."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from .blocks import BlockInfo
from .draft import Draft

PARALLEL_ELEMENTS = 1 << 15
"""One thread computes fewer output elements than this: waking the others takes as long."""
FINE_SHARES = 8
"""Iterations for each thread that are enough for an even share, whatever their number."""


def find_anchor(draft: Draft, is_anchor: Callable[[BlockInfo], bool]) -> tuple[BlockInfo, BlockInfo] | None:
    """Inline what can be, and return the only reduction, if `is_anchor` accepts it, with the only block after it.

    The block after it reads the reduction at its own iterators; a copy is made if there is none, if several read
    it (parts of a split, which then stay blocks), and if the reduction is itself an output of the function. Blocks
    that remain in front are paddings, and what would turn the anchor into another kind of reduction. None if the
    function is not of this form.
    """
    reductions = [block for block in draft.blocks() if block.reduced]
    if len(reductions) != 1 or not is_anchor(reductions[0]):
        return None
    inline_around(draft, reductions[0], is_anchor)
    anchor = draft.inspect(reductions[0].block)
    return find_epilogue(draft, anchor) if is_anchor(anchor) else None


def find_epilogue(draft: Draft, reduction: BlockInfo) -> tuple[BlockInfo, BlockInfo] | None:
    """The reduction as it is now, and the only block after it, which reads it at its own iterators: if need be a copy
    that is made. None if several blocks read the reduction then."""
    after = draft.consumers(reduction)
    if len(after) != 1 or draft.is_output(reduction) or not reads_directly(after[0], reduction):
        draft.schedule.cache_write(reduction.block, 0, "global")
        reduction = draft.inspect(reduction.block)
        after = draft.consumers(reduction)
    if len(after) != 1:
        return None
    return reduction, after[0]


def inline_around(draft: Draft, anchor: BlockInfo, is_anchor: Callable[[BlockInfo], bool]) -> None:
    """Inline every point-wise block that is neither an output nor padding in front of the anchor.

    A block in front stays if it is costly to compute at every use, and if the anchor would with it no longer be
    one: a product sum of two operands.
    """
    before = True
    for block in draft.blocks_in_turn():
        if block.name == anchor.name:
            before = False
        elif draft.may_inline(block) and not (before and _must_stay(draft, block, anchor, is_anchor)):
            draft.inline(block)


def _must_stay(draft: Draft, block: BlockInfo, anchor: BlockInfo, is_anchor: Callable[[BlockInfo], bool]) -> bool:
    users = draft.consumers(block)
    if len(users) == 1 and not users[0].reduced and users[0].extents == block.extents:
        return False  # into a point-wise block of the same loops: nothing is computed twice
    if not block.is_cheap():
        return True
    if all(user.name != anchor.name for user in users):
        return False
    attempt = draft.copy()
    attempt.inline(block)
    return not is_anchor(attempt.inspect(anchor.block))


def reads_directly(after: BlockInfo, anchor: BlockInfo) -> bool:
    """Whether the block reads each element of the sum once, at plain iterators, and has no others.

    One that reads a part of it (a Slice) has other tails: it would move back, and the sum would not.
    """
    reads = [r for r in after.reads if r.name == anchor.name]
    used = [i for r in reads for i in r.iterators]
    plain = all(len(i) == 1 for i in used) and len(after.extents) == len(used) == len(set().union(*used))
    if len(reads) != 1 or not plain or after.reduced:
        return False
    return reads[0].shape == tuple(after.extents[next(iter(i))] for i in used)


def pad_in_place(draft: Draft, block: BlockInfo, loops: list[Any]) -> None:
    """Fill and copy plane by plane, or row by row if threads share few planes.

    Blocks of another form than padding stay one loop nest.
    """
    depth = max(0, len(loops) - 2)
    if draft.threads > 1 and len(loops) > 2 and prod(block.extents) >= PARALLEL_ELEMENTS:
        if prod(map(draft.extent, loops[:depth])) < FINE_SHARES * draft.threads:
            depth += 1
        draft.schedule.parallel(draft.schedule.fuse(*loops[:depth]))
    if draft.is_padding(block, loops[depth]):
        draft.schedule.decompose_padding(block.block, loops[depth])
