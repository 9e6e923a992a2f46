"""Row-wise functions: reductions over trailing axes, soft-max, layer normalisation, global pooling.

    for i, k: M = max(M, X); for i, k: E = exp(X - M); for i, k: S += E; for i, k: Y = E / S
 => parallel i: { for k_o: vectorised k_i: M' = max(M', X); for k_i: M = max(M, M'); vectorised E; S the same; Y }

All stages of a row run while it is in the first cache; a reduction keeps vectors of partial results.
"""

from __future__ import annotations

from math import log2, prod
from typing import Any

from tvm import s_tir, tirx

from ...costmodels.device import Device
from .decisions import decide_number
from .packing import Scheduled
from .pointwise import schedule_pointwise
from .preparation import is_cheap
from .reducers import register_reducers
from .stages import FUNCTION, Stage, consumers, is_parameter, may_inline, stage, stages
from .tails import MASKED_EXTENT, MASKED_TILE, overlap_tails
from .tiling.tiles import largest_divisor

PARTIAL_VECTORS = 4
"""Independent partial results of a reduction: the latency of an addition over its throughput, halved."""

PARALLEL_ELEMENTS = 1 << 13
"""Fewer steps than this, of all stages, are done by one thread: waking the others takes as long."""
LEAST_STEPS = 4
"""Steps of a reduction by vectors that are worth the reduction of the vector."""


def rows(function: tirx.PrimFunc, device: Device, threads: int = 1) -> Scheduled | None:
    """The rule: matches when all blocks share leading axes, and every reduction is over all axes behind them."""
    register_reducers()
    schedule = s_tir.Schedule(function)
    _inline(schedule)
    found = stages(schedule)
    reductions = [s for s in found if s.reduced]
    if not reductions:
        return None
    shared = min(_leading(s) for s in reductions)
    last = found[-1]
    outputs = [s for s in found if is_parameter(schedule.mod[FUNCTION], s.write.buffer)]
    if shared == 0 or len(outputs) != 1 or any(s.extents[:shared] != last.extents[:shared] for s in found):
        return None
    if any(not _is_trailing(s, shared) or s.has_booleans() for s in reductions):
        return None
    _schedule(schedule, found, shared, device, threads)
    return Scheduled(overlap_tails(schedule), (), "rows")


def _inline(schedule: s_tir.Schedule) -> None:
    for current in stages(schedule):
        if current.reduced or is_parameter(schedule.mod[FUNCTION], current.write.buffer):
            continue
        if not may_inline(stages(schedule), current):
            continue
        users = consumers(stages(schedule), current)
        if is_cheap(current) or (len(users) == 1 and users[0].extents == current.extents):
            schedule.compute_inline(current.block)


def _leading(current: Stage) -> int:
    """How many iterators stand before the first reduced one."""
    return min(current.reduced)


def _is_trailing(current: Stage, shared: int) -> bool:
    """Whether all iterators behind the shared ones are reduced or of extent 1, and rows lie in memory as such."""
    along = any(read.iterators and read.iterators[-1] & current.reduced for read in current.reads)
    return along and all(i in current.reduced or current.extents[i] == 1 for i in range(shared, len(current.extents)))


def _schedule(schedule: s_tir.Schedule, found: list[Stage], shared: int, device: Device, threads: int) -> None:
    partial = [b for s in found if s.reduced for b in partial_results(schedule, s, device)]
    last = found[-1]
    loops = schedule.get_loops(last.block)
    row = schedule.fuse(*loops[:shared]) if shared > 1 else loops[0]
    if threads > 1:
        usual = sum(prod(s.extents) for s in found) >= PARALLEL_ELEMENTS
        if decide_number("parallel", (0, 1), lambda number: 1.0 + abs(number - usual)):
            schedule.parallel(row)
    for current in reversed(stages(schedule)):
        if schedule.get(current.block).name_hint != schedule.get(last.block).name_hint:
            schedule.compute_at(current.block, row, preserve_unit_loops=True)
    for current in stages(schedule):
        loops = schedule.get_loops(current.block)[1:]
        if not current.reduced and len(loops) <= len(current.extents) and loops:
            _vectorise(schedule, current, loops, device)
    for block in partial:
        vectorise_partial(schedule, block, device)


def partial_results(schedule: s_tir.Schedule, current: Stage, device: Device) -> list[Any]:
    """Splits the reduction in one of vectors and one over the lanes of the last; nothing where no width divides."""
    loops = schedule.get_loops(current.block)
    reduced = [loops[i] for i in sorted(current.reduced)]
    loop = schedule.fuse(*reduced) if len(reduced) > 1 else reduced[0]
    found = []
    while (width := partial_width(extent := int(schedule.get(loop).extent), device)) > 1:
        _, loop = schedule.split(loop, [None, width])
        found.append(schedule.rfactor(loop, len(current.write.shape)))
        if extent % width:
            schedule.annotate(found[-1], MASKED_EXTENT, extent)
            schedule.annotate(found[-1], MASKED_TILE, width)
        loop = schedule.get_loops(current.block)[-1]
    return found


def partial_width(extent: int, device: Device) -> int:
    """Elements of partial results: whole vectors if they divide the extent, else a part of a vector that does.

    One vector (with a tail that is masked, see tails) where that is less than half of one; 1 for few elements.
    """
    widths = [v * device.lanes for v in range(PARTIAL_VECTORS, 0, -1)]
    if whole := [w for w in widths if extent % w == 0 and extent >= LEAST_STEPS * w]:
        return decide_number("partial", whole, lambda width: 1.0 + log2(widths[0] / width))
    divisor = largest_divisor(extent, min(device.lanes, extent // LEAST_STEPS)) if extent >= 2 * LEAST_STEPS else 1
    return device.lanes if extent >= LEAST_STEPS * device.lanes and divisor < device.lanes // 2 else divisor


def _vectorise(schedule: s_tir.Schedule, current: Stage, loops: list[Any], device: Device) -> None:
    hidden = len(current.extents) - len(loops)
    if hidden >= 0 and all(int(schedule.get(loop).extent) > 0 for loop in loops):
        schedule_pointwise(schedule, current, loops, device)


def vectorise_partial(schedule: s_tir.Schedule, block: Any, device: Device) -> None:
    """The last dimension of a partial result becomes vectors, inside of the steps that add to it."""
    current = stage(schedule, block)
    loops = schedule.get_loops(block)[-len(current.extents) :]
    if len(current.reduced) != 1:  # axes that are fused to one loop, but are no one axis in memory
        raise RuntimeError(f"block {current.write.name}: a partial result over several axes")
    (steps,), (lane,) = current.reduced, current.write.iterators[-1]
    others = [loops[i] for i in current.spatial if i != lane]
    extent = current.extents[lane]
    vectors, lanes = schedule.split(loops[lane], [None, largest_divisor(extent, device.lanes)])
    schedule.reorder(*others, loops[steps], vectors, lanes)
    schedule.unroll(vectors)
    schedule.vectorize(lanes)
    initial = schedule.decompose_reduction(block, loops[steps])
    *_, last = schedule.get_loops(initial)
    schedule.vectorize(last)
