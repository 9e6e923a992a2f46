"""Parts of tensors in memory: which regions of a buffer a box is, row-major."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ..network.boxes import Box, Interval, Shape, shape_of
from ..program.instructions import Buffer, Region

_LEVELS = 2
"""Repetitions of a region: rows, and planes of them."""


class _Repetition(NamedTuple):
    """A run of elements, repeated `times` times, `stride` elements from one to the next."""

    times: int
    stride: int


@lru_cache(1 << 16)
def extents_of(box: Box) -> Shape:
    """The extents of a part, one object however many buffers and operands have them."""
    return shape_of(box)


@lru_cache(1 << 16)
def _repetitions(extents: Shape, lengths: Shape) -> tuple[tuple[_Repetition, ...], int]:
    """How runs of elements that lie together make up a part of a buffer, the outermost repetition first; and the
    elements of a run."""
    found: list[_Repetition] = []
    run, stride, is_run = 1, 1, True
    for extent, length in zip(reversed(extents), reversed(lengths), strict=True):
        if is_run:
            run *= length
            is_run = length == extent
        elif found and stride == found[-1].times * found[-1].stride:
            found[-1] = _Repetition(length * found[-1].times, found[-1].stride)
        elif length > 1:
            found.append(_Repetition(length, stride))
        stride *= extent
    return tuple(reversed(found)), run


def enclosing(buffer: Box, box: Box) -> Box:
    """A small part of a buffer around `box` that is one region: planes of rows that are evenly apart."""
    if box == buffer:
        return box
    while not is_region(buffer, box):
        partial = [axis for axis, interval in enumerate(box) if interval != buffer[axis]]
        fullest = max(partial[1:-1], key=lambda axis: _share(box[axis], buffer[axis]))
        box = (*box[:fullest], buffer[fullest], *box[fullest + 1 :])
    return box


def _share(part: Interval, whole: Interval) -> float:
    return (part[1] - part[0]) / (whole[1] - whole[0])


def is_region(buffer: Box, box: Box) -> bool:
    """Whether a part of a buffer is one region."""
    return len(_repetitions(shape_of(buffer), shape_of(box))[0]) <= _LEVELS


class _Geometry(NamedTuple):
    """Where a part is in a buffer, in bytes: its offset, and the numbers of a region."""

    offset: int
    row_bytes: int
    rows: int
    stride: int
    planes: int
    plane_stride: int


@lru_cache(1 << 16)
def _geometry(held: Box, box: Box, width: int) -> _Geometry:
    extents = shape_of(held)
    offset = 0
    for (start, _), (origin, _), extent in zip(box, held, extents, strict=True):
        offset = offset * extent + (start - origin)
    repetitions, run = _repetitions(extents, shape_of(box))
    if not repetitions:
        return _Geometry(offset * width, run * width, 1, 0, 1, 0)
    planes, rows = [_Repetition(1, 0), *repetitions][-_LEVELS:]
    return _Geometry(
        offset * width, run * width, rows.times, rows.stride * width, planes.times, planes.stride * width
    )  # fmt: skip


def region(buffer: Buffer, held: Box, box: Box, width: int) -> Region:
    """Where a part is in a buffer that holds `held`, of elements of `width` bytes. It must be one region."""
    offset, *numbers = _geometry(held, box, width)
    return Region(buffer.name, buffer.memory, buffer.address + offset, *numbers)


def regions_of_both(first: Box, second: Box, box: Box) -> Iterator[Box]:
    """A part of two buffers in pieces, each of which is one region in both."""
    if (box == first or is_region(first, box)) and (box == second or is_region(second, box)):
        yield box
        return
    axis = next(axis for axis, (start, stop) in enumerate(box) if stop - start > 1)
    for index in range(*box[axis]):
        yield from regions_of_both(first, second, (*box[:axis], (index, index + 1), *box[axis + 1 :]))
