"""A register tile of a product sum: the loops in it, where its sum is kept, and how it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

from ....costmodels.device import Device
from ....costmodels.register_tiles import ELEMENT_BITS, Tile
from ..base.blocks import BlockInfo
from ..base.draft import Draft
from ..base.extents import is_symbolic
from ..base.packing import Word
from ..base.preparation import FINE_SHARES
from .tiles import largest_divisor

UNROLLED_PRODUCTS = 288
"""Vector multiply-adds in the unrolled body: enough to hide the loop, few enough for the instruction cache."""
UNROLLED_BROADCASTS = 72
"""The same if each of them broadcasts its factor. LLVM keeps broadcasts that several steps of a window
share, and spills them: by 288, a 3x3 convolution of 3 to 24 channels took 526 us with AVX-512, by 144 or less 240."""
UNROLL_BUDGETS = (36, UNROLLED_BROADCASTS, 144, UNROLLED_PRODUCTS, 576)
"""The budgets that a search tries, in the same unit."""
UNROLLED_WINDOW = 25
"""Elements of the largest window that is unrolled; loops over larger ones stay."""
DEEP = 8
"""Steps of a reduction from which on one loop over them costs less than what LLVM spills without any."""
PARALLEL_CYCLES = 12_000
"""Cycles from which on threads share the work: about 3 us on the device `host`, several times what handing parts of a
loop to other threads takes."""


@dataclass(frozen=True)
class TilePlan:
    """The axis to vectorise (iterator `column`, an index into the block), the row axis `row`, and the tile.

    Loops over the iterators `taps` of a window stand in front of those over the rest of the reduction.
    """

    column: int
    row: int
    tile: Tile
    cycles: float
    taps: tuple[int, ...] = ()
    word: Word | None = None
    """The iterator of the reduction of which some steps are one instruction in each lane."""

    @property
    def label(self) -> str:
        """``c2 r1 2x3x8``."""
        return f"c{self.column} r{self.row} {self.tile.label}"

    @property
    def features(self) -> Mapping[str, float]:
        """The numbers that a learned model judges it by."""
        return {**self.tile.features, "column": self.column, "row": self.row}


@dataclass(frozen=True)
class TileLoops:
    """The loops inside of a tile: over rows, vectors and lanes."""

    rows: Any
    vectors: Any
    lanes: Any


def cut_tile(
    draft: Draft, plan: TilePlan, loops: Mapping[int, Any], order: Iterable[int]
) -> tuple[list[Any], TileLoops]:
    """Cut loops over the output, given by the anchor's iterators, in those over tiles, in that order, and inside."""
    outer, tile, schedule = dict(loops), plan.tile, draft.schedule
    outer[plan.column], vectors, lanes = schedule.split(loops[plan.column], [None, tile.vectors, tile.lanes])
    outer[plan.row], rows = schedule.split(loops[plan.row], [None, tile.rows])
    tiles = [outer[i] for i in order]
    schedule.reorder(*tiles, rows, vectors, lanes)
    return tiles, TileLoops(rows, vectors, lanes)


def finish_tile(
    draft: Draft, anchor: BlockInfo, epilogue: BlockInfo, plan: TilePlan, outer: list[Any], inner: TileLoops
) -> None:
    """Move the sum (and a copy of it, if the output does not run along the columns) to the innermost tile loop.

    `outer` are all loops around a tile.
    """
    schedule = draft.schedule
    column = anchor.write.dimension_of(plan.column)

    def put_columns_last(block: Any) -> None:
        """Let the columns be contiguous in what the block writes, or no vector of it would be kept in a register."""
        if column + 1 < len(anchor.write.shape):
            schedule.transform_layout(block, ("write", 0), lambda *i: [*i[:column], *i[column + 1 :], i[column]])

    if epilogue.write.is_unit_stride(counterpart(anchor, epilogue, plan.column)):
        schedule.vectorize(inner.lanes)
        draft.unroll(inner.rows, inner.vectors)
        put_columns_last(anchor.block)
        draft.compute_at(anchor.block, outer[-1])
        schedule.set_scope(anchor.block, 0, "local")
    else:
        copy = schedule.cache_write(anchor.block, 0, "local")
        for block in (anchor.block, copy):
            put_columns_last(block)
        if _find_place(anchor, epilogue, plan.row) > _find_place(anchor, epilogue, plan.column):
            schedule.reorder(inner.vectors, inner.lanes, inner.rows)
        schedule.unroll(inner.rows)
        draft.compute_at(copy, outer[-1])
        _spill_vectors(draft, copy, column, plan.tile, len(outer))
        draft.compute_at(anchor.block, outer[-1])
    _schedule_sum(draft, anchor, plan, len(outer))


def counterpart(anchor: BlockInfo, epilogue: BlockInfo, iterator: int) -> int:
    """The iterator of the epilogue that reads what the anchor's iterator writes; -1 if it reads at a constant."""
    dimension = anchor.write.dimension_of(iterator)
    return next(iter(epilogue.read_of(anchor).iterators[dimension]), -1)


def _find_place(anchor: BlockInfo, epilogue: BlockInfo, iterator: int) -> int:
    """The dimension of the epilogue's result that the anchor's iterator runs along; -1 if it runs along none."""
    own = counterpart(anchor, epilogue, iterator)
    return next((d for d, used in enumerate(epilogue.write.iterators) if own in used), -1)


def share(draft: Draft, loops: list[Any], cycles: float) -> list[Any]:
    """Give the outermost loops to the threads, fused until there are enough iterations for an even share.

    Nothing of a function that one thread does in so few `cycles` that waking the others takes as long. The result are
    the loops as they are then, the shared ones as one.
    """
    if draft.threads <= 1:
        return loops
    usual = _count_shared_loops(list(map(draft.extent, loops)), draft.threads) if cycles >= PARALLEL_CYCLES else 0
    count = draft.trace.decide_number("parallel", range(len(loops) + 1), lambda n: 1.0 + abs(n - usual))
    if count == 0:
        return loops
    first = draft.fuse(loops[:count])
    draft.schedule.parallel(first)
    return [first, *loops[count:]]


def _count_shared_loops(extents: Sequence[int], threads: int) -> int:
    """The number of outermost loops that have enough iterations together for an even share."""
    together = 1
    for count, extent in enumerate(extents, 1):
        together *= extent
        if together >= FINE_SHARES * threads or (together >= threads and together % threads == 0):
            return count
    return len(extents)


def _spill_vectors(draft: Draft, copy: Any, column: int, tile: Tile, depth: int) -> None:
    """Spill the accumulators by whole vectors, for scalar accesses to them would keep them out of registers."""
    schedule = draft.schedule
    loops = schedule.get_loops(copy)[depth:]
    vectors, lanes = schedule.split(loops[column], [None, tile.lanes])
    others = [loop for dimension, loop in enumerate(loops) if dimension != column]
    schedule.reorder(*others, vectors, lanes)
    schedule.vectorize(lanes)
    draft.unroll(*others, vectors)


def _schedule_sum(draft: Draft, anchor: BlockInfo, plan: TilePlan, depth: int) -> None:
    schedule, loops = draft.schedule, draft.loops(anchor)[depth:]
    vectors, lanes = schedule.split(loops[plan.column], [None, plan.tile.lanes])
    spatial = [loops[i] for i in anchor.spatial if i not in (plan.column, plan.row)]
    row = loops[plan.row]
    words: list[Any] = []
    if plan.word is not None:
        loops[plan.word.axis], word = schedule.split(loops[plan.word.axis], [None, plan.word.length])
        words.append(word)
    others = [loops[i] for i in sorted(anchor.reduced) if i not in plan.taps]
    rolled, unrolled = _split_reduction_loops(draft, others, plan.tile, of_words=bool(words))
    rolled = [*(loops[i] for i in plan.taps), *rolled]
    schedule.reorder(*spatial, *rolled, *unrolled, row, vectors, lanes, *words)
    schedule.vectorize(lanes)
    draft.unroll(*unrolled, row, vectors, *words)
    initial = schedule.decompose_reduction(anchor.block, (*rolled, *unrolled)[0])
    *others, last = schedule.get_loops(initial)[depth:]
    schedule.vectorize(last)
    draft.unroll(*others)


def usual_steps(tile: Tile, device: Device) -> int:
    """Steps of a reduction that are unrolled at most, if nothing else is decided."""
    return max(1, _usual_products(device) // (tile.rows * tile.vectors))


def _usual_products(device: Device) -> int:
    return UNROLLED_PRODUCTS if device.vector_bits <= ELEMENT_BITS else UNROLLED_BROADCASTS


def _split_reduction_loops(
    draft: Draft, loops: list[Any], tile: Tile, *, of_words: bool
) -> tuple[list[Any], list[Any]]:
    """The loops over the reduction: those that stay, and the innermost that are unrolled within a budget.

    One of dynamic length stays, however short it usually is. One stays if what is read does not fit the registers:
    without a loop LLVM loads it in front of the loop over the next tiles, and then again from where it spilled it.
    """
    usual = _usual_products(draft.device)
    products = draft.trace.decide_number("unroll", UNROLL_BUDGETS, lambda number: 1.0 + abs(log2(number / usual)))
    budget = max(1, products // (tile.rows * tile.vectors))
    rolled, unrolled, steps = list(loops), list[Any](), 1
    while rolled:
        loop = rolled.pop()
        extent = draft.extent(loop)
        steps *= extent
        held = steps * tile.vectors + (tile.rows * tile.vectors if of_words else 0)
        hoisted = not rolled and extent >= (2 if of_words else DEEP) and held > draft.device.vector_registers
        if is_symbolic(extent) or extent > budget or hoisted:
            most = min(budget, 8, extent // 2 if hoisted else extent)
            outer, loop = draft.schedule.split(loop, [None, largest_divisor(extent, most)])
            return [*rolled, outer], [loop, *unrolled]
        unrolled.insert(0, loop)
        budget //= extent
    return rolled, unrolled


def reduce_in_registers(draft: Draft, anchor: BlockInfo, order: Sequence[int], tile: Tile) -> None:
    """Unroll a reduction over a window that is computed for one tile, its partial results in registers.

    `order`: the iterators of its output, the last that of the vectors, and the one before that of the tile's rows.
    """
    schedule = draft.schedule
    loops = draft.loops(anchor)[-len(anchor.extents) :]
    spatial, reduced = [loops[i] for i in order], [loops[i] for i in sorted(anchor.reduced)]
    vectors, lanes = schedule.split(spatial.pop(), [None, tile.lanes])
    rows = spatial[-1:]
    schedule.reorder(*spatial[:-1], *reduced, *rows, vectors, lanes)
    window = 1
    for loop in reversed(reduced):
        extent = draft.extent(loop)
        window *= extent
        if is_symbolic(extent) or window > UNROLLED_WINDOW:
            break
        schedule.unroll(loop)
    draft.unroll(*rows, vectors)
    schedule.vectorize(lanes)
    initial = schedule.decompose_reduction(anchor.block, reduced[0])
    *others, last = schedule.get_loops(initial)[-2 - len(rows) :]
    schedule.vectorize(last)
    draft.unroll(*others)
