"""3x3 convolutions by Winograd's minimal filters, F(2x2, 3x3) and F(4x4, 3x3), if they take fewer cycles.

    parallel slab of tiles: {
        for tile: vectors of c: V[xi] = B^T d B                       (registers)
        for columns: {
            for xi: for row tile: M[xi] += V[xi] * U[xi]              (registers, as `contraction` does)
            for tile: vectors of o: Y = f(A^T M A) } }                (registers)

V and M of a slab stay in a cache, and no tile is computed twice; the weights U are transformed when the module is built
(Lavin and Gray, CVPR 2016; that tiles are the rows of products is theirs too, section 4.1).

A plane of dynamic size may have few tiles of a filter. Its products are direct then, of weights that stand behind the
transformed ones:

    if tiles >= least: (as above) else: for ...: C += X[...] * W'[first + o // 32 * 9 + i * 3 + j, c, o % 32]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir import stmt as s_stmt

from ....costmodels.device import Device
from ....costmodels.register_tiles import Tile, register_tiles, tile_cycles
from ...base.decisions import Alternative
from ..base.blocks import FUNCTION, BlockInfo
from ..base.draft import Draft
from ..base.nodes import Statement
from ..base.rewriting import point, rebuild, with_body, with_loop_body
from ..base.tiled import Tiled
from ..base.winograd_filters import FILTERS, TAPS, Filter, WinogradWeights
from ..tiling.register_tile import UNROLLED_PRODUCTS, TilePlan, cut_tile, finish_tile, share
from ..tiling.tiles import FLOAT_BYTES
from ..winograd.function import COPY, INPUT, LEAST_SLAB, OUTPUT, PRODUCT, WinogradTiling, rewrite_function
from ..winograd.match import FilteredConvolution, find_pooled_convolution
from .pointwise import schedule_prologues

CLEARLY = 1.1
"""The estimate of a minimal filter has to be below that of the direct products by this factor."""
PAGE_FLOATS = 1024
"""Elements of a page: of addresses that are a multiple of this apart, few fit a first cache at a time."""
SHIFT = 80
"""Elements that the places of a tile lie further apart than pages in V and M: an odd number of cache lines."""
ROW, COLUMN = 3, 4
"""Iterators of the product: tiles are its rows, output channels its columns."""
TRANSFORM = 1.3
"""Cycles of a transform per cycle of its instructions: some of its values do not fit the registers."""
EXPOSED = 0.4
"""The part of the traffic to a second cache, or of a long stream, that nothing hides: measured on the device `host`."""
FREE_ROWS = 8
"""Rows of a register tile if the number of tiles is dynamic: the last of a slab may have few."""
FEW_ROWS = 4
"""Rows of a register tile of the direct products of planes with few tiles."""
MOST_FEW = 32
"""Tiles from which on a filter is always taken: its register tiles are full."""
SLAB = range(8, 257)
"""Tiles of a slab, if there are as many: fewer would read the weights too often, more fit no second cache."""


def pooled_convolution(draft: Draft) -> Iterator[Tiled]:
    """The rule: matches a 3x3 convolution with a pooling behind it whose windows make up the tiles of a filter.

    The map between the two stays in registers, and nothing is computed twice (AGO, section III-B: intensive fusion).
    """
    convolution = find_pooled_convolution(draft)
    tiled = winograd(draft, convolution) if convolution is not None else None
    if tiled is not None:
        yield replace(tiled, rule=pooled_convolution.__name__)


def winograd(
    draft: Draft,
    convolution: FilteredConvolution,
    direct: float = inf,
    tile_few: Callable[[Draft, Tile], Tiled] | None = None,
) -> Tiled | None:
    """The convolution by the filter that is decided for it; None if its products are to be taken directly.

    The draft holds the function as `find_anchor` leaves it, and is not changed. `direct`: cycles of direct products.
    `tile_few` computes direct products by a register tile; planes of dynamic size, which may have few tiles, need it.
    """
    pooling = convolution.pooling
    windows = (1, 1) if pooling is None else (pooling.rows, pooling.columns)
    filters = [each for each in FILTERS if not any(each.size % extent for extent in windows)]
    options: list[Alternative[Filter | None]] = [Alternative("direct", direct, None)]
    plans_of = {
        each.size: {n: _list_plans(draft, convolution, each, n) for n in _list_slab_counts(convolution, each)}
        for each in filters
    }
    for each in filters:
        cycles = min(plan.cycles for plans in plans_of[each.size].values() for plan in plans)
        options.append(Alternative(f"winograd {each.size}", CLEARLY * cycles, each))
    chosen = draft.trace.choose("algorithm", options)
    if chosen is None:
        return None
    plans = plans_of[chosen.size]
    slabs = draft.trace.decide_number("slabs", list(plans), lambda n: min(plan.cycles for plan in plans[n]))
    plan = draft.trace.decide("tile", plans[slabs], lambda plan: plan.cycles)
    tiling = _find_tiling(convolution, chosen, slabs, plan.tile, draft.device)
    packing = WinogradWeights(convolution.weights, chosen.size, plan.tile.columns, convolution.may_be_small)
    products = read_direct_weights(draft, convolution.anchor, tiling) if convolution.may_be_small else None
    draft = replace(draft, schedule=s_tir.Schedule(rewrite_function(draft.function, tiling)))
    slab, rows = _schedule(draft, plan)
    schedule_prologues(draft, draft.inspect(draft.schedule.get_sblock(OUTPUT)))
    if convolution.is_free:
        draft = _leave_out_tiles(draft, tiling, slab, rows)
    if products is None:
        return Tiled(draft, "winograd", (packing,))
    tile = replace(plan.tile, rows=FEW_ROWS)
    least = least_tiles(tiling, tile, lambda each: _estimate_cycles(each, plan.tile, draft.device), draft.device)
    assert tile_few is not None
    few = tile_few(products, tile)
    return Tiled(draft, "winograd", (packing,), conditions=(tiling.count >= least,), smaller=few)


def _schedule(draft: Draft, plan: TilePlan) -> tuple[Any, Any]:
    """The result are the loops over slabs, and over the rows of products."""
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
    return slab, outer[product.spatial.index(ROW)]


def _leave_out_tiles(draft: Draft, tiling: WinogradTiling, slab: Any, rows: Any) -> Draft:
    """A draft without the products of rows behind the last tile, if the number of tiles is dynamic."""
    slabs, loop = (draft.schedule.get(each).loop_var for each in (slab, rows))
    first = slabs * tiling.slab + loop * tiling.rows

    def rewrite(node: Statement) -> Statement:
        rebuilt = rebuild(node, rewrite)
        if not isinstance(node, tirx.For) or not node.loop_var.same_as(loop):
            return rebuilt
        needed = tirx.likely(first < tiling.count)
        return with_loop_body(rebuilt, tirx.IfThenElse(needed, rebuilt.body, None))

    return draft.with_body(rewrite(draft.function.body))


# --- tilings, and their estimated cycles: products, transforms, and traffic between caches


def _list_slab_counts(convolution: FilteredConvolution, filter: Filter) -> list[int]:
    """The numbers of slabs that differ in the size of these."""
    tiles = WinogradTiling(filter, convolution, 1, 1, (1, 1)).tiles
    sizes = range(LEAST_SLAB, SLAB.stop) if convolution.is_free else SLAB
    return sorted({-(-tiles // min(size, tiles)) for size in sizes})


def _list_plans(draft: Draft, convolution: FilteredConvolution, filter: Filter, slabs: int) -> list[TilePlan]:
    """The register tiles of the products whose columns divide the output channels; cycles are of the whole.

    Tiles that leave a loop over channels come alone, if there are any: without a loop LLVM loads all weights in front
    of the loop over the tiles.
    """
    device, outputs = draft.device, convolution.outputs[3]
    rows = WinogradTiling(filter, convolution, slabs, 1, (1, 1)).slab
    most = FREE_ROWS if convolution.is_free else rows
    tiles = [t for t in register_tiles(rows, outputs, device, window=False) if t.rows <= most]
    whole = [t for t in tiles if outputs % t.columns == 0]
    looped = [t for t in whole if convolution.channels > UNROLLED_PRODUCTS // (t.rows * t.vectors)]
    idle = -(-slabs // draft.threads) * draft.threads / slabs
    tilings = [(tile, _find_tiling(convolution, filter, slabs, tile, device)) for tile in looped or whole]
    return [TilePlan(COLUMN, ROW, tile, idle * _estimate_cycles(tiling, tile, device)) for tile, tiling in tilings]


def _find_tiling(
    convolution: FilteredConvolution, filter: Filter, slabs: int, tile: Tile, device: Device
) -> WinogradTiling:
    """The tiling for a register tile."""
    lanes = device.lanes
    while convolution.source.shape[3] % lanes:
        lanes //= 2
    return WinogradTiling(filter, convolution, slabs, tile.columns, (lanes, tile.lanes), tile.rows)


def _estimate_cycles(tiling: WinogradTiling, tile: Tile, device: Device) -> float:
    """Cycles on one thread."""
    channels, outputs = tiling.convolution.channels, int(tiling.convolution.outputs[3])
    products = tiling.filter.products * tile_cycles(tile, tiling.computed, outputs, channels, device)
    return tiling.slabs * (products + _transform_cycles(tiling, device)) + _traffic_cycles(tiling, device)


def _transform_cycles(tiling: WinogradTiling, device: Device) -> float:
    """Cycles for inputs and outputs of a slab: arithmetic, loads and stores of vectors, one after the other."""
    conv, filter, rows = tiling.convolution, tiling.filter, tiling.computed
    elements = filter.size**2
    loads = filter.products / device.load_ports
    arithmetic = 2 * filter.window * filter.input_operations / device.fma_ports
    inputs = arithmetic + loads + filter.products / device.store_ports
    arithmetic = (filter.window + filter.size) * filter.output_operations / device.fma_ports
    outputs = arithmetic + loads + elements / device.store_ports + elements / device.load_ports
    vectors = (conv.channels // tiling.lanes[0], int(conv.outputs[3]) // tiling.lanes[1])
    return TRANSFORM * rows * (vectors[0] * inputs + vectors[1] * outputs)


def _traffic_cycles(tiling: WinogradTiling, device: Device) -> float:
    """Cycles for V and M of all slabs if they do not fit the first cache, and for the weights in every slab.

    The first slab reads the weights from memory: between two runs the rest of a model has the caches.
    """
    conv, place = tiling.convolution, FLOAT_BYTES * tiling.filter.products
    outputs = int(conv.outputs[3])
    kept = place * tiling.computed * (conv.channels + tiling.columns)
    moved = 2 * place * tiling.computed * (conv.channels + outputs) * tiling.slabs
    between = moved / device.bandwidth(2 * kept) if 2 * kept > device.caches[0].size else 0.0
    weights = place * conv.channels * outputs
    again = (tiling.slabs - 1) * weights / device.bandwidth(2 * weights)
    exposed = EXPOSED if 2 * kept <= device.second_cache else 1.0
    return device.clock * (exposed * between + EXPOSED * again) + weights / device.dram_bandwidth * device.clock


# --- planes of dynamic size with few tiles


def least_tiles(
    tiling: WinogradTiling, tile: Tile, cycles_of: Callable[[WinogradTiling], float], device: Device
) -> int:
    """The number of tiles of the filter from which on it is estimated to be faster than direct products.

    `tile` is that of the direct products; `cycles_of` estimates the filter for a tiling of fixed sizes.
    """
    conv, size = tiling.convolution, tiling.filter.size
    channels, outputs = conv.channels, int(conv.outputs[3])
    weights = FLOAT_BYTES * TAPS**2 * channels * outputs
    for count in range(1, MOST_FEW):
        fixed = replace(conv, outputs=(1, size, size * count, outputs))
        filtered = cycles_of(replace(tiling, convolution=fixed, slabs=1))
        direct = tile_cycles(tile, size**2 * count, outputs, TAPS**2 * channels, device)
        if filtered < direct + weights / device.dram_bandwidth * device.clock:
            return count
    return MOST_FEW


def read_direct_weights(draft: Draft, anchor: BlockInfo, tiling: WinogradTiling) -> Draft:
    """A draft whose sum reads the weights that stand behind the transformed ones."""
    function, columns = draft.function, tiling.columns
    before = function.params[tiling.convolution.weights]
    count = int(before.shape[0]) // columns
    first = count * tiling.filter.products
    shape = (first + count * TAPS**2, before.shape[1], columns)
    packed = tirx.decl_buffer(shape, "float32", str(before.name))

    def place_of(o: Any, c: Any, i: Any, j: Any) -> tuple[Any, ...]:
        return (first + o // columns * TAPS**2 + i * TAPS + j, c, o % columns)

    def load(part: Any) -> Any:
        is_weight = part.source.same_as(before)
        return tirx.BufferLoad(packed, place_of(*part.indices)) if is_weight else part

    def rewrite(node: Statement) -> Statement:
        is_sum = isinstance(node, s_stmt.SBlockRealize) and str(node.block.name_hint) == anchor_name
        if not is_sum:
            return rebuild(node, rewrite)
        block, store = node.block, node.block.body
        value = tvm_ffi.structural_map(store.value, [(ir.TensorLoad, load)])
        reads = [
            point(packed, place_of(*(r.min for r in region.region))) if region.source.same_as(before) else region
            for region in block.reads
        ]
        body = with_body(block, tirx.BufferStore(store.buffer, value, store.indices), reads=reads)
        return s_stmt.SBlockRealize(node.iter_values, node.predicate, body)

    anchor_name = str(draft.schedule.get(anchor.block).name_hint)
    params = [packed if p.same_as(before) else p for p in function.params]
    changed = tirx.PrimFunc(params, rewrite(function.body), function.ret_type, function.attrs)
    return replace(draft, schedule=s_tir.Schedule(tvm.IRModule({FUNCTION: changed})))
