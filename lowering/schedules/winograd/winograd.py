"""3x3 convolutions by Winograd's minimal filters, F(2x2, 3x3) and F(4x4, 3x3), where they take fewer cycles.

    parallel slab of tiles: {
        for tile: vectors of c: V[xi] = B^T d B                       (registers)
        for columns: {
            for xi: for row tile: M[xi] += V[xi] * U[xi]              (registers, as `contraction` does)
            for tile: vectors of o: Y = f(A^T M A) } }                (registers)

V and M of a slab stay in a cache, and no tile is computed twice; the weights U are transformed when the module is built
(Lavin and Gray, CVPR 2016; that tiles are the rows of products is theirs too, section 4.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import s_tir

from ....costmodels.device import Device
from ..decisions import Named, decide, decide_number
from ..packing import Scheduled
from ..pointwise import schedule_before
from ..stages import FUNCTION, stage
from ..tails import overlap_tails
from ..tiling.register_tile import Plan, cut_tile, finish_tile, share
from ..winograd_filters import FILTERS, Filter, WinogradWeights
from .winograd_costs import slab_counts, tiling_of, winograd_plans
from .winograd_function import COPY, INPUT, OUTPUT, PRODUCT, winograd_function
from .winograd_match import Convolution

CLEARLY = 1.1
"""By so much the estimate of a minimal filter has to be below that of the direct products."""
PAGE_FLOATS = 1024
"""Of addresses that are a multiple of this apart, few fit a first cache at a time."""
SHIFT = 80
"""By so much more than pages the places of a tile lie apart in V and M, an odd number of cache lines."""


def winograd(
    schedule: s_tir.Schedule, convolution: Convolution, direct: float, device: Device, threads: int
) -> Scheduled | None:
    """The convolution by the filter that is decided for it; None where its products are to be taken directly.

    `schedule` holds the function as `prepare` leaves it, and is not changed. `direct`: the cycles of direct products.
    """
    found = {each.size: _plans(convolution, each, device, threads) for each in FILTERS}
    options: list[Named[Filter | None]] = [Named("direct", direct, None)]
    for each in FILTERS:
        cycles = min(plan.cycles for plans in found[each.size].values() for plan in plans)
        options.append(Named(f"winograd {each.size}", CLEARLY * cycles, each))
    chosen = decide("algorithm", options, lambda option: option.cost).value
    if chosen is None:
        return None
    return _scheduled(schedule, convolution, chosen, found[chosen.size], device, threads)


def _plans(convolution: Convolution, filter: Filter, device: Device, threads: int) -> dict[int, list[Plan]]:
    """For each number of slabs the register tiles."""
    counts = slab_counts(convolution, filter)
    return {slabs: winograd_plans(convolution, filter, slabs, device, threads) for slabs in counts}


def _scheduled(
    schedule: s_tir.Schedule,
    convolution: Convolution,
    filter: Filter,
    plans: Mapping[int, Sequence[Plan]],
    device: Device,
    threads: int,
) -> Scheduled:
    slabs = decide_number("slabs", list(plans), lambda number: min(plan.cycles for plan in plans[number]))
    plan = decide("tile", plans[slabs], lambda plan: plan.cycles)
    tiling = tiling_of(convolution, filter, slabs, plan.tile, device)
    made = s_tir.Schedule(winograd_function(schedule.mod[FUNCTION], tiling))
    _schedule_blocks(made, plan, threads)
    schedule_before(made, stage(made, made.get_sblock(OUTPUT)), device, threads)
    packed = WinogradWeights(convolution.weights, filter.size, plan.tile.columns)
    return Scheduled(overlap_tails(made), (packed,), "winograd")


def _schedule_blocks(schedule: s_tir.Schedule, plan: Plan, threads: int) -> None:
    blocks = {name: schedule.get_sblock(name) for name in (INPUT, PRODUCT, COPY, OUTPUT)}
    slab, columns, _ = schedule.get_loops(blocks[OUTPUT])
    share(schedule, [slab], threads, plan.cycles)
    schedule.compute_at(blocks[COPY], columns, preserve_unit_loops=True)
    product, copy = stage(schedule, blocks[PRODUCT]), stage(schedule, blocks[COPY])
    inside = dict(enumerate(schedule.get_loops(blocks[COPY])[2:]))
    outer, cut = cut_tile(schedule, plan, inside, product.spatial)
    finish_tile(schedule, product, copy, plan, [slab, columns, *outer], cut)
    schedule.compute_at(blocks[INPUT], slab, preserve_unit_loops=True)
    for block, axis in ((INPUT, 1), (COPY, 2)):
        schedule.storage_align(blocks[block], 0, axis, PAGE_FLOATS, SHIFT)
