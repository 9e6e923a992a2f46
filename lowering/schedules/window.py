"""Windows that slide over planes: depthwise convolution, maximum and average pooling.

    for n, c, h, w: P = pad(X); for n, c, h, w, kh, kw: S = S (+) P * W; Y = f(S)
 => parallel n, c: { P; for h tile, w tile:
        unrolled kh, kw, rows: vectorised w: S = S (+) P * W (registers); vectorised w: Y = f(S) }

Rows of a tile share what they load: with 3 x 3 and four rows each vector of P is used twice on average.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import s_tir, tirx

from ...costmodels.device import Device
from .decisions import decide
from .packing import Scheduled
from .preparation import anchor_and_epilogue, pad_in_place
from .stages import Access, Stage, is_unit_stride, stage, stages, walk
from .tails import overlap_tails
from .tiling.register_tile import reduce_in_registers, share
from .tiling.tiles import LATENCY, Tile, register_tiles


def window(function: tirx.PrimFunc, device: Device, threads: int = 1) -> Scheduled | None:
    """The rule: matches one reduction over a window of the last two axes, with point-wise blocks around it."""
    schedule = s_tir.Schedule(function)
    found = anchor_and_epilogue(schedule, lambda stage: bool(stage.reduced))
    if found is None:
        return None
    anchor, epilogue = found
    if not _is_window(anchor):
        return None
    phases = split_phases(schedule, anchor)
    anchor = stage(schedule, anchor.block)
    tile = choose(anchor, device)
    cycles = prod(anchor.extents[i] for i in anchor.spatial[:-2]) * _cycles(anchor, tile, *sizes(anchor), device)
    _schedule(schedule, anchor, epilogue, tile, threads, phases, cycles)
    return Scheduled(overlap_tails(schedule), (), "window")


def _is_window(anchor: Stage) -> bool:
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


def choose(anchor: Stage, device: Device) -> Tile:
    """The tile of the fewest cycles, if nothing else is decided.

    Products, loads (rows share theirs) or latency, times the tiles.
    """
    height, width = sizes(anchor)
    column = anchor.spatial[-1]
    contiguous = all(is_unit_stride(r, column) for r in anchor.reads if column in r.used())
    tiles = [t for t in register_tiles(height, width, device, window=True) if t.rows <= 6]
    if not contiguous:
        tiles = [t for t in tiles if t.vectors == 1]
    return decide("tile", tiles, lambda tile: _cycles(anchor, tile, height, width, device))


def sizes(anchor: Stage) -> tuple[int, int]:
    """Height and width of the output."""
    *_, row, column = anchor.spatial
    return anchor.extents[row], anchor.extents[column]


def _cycles(anchor: Stage, tile: Tile, height: int, width: int, device: Device) -> float:
    *first, across = [anchor.extents[i] for i in sorted(anchor.reduced)]
    down = first[-1] if first else 1
    count = -(-height // tile.rows) * -(-width // tile.columns)
    products = tile.rows * tile.vectors * down * across
    loads = (tile.rows + down - 1) * tile.vectors * across + down * across
    busy = max(products / device.fma_ports, loads / device.load_ports, LATENCY * down * across)
    return count * (busy + tile.rows * tile.vectors)


def _schedule(
    schedule: s_tir.Schedule,
    anchor: Stage,
    epilogue: Stage,
    tile: Tile,
    threads: int,
    phases: list[PhaseCopy],
    cycles: float,
) -> None:
    *planes, height, width = schedule.get_loops(epilogue.block)
    rows, row = schedule.split(height, [None, tile.rows])
    columns, vectors, lanes = schedule.split(width, [None, tile.vectors, tile.lanes])
    schedule.reorder(*planes, rows, columns, row, vectors, lanes)
    fused = schedule.fuse(*planes) if len(planes) > 1 else planes[0]
    plane = share(schedule, [fused], threads, cycles)[-1]
    schedule.vectorize(lanes)
    for loop in (row, vectors):
        schedule.unroll(loop)
    schedule.compute_at(anchor.block, columns, preserve_unit_loops=True)
    schedule.set_scope(anchor.block, 0, "local")
    reduce_in_registers(schedule, anchor, anchor.spatial, tile)
    for copy in phases:
        schedule.compute_at(copy.block, plane, preserve_unit_loops=True)
        *_, phase = schedule.split(schedule.get_loops(copy.block)[-1], [None, copy.stride])
        schedule.unroll(phase)
    _padding(schedule, plane)


@dataclass(frozen=True)
class PhaseCopy:
    """The block that copies what the window reads with this stride."""

    block: Any
    stride: int


def split_phases(schedule: s_tir.Schedule, anchor: Stage) -> list[PhaseCopy]:
    """Copies what the window reads with a stride along the columns so that each phase of the stride is contiguous.

    P[c, h, w * 2 + k]    =>    P'[c, h, k % 2, w + k // 2], with P'[c, h, p, j] = P[c, h, j * 2 + p]

    Nothing where the stride does not divide the width.
    """
    column = anchor.spatial[-1]
    copies: list[PhaseCopy] = []
    for number, read in enumerate(anchor.reads):
        stride = stride_of(read, column)
        if stride <= 1 or read.shape[-1] % stride:
            continue
        copy = schedule.cache_read(anchor.block, number, "global")
        schedule.transform_layout(anchor.block, ("read", number), _phases(stride))
        copies.append(PhaseCopy(copy, stride))
    return copies


def _phases(stride: int) -> Callable[..., list[Any]]:
    return lambda *indices: [*indices[:-1], indices[-1] % stride, indices[-1] // stride]


def stride_of(read: Access, column: int) -> int:
    """The factor of the column in the last index, if that is a sum with it; else 0."""
    if column not in read.iterators[-1]:
        return 0
    for part in walk(read.indices[-1]):
        if isinstance(part, tirx.Mul) and isinstance(part.b, tirx.IntImm) and isinstance(part.a, tirx.Var):
            return int(part.b)
    return 1


def _padding(schedule: s_tir.Schedule, plane: Any) -> None:
    """Blocks in front of the window are computed plane by plane, while a plane is in the first cache."""
    for current in reversed(stages(schedule)):
        loops = schedule.get_loops(current.block)
        if len(loops) == len(current.extents) and current.is_pointwise():
            schedule.compute_at(current.block, plane, preserve_unit_loops=True)
            pad_in_place(schedule, current, schedule.get_loops(current.block)[1:], 1)
