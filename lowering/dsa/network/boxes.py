"""Boxes: rectangular parts of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

Interval = tuple[int, int]
"""From a first index to one past the last."""
Box = tuple[Interval, ...]
"""One interval per axis, outermost first; () is all of a scalar. None, if allowed, is no element at all."""
Boxes = Mapping[int, Box]
"""A part of each of some values."""
Shape = tuple[int, ...]


def whole(shape: Iterable[int]) -> Box:
    """The box of a whole tensor."""
    return tuple((0, extent) for extent in shape)


def shape_of(box: Box) -> Shape:
    """The extents of a box."""
    return tuple([stop - start for start, stop in box])


def size(box: Box | None) -> int:
    """Elements in a box."""
    return 0 if box is None else prod([stop - start for start, stop in box])


def intersection(first: Box | None, second: Box | None) -> Box | None:
    """The box that two boxes of one tensor share; None if they share nothing."""
    if first is None or second is None:
        return None
    box: list[Interval] = []
    for (a, b), (c, d) in zip(first, second, strict=True):  # a loop, for it is called most
        start, stop = a if a > c else c, b if b < d else d
        if start >= stop:
            return None
        box.append((start, stop))
    return tuple(box)


def hull(first: Box | None, second: Box | None) -> Box | None:
    """The smallest box around two."""
    if first is None or second is None:
        return second if first is None else first
    return enclose(first, second)


def enclose(first: Box, second: Box) -> Box:
    """The smallest box around two that are there."""
    if first == second:
        return first
    return tuple([(min(a, c), max(b, d)) for (a, b), (c, d) in zip(first, second, strict=True)])


def contains(outer: Box | None, inner: Box | None) -> bool:
    """Whether all of `inner` is in `outer`."""
    return inner is None or intersection(outer, inner) == inner


def long_axes(box: Box) -> list[int]:
    """The axes along which a box has more than one element: a view that adds or drops axes of one keeps these."""
    return [axis for axis, (start, stop) in enumerate(box) if stop - start > 1]


def counterpart(part: Box, whole: Box, other: Box) -> Box | None:
    """The part of `other`, another tensor's box, that corresponds to `part` of `whole`; None if the boxes differ in
    more than axes of one element."""
    axes, others = long_axes(whole), long_axes(other)
    if [whole[axis] for axis in axes] != [other[axis] for axis in others]:
        return None
    intervals = dict(zip(others, (part[axis] for axis in axes), strict=True))
    return tuple(intervals.get(axis, interval) for axis, interval in enumerate(other))


def piece(shape: Shape, factors: Sequence[int], place: Sequence[int]) -> Box:
    """One of the equal parts: the one at that place along each axis."""
    lengths = [extent // factor for extent, factor in zip(shape, factors, strict=True)]
    return tuple((index * length, (index + 1) * length) for index, length in zip(place, lengths, strict=True))
