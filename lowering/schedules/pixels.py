"""Convolutions that look at one pixel at a time: rows and columns become one axis, of which tiles waste less.

   for n, o, h, w, c, kh: 1, kw: 1: C[n, o, h, w] += X[n, c, h + kh, w + kw] * W[o, c, kh, kw]
=> for n, o, p, c: C[n, o, p] += X[n, c, p // width, p % width] * W[o, c, 0, 0]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import s_tir, tirx

from .stages import FUNCTION, Access, Stage, consumers, index_map, is_parameter, stage, stages


def flatten_pixels(
    schedule: s_tir.Schedule, anchor: Stage, epilogue: Stage, *, operand: bool = True
) -> tuple[Stage, Stage] | None:
    """Fuses both axes of the plane in the sum and in the block after it; None where pixels are not read one by one.

    With `operand` also in the block before it, where one computes what has the pixels.
    """
    if len(epilogue.extents) != len(anchor.spatial):
        return None
    height = _height(anchor)
    if height is None or not all(_is_plain(a) for a in (*epilogue.reads, epilogue.write)):
        return None
    epilogue = _in_order(schedule, anchor, epilogue)
    size = anchor.extents[height + 1]
    reduced = [i for i in sorted(anchor.reduced) if anchor.extents[i] > 1] or sorted(anchor.reduced)[:1]
    kept = [*anchor.spatial, *reduced]
    schedule.transform_block_layout(anchor.block, index_map(_fused(kept, height, size), len(anchor.extents)))
    schedule.transform_layout(anchor.block, ("write", 0), _flat(height, size))
    schedule.transform_block_layout(epilogue.block, index_map(_flat(height, size), len(epilogue.extents)))
    if operand:
        _flatten_operand(schedule, stage(schedule, anchor.block), size)
    return stage(schedule, anchor.block), stage(schedule, epilogue.block)


def _in_order(schedule: s_tir.Schedule, anchor: Stage, epilogue: Stage) -> Stage:
    """The block after the sum with its loops in the order of the sum's axes, whatever the order of its own output."""
    read = next(r for r in epilogue.reads if r.name == anchor.write.name)
    order = [next(iter(used)) for used in read.iterators]
    if order != list(range(len(order))):
        permuted = index_map(lambda *i: [i[n] for n in order], len(order))
        schedule.transform_block_layout(epilogue.block, permuted)
    return stage(schedule, epilogue.block)


def _flatten_operand(schedule: s_tir.Schedule, anchor: Stage, width: int) -> None:
    """The operand with pixels as well, where a block computes it for the sum alone."""
    for number, read in enumerate(anchor.reads):
        writer = next((s for s in stages(schedule) if s.write.name == read.name), None)
        place = next((d for d, index in enumerate(read.indices) if isinstance(index, tirx.FloorDiv)), None)
        if writer is None or place is None or writer.reduced or not _is_plain_write(writer):
            continue
        if len(consumers(stages(schedule), writer)) == 1 and _is_internal(schedule, writer):
            schedule.transform_layout(anchor.block, ("read", number), _flat(place, width))
            schedule.transform_block_layout(writer.block, index_map(_flat(place, width), len(writer.extents)))


def _is_plain_write(writer: Stage) -> bool:
    """Whether its iterators are the indices of what it writes, in order, and none of its reads combines them."""
    order = [next(iter(used), None) for used in writer.write.iterators]
    return order == list(range(len(writer.extents))) and all(map(_is_plain, writer.reads))


def _is_internal(schedule: s_tir.Schedule, writer: Stage) -> bool:
    """Whether what it writes is no parameter."""
    return not is_parameter(schedule.mod[FUNCTION], writer.write.buffer)


def _fused(kept: list[int], height: int, width: int) -> Callable[..., list[Any]]:
    before, after = kept[: kept.index(height)], kept[kept.index(height) + 2 :]
    return lambda *i: [*(i[n] for n in before), i[height] * width + i[height + 1], *(i[n] for n in after)]


def _flat(height: int, width: int) -> Callable[..., list[Any]]:
    return lambda *i: [*i[:height], i[height] * width + i[height + 1], *i[height + 2 :]]


def _height(anchor: Stage) -> int | None:
    """The first of two neighbouring iterators, those of a plane; the last such pair, None where there is none."""
    spatial = list(anchor.spatial)
    if spatial != list(range(len(spatial))):
        return None
    pairs = [h for h in reversed(spatial[1:-1]) if anchor.extents[h] * anchor.extents[h + 1] > 1]
    return next((h for h in pairs if _is_pixelwise(anchor, h)), None)


def _is_pixelwise(anchor: Stage, height: int) -> bool:
    """Whether all operands with pixels have them as two whole dimensions in a row, with no stride and no window."""
    pixels = {height, height + 1}
    units = {i for i in anchor.reduced if anchor.extents[i] == 1}
    readers = [r for r in anchor.reads if r.used() & pixels]
    return len(readers) == 1 and all(_has_plane(r, anchor, height, units) for r in (*readers, anchor.write))


def _has_plane(access: Access, anchor: Stage, height: int, units: set[int]) -> bool:
    used = [frozenset(i - units) for i in access.iterators]
    plane = [frozenset({height}), frozenset({height + 1})]
    extents = (anchor.extents[height], anchor.extents[height + 1])
    places = [d for d in range(len(used) - 1) if used[d : d + 2] == plane and access.shape[d : d + 2] == extents]
    return len(places) == 1 and sum(bool({height, height + 1} & u) for u in used) == 2


def _is_plain(access: Access) -> bool:
    return all(len(used) <= 1 for used in access.iterators)
