"""The last rules, which match every function, so that none runs without a schedule."""

from __future__ import annotations

from typing import Any

from tvm import s_tir

from .blocks import BlockInfo
from .draft import Draft, Scheduled
from .pointwise import schedule_pointwise, vector_width
from .tails import finish


def fallback(draft: Draft) -> Scheduled:
    """Inline point-wise blocks, share the outer loops of each block, and vectorise its innermost axis if contiguous.

    A block that resists keeps its plain loops.
    """
    for block in draft.blocks():
        if block.is_cheap() and draft.may_inline(block):
            try:
                draft.inline(block)
            except s_tir.ScheduleError:
                continue
    for block in draft.blocks():
        attempt = draft.copy()
        try:
            _schedule(attempt, attempt.inspect(block.block))
        except s_tir.ScheduleError:
            continue
        draft = attempt
    return finish(draft, "fallback")


def _schedule(draft: Draft, block: BlockInfo) -> None:
    loops = draft.loops(block)
    if len(loops) != len(block.extents):
        return
    if block.is_pointwise():
        schedule_pointwise(draft, block, loops)
    elif block.reduced:
        _schedule_reduction(draft, block, loops)


def _schedule_reduction(draft: Draft, block: BlockInfo, loops: list[Any]) -> None:
    """for i, j, k: ... => parallel i: for j_outer: { init; for k: vectorised j_inner }.

    The reduction is inside of the tile, for a tile that is moved back (see tails) starts it anew.
    """
    schedule = draft.schedule
    spatial = [loops[i] for i in block.spatial]
    reduced = [loops[i] for i in sorted(block.reduced)]
    if not spatial:
        return
    *outer, last = spatial
    width = 1 if block.has_booleans() else vector_width(draft.extent(last), draft.device)
    tile, lanes = schedule.split(last, [None, width])
    schedule.reorder(*outer, tile, *reduced, lanes)
    if draft.threads > 1:
        schedule.parallel(draft.fuse([*outer, tile]))
    schedule.vectorize(lanes)
    initial = schedule.decompose_reduction(block.block, reduced[0])
    schedule.vectorize(schedule.get_loops(initial)[-1])


def plain(draft: Draft) -> Scheduled:
    """Each block by itself, its spatial loops shared among threads; no vectors, which LLVM lacks for some types.

    for i, j, k: C[i, j, k] = ...      =>  parallel(i * j * k): C[i, j, k] = ...
    for i, j, r: C[i, j] += ...        =>  parallel(i * j): C[i, j] = 0; for r: C[i, j] += ...
    """
    schedule = draft.schedule
    for block in draft.blocks():
        loops = draft.loops(block)
        spatial = [loops[i] for i in block.spatial] if len(loops) == len(block.extents) else []
        if not spatial:
            continue
        reduced = [loops[i] for i in sorted(block.reduced)]
        schedule.reorder(*spatial, *reduced)
        schedule.parallel(schedule.fuse(*spatial))
        if reduced:
            schedule.decompose_reduction(block.block, reduced[0])
    return Scheduled(schedule, rule="plain")
