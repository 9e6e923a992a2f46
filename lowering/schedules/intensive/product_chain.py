"""Intensive fusion of matrix products (AGO, section III-B): what a later product reads is made tile by tile, in cache.

    for i, j, k: S[i, j] += Q[i, k] * K[k, j]; for i, j: P = softmax(S * scale + mask); for i, d, j: Y += P * V[j, d]
 => parallel outer axes, row tiles:
        S'[rows, all j] = Q[rows, :] K (by register tiles); for row: softmax; Y[rows, :] = P' V (by register tiles)

A tile of rows runs through the whole chain: products, and row-wise stages between and after them. The tiles' loops are
axes that every block of the chain has, so no block does anything for two of them (section III-B, Fig. 7: matrix
products tile rows and keep columns whole), and what is kept between blocks is a tile of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tvm import s_tir, tirx

from ....costmodels.device import Device
from ..apart import APART, split_off
from ..contraction import pack
from ..decisions import Named, decide, scope
from ..packing import Scheduled
from ..pointwise import schedule_pointwise
from ..preparation import is_cheap
from ..reducers import register_reducers
from ..rows import partial_results, vectorise_partial
from ..stages import Stage, stage, stages
from ..tails import overlap_tails
from ..tiling.register_tile import Plan, counterpart, cut_tile, finish_tile, share
from ..tiling.tiles import FLOAT_BYTES
from .chain_stages import Chain, Link, find_chain
from .chain_tiles import ChainPlan, choose_tile

UNROLLED_STEPS = 8
"""Steps of a loop of vectors up to which LLVM unrolls it completely: its constants then stay in the loop around it."""


def product_chain(function: tirx.PrimFunc, device: Device, threads: int = 1) -> Scheduled | None:
    """The rule: matches a product sum whose rows are read by further product sums or row-wise reductions."""
    register_reducers()
    schedule = s_tir.Schedule(function)
    chain = find_chain(schedule)
    plan = None if chain is None else choose_tile(schedule, chain, device, threads)
    if chain is None or plan is None:
        return None
    links = zip(chain.products, plan.products, strict=True)
    repacked = tuple(repack for link, product in links for repack in pack(schedule, link.stage, product))
    _schedule(schedule, chain, plan, device, threads)
    return Scheduled(split_off(overlap_tails(schedule)), repacked, "product_chain")


def _schedule(schedule: s_tir.Schedule, chain: Chain, plan: ChainPlan, device: Device, threads: int) -> None:
    outside = {s.write.name for s in stages(schedule)} - {link.name for link in chain.links}
    partial = {
        link.name: partial_results(schedule, link.stage, device)
        for link in chain.links
        if link.is_row_wise and link.stage.reduced
    }
    outer = _tile_loops(schedule, chain, plan, threads)
    for current in reversed(stages(schedule)):
        if current.write.name not in (*outside, chain.last.name):
            schedule.compute_at(current.block, outer[-1], preserve_unit_loops=True)
    for group in chain.row_wise_groups():
        _row_wise(schedule, chain, group, partial, len(outer), device)
    for number, (link, product) in enumerate(zip(chain.products, plan.products, strict=True)):
        with scope(f"product {number + 1}"):
            _product(schedule, chain, link, product, len(outer), device)
    for current in stages(schedule):
        if current.write.name in outside:
            schedule_pointwise(schedule, current, schedule.get_loops(current.block), device, threads)


def _tile_loops(schedule: s_tir.Schedule, chain: Chain, plan: ChainPlan, threads: int) -> list[Any]:
    """The loops over tiles, the outermost in the output's block."""
    loops = schedule.get_loops(chain.last.stage.block)
    outer = [loops[i] for i in chain.last.axes]
    inner = [loop for i, loop in enumerate(loops) if i not in chain.last.axes]
    tiles, row = schedule.split(outer.pop(), [None, plan.rows])
    single = [loop for loop in outer if int(schedule.get(loop).extent) == 1]
    several = [loop for loop in outer if int(schedule.get(loop).extent) > 1]
    schedule.reorder(*single, *several, tiles, row, *inner)
    return [*single, *share(schedule, [*several, tiles], threads, plan.cycles)]


def _own_loops(schedule: s_tir.Schedule, chain: Chain, link: Link, depth: int) -> dict[int, Any]:
    """The loops of a block inside of a tile, by iterator; the output's block has none along other axes than rows."""
    loops = schedule.get_loops(link.stage.block)[depth:]
    iterators = list(range(len(link.stage.extents)))
    if link is chain.last:
        iterators = [link.row, *(i for i in iterators if i not in link.axes)]
    return dict(zip(iterators, loops, strict=True))


def _product(schedule: s_tir.Schedule, chain: Chain, link: Link, plan: Plan, depth: int, device: Device) -> None:
    """The register tiles of a product, in the loops of its epilogue."""
    anchor, after = link.stage, chain.epilogue(link)
    own = _own_loops(schedule, chain, after, depth)
    prefix = schedule.get_loops(after.stage.block)[:depth]
    places = {i: counterpart(anchor, after.stage, i) for i in anchor.spatial}
    loops = {i: own[place] for i, place in places.items() if place in own}
    order = [plan.column, plan.row] if _columns_first(schedule, link, plan, loops, device) else [plan.row, plan.column]
    outer, cut = cut_tile(schedule, plan, loops, [*(i for i in loops if i not in order), *order])
    finish_tile(schedule, anchor, after.stage, plan, [*prefix, *outer], cut)


def _columns_first(schedule: s_tir.Schedule, link: Link, plan: Plan, loops: Mapping[int, Any], device: Device) -> bool:
    """Whether a tile of columns goes through all rows before the next: what streams fewer bytes, as fast as it can."""
    rows, columns = (int(schedule.get(loops[i]).extent) for i in (plan.row, plan.column))
    depth = FLOAT_BYTES * prod(link.stage.extents[i] for i in link.stage.reduced)
    left, right = (size * depth / device.bandwidth(size * depth) for size in (rows, columns))
    by_columns = -(-columns // plan.tile.columns) * left + right
    by_rows = -(-rows // plan.tile.rows) * right + left
    options = [Named("columns first", by_columns, True), Named("rows first", by_rows, False)]
    return decide("order", options, lambda option: option.cost).value


def _row_wise(
    schedule: s_tir.Schedule, chain: Chain, group: tuple[Link, ...], partial: Mapping[str, list[Any]], depth: int,
    device: Device,
) -> None:  # fmt: skip
    """Runs the blocks of a group row by row, in the loops of its last one, with partial results in vectors."""
    *others, last = group
    own = _own_loops(schedule, chain, last, depth)
    row = own.pop(last.row)
    schedule.reorder(row, *own.values())
    if last is not chain.last and any(_is_long(link.stage, device) for link in group):
        schedule.annotate(row, APART, 1)
    for block in reversed([b for link in others for b in (*partial.get(link.name, ()), link.stage.block)]):
        schedule.compute_at(block, row, preserve_unit_loops=True)
    for link in group:
        if not link.stage.reduced:
            inside = schedule.get_loops(link.stage.block)[depth + 1 :]
            schedule_pointwise(schedule, stage(schedule, link.stage.block), inside, device)
        for block in partial.get(link.name, ()):
            vectorise_partial(schedule, block, device)


def _is_long(current: Stage, device: Device) -> bool:
    """Whether it has functions to compute in a loop that LLVM does not unroll (see apart)."""
    return not is_cheap(current) and current.extents[-1] > UNROLLED_STEPS * device.lanes
