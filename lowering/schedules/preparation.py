"""Before the tiling of a product sum: prologues and epilogues are inlined, so that three kinds of blocks are left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, s_tir

from .stages import FUNCTION, Stage, consumers, is_parameter, is_product_sum, may_inline, stage, stages, walk


def prepare(schedule: s_tir.Schedule) -> tuple[Stage, Stage] | None:
    """As `anchor_and_epilogue`, for the only product sum."""
    return anchor_and_epilogue(schedule, is_product_sum)


def anchor_and_epilogue(schedule: s_tir.Schedule, is_anchor: Callable[[Stage], bool]) -> tuple[Stage, Stage] | None:
    """Inlines what it can and returns the only reduction, if it is the wanted one, with the only block after it.

    The block after it reads the reduction at its own iterators; a copy is made where there is none. Blocks before it
    that remain are paddings. None if the function is not of this form.
    """
    reductions = [s for s in stages(schedule) if s.reduced]
    if len(reductions) != 1 or not is_anchor(reductions[0]):
        return None
    anchor = reductions[0]
    inline(schedule, anchor)
    anchor = stage(schedule, anchor.block)
    if not is_anchor(anchor):
        return None
    after = consumers(stages(schedule), anchor)
    if not after or not _is_direct(after[0], anchor):
        schedule.cache_write(anchor.block, 0, "global")
        anchor = stage(schedule, anchor.block)
        after = consumers(stages(schedule), anchor)
    if len(after) != 1 or anchor.has_booleans() or after[0].has_booleans():
        return None
    return anchor, after[0]


def inline(schedule: s_tir.Schedule, anchor: Stage) -> None:
    """Inlines every point-wise block that is neither an output nor padding in front of the anchor."""
    before = True
    for current in stages(schedule):
        if current.block.same_as(anchor.block) or current.write.name == anchor.write.name:
            before = False
            continue
        if is_parameter(schedule.mod[FUNCTION], current.write.buffer) or (before and not is_cheap(current)):
            continue
        if not may_inline(stages(schedule), current):
            continue
        schedule.compute_inline(current.block)


def is_cheap(current: Stage) -> bool:
    """Whether to compute it again at every use: no selections (padding), no functions."""
    return not any(isinstance(part, ir.Call) for part in walk(current.value))


def _is_direct(after: Stage, anchor: Stage) -> bool:
    """Whether the block reads the sum at plain iterators, one per dimension, all different, and has no others."""
    reads = [r for r in after.reads if r.name == anchor.write.name]
    used = [i for r in reads for i in r.iterators]
    plain = all(len(i) == 1 for i in used) and len(after.extents) == len(used) == len(set().union(*used))
    return len(reads) == 1 and plain and not after.reduced


def schedule_padding(schedule: s_tir.Schedule, threads: int) -> None:
    """Blocks that stand in loops of their own in front of the rest: the border is filled first, then the inside copied.

    for n, c, h, w: P = if inside: X else 0    =>    parallel n, c: { for h, w: P = 0; for h, w inside: P = X }
    """
    for current in stages(schedule):
        loops = schedule.get_loops(current.block)
        if current.is_pointwise() and len(loops) == len(current.extents) and _is_outermost(schedule, current):
            pad_in_place(schedule, current, loops, threads)


def pad_in_place(schedule: s_tir.Schedule, current: Stage, loops: list[Any], threads: int) -> None:
    """Fills and copies plane by plane; blocks of another form than padding stay one loop nest."""
    keep = loops[max(0, len(loops) - 2) :]
    if threads > 1 and len(loops) > 2:
        schedule.parallel(schedule.fuse(*loops[:-2]))
    if can_decompose(schedule, current, keep[0]):
        schedule.decompose_padding(current.block, keep[0])


def can_decompose(schedule: s_tir.Schedule, current: Stage, loop: Any) -> bool:
    """Whether the block is a padding that TVM can take apart at the loop."""
    return bool(schedule.can_decompose_padding(current.block, loop))


def _is_outermost(schedule: s_tir.Schedule, current: Stage) -> bool:
    return not is_parameter(schedule.mod[FUNCTION], current.write.buffer) and any(
        isinstance(part, ir.Call) for part in walk(current.value)
    )
