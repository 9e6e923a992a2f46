"""Parts of tensors in memory: which regions of a buffer a box is, row-major."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ..network.boxes import Box, shape_of
from ..program.instructions import Buffer, Operand, Region


def enclosing(buffer: Box, box: Box) -> Box:
    """The smallest part of a buffer around `box` that is one region: rows that are evenly apart.

    Such a part is cut along two axes at most: the first that has more than one index, and one more inside.
    """
    partial = [axis for axis, interval in enumerate(box) if interval != buffer[axis]]
    if len(partial) <= 1:
        return box
    inner = partial[-1]
    first = next((axis for axis, (start, stop) in enumerate(box) if stop - start > 1), len(box))
    widened = [axis for axis in partial[:-1] if axis > first]
    return tuple(buffer[axis] if axis in widened and axis != inner else interval for axis, interval in enumerate(box))


def is_region(buffer: Box, box: Box) -> bool:
    """Whether a part of a buffer is one region."""
    return enclosing(buffer, box) == box


def region(buffer: Buffer, held: Box, box: Box, width: int) -> Region:
    """Where a part is in a buffer that holds `held`, of elements of `width` bytes. It must be one region."""
    extents, lengths = shape_of(held), shape_of(box)
    offset = 0
    for (start, _), (origin, _), extent in zip(box, held, extents, strict=True):
        offset = offset * extent + (start - origin)
    partial = [axis for axis, interval in enumerate(box) if interval != held[axis]]
    inner = partial[-1] if partial else 0
    rows, row = prod(lengths[:inner]), prod(lengths[inner:])
    address = buffer.address + offset * width
    if rows == 1:
        return Region(buffer.name, buffer.memory, address, row * width)
    return Region(buffer.name, buffer.memory, address, row * width, rows, prod(extents[inner:]) * width)


def operand(buffer: Buffer, held: Box, box: Box, width: int) -> Operand:
    """A part of a buffer as a tensor."""
    return Operand(region(buffer, held, box, width), buffer.dtype, shape_of(box))


def regions_of_both(first: Box, second: Box, box: Box) -> Iterator[Box]:
    """A part of two buffers in pieces, each of which is one region in both."""
    if is_region(first, box) and is_region(second, box):
        yield box
        return
    axis = next(axis for axis, (start, stop) in enumerate(box) if stop - start > 1)
    for index in range(*box[axis]):
        yield from regions_of_both(first, second, (*box[:axis], (index, index + 1), *box[axis + 1 :]))
