"""Intensive fusion of two convolutions (AGO, section III-B): the second reads what the first made in the cache.

The second is depthwise, or pools: its channels are tiled, pixels are not (Fig. 6, downstream depthwise)::

    for p, c, k: A += X * W1; for h, w, c: P = pad(f(A)); for h, w, c, kh, kw: D += P * W2; Y = g(D)
 => parallel c tile: { for h, w tile: A (registers); P[h, w tile] = f(A); for h, w tile: D (registers); Y = g(D) }

The second is pointwise: rows of pixels are tiled, its output channels are not (downstream pointwise)::

    for h, w, c..: A += ...; for p, o, c: B += f(A) * W2; Y = g(B)
 => parallel h tile: { for w, c tile: A (registers); F[h tile] = f(A); for o, w tile: B (registers); Y = g(B) }

The first may be a product or depthwise itself. No tile of one overlaps another, so nothing is computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2, prod
from typing import Any

from ..axes import fuse_pixels
from ..blocks import BlockInfo
from ..channels import (
    best_window,
    compute_prologues,
    decide_slab,
    decide_window,
    fitting_rows,
    is_channel_window,
    is_channelwise,
    pack_channels,
    schedule_window,
    window_cycles,
    window_tiles,
)
from ..contraction import decide_plan, list_plans, order_tiles, pack_operands
from ..draft import Draft, Scheduled
from ..pointwise import schedule_prologues, vectorise_last
from ..tails import overlap_tails
from ..tiling.register_tile import TilePlan, counterpart, cut_tile, finish_tile, share
from ..tiling.tiles import FLOAT_BYTES, largest_divisor
from .outlining import OUTLINED, outline_loops


@dataclass(frozen=True)
class ConvolutionPair:
    """Two reductions, the block between them that the second reads, and the block of the output."""

    first: BlockInfo
    between: BlockInfo
    second: BlockInfo
    epilogue: BlockInfo

    @property
    def plane_bytes(self) -> int:
        """Bytes of one channel of the map between them."""
        return FLOAT_BYTES * prod(self.between.extents[:-1])


def convolution_pair(draft: Draft) -> Scheduled | None:
    """The rule: matches two reductions over feature maps with their channels last, the second reading the first."""
    pair = _find_pair(draft)
    if pair is None:
        return None
    is_per_channel = pair.second.spatial[-1] in pair.second.read_of(pair.between).used
    if is_per_channel and is_channelwise(draft, pair.second, pair.epilogue):
        return _tile_channels(draft, pair)
    return _tile_pixels(draft, pair) if pair.second.is_product_sum() else None


def _find_pair(draft: Draft) -> ConvolutionPair | None:
    """The pair, after inlining; None where the function is no such pair."""
    blocks = draft.blocks()
    reductions = [block for block in blocks if block.reduced]
    if len(reductions) != 2 or any(block.has_booleans() for block in blocks):
        return None
    first, second = (block.name for block in reductions)
    for block in blocks:  # but for paddings in front of the first, and the last block before the second
        readers = {user.name for user in draft.consumers(block)}
        if draft.may_inline(block) and second not in readers and (block.is_cheap() or first not in readers):
            draft.inline(block)
    handles = [block.block for block in reductions]
    between = _find_between(draft, *map(draft.inspect, handles))
    after = draft.consumers(draft.inspect(handles[1]))
    if not after:
        draft.schedule.cache_write(handles[1], 0, "global")
        after = draft.consumers(draft.inspect(handles[1]))
    if between is None or len(after) != 1 or after[0].reduced:
        return None
    return ConvolutionPair(*map(draft.inspect, (handles[0], between.block, handles[1], after[0].block)))


def _find_between(draft: Draft, first: BlockInfo, second: BlockInfo) -> BlockInfo | None:
    """The only block that reads the first reduction, and that the second reads; a copy where there is none."""
    users = draft.consumers(first)
    if [user.name for user in users] == [second.name]:
        draft.schedule.cache_write(first.block, 0, "global")
        users = draft.consumers(draft.inspect(first.block))
    if len(users) != 1 or draft.is_output(users[0]):
        return None
    return users[0] if [reader.name for reader in draft.consumers(users[0])] == [second.name] else None


# --- downstream depthwise: channels are tiled


def _tile_channels(draft: Draft, pair: ConvolutionPair) -> Scheduled | None:
    schedule = draft.schedule
    plan = _decide_first_plan(draft, pair)
    columns = plan.tile.columns if plan is not None else _decide_window_columns(draft, pair)
    if columns is None:
        return None
    packed = pack_operands(draft, pair.first, plan) if plan is not None else pack_channels(draft, pair.first)
    repack = (*packed, *pack_channels(draft, pair.second))
    *outer, height, width, channel = draft.loops(pair.epilogue)
    tiles, channel = schedule.split(channel, [None, columns])
    schedule.reorder(*outer, tiles, height, width, channel)
    windows = [pair.second] if plan is not None else [pair.first, pair.second]
    cycles = sum(window_cycles(each, best_window(each, draft.device), draft.device) for each in windows)
    loop = share(draft, [*outer, tiles], cycles + (plan.cycles if plan is not None else 0.0))[-1]
    depth = len(draft.loops(pair.epilogue)) - 3
    _schedule_part(draft.within("second"), pair.second, (height, width, channel), columns)
    draft.compute_at(pair.between.block, loop)
    if draft.is_padding(pair.between, draft.loops(pair.between)[depth]):
        border = schedule.decompose_padding(pair.between.block, draft.loops(pair.between)[depth])
        vectorise_last(draft, border)
    if plan is not None:
        _schedule_first_product(draft, pair, plan, depth)
        schedule_prologues(draft, pair.epilogue)
    elif draft.inspect(pair.between.block).extents != pair.first.extents[: len(pair.first.spatial)]:
        return None  # a border that could not be taken apart
    else:
        _, *plane = draft.loops(pair.between)[depth:]
        compute_prologues(draft, _schedule_part(draft.within("first"), pair.first, tuple(plane), columns))
    return _finish(draft, pair, depth, repack)


def _decide_first_plan(draft: Draft, pair: ConvolutionPair) -> TilePlan | None:
    """The plan of the first product: its columns divide the channels, and their plane fits half of the second cache."""
    first, column = pair.first, len(pair.first.spatial) - 1
    if not first.is_product_sum():
        return None
    plans = list_plans(draft, first, pair.between)
    fitting = [p for p in plans if pair.plane_bytes * p.tile.columns <= draft.device.second_cache // 2]
    whole = [p for p in fitting if p.column == column and first.extents[column] % p.tile.columns == 0]
    return decide_plan(draft.within("first"), whole)


def _decide_window_columns(draft: Draft, pair: ConvolutionPair) -> int | None:
    """The channels of a tile of two windows: vectors that divide all, whose plane fits half of the second cache."""
    if not is_channel_window(draft, pair.first):
        return None
    channels, lanes = pair.between.extents[-1], draft.device.lanes
    most = min(channels, draft.device.second_cache // 2 // pair.plane_bytes)
    columns = [n for n in range(lanes, most + 1, lanes) if channels % n == 0]
    return draft.trace.decide_number("columns", columns, lambda number: 1.0 + log2(number)) if columns else None


def _schedule_part(draft: Draft, window: BlockInfo, plane: tuple[Any, ...], columns: int) -> Any:
    """Register tiles of a window that divide that many channels; the result is the loop over tiles of channels."""
    anchor, device = draft.inspect(window.block), draft.device
    narrow = [tile for tile in window_tiles(anchor, device) if columns % tile.columns == 0]
    tile = draft.trace.decide("tile", narrow, lambda tile: window_cycles(anchor, tile, device))
    height, width, channel = plane
    return schedule_window(draft, anchor, tile, (height, width, channel))


# --- downstream pointwise: rows of pixels are tiled


def _tile_pixels(draft: Draft, pair: ConvolutionPair) -> Scheduled | None:
    schedule = draft.schedule
    flat = fuse_pixels(draft, pair.second, pair.epilogue, operand=False) if len(pair.second.spatial) == 4 else None
    if flat is None:
        return None
    second, epilogue = flat
    slab = pair.between.extents[2] * _decide_slab_rows(draft, pair)
    second_plans = list_plans(draft, second, epilogue)
    whole = [p for p in second_plans if (p.row, p.column) == (1, 2) and slab % p.tile.rows == 0]
    plan, first = decide_plan(draft.within("second"), whole), None
    if pair.first.is_product_sum():
        axes = (len(pair.first.spatial) - 2, len(pair.first.spatial) - 1)
        plans = [p for p in list_plans(draft, pair.first, pair.between) if (p.row, p.column) == axes]
        first = decide_plan(draft.within("first"), plans)
    if plan is None or (first is None and not is_channelwise(draft, pair.first, pair.between)):
        return None
    repack = pack_operands(draft, second, plan)
    repack += pack_operands(draft, pair.first, first) if first is not None else pack_channels(draft, pair.first)
    batch, pixels, column = draft.loops(epilogue)
    slabs, pixels = schedule.split(pixels, [None, slab])
    loop = share(draft, [batch, slabs], plan.cycles)[-1]
    depth = len(draft.loops(epilogue)) - 2
    part = draft.within("second")
    order = [i for i in order_tiles(part, second, plan) if i in (plan.row, plan.column)]
    outer, inner = cut_tile(part, plan, {plan.row: pixels, plan.column: column}, order)
    finish_tile(part, second, epilogue, plan, [*draft.loops(epilogue)[:depth], *outer], inner)
    draft.compute_at(pair.between.block, loop)
    if first is not None:
        _schedule_first_product(draft, pair, first, depth)
        schedule_prologues(draft, epilogue)
    else:
        anchor = draft.inspect(pair.first.block)
        _, height, width, channel = draft.loops(pair.between)[depth:]
        tile = decide_window(draft.within("first"), anchor)
        compute_prologues(draft, schedule_window(draft, anchor, tile, (height, width, channel)))
    return _finish(draft, pair, depth, repack)


def _decide_slab_rows(draft: Draft, pair: ConvolutionPair) -> int:
    """Rows of the plane at a time: their elements fit a quarter of the second cache.

    The operands of a window, for a tile of channels, also fit half of the first.
    """
    _, height, width, count = pair.between.extents
    rows = min(height, max(1, draft.device.second_cache // 4 // (FLOAT_BYTES * width * count)))
    if is_channelwise(draft, pair.first, pair.between):
        rows = min(rows, fitting_rows(pair.first, best_window(pair.first, draft.device), draft.device))
    return decide_slab(draft, height, largest_divisor(height, rows))


# --- both


def _schedule_first_product(draft: Draft, pair: ConvolutionPair, plan: TilePlan, depth: int) -> None:
    """Put the register tiles of the first product into the loops of the block between."""
    between, part = draft.inspect(pair.between.block), draft.within("first")
    own = draft.loops(between)[depth:]
    loops = {i: own[counterpart(pair.first, between, i)] for i in pair.first.spatial}
    outer, inner = cut_tile(part, plan, loops, order_tiles(part, pair.first, plan))
    finish_tile(part, pair.first, between, plan, [*draft.loops(between)[:depth], *outer], inner)


def _finish(draft: Draft, pair: ConvolutionPair, depth: int, repack: tuple[Any, ...]) -> Scheduled:
    draft.schedule.annotate(draft.loops(pair.between)[depth], OUTLINED, 1)
    return Scheduled(outline_loops(overlap_tails(draft)).schedule, repack, "convolution_pair")
