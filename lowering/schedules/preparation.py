"""Before the tiling of a product sum: prologues and epilogues are inlined, so that three kinds of blocks are left."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tvm import ir, s_tir

from .stages import FUNCTION, Stage, consumers, is_parameter, is_product_sum, may_inline, stage, stages, walk

PARALLEL_ELEMENTS = 1 << 15
"""Fewer output elements than this are done by one thread: waking the others takes as long."""


def prepare(schedule: s_tir.Schedule) -> tuple[Stage, Stage] | None:
    """As `anchor_and_epilogue`, for the only product sum."""
    return anchor_and_epilogue(schedule, is_product_sum)


def anchor_and_epilogue(schedule: s_tir.Schedule, is_anchor: Callable[[Stage], bool]) -> tuple[Stage, Stage] | None:
    """Inlines what it can and returns the only reduction, if it is the wanted one, with the only block after it.

    The block after it reads the reduction at its own iterators; a copy is made where there is none, or where several
    read it (parts of a split, which are blocks of their own then). Blocks before it that remain are paddings, and what
    would make another reduction of it. None if the function is not of this form.
    """
    reductions = [s for s in stages(schedule) if s.reduced]
    if len(reductions) != 1 or not is_anchor(reductions[0]):
        return None
    anchor = reductions[0]
    inline(schedule, anchor, is_anchor)
    anchor = stage(schedule, anchor.block)
    if not is_anchor(anchor):
        return None
    after = consumers(stages(schedule), anchor)
    if len(after) != 1 or not is_direct(after[0], anchor):
        schedule.cache_write(anchor.block, 0, "global")
        anchor = stage(schedule, anchor.block)
        after = consumers(stages(schedule), anchor)
    if len(after) != 1 or anchor.has_booleans() or after[0].has_booleans():
        return None
    return anchor, after[0]


def inline(schedule: s_tir.Schedule, anchor: Stage, is_anchor: Callable[[Stage], bool]) -> None:
    """Inlines every point-wise block that is neither an output nor padding in front of the anchor.

    One in front of the anchor stays where it is costly to compute at every use, and where the anchor, with it, would be
    none any more: a product sum of two operands.
    """
    before = True
    for current in stages(schedule):
        if current.write.name == anchor.write.name:
            before = False
            continue
        if is_parameter(schedule.mod[FUNCTION], current.write.buffer) or not may_inline(stages(schedule), current):
            continue
        if not before or _is_in_front(schedule, current) or _may_join(schedule, current, anchor, is_anchor):
            schedule.compute_inline(current.block)


def _is_in_front(schedule: s_tir.Schedule, current: Stage) -> bool:
    """Whether its only reader is a point-wise block of the same loops: nothing is computed twice."""
    users = consumers(stages(schedule), current)
    return len(users) == 1 and not users[0].reduced and users[0].extents == current.extents


def _may_join(schedule: s_tir.Schedule, current: Stage, anchor: Stage, is_anchor: Callable[[Stage], bool]) -> bool:
    if not is_cheap(current):
        return False
    if not any(user.write.name == anchor.write.name for user in consumers(stages(schedule), current)):
        return True
    attempt = schedule.copy()
    attempt.compute_inline(attempt.get_sblock(attempt.get(current.block).name_hint))
    return is_anchor(stage(attempt, attempt.get_sblock(attempt.get(anchor.block).name_hint)))


def is_cheap(current: Stage) -> bool:
    """Whether to compute it again at every use: no selections (padding), no functions."""
    return not any(isinstance(part, ir.Call) for part in walk(current.value))


def is_direct(after: Stage, anchor: Stage) -> bool:
    """Whether the block reads the sum at plain iterators, one per dimension, all different, and has no others."""
    reads = [r for r in after.reads if r.name == anchor.write.name]
    used = [i for r in reads for i in r.iterators]
    plain = all(len(i) == 1 for i in used) and len(after.extents) == len(used) == len(set().union(*used))
    return len(reads) == 1 and plain and not after.reduced


def pad_in_place(schedule: s_tir.Schedule, current: Stage, loops: list[Any], threads: int) -> None:
    """Fills and copies plane by plane; blocks of another form than padding stay one loop nest."""
    keep = loops[max(0, len(loops) - 2) :]
    if threads > 1 and len(loops) > 2 and prod(current.extents) >= PARALLEL_ELEMENTS:
        schedule.parallel(schedule.fuse(*loops[:-2]))
    if can_decompose(schedule, current, keep[0]):
        schedule.decompose_padding(current.block, keep[0])


def can_decompose(schedule: s_tir.Schedule, current: Stage, loop: Any) -> bool:
    """Whether the block is a padding that TVM can take apart at the loop."""
    return bool(schedule.can_decompose_padding(current.block, loop))
