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

from dataclasses import replace

from tvm import s_tir

from ..decisions import Alternative
from ..draft import Draft, Scheduled
from ..pointwise import schedule_prologues
from ..tails import finish
from ..tiling.register_tile import TilePlan, cut_tile, finish_tile, share
from .costs import find_tiling, list_plans, list_slab_counts
from .filters import FILTERS, Filter, WinogradWeights
from .function import COPY, INPUT, OUTPUT, PRODUCT, rewrite_function
from .match import FilteredConvolution

CLEARLY = 1.1
"""The estimate of a minimal filter has to be below that of the direct products by this factor."""
PAGE_FLOATS = 1024
"""Elements of a page: of addresses that are a multiple of this apart, few fit a first cache at a time."""
SHIFT = 80
"""Elements that the places of a tile lie further apart than pages in V and M: an odd number of cache lines."""


def winograd(draft: Draft, convolution: FilteredConvolution, direct: float) -> Scheduled | None:
    """The convolution by the filter that is decided for it; None where its products are to be taken directly.

    The draft holds the function as `find_anchor` leaves it, and is not changed. `direct`: cycles of direct products.
    """
    plans_of = {
        each.size: {slabs: list_plans(draft, convolution, each, slabs) for slabs in list_slab_counts(convolution, each)}
        for each in FILTERS
    }
    options: list[Alternative[Filter | None]] = [Alternative("direct", direct, None)]
    for each in FILTERS:
        cycles = min(plan.cycles for plans in plans_of[each.size].values() for plan in plans)
        options.append(Alternative(f"winograd {each.size}", CLEARLY * cycles, each))
    chosen = draft.trace.choose("algorithm", options)
    if chosen is None:
        return None
    plans = plans_of[chosen.size]
    slabs = draft.trace.decide_number("slabs", list(plans), lambda n: min(plan.cycles for plan in plans[n]))
    plan = draft.trace.decide("tile", plans[slabs], lambda plan: plan.cycles)
    tiling = find_tiling(convolution, chosen, slabs, plan.tile, draft.device)
    draft = replace(draft, schedule=s_tir.Schedule(rewrite_function(draft.function, tiling)))
    _schedule(draft, plan)
    schedule_prologues(draft, draft.inspect(draft.schedule.get_sblock(OUTPUT)))
    return finish(draft, "winograd", (WinogradWeights(convolution.weights, chosen.size, plan.tile.columns),))


def _schedule(draft: Draft, plan: TilePlan) -> None:
    schedule = draft.schedule
    blocks = {name: schedule.get_sblock(name) for name in (INPUT, PRODUCT, COPY, OUTPUT)}
    slab, columns, _ = schedule.get_loops(blocks[OUTPUT])
    share(draft, [slab], plan.cycles)
    draft.compute_at(blocks[COPY], columns)
    product, copy = draft.inspect(blocks[PRODUCT]), draft.inspect(blocks[COPY])
    inside = dict(enumerate(draft.loops(copy)[2:]))
    outer, inner = cut_tile(draft, plan, inside, product.spatial)
    finish_tile(draft, product, copy, plan, [slab, columns, *outer], inner)
    draft.compute_at(blocks[INPUT], slab)
    for block, axis in ((INPUT, 1), (COPY, 2)):
        schedule.storage_align(blocks[block], 0, axis, PAGE_FLOATS, SHIFT)
