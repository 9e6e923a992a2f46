"""Reductions of feature maps stored channels last: depthwise convolution, pooling over windows and whole planes.

    for n, h, w, c: P = pad(X); for n, h, w, c, kh, kw: S = S (+) P * W; Y = f(S)
 => parallel n, c tile, h tile: { P, as much as the first cache holds; for h, w tile:
        unrolled kh, kw, rows, vectors: vectorised c: S = S (+) P * W (registers); vectorised c: Y = f(S) }

A vector holds channels, so that no stride and no border gets in its way; neighbouring rows share what they load.
"""

from __future__ import annotations

from functools import partial
from math import log2, prod
from typing import Any

from tvm import s_tir

from ...costmodels.device import Device
from .contraction import is_constant
from .decisions import decide, decide_number
from .packing import Repack, Scheduled
from .pointwise import vectorise_last
from .preparation import anchor_and_epilogue
from .stages import FUNCTION, Stage, is_unit_stride, parameter_index, stages
from .tails import overlap_tails
from .tiling.register_tile import reduce_in_registers, share
from .tiling.tiles import FLOAT_BYTES, LATENCY, Tile, largest_divisor, register_tiles

MOST_ROWS = 6
MOST_VECTORS = 2
SPARE_REGISTERS = 4
SPILLED = 1.5
"""What a window takes longer whose values do not fit the registers; measured on the device `host`."""
COPY_CYCLES = 1.5
"""For a vector that is copied to a slab with a border."""
SLAB_SHARE = 0.5
"""Of the first cache, for what a slab reads."""
TAIL = 1.5
"""What a window takes longer whose tiles do not divide the channels: its last one begins where vectors do not."""


def channels(function: Any, device: Device, threads: int = 1) -> Scheduled | None:
    """The rule: matches one reduction that is not over the last axis, along which every operand runs."""
    schedule = s_tir.Schedule(function)
    found = anchor_and_epilogue(schedule, partial(_runs_along, function))
    if found is None:
        return None
    anchor, epilogue = found
    if not matches(schedule.mod[FUNCTION], anchor, epilogue):
        return None
    repacked = pack_channels(schedule, anchor)
    tile = choose_window(anchor, device)
    _schedule(schedule, anchor, epilogue, tile, device, threads)
    return Scheduled(overlap_tails(schedule), repacked, "channels")


def _runs_along(function: Any, anchor: Stage) -> bool:
    """Whether it is a reduction whose operands run along its last axis, or are constants that can be packed so."""
    column = axes(anchor)[-1]
    read = [r for r in anchor.reads if column in r.used()]
    return bool(anchor.reduced) and all(is_unit_stride(r, column) or is_constant(function, r) for r in read)


def matches(function: Any, anchor: Stage, epilogue: Stage) -> bool:
    """Whether all operands of the reduction run along its last axis, and so does the block after it."""
    alike = epilogue.extents == tuple(anchor.extents[i] for i in anchor.spatial)
    column = anchor.spatial.index(axes(anchor)[-1])
    return alike and is_window(function, anchor) and is_unit_stride(epilogue.write, column)


def is_window(function: Any, anchor: Stage) -> bool:
    """Whether all operands of the reduction run along its last axis."""
    column = axes(anchor)[-1]
    some = any(column in read.used() and read.used() & anchor.reduced for read in anchor.reads)
    alone = all(not used & anchor.reduced for r in anchor.reads for used in r.iterators if column in used)
    whole = is_unit_stride(anchor.write, column)
    return alone and _runs_along(function, anchor) and some and whole and anchor.extents[column] > 1


def axes(anchor: Stage) -> tuple[int, ...]:
    """The iterators of the output, those of one iteration first."""
    return tuple(sorted(anchor.spatial, key=lambda i: (anchor.extents[i] > 1, i)))


def pack_channels(schedule: s_tir.Schedule, anchor: Stage) -> tuple[Repack, ...]:
    """Constants whose channels are not last get them there."""
    column, function = axes(anchor)[-1], schedule.mod[FUNCTION]
    packs = []
    for number, read in enumerate(anchor.reads):
        if column not in read.used() or is_unit_stride(read, column):
            continue
        axis = next(a for a, used in enumerate(read.iterators) if column in used)
        index = parameter_index(function, read.buffer)
        assert index is not None
        packs.append(Repack(index, axis, read.shape[axis], tuple(range(len(read.shape)))))
        schedule.transform_layout(anchor.block, ("read", number), packs[-1].index_map)
    return tuple(packs)


def choose_window(anchor: Stage, device: Device) -> Tile:
    """The tile of the fewest cycles, if nothing else is decided: rows of pixels by vectors of channels."""
    return decide("tile", window_tiles(anchor, device), lambda tile: _all_cycles(anchor, tile, device))


def best_window(anchor: Stage, device: Device) -> Tile:
    """The tile of the fewest cycles, whatever is decided."""
    return min(window_tiles(anchor, device), key=lambda tile: _all_cycles(anchor, tile, device))


def window_tiles(anchor: Stage, device: Device) -> list[Tile]:
    """The tiles that fit the registers."""
    found = register_tiles(_rows(anchor), anchor.extents[axes(anchor)[-1]], device, window=True)
    return [t for t in found if t.rows <= MOST_ROWS and t.vectors <= MOST_VECTORS]


def _all_cycles(anchor: Stage, tile: Tile, device: Device) -> float:
    """Of a row of the output: the reduction, and copying what it reads with a border, slab by slab.

    Where accumulators, what neighbouring rows share and a row of the window do not fit the registers, LLVM spills.
    """
    across = _across(anchor)
    held = tile.vectors * (tile.rows + tile.rows + across - 1 + across)
    spills = SPILLED if held > device.vector_registers - SPARE_REGISTERS else 1.0
    tail = TAIL if anchor.extents[axes(anchor)[-1]] % tile.columns else 1.0
    return tail * (spills * window_cycles(anchor, tile, device) + _copy_cycles(anchor, tile, device))


def _copy_cycles(anchor: Stage, tile: Tile, device: Device) -> float:
    if len(anchor.spatial) < 3:
        return 0.0
    height, _, column = axes(anchor)[-3:]
    source = next((r for r in anchor.reads if column in r.used() and height in r.used()), None)
    if source is None or len(source.shape) < 3:
        return 0.0
    slab, (rows, width) = fitting_rows(anchor, tile, device), source.shape[-3:-1]
    down = max((anchor.extents[i] for i in anchor.reduced if _shares(anchor, height, i)), default=1)
    copied = slab * rows / _height(anchor) + down - 1
    vectors = tile.vectors * -(-anchor.extents[column] // tile.columns)
    return COPY_CYCLES * copied / slab * width * vectors


def window_cycles(anchor: Stage, tile: Tile, device: Device) -> float:
    """Of the whole reduction: products, loads, which neighbouring rows share, or latency, whichever is most."""
    column = axes(anchor)[-1]
    window = prod(anchor.extents[i] for i in anchor.reduced)
    across = _across(anchor)
    count = -(-_rows(anchor) // tile.rows) * -(-anchor.extents[column] // tile.columns)
    products = tile.rows * tile.vectors * window
    loads = tile.vectors * window // across * (tile.rows + across - 1 + across)
    busy = max(products / device.fma_ports, loads / device.load_ports, LATENCY * window)
    return count * (busy + tile.rows * tile.vectors)


def _rows(anchor: Stage) -> int:
    return anchor.extents[axes(anchor)[-2]] if len(anchor.spatial) > 1 else 1


def _across(anchor: Stage) -> int:
    """Steps of the reduction along which neighbouring pixels of a row share what they read."""
    row = axes(anchor)[-2] if len(anchor.spatial) > 1 else -1
    return max((anchor.extents[i] for i in anchor.reduced if _shares(anchor, row, i)), default=1)


def _shares(anchor: Stage, row: int, reduced: int) -> bool:
    """Whether rows that are neighbours read the same element at another step of the reduction."""
    return any(row in used and reduced in used for read in anchor.reads for used in read.iterators)


def _schedule(
    schedule: s_tir.Schedule, anchor: Stage, epilogue: Stage, tile: Tile, device: Device, threads: int
) -> None:
    *outer, height, width, channel = _loops(schedule, anchor, epilogue)
    tiles, channel = schedule.split(channel, [None, tile.columns])
    planes = prod(anchor.extents[i] for i in axes(anchor)[:-2])
    slabs, height = schedule.split(height, [None, slab_rows(anchor, tile, device)])
    schedule.reorder(*outer, tiles, slabs, height, width, channel)
    slab = share(schedule, [*outer, tiles, slabs], threads, planes * window_cycles(anchor, tile, device))[-1]
    window_tile(schedule, anchor, tile, (height, width, channel))
    compute_before(schedule, slab, device)


def window_tile(schedule: s_tir.Schedule, anchor: Stage, tile: Tile, plane: tuple[Any, Any, Any]) -> Any:
    """Register tiles in the innermost loops of the epilogue: over rows, columns, and a number of channels.

    The result is the loop over tiles of channels, now outside of those over the plane.
    """
    height, width, channel = plane
    blocks, vectors, lanes = schedule.split(channel, [None, tile.vectors, tile.lanes])
    columns, row = schedule.split(width, [None, tile.rows])
    schedule.reorder(blocks, height, columns, row, vectors, lanes)
    schedule.vectorize(lanes)
    for loop in (row, vectors):
        schedule.unroll(loop)
    schedule.compute_at(anchor.block, columns, preserve_unit_loops=True)
    schedule.set_scope(anchor.block, 0, "local")
    reduce_in_registers(schedule, anchor, axes(anchor), tile)
    return blocks


def _loops(schedule: s_tir.Schedule, anchor: Stage, epilogue: Stage) -> list[Any]:
    """At least three: a loop of one iteration in front where there are fewer."""
    found = schedule.get_loops(epilogue.block)
    loops = [found[anchor.spatial.index(i)] for i in axes(anchor)]
    while len(loops) < 3:
        loops[:1] = schedule.split(loops[0], [1, None])
    return loops


def slab_rows(anchor: Stage, tile: Tile, device: Device) -> int:
    """Rows of the output at a time: those that fit, if nothing else is decided."""
    return 1 if len(anchor.spatial) < 3 else decide_slab(_height(anchor), fitting_rows(anchor, tile, device))


def _height(anchor: Stage) -> int:
    return anchor.extents[axes(anchor)[-3]]


def fitting_rows(anchor: Stage, tile: Tile, device: Device) -> int:
    """Rows of the output whose inputs, of the tile's channels, fit part of the first cache; a divisor of all."""
    if len(anchor.spatial) < 3:
        return 1
    height, _, column = axes(anchor)[-3:]
    reads = [r for r in anchor.reads if column in r.used() and height in r.used()]
    size = sum(FLOAT_BYTES * prod(r.shape) // anchor.extents[column] * tile.columns for r in reads)
    fitting = max(1, int(_height(anchor) * SLAB_SHARE * device.caches[0].size) // max(size, 1))
    return largest_divisor(_height(anchor), fitting)


def decide_slab(extent: int, usual: int) -> int:
    """Rows of a slab: the usual number, if no other divisor of the extent is decided."""
    divisors = [number for number in range(1, extent + 1) if extent % number == 0]
    return decide_number("slab", divisors, lambda number: 1.0 + abs(log2(number / usual)))


def compute_before(schedule: s_tir.Schedule, slab: Any, device: Device) -> None:
    """Blocks in front are computed for a slab; a vector of channels is inside of the plane or not as a whole."""
    for current in reversed(stages(schedule)):
        loops = schedule.get_loops(current.block)
        if len(loops) == len(current.extents) and current.is_pointwise():
            schedule.compute_at(current.block, slab, preserve_unit_loops=True)
            vectorise_last(schedule, current.block, device)
