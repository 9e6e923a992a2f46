"""Product sums: matmul and convolution of any kind, from a register tile.

The output has axes that both operands share (batch, group, depthwise channel), axes of the first only, and axes of the
second only. One axis of one operand is vectorised, one or two of the other are the rows of the tile:

    for o.. (outputs), k.., k_in (reductions): C += A * B; for o..: Y = f(C)
 => parallel outer tiles: for column tile: for row tile:
        init C[rows, vectors, lanes] (registers)
        for k..: unrolled k_in, rows, vectors: vectorised lanes: C += broadcast(A) * B
        for rows, vectors: vectorised lanes: Y = f(C)

A constant operand is packed so that the tile's columns (or rows) are contiguous. 3x3 convolutions may be computed with
fewer products instead: see `winograd`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from math import log2, prod
from typing import Any

from tvm import s_tir, tirx

from ...costmodels.device import Device
from .decisions import Named, decide, decide_number
from .groups import with_groups
from .packing import Repack, Scheduled
from .pixels import flatten_pixels
from .pointwise import is_selective, schedule_before, vectorise_last
from .prefetch import Weights, cycles_with_weights, fetch_ahead
from .preparation import prepare
from .stages import FUNCTION, Access, Stage, consumers, is_parameter, is_unit_stride, parameter_index, stages
from .tails import PACKED, overlap_tails
from .tiling.register_tile import Plan, counterpart, cut_tile, finish_tile, share
from .tiling.tiles import FLOAT_BYTES, register_tiles, tile_cycles
from .winograd.winograd import winograd
from .winograd.winograd_match import find_convolution

CONSTANTS = "eqfuse.constants"
"""Attribute of a function: the indices of the parameters that are constants (topi sets TVM's own attribute at will)."""
BLOCKS = (2, 4, 8, 16, 32)
"""Tiles of a block, of the numbers that a search tries."""


def contraction(function: tirx.PrimFunc, device: Device, threads: int = 1) -> Scheduled | None:
    """The rule: matches a function with exactly one product sum, whose other blocks are point-wise."""
    schedule = s_tir.Schedule(function)
    found = prepare(schedule)
    if found is None:
        return None
    filtered = _by_filters(schedule, *found, device, threads)
    if filtered is not None:
        return filtered
    attempt = schedule.copy()
    with suppress(s_tir.ScheduleError):
        flat = flatten_pixels(attempt, *found)
        if flat is not None and decide_number("flat", (1, 0), lambda number: 2.0 - number):
            schedule, found = attempt, flat
    grouped = with_groups(schedule.copy(), *found)
    if grouped is not None:
        schedule, found = grouped, prepare(grouped)
    if found is None:
        return None
    anchor, epilogue = found
    plan = choose(schedule.mod[FUNCTION], anchor, epilogue, device)
    if plan is None:
        return None
    repacked = pack(schedule, anchor, plan)
    _apply(schedule, anchor, epilogue, plan, device, threads)
    schedule_before(schedule, epilogue, device, threads)
    return Scheduled(fetch_ahead(overlap_tails(schedule), device), repacked, "contraction")


def _by_filters(
    schedule: s_tir.Schedule, anchor: Stage, epilogue: Stage, device: Device, threads: int
) -> Scheduled | None:
    """A 3x3 convolution by minimal filters; None for others, and where direct products are decided for."""
    function = schedule.mod[FUNCTION]
    convolution = find_convolution(schedule, anchor, epilogue, partial(is_constant, function))
    direct = plans(function, anchor, epilogue, device) if convolution is not None else []
    if convolution is None or not direct:
        return None
    return winograd(schedule, convolution, min(plan.cycles for plan in direct), device, threads)


def operands(anchor: Stage, iterator: int) -> tuple[Access, ...]:
    """The operands whose index has the iterator."""
    return tuple(read for read in anchor.reads if iterator in read.used())


def is_constant(function: tirx.PrimFunc, access: Access) -> bool:
    """Whether it is a parameter listed in the attribute CONSTANTS, and so free to be packed."""
    constants = (function.attrs or {}).get(CONSTANTS, ())
    return parameter_index(function, access.buffer) in {int(i) for i in constants}


def choose(function: tirx.PrimFunc, anchor: Stage, epilogue: Stage, device: Device) -> Plan | None:
    """The plan of the fewest cycles over all axes and tiles."""
    return cheapest(plans(function, anchor, epilogue, device))


def cheapest(found: Iterable[Plan]) -> Plan | None:
    """The plan of the fewest cycles, if nothing else is decided; None of none."""
    options = list(found)
    return decide("tile", options, lambda plan: plan.cycles) if options else None


def plans(function: tirx.PrimFunc, anchor: Stage, epilogue: Stage, device: Device) -> list[Plan]:
    """What can be vectorised, with every tile that fits the registers."""
    found: list[Plan] = []
    for column in anchor.spatial:
        readers = operands(anchor, column)
        packed = len(readers) == 1 and is_constant(function, readers[0])
        if not packed and not all(is_unit_stride(r, column) for r in readers):
            continue
        rows = [i for i in reversed(anchor.spatial) if i != column and _opposed(anchor, i, column)]
        for row in rows:
            found += _plans(anchor, epilogue, device, column, row, weighed=packed)
    return found


def _opposed(anchor: Stage, row: int, column: int) -> bool:
    """Whether only the operand without the column has the row, so that the tile is an outer product."""
    readers = operands(anchor, row)
    return len(readers) == 1 and column not in readers[0].used()


def _plans(
    anchor: Stage, epilogue: Stage, device: Device, column: int, row: int, *, weighed: bool
) -> list[Plan]:  # fmt: skip
    """Every tile of these axes; `weighed`: the operand with the columns is a constant, of which a model has many."""
    columns, rows = anchor.extents[column], anchor.extents[row]
    depth = prod(anchor.extents[i] for i in anchor.reduced)
    others = prod(anchor.extents[i] for i in anchor.spatial if i not in (column, row))
    scattered = not is_unit_stride(epilogue.write, counterpart(anchor, epilogue, column))
    window = _is_window(anchor, row)
    found = []
    for tile in register_tiles(rows, columns, device, window=window):
        cycles = others * tile_cycles(tile, rows, columns, depth, device, scattered=scattered)
        if weighed:
            size = FLOAT_BYTES * depth * columns
            weights = Weights(size, FLOAT_BYTES * depth * tile.columns, others * -(-rows // tile.rows))
            cycles = cycles_with_weights(cycles, weights, device)
        found.append(Plan(column, row, tile, cycles))
    return found


def _is_window(anchor: Stage, iterator: int) -> bool:
    """Whether neighbours along the iterator read overlapping elements, as the pixels of a convolution do."""
    wide = {i for i in anchor.reduced if anchor.extents[i] > 1}
    return any(iterator in used and used & wide for read in anchor.reads for used in read.iterators)


def pack(schedule: s_tir.Schedule, anchor: Stage, plan: Plan) -> tuple[Repack, ...]:
    """Packs the constants among the operands by tiles of the plan; `overlap_tails` has to follow."""
    function, packs = schedule.mod[FUNCTION], []
    for iterator, factor in ((plan.column, plan.tile.columns), (plan.row, plan.tile.rows)):
        readers = operands(anchor, iterator)
        if len(readers) != 1 or not is_constant(function, readers[0]):
            continue
        read = readers[0]
        axis = next(a for a, used in enumerate(read.iterators) if iterator in used)
        index = parameter_index(function, read.buffer)
        assert index is not None
        if len(read.iterators[axis]) > 1 and anchor.extents[iterator] % factor:
            factor = read.shape[axis]  # tiles of groups that they do not divide stay where they are
        order = (axis, *sorted((a for a in range(len(read.shape)) if a != axis), key=lambda a: _rank(read, a)))
        packs.append(Repack(index, axis, factor, order))
        place = ("read", anchor.reads.index(read))
        schedule.transform_layout(anchor.block, place, packs[-1].index_map, assume_injective_transform=True)
    tiled = [repack for repack in packs if repack.factor < function.params[repack.parameter].shape[repack.axis]]
    if tiled:
        schedule.annotate(anchor.block, PACKED, [str(function.params[repack.parameter].name) for repack in tiled])
    return tuple(packs)


def _rank(access: Access, axis: int) -> tuple[int, int]:
    """Reduction axes stay in the order of the loops."""
    return (min(access.iterators[axis], default=-1), axis)


def _apply(schedule: s_tir.Schedule, anchor: Stage, epilogue: Stage, plan: Plan, device: Device, threads: int) -> None:
    found = schedule.get_loops(epilogue.block)
    loops = {i: found[counterpart(anchor, epilogue, i)] for i in anchor.spatial}
    computed = _computed(schedule, anchor, plan)
    order = tile_order(anchor, plan, device, rows_first=computed is not None)
    outer, cut = cut_tile(schedule, plan, loops, order)
    if computed is None:
        outer = _blocked(schedule, outer, order, plan)
    outer = share(schedule, outer, threads, plan.cycles)
    finish_tile(schedule, anchor, epilogue, plan, outer, cut)
    if computed is not None:
        inside = len(order) - order.index(plan.row)
        schedule.compute_at(computed.block, outer[max(0, len(outer) - inside)], preserve_unit_loops=True)
        vectorise_last(schedule, computed.block, device)


def _blocked(schedule: s_tir.Schedule, outer: list[Any], order: list[int], plan: Plan) -> list[Any]:
    """The loops over tiles, in blocks of what comes first among rows and columns: all of what comes last for a block.

    for row tile: for column tile: ...    =>    for block: for column tile: for row tile in the block: ...
    """
    first = min(order.index(plan.row), order.index(plan.column))
    extent = int(schedule.get(outer[first]).extent)
    sizes = [size for size in BLOCKS if size < extent and extent % size == 0] if first + 1 < len(outer) else []
    size = decide_number("block", [1, *sizes], lambda number: 1.0 + log2(number) / 4)
    if size == 1:
        return outer
    blocks, inside = schedule.split(outer[first], [None, size])
    loops = [*outer[:first], blocks, *outer[first + 1 :], inside]
    schedule.reorder(*loops)
    return loops


def _computed(schedule: s_tir.Schedule, anchor: Stage, plan: Plan) -> Stage | None:
    """The block that computes the rows of the product, not only pads them, for nobody else.

    It is computed for a tile of rows at a time, which all columns then read.
    """
    (rows,) = operands(anchor, plan.row)
    for current in stages(schedule):
        if current.write.name == rows.name and not is_parameter(schedule.mod[FUNCTION], current.write.buffer):
            alone = len(consumers(stages(schedule), current)) == 1
            return current if alone and current.is_pointwise() and not is_selective(current) else None
    return None


def tile_order(anchor: Stage, plan: Plan, device: Device, *, rows_first: bool = False) -> list[int]:
    """The output's axes from the outermost to the innermost loop over tiles.

    Those that both operands share come first. Then either the columns' operand stays in the caches and the rows' is
    streamed once per column tile, or the other way round (always if `rows_first`): what moves fewer bytes, each at the
    rate of where it fits.
    """
    streamed = operands(anchor, plan.row)[0]
    kept = next(r for r in anchor.reads if r is not streamed)
    shared = [i for i in anchor.spatial if (i in streamed.used()) == (i in kept.used())]
    rows = [i for i in anchor.spatial if i not in (*shared, *kept.used(), plan.row)] + [plan.row]
    columns = [i for i in anchor.spatial if i not in (*shared, *streamed.used(), plan.column)] + [plan.column]
    row_tiles = prod(anchor.extents[i] for i in rows[:-1]) * -(-anchor.extents[plan.row] // plan.tile.rows)
    column_tiles = prod(anchor.extents[i] for i in columns[:-1]) * -(-anchor.extents[plan.column] // plan.tile.columns)
    batch = prod(anchor.extents[i] for i in shared)
    by_columns = column_tiles * _seconds(streamed, batch, device) + _seconds(kept, batch, device)
    by_rows = row_tiles * _seconds(kept, batch, device) + _seconds(streamed, batch, device)
    if rows_first:
        return [*shared, *rows, *columns]
    options = [
        Named("columns first", by_columns, (*shared, *columns, *rows)),
        Named("rows first", by_rows, (*shared, *rows, *columns)),
    ]
    return list(decide("order", options, lambda option: option.cost).value)


def _seconds(access: Access, batch: int, device: Device) -> float:
    """To read the operand once; nothing from the first cache, whose loads the cycles of a tile have."""
    size = FLOAT_BYTES * prod(access.shape) // batch
    return size / device.bandwidth(size) if size > device.caches[0].size else 0.0
