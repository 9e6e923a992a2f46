"""Reductions of feature maps stored channels last: depthwise convolution, pooling over windows and whole planes.

    for n, h, w, c: P = pad(X); for n, h, w, c, kh, kw: S = S (+) P * W; Y = f(S)
 => parallel n, c tile, h tile: { P, as much as the first cache holds; for h, w tile:
        unrolled kh, kw, rows, vectors: vectorised c: S = S (+) P * W (registers); vectorised c: Y = f(S) }

A vector holds channels, so that no stride and no border gets in its way; neighbouring rows share what they load. A sum
whose map is a parameter reads it where it is: its border is not copied (`passes/borders.py`), and P is not there. Tiles
of channels that share cache lines follow each other slab by slab, so that the map is fetched once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd, log2, prod
from typing import Any

from ....costmodels.device import Device
from ....costmodels.register_tiles import LATENCY, Tile, register_tiles
from ...base.decisions import Trace
from ..base.blocks import BlockInfo, parameter_index
from ..base.draft import Draft
from ..base.extents import is_symbolic, number_of
from ..base.packing import Repack
from ..base.preparation import find_anchor
from ..base.tiled import Tiled
from ..base.turned import find_turned_product
from ..passes.axis_ends import BOUNDED
from ..passes.borders import find_border
from ..tiling.register_tile import reduce_in_registers, share
from ..tiling.tiles import FLOAT_BYTES, largest_divisor, shrink_tile
from .pointwise import vectorise_last

MOST_ROWS = 6
"""Rows of a tile; more would not fit the registers together with the window."""
MOST_VECTORS = 2
"""Vectors of a row of a tile, for the same reason."""
FEWER_ROWS = (1, 3)
"""Rows of the tiles for dynamic maps that are narrower than the usual tile."""
SPARE_REGISTERS = 4
"""Vector registers that LLVM needs for other values."""
SPILLED = 1.5
"""The factor that a window takes longer whose values do not fit the registers; measured on the device `host`."""
COPY_CYCLES = 1.5
"""Cycles for a vector that is copied to a slab with a border."""
SLAB_SHARE = 0.5
"""The part of the first cache that the operands of a slab may take."""
TAIL = 1.5
"""The factor that a window takes longer whose tiles do not divide the channels: its last one starts between vectors."""


def channels(draft: Draft) -> Iterator[Tiled]:
    """The rule: matches one reduction that is not over the last axis, along which every operand runs; not a product of
    few rows, an operand of which would be turned for it."""
    turned = find_turned_product(draft)
    if turned is not None and turned.has_few_rows:
        return
    pair = find_anchor(draft, lambda block: _runs_along_channels(draft, block))
    if pair is None or not is_channelwise(draft, *pair):
        return
    anchor, epilogue = pair
    border = find_border(draft, anchor)
    is_direct = border is not None and draft.trace.decide_flag("direct", usual=True)
    if border is not None and is_direct:
        draft.inline(border)
        anchor = draft.inspect(anchor.block)
    repack = pack_channels(draft, anchor)
    is_copied = any(draft.producer(read) is not None for read in anchor.reads)
    tile = decide_window(draft, anchor, is_copied=is_copied)
    yield replace(_tile(draft, anchor, epilogue, tile, by_rows=is_direct), repack=repack, has_border=is_direct)


def _tile(draft: Draft, anchor: BlockInfo, epilogue: BlockInfo, tile: Tile, *, by_rows: bool) -> Tiled:
    """The draft by these tiles; if dynamic rows or columns are fewer than a tile has, smaller ones compute them."""
    smaller, is_narrow = None, is_symbolic(anchor.extents[list_axes(anchor)[-1]])
    is_short = (by_rows or is_narrow) and is_symbolic(_row_length(anchor))
    less = shrink_tile(tile, FEWER_ROWS, is_short=is_short, is_narrow=is_narrow)
    if less != tile:
        own = replace(draft.copy(), trace=Trace())
        smaller = _tile(own, anchor, epilogue, less, by_rows=by_rows)
    _schedule(draft, anchor, epilogue, tile, by_rows=by_rows)
    return Tiled(draft, "channels", smaller=smaller)


# --- which reductions


def _runs_along_channels(draft: Draft, anchor: BlockInfo) -> bool:
    """Whether it is a reduction whose operands run along its last axis, or are constants that can be packed so."""
    if not anchor.reduced or not anchor.spatial:
        return False
    column = list_axes(anchor)[-1]
    return all(read.is_unit_stride(column) or draft.is_constant(read) for read in anchor.operands(column))


def is_channelwise(draft: Draft, anchor: BlockInfo, epilogue: BlockInfo) -> bool:
    """Whether all operands of the reduction run along its last axis, and so does the block after it."""
    alike = epilogue.extents == tuple(anchor.extents[i] for i in anchor.spatial)
    column = anchor.spatial.index(list_axes(anchor)[-1])
    return alike and is_channel_window(draft, anchor) and epilogue.write.is_unit_stride(column)


def is_channel_window(draft: Draft, anchor: BlockInfo) -> bool:
    """Whether all operands of the reduction run along its last axis."""
    column = list_axes(anchor)[-1]
    some = any(read.used & anchor.reduced for read in anchor.operands(column))
    alone = all(not used & anchor.reduced for r in anchor.reads for used in r.iterators if column in used)
    along = _runs_along_channels(draft, anchor) and anchor.write.is_unit_stride(column)
    return alone and along and some and anchor.extents[column] > 1


def list_axes(anchor: BlockInfo) -> list[int]:
    """The iterators of the output, those of one iteration first."""
    return sorted(anchor.spatial, key=lambda i: (anchor.extents[i] > 1, i))


def pack_channels(draft: Draft, anchor: BlockInfo) -> tuple[Repack, ...]:
    """Move the channels of constants last."""
    column, packs = list_axes(anchor)[-1], []
    for number, read in enumerate(anchor.reads):
        if column not in read.used or read.is_unit_stride(column):
            continue
        axis, index = read.dimension_of(column), parameter_index(draft.function, read.buffer)
        assert index is not None
        packs.append(Repack(index, axis, read.shape[axis], tuple(range(len(read.shape)))))
        draft.schedule.transform_layout(anchor.block, ("read", number), packs[-1].index_map)
    return tuple(packs)


# --- the register tile: rows of pixels by vectors of channels


def decide_window(draft: Draft, anchor: BlockInfo, *, is_copied: bool) -> Tile:
    """The tile of the fewest cycles, if nothing else is decided; `is_copied`: operands are computed slab by slab."""
    device = draft.device

    def cycles(tile: Tile) -> float:
        return _window_cycles_with_spills(anchor, tile, device) + is_copied * _copy_cycles(anchor, tile, device)

    return draft.trace.decide("tile", window_tiles(anchor, device), lambda tile: _tail(anchor, tile) * cycles(tile))


def window_tiles(anchor: BlockInfo, device: Device) -> list[Tile]:
    """The tiles that fit the registers."""
    tiles = register_tiles(_row_length(anchor), anchor.extents[list_axes(anchor)[-1]], device, window=True)
    return [t for t in tiles if t.rows <= MOST_ROWS and t.vectors <= MOST_VECTORS]


def _tail(anchor: BlockInfo, tile: Tile) -> float:
    return TAIL if anchor.extents[list_axes(anchor)[-1]] % tile.columns else 1.0


def _window_cycles_with_spills(anchor: BlockInfo, tile: Tile, device: Device) -> float:
    """Cycles for the reduction. If accumulators, values that neighbouring rows share and a row of the window do not
    fit the registers, LLVM spills.
    """
    across = _shared_steps(anchor, -2)
    held = tile.vectors * (tile.rows + tile.rows + across - 1 + across)
    spills = SPILLED if held > device.vector_registers - SPARE_REGISTERS else 1.0
    return spills * window_cycles(anchor, tile, device)


def _copy_cycles(anchor: BlockInfo, tile: Tile, device: Device) -> float:
    """Cycles for copying operands with a border, slab by slab."""
    if len(anchor.spatial) < 3:
        return 0.0
    height, _, column = list_axes(anchor)[-3:]
    source = next((read for read in anchor.operands(column) if height in read.used), None)
    if source is None or len(source.shape) < 3:
        return 0.0
    slab, (rows, width) = fitting_rows(anchor, tile, device), source.shape[-3:-1]
    copied = slab * rows / anchor.extents[height] + _shared_steps(anchor, -3) - 1
    vectors = tile.vectors * -(-anchor.extents[column] // tile.columns)
    return COPY_CYCLES * copied / slab * width * vectors


def window_cycles(anchor: BlockInfo, tile: Tile, device: Device) -> float:
    """Cycles of the whole reduction: products, loads, which neighbouring rows share, or latency, whichever is most."""
    window, across = anchor.depth, _shared_steps(anchor, -2)
    count = -(-_row_length(anchor) // tile.rows) * -(-anchor.extents[list_axes(anchor)[-1]] // tile.columns)
    products = tile.rows * tile.vectors * window
    loads = tile.vectors * window // across * (tile.rows + across - 1 + across)
    busy = max(products / device.fma_ports, loads / device.load_ports, LATENCY * window)
    return count * (busy + tile.rows * tile.vectors)


def _row_length(anchor: BlockInfo) -> int:
    return anchor.extents[list_axes(anchor)[-2]] if len(anchor.spatial) > 1 else 1


def _shared_steps(anchor: BlockInfo, axis: int) -> int:
    """Steps of the reduction along which neighbours on an axis (-2: of a row) read the same elements; at least 1."""
    if len(anchor.spatial) < -axis:
        return 1
    place = list_axes(anchor)[axis]
    together = [used & anchor.reduced for r in anchor.reads for used in r.iterators if place in used]
    return max((anchor.extents[i] for reduced in together for i in reduced), default=1)


# --- the loops


def _schedule(draft: Draft, anchor: BlockInfo, epilogue: BlockInfo, tile: Tile, *, by_rows: bool) -> None:
    """`by_rows`: a slab is computed for all channels before the next one, for nothing is copied for one.

    Else for all tiles of channels that share cache lines: each alone would fetch the lines of the whole map again.
    """
    axes, own = list_axes(anchor), draft.loops(epilogue)
    loops = [own[anchor.spatial.index(i)] for i in axes]
    while len(loops) < 3:  # a loop of one iteration in front
        loops[:1] = draft.schedule.split(loops[0], [1, None])
    *outer, height, width, channel = loops
    tiles, channel = draft.schedule.split(channel, [None, tile.columns])
    rows = 1
    if len(axes) >= 3:
        rows = decide_slab(draft, anchor.extents[axes[-3]], fitting_rows(anchor, tile, draft.device))
    slabs, height = draft.schedule.split(height, [None, rows])
    if by_rows:
        draft.schedule.annotate(height, BOUNDED, True)
    around = [slabs, tiles]
    together = _tiles_of_line(anchor.extents[axes[-1]], tile, draft.device)
    if not by_rows and together == 1:
        around = [tiles, slabs]
    elif not by_rows:
        lines, tiles = draft.schedule.split(tiles, [None, together])
        around = [lines, slabs, tiles]
    draft.schedule.reorder(*outer, *around, height, width, channel)
    planes = prod(anchor.extents[i] for i in axes[:-2])
    slab = share(draft, [*outer, *around], planes * window_cycles(anchor, tile, draft.device))[-1]
    schedule_window(draft, anchor, tile, (height, width, channel))
    compute_prologues(draft, slab)


def schedule_window(draft: Draft, anchor: BlockInfo, tile: Tile, plane: tuple[Any, Any, Any]) -> Any:
    """Put register tiles into the innermost loops of the epilogue: over rows, columns, and a number of channels.

    The result is the loop over tiles of channels, now outside of those over the plane.
    """
    schedule, (height, width, channel) = draft.schedule, plane
    blocks, vectors, lanes = schedule.split(channel, [None, tile.vectors, tile.lanes])
    columns, row = schedule.split(width, [None, tile.rows])
    schedule.reorder(blocks, height, columns, row, vectors, lanes)
    schedule.vectorize(lanes)
    draft.unroll(row, vectors)
    draft.compute_at(anchor.block, columns)
    schedule.set_scope(anchor.block, 0, "local")
    reduce_in_registers(draft, anchor, list_axes(anchor), tile)
    return blocks


def fitting_rows(anchor: BlockInfo, tile: Tile, device: Device) -> int:
    """Rows of the output whose inputs, of the tile's channels, fit part of the first cache; a divisor of all
    that are known.

    Tiles narrower than a cache line share it with the next ones, which should find it there: then all channels of the
    line count and all rows of the window, and the cache holds fewer of these lines if they are a multiple of a power of
    two apart.
    """
    if len(anchor.spatial) < 3:
        return 1
    height, _, column = list_axes(anchor)[-3:]
    rows = anchor.extents[height]
    reads = [read for read in anchor.operands(column) if height in read.used]
    first, channels = device.caches[0], anchor.extents[column]
    together, pixel = _tiles_of_line(channels, tile, device), FLOAT_BYTES * channels
    size = sum(FLOAT_BYTES * prod(r.shape) // channels * tile.columns * together for r in reads)
    room, beside = SLAB_SHARE * first.size, 0
    if together > 1:
        room *= first.line / max(first.line, gcd(pixel, first.size // first.ways))
        beside = _shared_steps(anchor, -3) - 1
    fitting = max(1, int(rows * room) // max(size, 1) - beside)
    return min(fitting, number_of(rows)) if is_symbolic(rows) else largest_divisor(rows, fitting)


def _tiles_of_line(channels: Any, tile: Tile, device: Device) -> int:
    """Tiles of channels that share a cache line and divide all tiles; 1 if the last tile has fewer channels."""
    most = device.caches[0].line // FLOAT_BYTES // tile.columns
    is_whole = not is_symbolic(channels) and channels % tile.columns == 0
    return largest_divisor(channels // tile.columns, max(1, most)) if is_whole else 1


def decide_slab(draft: Draft, extent: int, usual: int) -> int:
    """Rows of a slab: the usual number, if no other divisor of the extent is decided."""
    if is_symbolic(extent):
        return usual
    divisors = [number for number in range(1, extent + 1) if extent % number == 0]
    return draft.trace.decide_number("slab", divisors, lambda number: 1.0 + abs(log2(number / usual)))


def compute_prologues(draft: Draft, slab: Any) -> None:
    """Compute blocks in front for a slab; a vector of channels is inside of the plane or not as a whole."""
    for block in reversed(draft.blocks()):
        if len(draft.loops(block)) == len(block.extents) and block.is_pointwise():
            draft.compute_at(block.block, slab)
            vectorise_last(draft, block.block)
