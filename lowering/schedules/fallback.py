"""The last rule: matches every function, so that none runs without a schedule.

Point-wise blocks are inlined where TVM can, the outermost data-parallel loops of every block are shared by the threads,
and the innermost data-parallel axis is moved innermost and vectorised where that is contiguous in memory.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from ...costmodels.device import Device
from .packing import Scheduled
from .pointwise import schedule_pointwise, vector_width
from .preparation import is_cheap
from .stages import FUNCTION, Stage, is_parameter, may_inline, stages
from .tails import overlap_tails


def fallback(function: tirx.PrimFunc, device: Device, threads: int = 1) -> Scheduled:
    """The rule that always matches. A block that resists keeps its plain loops."""
    schedule = s_tir.Schedule(function)
    for current in stages(schedule):
        if not current.reduced and is_cheap(current):
            _inline(schedule, current)
    for current in stages(schedule):
        attempt = schedule.copy()
        try:
            _schedule(attempt, _again(attempt, current), device, threads)
        except s_tir.ScheduleError:
            continue
        schedule = attempt
    return Scheduled(overlap_tails(schedule), (), "fallback")


def _inline(schedule: s_tir.Schedule, current: Stage) -> None:
    if is_parameter(schedule.mod[FUNCTION], current.write.buffer) or not may_inline(stages(schedule), current):
        return
    try:
        schedule.compute_inline(current.block)
    except s_tir.ScheduleError:
        return


def _again(schedule: s_tir.Schedule, current: Stage) -> Stage:
    """The same block in a copy of the schedule."""
    return next(s for s in stages(schedule) if s.write.name == current.write.name)


def _schedule(schedule: s_tir.Schedule, current: Stage, device: Device, threads: int) -> None:
    loops = schedule.get_loops(current.block)
    if len(loops) != len(current.extents):
        return
    if current.is_pointwise():
        schedule_pointwise(schedule, current, loops, device, threads)
    elif current.reduced:
        _reduction(schedule, current, loops, device, threads)


def _reduction(schedule: s_tir.Schedule, current: Stage, loops: list[Any], device: Device, threads: int) -> None:
    """for i, j, k: ... => parallel i: for j_outer: { init; for k: vectorised j_inner }.

    The reduction is inside of the tile, for a tile that is moved back (see tails) starts it anew.
    """
    spatial = [loops[i] for i in current.spatial]
    reduced = [loops[i] for i in sorted(current.reduced)]
    if not spatial:
        return
    *outer, last = spatial
    width = 1 if current.has_booleans() else vector_width(int(schedule.get(last).extent), device)
    tile, lanes = schedule.split(last, [None, width])
    schedule.reorder(*outer, tile, *reduced, lanes)
    if threads > 1:
        schedule.parallel(schedule.fuse(*outer, tile) if outer else tile)
    schedule.vectorize(lanes)
    initial = schedule.decompose_reduction(current.block, reduced[0])
    schedule.vectorize(schedule.get_loops(initial)[-1])
