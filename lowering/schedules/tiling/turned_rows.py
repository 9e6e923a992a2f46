"""Product sums whose constant has fewer columns than a vector: the last layer of what makes images or sound.

    for h, w, o, k, c: C[h, w, o] += X[h, w + k, c] * W[o, k, c]
 => for h, c, w: T[h, c, w] = X[h, w, c]; for h, w, o, k, c: C[h, w, o] += T[h, c, w + k] * W[o, k, c]

A vector along the three colours of a pixel is mostly empty. Where the map is turned, vectors run along its pixels.
"""

from __future__ import annotations

from math import prod

from ..base.blocks import BlockInfo, BufferAccess
from ..base.draft import Draft


def turn_rows(draft: Draft) -> Draft | None:
    """A draft whose product sum reads a copy of its map that has pixels last; None where its columns fill a vector."""
    sums = [block for block in draft.blocks() if block.reduced]
    if len(sums) != 1 or not sums[0].is_product_sum():
        return None
    (anchor,) = sums
    maps = [read for read in anchor.reads if _has_channels_last(anchor, read) and not draft.is_constant(read)]
    if len(maps) != 1 or not _is_narrow(draft, anchor, maps[0]):
        return None
    turned = draft.copy()
    copy = turned.schedule.cache_read(anchor.block, anchor.reads.index(maps[0]), "global")
    turned.schedule.transform_layout(copy, ("write", 0), lambda *i: [*i[:-2], i[-1], i[-2]])
    return turned


def _has_channels_last(anchor: BlockInfo, read: BufferAccess) -> bool:
    """Whether the sum is along the last axis of an operand, and an axis of the result along the one before."""
    if len(read.shape) < 3:
        return False
    return read.iterators[-1] <= anchor.reduced and bool(read.iterators[-2] - anchor.reduced)


def _is_narrow(draft: Draft, anchor: BlockInfo, read: BufferAccess) -> bool:
    """Whether the axes of the result that are not the map's are fewer elements than a vector, its pixels more."""
    columns = prod(anchor.extents[i] for i in anchor.spatial if i not in read.used)
    pixels = [anchor.extents[i] for i in read.iterators[-2] - anchor.reduced]
    return columns < draft.device.lanes <= max(pixels)
