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

from tvm import s_tir

from ....costmodels.device import Device
from ..apart import APART, split_off
from ..channels import (
    best_window,
    choose_window,
    compute_before,
    decide_slab,
    fitting_rows,
    is_window,
    matches,
    pack_channels,
    window_cycles,
    window_tile,
    window_tiles,
)
from ..contraction import cheapest, pack, plans, tile_order
from ..decisions import decide, decide_number, scope
from ..packing import Scheduled
from ..pixels import flatten_pixels
from ..pointwise import schedule_before, vectorise_last
from ..preparation import can_decompose, is_cheap
from ..stages import FUNCTION, Stage, consumers, is_parameter, is_product_sum, may_inline, stage, stages
from ..tails import overlap_tails
from ..tiling.register_tile import Plan, counterpart, cut_tile, finish_tile, share
from ..tiling.tiles import FLOAT_BYTES, largest_divisor


@dataclass(frozen=True)
class Pair:
    """Two reductions, the block that writes what the second reads (of what the first made), and that of the output."""

    first: Stage
    between: Stage
    second: Stage
    epilogue: Stage


def convolution_pair(function: Any, device: Device, threads: int = 1) -> Scheduled | None:
    """The rule: matches two reductions over feature maps with their channels last, the second reading the first."""
    schedule = s_tir.Schedule(function)
    pair = find_pair(schedule)
    if pair is None:
        return None
    if _is_per_channel(pair) and matches(schedule.mod[FUNCTION], pair.second, pair.epilogue):
        return _into_channels(schedule, pair, device, threads)
    return _into_pixels(schedule, pair, device, threads) if is_product_sum(pair.second) else None


def _is_per_channel(pair: Pair) -> bool:
    """Whether a channel of the second reduction needs one channel of the first alone."""
    read = next(r for r in pair.second.reads if r.name == pair.between.write.name)
    return pair.second.spatial[-1] in read.used()


# --- finding the pair


def find_pair(schedule: s_tir.Schedule) -> Pair | None:
    """The pair, after inlining; None where the function is no such pair."""
    reductions = [s for s in stages(schedule) if s.reduced]
    if len(reductions) != 2 or any(s.has_booleans() for s in stages(schedule)):
        return None
    names = [s.write.name for s in reductions]
    _inline(schedule, names)
    first, second = (_named(schedule, name).block for name in names)
    between = _between(schedule, first, second)
    after = consumers(stages(schedule), stage(schedule, second))
    if not after:
        schedule.cache_write(second, 0, "global")
        after = consumers(stages(schedule), stage(schedule, second))
    if between is None or len(after) != 1 or after[0].reduced:
        return None
    return Pair(*(stage(schedule, block) for block in (first, between, second, after[0].block)))


def _named(schedule: s_tir.Schedule, name: str) -> Stage:
    return next(s for s in stages(schedule) if s.write.name == name)


def _inline(schedule: s_tir.Schedule, names: list[str]) -> None:
    """Inlines point-wise blocks but paddings in front of the first reduction, and the last before the second."""
    for current in stages(schedule):
        users = consumers(stages(schedule), current)
        if current.reduced or is_parameter(schedule.mod[FUNCTION], current.write.buffer):
            continue
        if not may_inline(stages(schedule), current) or any(user.write.name == names[1] for user in users):
            continue
        if is_cheap(current) or not any(user.write.name == names[0] for user in users):
            schedule.compute_inline(current.block)


def _between(schedule: s_tir.Schedule, first: Any, second: Any) -> Any | None:
    """The only block that reads the first reduction, and that the second reads; a copy where there is none."""
    result = stage(schedule, second).write.name
    users = consumers(stages(schedule), stage(schedule, first))
    if [user.write.name for user in users] == [result]:
        schedule.cache_write(first, 0, "global")
        users = consumers(stages(schedule), stage(schedule, first))
    if len(users) != 1 or is_parameter(schedule.mod[FUNCTION], users[0].write.buffer):
        return None
    readers = consumers(stages(schedule), users[0])
    return users[0].block if [reader.write.name for reader in readers] == [result] else None


# --- downstream depthwise: channels are tiled


def _into_channels(schedule: s_tir.Schedule, pair: Pair, device: Device, threads: int) -> Scheduled | None:
    plan = _plan_of_channels(schedule, pair, device)
    columns = plan.tile.columns if plan is not None else _columns_of_windows(schedule, pair, device)
    if columns is None:
        return None
    packed = pack(schedule, pair.first, plan) if plan is not None else pack_channels(schedule, pair.first)
    repacked = (*packed, *pack_channels(schedule, pair.second))
    *outer, height, width, channel = schedule.get_loops(pair.epilogue.block)
    tiles, channel = schedule.split(channel, [None, columns])
    schedule.reorder(*outer, tiles, height, width, channel)
    loop = share(schedule, [*outer, tiles], threads, _cycles_of_channels(pair, plan, device))[-1]
    depth = len(schedule.get_loops(pair.epilogue.block)) - 3
    with scope("second"):
        _window(schedule, pair.second.block, (height, width, channel), columns, device)
    schedule.compute_at(pair.between.block, loop, preserve_unit_loops=True)
    if can_decompose(schedule, pair.between, schedule.get_loops(pair.between.block)[depth]):
        border = schedule.decompose_padding(pair.between.block, schedule.get_loops(pair.between.block)[depth])
        vectorise_last(schedule, border, device)
    if plan is None and stage(schedule, pair.between.block).extents != pair.first.extents[: len(pair.first.spatial)]:
        return None  # a border that could not be taken apart
    if plan is not None:
        _first_product(schedule, pair, plan, depth, device)
        schedule_before(schedule, pair.epilogue, device, threads)
    else:
        with scope("first"):
            _, *plane = schedule.get_loops(pair.between.block)[depth:]
            compute_before(schedule, _window(schedule, pair.first.block, tuple(plane), columns, device), device)
    schedule.annotate(schedule.get_loops(pair.between.block)[depth], APART, 1)
    return Scheduled(split_off(overlap_tails(schedule)), repacked, "convolution_pair")


def _plan_of_channels(schedule: s_tir.Schedule, pair: Pair, device: Device) -> Plan | None:
    """The plan of the first product: its columns divide the channels, and their plane fits half of the second cache."""
    first, column = pair.first, len(pair.first.spatial) - 1
    if not is_product_sum(first):
        return None
    found = plans(schedule.mod[FUNCTION], first, pair.between, device)
    plane = FLOAT_BYTES * prod(pair.between.extents) // pair.between.extents[-1]
    fitting = [p for p in found if plane * p.tile.columns <= device.second_cache // 2]
    whole = [p for p in fitting if p.column == column and first.extents[column] % p.tile.columns == 0]
    with scope("first"):
        return cheapest(whole)


def _columns_of_windows(schedule: s_tir.Schedule, pair: Pair, device: Device) -> int | None:
    """Of two windows: vectors of channels that divide them all, whose plane fits half of the second cache."""
    if not is_window(schedule.mod[FUNCTION], pair.first):
        return None
    channels = pair.between.extents[-1]
    plane = FLOAT_BYTES * prod(pair.between.extents) // channels
    most = device.second_cache // 2 // plane
    found = [n for n in range(device.lanes, min(channels, most) + 1, device.lanes) if channels % n == 0]
    return decide_number("columns", found, lambda number: 1.0 + log2(number)) if found else None


def _cycles_of_channels(pair: Pair, plan: Plan | None, device: Device) -> float:
    windows = [pair.second] if plan is not None else [pair.first, pair.second]
    own = sum(window_cycles(stage, best_window(stage, device), device) for stage in windows)
    return own + (plan.cycles if plan is not None else 0.0)


def _window(schedule: s_tir.Schedule, block: Any, plane: tuple[Any, Any, Any], columns: int, device: Device) -> Any:
    """Register tiles of a window that divide so many channels; the loop over tiles of channels."""
    anchor = stage(schedule, block)
    narrow = [tile for tile in window_tiles(anchor, device) if columns % tile.columns == 0]
    tile = decide("tile", narrow, lambda tile: window_cycles(anchor, tile, device))
    return window_tile(schedule, anchor, tile, plane)


# --- downstream pointwise: rows of pixels are tiled


def _into_pixels(schedule: s_tir.Schedule, pair: Pair, device: Device, threads: int) -> Scheduled | None:
    flat = (
        flatten_pixels(schedule, pair.second, pair.epilogue, operand=False) if len(pair.second.spatial) == 4 else None
    )
    if flat is None:
        return None
    second, epilogue = flat
    slab = pair.between.extents[2] * _slab_rows(schedule, pair, device)
    plan, first = _plan_of_pixels(schedule, second, epilogue, slab, device), _first_plan(schedule, pair, device)
    if plan is None or (first is None and not matches(schedule.mod[FUNCTION], pair.first, pair.between)):
        return None
    repacked = pack(schedule, second, plan)
    repacked += pack(schedule, pair.first, first) if first is not None else pack_channels(schedule, pair.first)
    batch, pixels, column = schedule.get_loops(epilogue.block)
    slabs, pixels = schedule.split(pixels, [None, slab])
    loop = share(schedule, [batch, slabs], threads, plan.cycles)[-1]
    depth = len(schedule.get_loops(epilogue.block)) - 2
    with scope("second"):
        order = [i for i in tile_order(second, plan, device) if i in (plan.row, plan.column)]
        outer, cut = cut_tile(schedule, plan, {plan.row: pixels, plan.column: column}, order)
        finish_tile(schedule, second, epilogue, plan, [*schedule.get_loops(epilogue.block)[:depth], *outer], cut)
    schedule.compute_at(pair.between.block, loop, preserve_unit_loops=True)
    if first is not None:
        _first_product(schedule, pair, first, depth, device)
        schedule_before(schedule, epilogue, device, threads)
    else:
        compute_before(schedule, _first_window(schedule, pair, depth, device), device)
    schedule.annotate(schedule.get_loops(pair.between.block)[depth], APART, 1)
    return Scheduled(split_off(overlap_tails(schedule)), repacked, "convolution_pair")


def _plan_of_pixels(schedule: s_tir.Schedule, second: Stage, epilogue: Stage, slab: int, device: Device) -> Plan | None:
    """The plan of the second product whose rows divide the pixels of a slab."""
    found = plans(schedule.mod[FUNCTION], second, epilogue, device)
    with scope("second"):
        return cheapest(p for p in found if (p.row, p.column) == (1, 2) and slab % p.tile.rows == 0)


def _slab_rows(schedule: s_tir.Schedule, pair: Pair, device: Device) -> int:
    """Rows of the plane at a time: what is kept of them fits a quarter of the second cache.

    Of a window, what it reads for a tile of channels also fits half of the first.
    """
    _, height, width, count = pair.between.extents
    rows = min(height, max(1, device.second_cache // 4 // (FLOAT_BYTES * width * count)))
    if matches(schedule.mod[FUNCTION], pair.first, pair.between):
        rows = min(rows, fitting_rows(pair.first, best_window(pair.first, device), device))
    return decide_slab(height, largest_divisor(height, rows))


def _first_plan(schedule: s_tir.Schedule, pair: Pair, device: Device) -> Plan | None:
    first = pair.first
    if not is_product_sum(first):
        return None
    found = plans(schedule.mod[FUNCTION], first, pair.between, device)
    width, column = len(first.spatial) - 2, len(first.spatial) - 1
    with scope("first"):
        return cheapest(p for p in found if (p.row, p.column) == (width, column))


def _first_product(schedule: s_tir.Schedule, pair: Pair, plan: Plan, depth: int, device: Device) -> None:
    """The register tiles of the first product, in the loops of the block between."""
    between = stage(schedule, pair.between.block)
    own = schedule.get_loops(between.block)[depth:]
    loops = {i: own[counterpart(pair.first, between, i)] for i in pair.first.spatial}
    with scope("first"):
        outer, cut = cut_tile(schedule, plan, loops, tile_order(pair.first, plan, device))
        prefix = schedule.get_loops(between.block)[:depth]
        finish_tile(schedule, pair.first, between, plan, [*prefix, *outer], cut)


def _first_window(schedule: s_tir.Schedule, pair: Pair, depth: int, device: Device) -> Any:
    first = stage(schedule, pair.first.block)
    _, height, width, channel = schedule.get_loops(pair.between.block)[depth:]
    with scope("first"):
        tile = choose_window(first, device)
    return window_tile(schedule, first, tile, (height, width, channel))
