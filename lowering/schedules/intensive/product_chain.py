"""Intensive fusion of matrix products (AGO, section III-B): what a later product reads is made tile by tile, in cache.

    for i, j, k: S[i, j] += Q[i, k] * K[k, j]; for i, j: P = softmax(S * scale + mask); for i, d, j: Y += P * V[j, d]
 => parallel outer axes, row tiles:
        S'[rows, all j] = Q[rows, :] K (by register tiles); for row: softmax; Y[rows, :] = P' V (by register tiles)

A tile of rows runs through the whole chain: products, and row-wise blocks between and after them. The tiles' loops are
axes that every block of the chain has, so no block does anything for two of them (section III-B, Fig. 7: matrix
products tile rows and keep columns whole), and what is kept between blocks is a tile of rows. Attention to many keys
runs through them block by block (`flash_attention.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd, prod
from types import MappingProxyType
from typing import Any

from ....costmodels.device import Device
from ....costmodels.device_file import CACHE_LINE
from ...base.decisions import Alternative
from ..base.blocks import BlockInfo
from ..base.draft import Draft
from ..base.tiled import Tiled
from ..passes.outlining import OUTLINED
from ..rules.contraction import decide_plan, list_plans, pack_operands
from ..rules.pointwise import schedule_pointwise
from ..rules.rows import register_reducers, split_reduction, vectorise_partial_result
from ..tiling.register_tile import TilePlan, counterpart, cut_tile, finish_tile, share
from ..tiling.tiles import FLOAT_BYTES
from .block_chain import BlockChain, ChainBlock, find_chain
from .flash_attention import KeyBlocks, find_attention, guard_rows, rewrite_by_keys

UNROLLED_STEPS = 8
"""Steps of a loop of vectors up to which LLVM unrolls it completely: its constants then stay in the loop around it."""
SINGLE_ROWS, ROW_STEP = 64, 8
"""Numbers of rows that are tried: all up to the first, then multiples of the second."""
KEYS = (128, 192, 256, 384)
"""Keys of a block, about: fewer would start too many loops, more fit no near cache with their rows."""
KEY_ROWS = (8, 16, 24, 32, 48, 54, 60, 64, 66, 80, 96, 128)
"""Rows of a tile that are tried with them: many are multiples of both 4 and 6 rows of register tiles."""
ROW_CYCLES = 80
"""Cycles in which a row's maximum and sum come out of their vectors, once for each block of keys."""
EXPOSED = 0.4
"""The part of the traffic for keys and values that nothing hides: they are read in the order in which they lie. That
for scores within the second cache is hidden by the exponentials (measured on Zen 3: 67 MB more took 2 ms of 9)."""
PAGE = 4096
"""Bytes after which addresses share sets of a first cache, which takes the low bits of an address within a page."""
WHOLE_ROWS = 1.085
"""How many times as long attention by whole rows takes as estimated, beside that by blocks of keys: each of its tiles
of few rows reads all keys from the second cache. Blocks took 1.04 of its time with 256 keys, 0.9 with 512, and 0.8
with 1,024 (Zen 3)."""
TILE_CYCLES = 300
"""Cycles that a tile takes besides its arithmetic: memory for what it keeps, a call, loops that start."""


def product_chain(draft: Draft) -> Iterator[Tiled]:
    """The rule: matches a product sum whose rows are read by further product sums or row-wise reductions.

    Attention may keep the scores of a tile of rows for all keys, or for a block of keys at a time.
    """
    register_reducers()
    chain = find_chain(draft)
    if chain is None:
        return
    whole, by_keys = list(_list_row_tiles(draft, chain)), list(_list_key_tiles(draft, chain))
    ways = [Alternative("whole rows", WHOLE_ROWS * min(tile.seconds for tile in whole), False)] if whole else []
    if by_keys:
        ways.append(Alternative("blocks of keys", min(tile.seconds for tile in by_keys), True))
    if not ways:
        return
    if draft.trace.choose("scores", ways):
        key_tile = draft.trace.decide("block", by_keys, lambda tile: tile.seconds)
        yield Tiled(_schedule_by_keys(draft, key_tile), product_chain.__name__)
        return
    tile = draft.trace.decide("rows", whole, lambda tile: tile.seconds)
    plans = []
    for number, product in enumerate(chain.products, 1):
        plan = decide_plan(draft.within(f"product {number}"), _list_product_plans(draft, chain, product, tile.rows))
        assert plan is not None  # these rows were chosen since there is one
        plans.append(plan)
    links = list(zip(chain.products, plans, strict=True))
    repack = tuple(repack for product, plan in links for repack in pack_operands(draft, product.info, plan))
    _schedule(draft, chain, tile, plans)
    yield Tiled(draft, product_chain.__name__, repack)


# --- how many rows at once


@dataclass(frozen=True)
class RowTile:
    """Rows of a tile, and estimates for the chain: `seconds` with all threads, `cycles` with one."""

    rows: int
    seconds: float
    cycles: float

    @property
    def label(self) -> str:
        """``8 rows``."""
        return f"{self.rows} rows"

    @property
    def features(self) -> Mapping[str, float]:
        """The numbers that a learned model judges it by."""
        return {"rows": self.rows}


def _list_row_tiles(draft: Draft, chain: BlockChain) -> Iterator[RowTile]:
    """The tiles that fit half of the second cache."""
    few = range(1, min(chain.rows, SINGLE_ROWS) + 1)
    for rows in sorted({*few, *range(SINGLE_ROWS, chain.rows, ROW_STEP), chain.rows}):
        tile = _estimate_tile(draft, chain, rows)
        if tile is not None:
            yield tile


def _estimate_tile(draft: Draft, chain: BlockChain, rows: int) -> RowTile | None:
    kept, device = rows * chain.kept_elements * FLOAT_BYTES, draft.device
    if kept > device.second_cache // 2:
        return None
    cycles: float = 0
    for product in chain.products:
        plans = _list_product_plans(draft, chain, product, rows)
        best = min((plan.cycles for plan in plans), default=None)
        if best is None:
            return None
        cycles += best
    seconds = _tile_seconds(cycles, kept, chain.shared_elements * FLOAT_BYTES, device)
    tiles = chain.copies * -(-chain.rows // rows)
    return RowTile(rows, -(-tiles // draft.threads) * seconds, tiles * seconds * device.clock)


def _tile_seconds(cycles: float, kept: int, shared: int, device: Device) -> float:
    """Seconds for a tile that keeps some bytes, and reads others that every tile reads.

    Bytes that stay in the second cache beside the kept ones are there when they are needed; the others are waited for.
    """
    computing, reading = (cycles + TILE_CYCLES) / device.clock, shared / device.bandwidth(shared + kept)
    seconds = max(computing, reading) if shared + kept <= device.second_cache else computing + reading
    return seconds + (2 * kept / device.bandwidth(kept) if kept > device.caches[0].size // 2 else 0.0)


def _list_product_plans(
    draft: Draft, chain: BlockChain, product: ChainBlock, rows: int, narrowed: Mapping[int, int] = MappingProxyType({})
) -> Iterator[TilePlan]:
    """The register tiles of a product on a tile of rows: they divide the tile, unless it is all rows.

    `narrowed` has the extents of iterators of which a tile has a part only.
    """
    extents = [1 if i in product.axes else narrowed.get(i, extent) for i, extent in enumerate(product.info.extents)]
    extents[product.row] = rows
    anchor = replace(product.info, extents=tuple(extents))
    for plan in list_plans(draft, anchor, chain.epilogue(product).info):
        divides = rows % plan.tile.rows == 0 or rows == chain.rows
        if plan.row == product.row and plan.column not in product.axes and divides:
            yield plan


# --- blocks of keys


@dataclass(frozen=True)
class KeyTile:
    """Rows of a tile and keys of a block, register tiles for the two products, and estimates as of `RowTile`."""

    by: KeyBlocks
    plans: tuple[TilePlan, TilePlan]
    seconds: float
    cycles: float

    @property
    def label(self) -> str:
        """``128 keys 64 rows``."""
        return f"{self.by.size} keys {self.by.rows} rows"

    @property
    def features(self) -> Mapping[str, float]:
        """The numbers that a learned model judges it by."""
        return {"keys": self.by.size, "rows": self.by.rows}


def _list_key_tiles(draft: Draft, chain: BlockChain) -> Iterator[KeyTile]:
    """The tiles of rows and blocks of keys for attention, if there are several blocks, and no operand is a constant."""
    attention = find_attention(chain)
    if attention is None or attention.keys < 2 * KEYS[0]:
        return
    if any(draft.is_constant(read) for product in chain.products for read in product.info.reads):
        return
    lanes = draft.device.lanes
    counts = {max(2, round(attention.keys / size)) for size in KEYS}
    for size in sorted({-(-attention.keys // (count * 2 * lanes)) * 2 * lanes for count in counts}):
        widths = tuple(width for width in (4 * lanes, 2 * lanes, lanes) if size % width == 0)
        for rows in [rows for rows in KEY_ROWS if rows <= chain.rows]:
            tile = _estimate_key_tile(draft, KeyBlocks(attention, size, rows, (widths[0], lanes)))
            if tile is not None:
                yield tile


def _estimate_key_tile(draft: Draft, by: KeyBlocks) -> KeyTile | None:
    attention, device, chain = by.attention, draft.device, by.attention.chain
    plans = []
    for product in chain.products:
        along = attention.key_iterator(product.info)
        found = [
            plan for plan in _list_product_plans(draft, chain, product, by.rows, {along: by.size})
            if (by.size if plan.column == along else product.info.extents[plan.column]) % plan.tile.columns == 0
        ]  # fmt: skip
        if not found:
            return None
        plans.append(min(found, key=lambda plan: plan.cycles))
    width = prod(extent for i, extent in enumerate(attention.mixed.extents) if i not in chain.products[1].axes)
    width //= attention.keys
    scores, kept = (by.rows * elements * FLOAT_BYTES for elements in (2 * by.size, by.count * width))
    if scores + kept > device.second_cache // 2:
        return None
    of_block = sum(plan.cycles for plan in plans) + by.rows * (ROW_CYCLES + 2 * width / device.lanes)
    if _shares_sets(draft, attention.scores, plans[0]):
        by = replace(by, packed=plans[0].tile.columns)
        of_block += 2 * by.size * attention.scores.depth / device.lanes
    shared = chain.shared_elements * FLOAT_BYTES
    near = shared // by.count
    seconds = (by.count * of_block + TILE_CYCLES) / device.clock
    seconds += by.count * EXPOSED * near / device.bandwidth(near + scores)
    if shared + scores + kept > device.second_cache:
        seconds += EXPOSED * shared / device.bandwidth(shared + scores + kept)
    tiles = chain.copies * by.tiles
    all_seconds = -(-tiles // draft.threads) * seconds
    return KeyTile(by, (plans[0], plans[1]), all_seconds, tiles * seconds * device.clock)


def _shares_sets(draft: Draft, product: BlockInfo, plan: TilePlan) -> bool:
    """Whether the keys of a tile would better lie side by side: if vectors of them lie across lines of the cache, or so
    few sets of the first cache take their lines that they would not stay there for the next tile of queries."""
    (operand,) = product.operands(plan.column)
    stride = FLOAT_BYTES * operand.shape[operand.dimension_of(plan.column)]
    if stride % (FLOAT_BYTES * draft.device.lanes):
        return True
    sets = max(1, PAGE // gcd(stride, PAGE))
    lines = -(-plan.tile.columns * FLOAT_BYTES // CACHE_LINE)
    return product.depth * lines > min(sets, PAGE // CACHE_LINE) * draft.device.caches[0].size // PAGE


def _schedule_by_keys(draft: Draft, tile: KeyTile) -> Draft:
    """The draft of the function by blocks of keys, scheduled."""
    blocks = rewrite_by_keys(draft, tile.by)
    draft = draft.with_body(blocks.function.body)
    named = {info.name: info for info in draft.blocks()}
    chain = BlockChain(tuple(ChainBlock(named[name], axes, False) for name, axes in blocks.products))
    depth = len(share(draft, draft.loops(chain.last.info)[: len(tile.by.attention.chain.last.axes)], tile.cycles))
    plans = [replace(plan, row=plan.row + 1, column=plan.column + 1) for plan in tile.plans]
    if blocks.packed is not None:
        schedule_pointwise(draft.serial(), named[blocks.packed], draft.loops(named[blocks.packed])[depth + 1 :])
    for number, (product, plan) in enumerate(zip(chain.products, plans, strict=True), 1):
        _schedule_product(draft.within(f"product {number}"), chain, product, plan, depth + 1)
    for name in blocks.by_row:
        info = named[name]
        if not info.reduced:
            schedule_pointwise(draft.serial(), info, draft.loops(info)[depth + 2 :])
        elif len(info.spatial) == len(named[blocks.by_row[0]].spatial):
            vectorise_partial_result(draft, info.block)
    row = draft.loops(named[blocks.by_row[0]])[depth + 1]
    if tile.by.size > UNROLLED_STEPS * draft.device.lanes:
        draft.schedule.annotate(row, OUTLINED, 1)  # functions in a loop that LLVM does not unroll
    for name in blocks.together:
        if not named[name].reduced:
            schedule_pointwise(draft.serial(), named[name], draft.loops(named[name])[depth + 1 :])
    vectorise_partial_result(draft, named[blocks.total].block)
    if tile.by.attention.chain.rows % tile.by.rows:
        loop = draft.loops(named[blocks.total])[depth - 1]
        return guard_rows(draft, tile.by, draft.schedule.get(loop).loop_var)
    return draft


# --- the loops


def _schedule(draft: Draft, chain: BlockChain, tile: RowTile, plans: list[TilePlan]) -> None:
    outside = {block.name for block in draft.blocks()} - {block.name for block in chain.blocks}
    partial = {
        block.name: split_reduction(draft, block.info)
        for block in chain.blocks
        if block.is_row_wise and block.info.reduced
    }
    outer = _cut_rows(draft, chain, tile)
    for info in reversed(draft.blocks()):
        if info.name not in (*outside, chain.last.name):
            draft.compute_at(info.block, outer[-1])
    for group in chain.row_wise_groups():
        _schedule_row_wise(draft, chain, group, partial, len(outer))
    for number, (product, plan) in enumerate(zip(chain.products, plans, strict=True), 1):
        _schedule_product(draft.within(f"product {number}"), chain, product, plan, len(outer))
    for info in draft.blocks():
        if info.name in outside:
            schedule_pointwise(draft, info, draft.loops(info))


def _cut_rows(draft: Draft, chain: BlockChain, tile: RowTile) -> list[Any]:
    """The loops over tiles, the outermost in the output's block."""
    loops = draft.loops(chain.last.info)
    outer = [loops[i] for i in chain.last.axes]
    inner = [loop for i, loop in enumerate(loops) if i not in chain.last.axes]
    tiles, row = draft.schedule.split(outer.pop(), [None, tile.rows])
    single = [loop for loop in outer if draft.extent(loop) == 1]
    several = [loop for loop in outer if draft.extent(loop) > 1]
    draft.schedule.reorder(*single, *several, tiles, row, *inner)
    return [*single, *share(draft, [*several, tiles], tile.cycles)]


def _own_loops(draft: Draft, chain: BlockChain, block: ChainBlock, depth: int) -> dict[int, Any]:
    """The loops of a block inside of a tile, by iterator; the output's block has none along other axes than rows."""
    iterators = list(range(len(block.info.extents)))
    if block is chain.last:
        iterators = [block.row, *(i for i in iterators if i not in block.axes)]
    return dict(zip(iterators, draft.loops(block.info)[depth:], strict=True))


def _schedule_product(draft: Draft, chain: BlockChain, product: ChainBlock, plan: TilePlan, depth: int) -> None:
    """Put the register tiles of a product into the loops of its epilogue."""
    anchor, after = product.info, chain.epilogue(product)
    own = _own_loops(draft, chain, after, depth)
    prefix = draft.loops(after.info)[:depth]
    places = {i: counterpart(anchor, after.info, i) for i in anchor.spatial}
    loops = {i: own[place] for i, place in places.items() if place in own}
    order = _decide_order(draft, anchor.depth, plan, loops)
    outer, inner = cut_tile(draft, plan, loops, [*(i for i in loops if i not in order), *order])
    finish_tile(draft, anchor, after.info, plan, [*prefix, *outer], inner)


def _decide_order(draft: Draft, depth: int, plan: TilePlan, loops: Mapping[int, Any]) -> list[int]:
    """Rows and columns, the outer loop first: what streams fewer bytes, as fast as it can."""
    rows, columns = (draft.extent(loops[i]) for i in (plan.row, plan.column))
    sizes = [size * FLOAT_BYTES * depth for size in (rows, columns)]
    left, right = (size / draft.device.bandwidth(size) for size in sizes)
    by_columns = -(-columns // plan.tile.columns) * left + right
    by_rows = -(-rows // plan.tile.rows) * right + left
    alternatives = [
        Alternative("columns first", by_columns, [plan.column, plan.row]),
        Alternative("rows first", by_rows, [plan.row, plan.column]),
    ]
    return draft.trace.choose("order", alternatives)


def _schedule_row_wise(
    draft: Draft, chain: BlockChain, group: tuple[ChainBlock, ...], partial: Mapping[str, list[Any]], depth: int
) -> None:
    """Run the blocks of a group row by row, in the loops of its last one, with partial results in vectors."""
    *others, last = group
    own = _own_loops(draft, chain, last, depth)
    row = own.pop(last.row)
    draft.schedule.reorder(row, *own.values())
    longest = UNROLLED_STEPS * draft.device.lanes
    if last is not chain.last and any(not b.info.is_cheap() and b.info.extents[-1] > longest for b in group):
        draft.schedule.annotate(row, OUTLINED, 1)  # functions in a loop that LLVM does not unroll
    for handle in reversed([b for block in others for b in (*partial.get(block.name, ()), block.info.block)]):
        draft.compute_at(handle, row)
    for block in group:
        if not block.info.reduced:
            inside = draft.loops(block.info)[depth + 1 :]
            schedule_pointwise(draft.serial(), draft.inspect(block.info.block), inside)
        for handle in partial.get(block.name, ()):
            vectorise_partial_result(draft, handle)
