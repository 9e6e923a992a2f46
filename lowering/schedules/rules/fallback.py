"""The last rules, which match every function, so that none runs without a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from tvm import s_tir

from ...base.decisions import Trace
from ..base.blocks import BlockInfo
from ..base.draft import Draft
from ..base.extents import typical_sizes
from ..base.tiled import Tiled
from ..tiling.tiles import largest_divisor
from .pointwise import decide_parallel, schedule_pointwise, vector_width

NARROW_BITS = 128
"""Bits of the narrower vectors for axes that are shorter than a vector: every processor has those."""


def fallback(draft: Draft) -> Iterator[Tiled]:
    """Inline point-wise blocks, share the outer loops of each block, and vectorise its innermost axis if contiguous.

    A block that resists keeps its plain loops. If an axis is dynamic, shorter ones have narrower vectors.
    """
    yield _tile(draft)


def _tile(draft: Draft) -> Tiled:
    original = draft.copy()
    for block in draft.blocks_in_turn():
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
    for block in draft.blocks():
        if loops := draft.loops(block):
            draft.start_reduction(block, loops[0])
    narrow = replace(original.device, vector_bits=NARROW_BITS)
    if not typical_sizes(draft.function) or original.device.lanes <= narrow.lanes:
        return Tiled(draft, "fallback")
    return Tiled(draft, "fallback", smaller=_tile(replace(original, device=narrow, trace=Trace())))


def _schedule(draft: Draft, block: BlockInfo) -> None:
    loops = draft.loops(block)
    if len(loops) != len(block.extents):
        return
    if block.is_pointwise():
        schedule_pointwise(draft, block, loops)
    elif block.reduced:
        _schedule_reduction(draft, block, loops)


def _schedule_reduction(draft: Draft, block: BlockInfo, loops: list[Any]) -> None:
    """for i, j, k: ... => parallel i, j_outer: { local init; for k: local vectorised j_inner; result }.

    A local result stays in registers, and threads do not write to the same line of memory again and again; it needs
    whole tiles. The reduction is inside of the tile, for a tile that is moved back (see tails) starts it anew.
    """
    schedule = draft.schedule
    spatial = [loops[i] for i in block.spatial]
    reduced = [loops[i] for i in sorted(block.reduced)]
    if not spatial:
        return
    *outer, last = spatial
    width = vector_width(draft.extent(last), draft.device)
    divisor = largest_divisor(draft.extent(last), width)
    is_whole = 2 * divisor > width
    tile, lanes = schedule.split(last, [None, divisor if is_whole else width])
    schedule.reorder(*outer, tile, *reduced, lanes)
    tile = draft.fuse([*outer, tile])
    if draft.threads > 1 and decide_parallel(draft, prod(block.extents)):
        schedule.parallel(tile)
    if is_whole and len(schedule.get(block.block).writes) == 1:
        schedule.reverse_compute_at(schedule.cache_write(block.block, 0, "local"), tile)
    schedule.vectorize(lanes)
    initial = schedule.decompose_reduction(block.block, reduced[0])
    schedule.vectorize(schedule.get_loops(initial)[-1])


def plain(draft: Draft) -> Iterator[Tiled]:
    """Each block by itself, its spatial loops shared among threads; no vectors, which LLVM lacks for some types.

    for i, j, k: C[i, j, k] = ...      =>  parallel(i * j * k): C[i, j, k] = ...
    for i, j, r: C[i, j] += ...        =>  parallel(i * j): C[i, j] = 0; for r: C[i, j] += ...
    """
    schedule = draft.schedule
    for block in draft.blocks():
        loops = draft.loops(block)
        spatial = [loops[i] for i in block.spatial] if len(loops) == len(block.extents) else []
        if not spatial:
            if loops:
                draft.start_reduction(block, loops[0])
            continue
        reduced = [loops[i] for i in sorted(block.reduced)]
        schedule.reorder(*spatial, *reduced)
        schedule.parallel(schedule.fuse(*spatial))
        if reduced:
            schedule.decompose_reduction(block.block, reduced[0])
    yield Tiled(draft, "plain", tails="none")
