"""A register tile of a product sum: the loops in it, where its sum is kept, and how it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

from tvm import s_tir

from ..decisions import decide_number
from ..stages import Stage, is_unit_stride
from .tiles import Tile, largest_divisor

UNROLLED_PRODUCTS = 288
"""Vector multiply-adds in the unrolled body: enough to hide the loop, few enough for the instruction cache."""
UNROLL_BUDGETS = (36, 72, 144, UNROLLED_PRODUCTS, 576)
"""What a search tries besides."""
UNROLLED_WINDOW = 25
"""Windows of more elements keep loops over them."""
PARALLEL_CYCLES = 12_000
"""About four times what TVM's threads take to start and to meet again, 1.1 us on the device `host`."""


@dataclass(frozen=True)
class Plan:
    """What to vectorise (iterator `column`, an index into the block), the row axis `row`, and the tile."""

    column: int
    row: int
    tile: Tile
    cycles: float

    @property
    def label(self) -> str:
        """``c2 r1 2x3x8``."""
        return f"c{self.column} r{self.row} {self.tile.label}"

    @property
    def features(self) -> Mapping[str, float]:
        """For a learned model."""
        return {**self.tile.features, "column": self.column, "row": self.row}


@dataclass(frozen=True)
class Cut:
    """The loops inside of a tile: over rows, vectors and lanes."""

    rows: Any
    vectors: Any
    lanes: Any


def cut_tile(
    schedule: s_tir.Schedule, plan: Plan, loops: Mapping[int, Any], order: Iterable[int]
) -> tuple[list[Any], Cut]:
    """Cuts loops over the output, given by the anchor's iterators, in those over tiles, in that order, and inside."""
    outer, tile = dict(loops), plan.tile
    outer[plan.column], vectors, lanes = schedule.split(loops[plan.column], [None, tile.vectors, tile.lanes])
    outer[plan.row], rows = schedule.split(loops[plan.row], [None, tile.rows])
    tiles = [outer[i] for i in order]
    schedule.reorder(*tiles, rows, vectors, lanes)
    return tiles, Cut(rows, vectors, lanes)


def finish_tile(
    schedule: s_tir.Schedule, anchor: Stage, epilogue: Stage, plan: Plan, outer: list[Any], cut: Cut
) -> None:
    """Moves the sum (and, where the output does not run along the columns, a copy of it) to the innermost tile loop.

    `outer` are all loops around a tile.
    """
    position = _position(anchor, plan.column)
    contiguous = is_unit_stride(epilogue.write, counterpart(anchor, epilogue, plan.column))
    if not contiguous:
        staged = schedule.cache_write(anchor.block, 0, "local")
        for block in (anchor.block, staged):
            _move_last(schedule, block, position)
    _store(schedule, contiguous, cut)
    if contiguous:
        schedule.compute_at(anchor.block, outer[-1], preserve_unit_loops=True)
        schedule.set_scope(anchor.block, 0, "local")
    else:
        schedule.compute_at(staged, outer[-1], preserve_unit_loops=True)
        _stage(schedule, staged, position, plan.tile, len(outer))
        schedule.compute_at(anchor.block, outer[-1], preserve_unit_loops=True)
    _micro_kernel(schedule, anchor, plan, len(outer))


def counterpart(anchor: Stage, epilogue: Stage, iterator: int) -> int:
    """The iterator of the epilogue that reads what the anchor's iterator writes."""
    dimension = _position(anchor, iterator)
    read = next(r for r in epilogue.reads if r.name == anchor.write.name)
    return next(iter(read.iterators[dimension]), -1)


def share(schedule: s_tir.Schedule, loops: list[Any], threads: int, cycles: float) -> list[Any]:
    """Gives the outermost loops to the threads, fused until there are enough iterations for an even share.

    Nothing of a function that one thread does in so few `cycles` that waking the others takes as long.
    """
    if threads <= 1:
        return loops
    usual = _shared_loops([int(schedule.get(loop).extent) for loop in loops], threads, cycles)
    count = decide_number("parallel", range(len(loops) + 1), lambda n: 1.0 + abs(n - usual))
    if count == 0:
        return loops
    first = schedule.fuse(*loops[:count]) if count > 1 else loops[0]
    schedule.parallel(first)
    return [first, *loops[count:]]


def _shared_loops(extents: Sequence[int], threads: int, cycles: float) -> int:
    """How many loops the threads share; none of a function that one does in so few `cycles`."""
    if cycles < PARALLEL_CYCLES:
        return 0
    count, together = 1, extents[0]
    while count < len(extents) and not _is_even(together, threads):
        together *= extents[count]
        count += 1
    return count


def _is_even(extent: int, threads: int) -> bool:
    return extent >= 8 * threads or (extent >= threads and extent % threads == 0)


def _move_last(schedule: s_tir.Schedule, block: Any, dimension: int) -> None:
    """Lays the output of the block out so that the dimension is contiguous."""

    def moved(*indices: Any) -> list[Any]:
        return [*indices[:dimension], *indices[dimension + 1 :], indices[dimension]]

    schedule.transform_layout(block, ("write", 0), moved)


def _position(anchor: Stage, iterator: int) -> int:
    """The dimension of the output that the anchor's iterator runs along."""
    return next(d for d, used in enumerate(anchor.write.iterators) if iterator in used)


def _stage(schedule: s_tir.Schedule, staged: Any, column: int, tile: Tile, depth: int) -> None:
    """Spills the accumulators by whole vectors, for scalar accesses to them would keep them out of registers."""
    loops = schedule.get_loops(staged)[depth:]
    vectors, lanes = schedule.split(loops[column], [None, tile.lanes])
    others = [loop for dimension, loop in enumerate(loops) if dimension != column]
    schedule.reorder(*others, vectors, lanes)
    schedule.vectorize(lanes)
    for loop in (*others, vectors):
        schedule.unroll(loop)


def _store(schedule: s_tir.Schedule, contiguous: bool, cut: Cut) -> None:
    if not contiguous:
        schedule.reorder(cut.vectors, cut.lanes, cut.rows)
        schedule.unroll(cut.rows)
        return
    schedule.vectorize(cut.lanes)
    for loop in (cut.rows, cut.vectors):
        schedule.unroll(loop)


def _micro_kernel(schedule: s_tir.Schedule, anchor: Stage, plan: Plan, depth: int) -> None:
    loops = schedule.get_loops(anchor.block)[depth:]
    vectors, lanes = schedule.split(loops[plan.column], [None, plan.tile.lanes])
    spatial = [loops[i] for i in anchor.spatial if i not in (plan.column, plan.row)]
    row = loops[plan.row]
    rolled, unrolled = _reduction_loops(schedule, [(loops[i], anchor.extents[i]) for i in sorted(anchor.reduced)], plan)
    schedule.reorder(*spatial, *rolled, *unrolled, row, vectors, lanes)
    schedule.vectorize(lanes)
    for loop in (*unrolled, row, vectors):
        schedule.unroll(loop)
    initial = schedule.decompose_reduction(anchor.block, (*rolled, *unrolled)[0])
    *others, last = schedule.get_loops(initial)[depth:]
    schedule.vectorize(last)
    for loop in others:
        schedule.unroll(loop)


def _reduction_loops(schedule: s_tir.Schedule, loops: list[tuple[Any, int]], plan: Plan) -> tuple[list[Any], list[Any]]:
    """The loops over the reduction: those that stay, and the innermost that are unrolled within a budget."""
    products = decide_number("unroll", UNROLL_BUDGETS, lambda number: 1.0 + abs(log2(number / UNROLLED_PRODUCTS)))
    budget = max(1, products // (plan.tile.rows * plan.tile.vectors))
    rolled = [loop for loop, _ in loops]
    unrolled: list[Any] = []
    for loop, extent in reversed(loops):
        rolled.pop()
        if extent <= budget:
            unrolled.insert(0, loop)
            budget //= extent
            continue
        factor = largest_divisor(extent, min(budget, 8))
        outer, part = schedule.split(loop, [None, factor])
        rolled.append(outer)
        unrolled.insert(0, part)
        break
    return rolled, unrolled


def reduce_in_registers(schedule: s_tir.Schedule, anchor: Stage, order: Sequence[int], tile: Tile) -> None:
    """The loops of a reduction over a window that is computed for one tile: unrolled, its partial results in registers.

    `order`: the iterators of its output, the last that of the vectors, and the one before that of the tile's rows.
    """
    loops = schedule.get_loops(anchor.block)[-len(anchor.extents) :]
    spatial, reduced = [loops[i] for i in order], [loops[i] for i in sorted(anchor.reduced)]
    vectors, lanes = schedule.split(spatial.pop(), [None, tile.lanes])
    rows = spatial[-1:]
    schedule.reorder(*spatial[:-1], *reduced, *rows, vectors, lanes)
    window = 1
    for loop in reversed(reduced):
        window *= int(schedule.get(loop).extent)
        if window <= UNROLLED_WINDOW:
            schedule.unroll(loop)
    for loop in (*rows, vectors):
        schedule.unroll(loop)
    schedule.vectorize(lanes)
    initial = schedule.decompose_reduction(anchor.block, reduced[0])
    *others, last = schedule.get_loops(initial)[-2 - len(rows) :]
    schedule.vectorize(last)
    for loop in others:
        schedule.unroll(loop)
