"""Windows that slide over planes: depthwise convolution, maximum and average pooling.

    for n, c, h, w: P = pad(X); for n, c, h, w, kh, kw: S = S (+) P * W; Y = f(S)
 => parallel n, c: { P; for h tile, w tile:
        unrolled kh, kw, rows: vectorised w: S = S (+) P * W (registers); vectorised w: Y = f(S) }

Rows of a tile share what they load: with 3 x 3 and four rows each vector of P is used twice on average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from tvm import tirx

from ....costmodels.device import Device
from ....costmodels.register_tiles import LATENCY, Tile, register_tiles
from ..base.blocks import BlockInfo, BufferAccess, walk
from ..base.draft import Draft
from ..base.preparation import find_anchor, pad_in_place
from ..base.tiled import Tiled
from ..tiling.register_tile import reduce_in_registers, share

MOST_ROWS = 6
"""Rows of a tile; more would not fit the registers together with the window."""


def window(draft: Draft) -> Iterator[Tiled]:
    """The rule: matches one reduction over a window of the last two axes, with point-wise blocks around it."""
    pair = find_anchor(draft, lambda block: bool(block.reduced))
    if pair is None or not _is_window(pair[0]):
        return
    anchor, epilogue = pair
    phases = _split_phases(draft, anchor)
    anchor = draft.inspect(anchor.block)
    tile = _choose_tile(draft, anchor)
    _schedule(draft, anchor, epilogue, tile, phases)
    yield Tiled(draft, "window")


def _is_window(anchor: BlockInfo) -> bool:
    """Whether the last two axes of the output are those of some operand, moved by reduced iterators.

    Not for volumes, whose padding spans more than a plane.
    """
    *_, row, column = anchor.spatial if len(anchor.spatial) in (3, 4) else (-1, -1)
    return any(
        len(read.iterators) >= 2
        and row in read.iterators[-2] and column in read.iterators[-1]
        and read.iterators[-2] | read.iterators[-1] <= anchor.reduced | {row, column}
        for read in anchor.reads
    )  # fmt: skip


def _choose_tile(draft: Draft, anchor: BlockInfo) -> Tile:
    """The tile of the fewest cycles, if nothing else is decided."""
    height, width = anchor.spatial[-2:]
    contiguous = all(read.is_unit_stride(width) for read in anchor.operands(width))
    candidates = register_tiles(anchor.extents[height], anchor.extents[width], draft.device, window=True)
    tiles = [t for t in candidates if t.rows <= MOST_ROWS and (contiguous or t.vectors == 1)]
    return draft.trace.decide("tile", tiles, lambda tile: _plane_cycles(anchor, tile, draft.device))


def _plane_cycles(anchor: BlockInfo, tile: Tile, device: Device) -> float:
    """Cycles for one plane: products, loads (rows share theirs) or latency, whichever is most, for each tile."""
    height, width = (anchor.extents[i] for i in anchor.spatial[-2:])
    *first, across = [anchor.extents[i] for i in sorted(anchor.reduced)]
    down = first[-1] if first else 1
    count = -(-height // tile.rows) * -(-width // tile.columns)
    products = tile.rows * tile.vectors * down * across
    loads = (tile.rows + down - 1) * tile.vectors * across + down * across
    busy = max(products / device.fma_ports, loads / device.load_ports, LATENCY * down * across)
    return count * (busy + tile.rows * tile.vectors)


def _schedule(draft: Draft, anchor: BlockInfo, epilogue: BlockInfo, tile: Tile, phases: list[tuple[Any, int]]) -> None:
    schedule = draft.schedule
    *planes, height, width = draft.loops(epilogue)
    rows, row = schedule.split(height, [None, tile.rows])
    columns, vectors, lanes = schedule.split(width, [None, tile.vectors, tile.lanes])
    schedule.reorder(*planes, rows, columns, row, vectors, lanes)
    cycles = prod(anchor.extents[i] for i in anchor.spatial[:-2]) * _plane_cycles(anchor, tile, draft.device)
    plane = share(draft, [draft.fuse(planes)], cycles)[-1]
    schedule.vectorize(lanes)
    draft.unroll(row, vectors)
    draft.compute_at(anchor.block, columns)
    schedule.set_scope(anchor.block, 0, "local")
    reduce_in_registers(draft, anchor, anchor.spatial, tile)
    for copy, stride in phases:
        draft.compute_at(copy, plane)
        *_, phase = schedule.split(schedule.get_loops(copy)[-1], [None, stride])
        schedule.unroll(phase)
    for block in reversed(draft.blocks()):  # what stands in front, while a plane is in the first cache
        if len(draft.loops(block)) == len(block.extents) and block.is_pointwise():
            draft.compute_at(block.block, plane)
            pad_in_place(draft.serial(), block, draft.loops(block)[1:])


def _split_phases(draft: Draft, anchor: BlockInfo) -> list[tuple[Any, int]]:
    """Copy operands that are read with a stride along the columns, so that each phase of the stride is contiguous.

    P[c, h, w * 2 + k]    =>    P'[c, h, k % 2, w + k // 2], with P'[c, h, p, j] = P[c, h, j * 2 + p]

    The result has each copy with its stride; operands whose width the stride does not divide have none.
    """
    copies = []
    for number, read in enumerate(anchor.reads):
        stride = _column_stride(read, anchor.spatial[-1])
        if stride > 1 and read.shape[-1] % stride == 0:
            copies.append((draft.schedule.cache_read(anchor.block, number, "global"), stride))
            draft.schedule.transform_layout(anchor.block, ("read", number), _separate_phases(stride))
    return copies


def _separate_phases(stride: int) -> Callable[..., list[Any]]:
    return lambda *indices: [*indices[:-1], indices[-1] % stride, indices[-1] // stride]


def _column_stride(read: BufferAccess, column: int) -> int:
    """The factor of the column in the last index, if that is a sum with it; else 0."""
    if column not in read.iterators[-1]:
        return 0
    for part in walk(read.indices[-1]):
        if isinstance(part, tirx.Mul) and isinstance(part.b, tirx.IntImm) and isinstance(part.a, tirx.Var):
            return int(part.b)
    return 1
