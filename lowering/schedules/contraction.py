"""Product sums: matmul and convolution of any kind, from a register tile.

The output has axes that both operands share (batch, group, depthwise channel), axes of the first only, and axes of the
second only. One axis of one operand is vectorised, one or two of the other are the rows of the tile:

    for o.. (outputs), k.., k_in (reductions): C += A * B; for o..: Y = f(C)
 => parallel outer tiles: for column tile: for row tile:
        init C[rows, vectors, lanes] (registers)
        for k..: unrolled k_in, rows, vectors: vectorised lanes: C += broadcast(A) * B
        for rows, vectors: vectorised lanes: Y = f(C)

A constant operand is packed so that the tile's columns (or rows) are contiguous.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import s_tir, tirx

from ...costmodels.device import Device
from .packing import Repack, Scheduled
from .pixels import flatten_pixels
from .pointwise import schedule_before
from .preparation import prepare
from .stages import FUNCTION, Access, Stage, is_unit_stride, parameter_index
from .tails import PACKED, overlap_tails
from .tiles import Tile, largest_divisor, register_tiles, tile_cycles

CONSTANTS = "eqfuse.constants"
"""Attribute of a function: the indices of the parameters that are constants (topi sets TVM's own attribute at will)."""
FLOAT_BYTES = 4
UNROLLED_PRODUCTS = 288
"""Vector multiply-adds in the unrolled body: enough to hide the loop, few enough for the instruction cache."""


@dataclass(frozen=True)
class Plan:
    """What to vectorise (iterator `column`, an index into the block), the row axis `row`, and the tile."""

    column: int
    row: int | None
    tile: Tile
    cycles: float


def contraction(function: tirx.PrimFunc, device: Device, threads: int = 1) -> Scheduled | None:
    """The rule: matches a function with exactly one product sum, whose other blocks are point-wise."""
    schedule = s_tir.Schedule(function)
    found = prepare(schedule)
    if found is None:
        return None
    attempt = schedule.copy()
    with suppress(s_tir.ScheduleError):
        if (flat := flatten_pixels(attempt, *found)) is not None:
            schedule, found = attempt, flat
    anchor, epilogue = found
    plan = choose(schedule.mod[FUNCTION], anchor, epilogue, device)
    if plan is None:
        return None
    repacked = _pack(schedule, anchor, plan)
    _apply(schedule, anchor, epilogue, plan, device, threads)
    schedule_before(schedule, epilogue, device, threads)
    return Scheduled(overlap_tails(schedule), repacked, "contraction")


def operands(anchor: Stage, iterator: int) -> tuple[Access, ...]:
    """The operands whose index has the iterator."""
    return tuple(read for read in anchor.reads if iterator in read.used())


def is_constant(function: tirx.PrimFunc, access: Access) -> bool:
    """Whether it is a parameter listed in the attribute CONSTANTS, and so free to be packed."""
    constants = (function.attrs or {}).get(CONSTANTS, ())
    return parameter_index(function, access.buffer) in {int(i) for i in constants}


def choose(function: tirx.PrimFunc, anchor: Stage, epilogue: Stage, device: Device) -> Plan | None:
    """The plan of the fewest cycles over all axes and tiles."""
    plans: list[Plan] = []
    for column in anchor.spatial:
        readers = operands(anchor, column)
        packed = len(readers) == 1 and is_constant(function, readers[0])
        if not packed and not all(is_unit_stride(r, column) for r in readers):
            continue
        rows = [i for i in reversed(anchor.spatial) if i != column and _opposed(anchor, i, column)]
        for row in rows:
            plans += _plans(function, anchor, epilogue, device, column, row, packed)
    return min(plans, key=lambda p: p.cycles, default=None)


def _opposed(anchor: Stage, row: int, column: int) -> bool:
    """Whether only the operand without the column has the row, so that the tile is an outer product."""
    readers = operands(anchor, row)
    return len(readers) == 1 and column not in readers[0].used()


def _plans(
    function: tirx.PrimFunc, anchor: Stage, epilogue: Stage, device: Device, column: int, row: int | None, packed: bool
) -> list[Plan]:
    columns, rows = anchor.extents[column], 1 if row is None else anchor.extents[row]
    depth = prod(anchor.extents[i] for i in anchor.reduced)
    others = prod(anchor.extents[i] for i in anchor.spatial if i not in (column, row))
    scattered = not is_unit_stride(epilogue.write, _counterpart(anchor, epilogue, column))
    window = row is not None and _is_window(anchor, row)
    found = []
    for tile in register_tiles(rows, columns, device, window=window):
        cycles = others * tile_cycles(tile, rows, columns, depth, device, scattered=scattered)
        found.append(Plan(column, row, tile, cycles))
    return found


def _is_window(anchor: Stage, iterator: int) -> bool:
    """Whether neighbours along the iterator read overlapping elements, as the pixels of a convolution do."""
    wide = {i for i in anchor.reduced if anchor.extents[i] > 1}
    return any(iterator in used and used & wide for read in anchor.reads for used in read.iterators)


def _counterpart(anchor: Stage, epilogue: Stage, iterator: int) -> int:
    """The iterator of the epilogue that reads what the anchor's iterator writes."""
    dimension = _position(anchor, iterator)
    read = next(r for r in epilogue.reads if r.name == anchor.write.name)
    return next(iter(read.iterators[dimension]), -1)


def _pack(schedule: s_tir.Schedule, anchor: Stage, plan: Plan) -> tuple[Repack, ...]:
    function, packs = schedule.mod[FUNCTION], []
    for iterator, factor in ((plan.column, plan.tile.columns), (plan.row, plan.tile.rows)):
        readers = () if iterator is None else operands(anchor, iterator)
        if len(readers) != 1 or not is_constant(function, readers[0]):
            continue
        read = readers[0]
        axis = next(a for a, used in enumerate(read.iterators) if iterator in used)
        index = parameter_index(function, read.buffer)
        assert index is not None
        order = (axis, *sorted((a for a in range(len(read.shape)) if a != axis), key=lambda a: _rank(read, a)))
        pack = Repack(index, axis, factor, order)
        place = ("read", anchor.reads.index(read))
        schedule.transform_layout(anchor.block, place, pack.index_map, assume_injective_transform=True)
        packs.append(pack)
    if packs:
        names = [str(function.params[pack.parameter].name) for pack in packs]
        schedule.annotate(anchor.block, PACKED, names)
    return tuple(packs)


def _rank(access: Access, axis: int) -> tuple[int, int]:
    """Reduction axes stay in the order of the loops."""
    return (min(access.iterators[axis], default=-1), axis)


def _apply(schedule: s_tir.Schedule, anchor: Stage, epilogue: Stage, plan: Plan, device: Device, threads: int) -> None:
    tile, column = plan.tile, _counterpart(anchor, epilogue, plan.column)
    loops = {i: schedule.get_loops(epilogue.block)[_counterpart(anchor, epilogue, i)] for i in anchor.spatial}
    loops[plan.column], vectors, lanes = schedule.split(loops[plan.column], [None, tile.vectors, tile.lanes])
    inner = []
    if plan.row is not None:
        loops[plan.row], row = schedule.split(loops[plan.row], [None, tile.rows])
        inner.append(row)
    outer = [loops[i] for i in tile_order(anchor, plan, device)]
    schedule.reorder(*outer, *inner, vectors, lanes)
    outer = share(schedule, outer, threads)
    _finish_tile(schedule, anchor, epilogue, plan, outer, (column, inner, vectors, lanes))


def tile_order(anchor: Stage, plan: Plan, device: Device) -> list[int]:
    """The output's axes from the outermost to the innermost loop over tiles.

    Those that both operands share come first. Then either the columns' operand stays in the caches and the rows' is
    streamed once per column tile, or the other way round: what moves fewer bytes, each at the rate of where it fits.
    """
    if plan.row is None:
        return [*(i for i in anchor.spatial if i != plan.column), plan.column]
    streamed = operands(anchor, plan.row)[0]
    kept = next(r for r in anchor.reads if r is not streamed)
    shared = [i for i in anchor.spatial if (i in streamed.used()) == (i in kept.used())]
    rows = [i for i in anchor.spatial if i not in (*shared, *kept.used(), plan.row)] + [plan.row]
    columns = [i for i in anchor.spatial if i not in (*shared, *streamed.used(), plan.column)] + [plan.column]
    row_tiles = prod(anchor.extents[i] for i in rows[:-1]) * -(-anchor.extents[plan.row] // plan.tile.rows)
    column_tiles = prod(anchor.extents[i] for i in columns[:-1]) * -(-anchor.extents[plan.column] // plan.tile.columns)
    batch = prod(anchor.extents[i] for i in shared)
    columns_first = column_tiles * _seconds(streamed, batch, device) + _seconds(kept, batch, device)
    rows_first = row_tiles * _seconds(kept, batch, device) + _seconds(streamed, batch, device)
    return [*shared, *columns, *rows] if columns_first <= rows_first else [*shared, *rows, *columns]


def _seconds(access: Access, batch: int, device: Device) -> float:
    """To read the operand once; nothing from the first cache, whose loads the cycles of a tile have."""
    size = FLOAT_BYTES * prod(access.shape) // batch
    return size / device.bandwidth(size) if size > device.caches[0].size else 0.0


def share(schedule: s_tir.Schedule, loops: list[Any], threads: int) -> list[Any]:
    """Gives the outermost loops to the threads, fused until there are enough iterations for an even share."""
    if threads <= 1:
        return loops
    first, *rest = loops
    while rest and not _is_even(int(schedule.get(first).extent), threads):
        first = schedule.fuse(first, rest.pop(0))
    schedule.parallel(first)
    return [first, *rest]


def _is_even(extent: int, threads: int) -> bool:
    return extent >= 8 * threads or (extent >= threads and extent % threads == 0)


def _finish_tile(
    schedule: s_tir.Schedule,
    anchor: Stage,
    epilogue: Stage,
    plan: Plan,
    outer: list[Any],
    parts: tuple[int, list[Any], Any, Any],
) -> None:
    """Moves the sum (and, where the output does not run along the columns, a copy of it) to the innermost tile loop."""
    column, inner, vectors, lanes = parts
    position = _position(anchor, plan.column)
    contiguous = is_unit_stride(epilogue.write, column)
    if not contiguous:
        staged = schedule.cache_write(anchor.block, 0, "local")
        for block in (anchor.block, staged):
            _move_last(schedule, block, position)
    _store(schedule, contiguous, inner, vectors, lanes)
    if contiguous:
        schedule.compute_at(anchor.block, outer[-1], preserve_unit_loops=True)
        schedule.set_scope(anchor.block, 0, "local")
    else:
        schedule.compute_at(staged, outer[-1], preserve_unit_loops=True)
        _stage(schedule, staged, position, plan.tile, len(outer))
        schedule.compute_at(anchor.block, outer[-1], preserve_unit_loops=True)
    _micro_kernel(schedule, anchor, plan, len(outer))


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


def _store(schedule: s_tir.Schedule, contiguous: bool, inner: list[Any], vectors: Any, lanes: Any) -> None:
    if not contiguous:
        schedule.reorder(vectors, lanes, *inner)
        for loop in inner:
            schedule.unroll(loop)
        return
    schedule.vectorize(lanes)
    for loop in (*inner, vectors):
        schedule.unroll(loop)


def _micro_kernel(schedule: s_tir.Schedule, anchor: Stage, plan: Plan, depth: int) -> None:
    loops = schedule.get_loops(anchor.block)[depth:]
    vectors, lanes = schedule.split(loops[plan.column], [None, plan.tile.lanes])
    spatial = [loops[i] for i in anchor.spatial if i not in (plan.column, plan.row)]
    rows = [] if plan.row is None else [loops[plan.row]]
    rolled, unrolled = _reduction_loops(schedule, [(loops[i], anchor.extents[i]) for i in sorted(anchor.reduced)], plan)
    schedule.reorder(*spatial, *rolled, *unrolled, *rows, vectors, lanes)
    schedule.vectorize(lanes)
    for loop in (*unrolled, *rows, vectors):
        schedule.unroll(loop)
    initial = schedule.decompose_reduction(anchor.block, (*rolled, *unrolled)[0])
    *others, last = schedule.get_loops(initial)[depth:]
    schedule.vectorize(last)
    for loop in others:
        schedule.unroll(loop)


def _reduction_loops(schedule: s_tir.Schedule, loops: list[tuple[Any, int]], plan: Plan) -> tuple[list[Any], list[Any]]:
    """The loops over the reduction: those that stay, and the innermost that are unrolled within a budget."""
    budget = max(1, UNROLLED_PRODUCTS // (plan.tile.rows * plan.tile.vectors))
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
