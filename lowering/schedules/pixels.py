"""Convolutions that look at one pixel at a time: rows and columns become one axis, of which tiles waste less.

   for n, o, h, w, c, kh: 1, kw: 1: C[n, o, h, w] += X[n, c, h + kh, w + kw] * W[o, c, kh, kw]
=> for n, o, p, c: C[n, o, p] += X[n, c, p // width, p % width] * W[o, c, 0, 0]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import s_tir, tirx

from .stages import Access, Stage, stage


def flatten_pixels(schedule: s_tir.Schedule, anchor: Stage, epilogue: Stage) -> tuple[Stage, Stage] | None:
    """Fuses the last two axes of the sum and of the block after it; None where pixels are not read one by one."""
    if len(anchor.spatial) < 3 or len(epilogue.extents) != len(anchor.spatial):
        return None
    height, width = anchor.spatial[-2:]
    if not _is_pixelwise(anchor, height, width) or not all(_is_plain(a) for a in (*epilogue.reads, epilogue.write)):
        return None
    size = anchor.extents[width]
    reduced = [i for i in sorted(anchor.reduced) if anchor.extents[i] > 1] or sorted(anchor.reduced)[:1]
    fused = tirx.IndexMap.from_func(_fused(anchor.spatial, reduced, size), len(anchor.extents), index_dtype="int32")
    schedule.transform_block_layout(anchor.block, fused)
    schedule.transform_layout(anchor.block, ("write", 0), _flat(size))
    flat = tirx.IndexMap.from_func(_flat(size), len(epilogue.extents), index_dtype="int32")
    schedule.transform_block_layout(epilogue.block, flat)
    return stage(schedule, anchor.block), stage(schedule, epilogue.block)


def _fused(spatial: tuple[int, ...], reduced: list[int], width: int) -> Callable[..., list[Any]]:
    *first, h, w = spatial
    return lambda *i: [*(i[n] for n in first), i[h] * width + i[w], *(i[n] for n in reduced)]


def _flat(width: int) -> Callable[..., list[Any]]:
    return lambda *i: [*i[:-2], i[-2] * width + i[-1]]


def _is_pixelwise(anchor: Stage, height: int, width: int) -> bool:
    """Whether all operands with pixels have them as their last two whole dimensions, with no stride and no window."""
    units = {i for i in anchor.reduced if anchor.extents[i] == 1}
    readers = [r for r in (*anchor.reads, anchor.write) if r.used() & {height, width}]
    return all(
        len(r.iterators) > 2
        and [used - units for used in r.iterators[-2:]] == [{height}, {width}]
        and r.shape[-2:] == (anchor.extents[height], anchor.extents[width])
        and not any({height, width} & used for used in r.iterators[:-2])
        for r in readers
    )


def _is_plain(access: Access) -> bool:
    return all(len(used) <= 1 for used in access.iterators)
