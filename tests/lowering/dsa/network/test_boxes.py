"""Boxes of tensors."""

from __future__ import annotations

from itertools import product

from eqfuse.lowering.dsa.network.boxes import (
    contains,
    counterpart,
    hull,
    intersection,
    piece,
    shape_of,
    size,
    whole,
)


def test_pieces_share_nothing_and_are_everything() -> None:
    found = [piece((4, 6), (2, 3), place) for place in product(range(2), range(3))]
    assert len(found) == 6
    assert {shape_of(box) for box in found} == {(2, 2)}
    assert sum(map(size, found)) == 24
    assert all(intersection(a, b) is None for a in found for b in found if a != b)


def test_nothing_is_part_of_everything() -> None:
    box = whole((2, 3))
    assert hull(None, box) == box
    assert intersection(None, box) is None
    assert contains(box, None)
    assert size(None) == 0
    assert size(()) == 1


def test_a_part_is_found_in_a_tensor_with_another_axis_of_one_element() -> None:
    assert counterpart(((2, 4), (0, 8)), ((0, 6), (0, 8)), ((0, 1), (0, 6), (0, 8))) == ((0, 1), (2, 4), (0, 8))
    assert counterpart(((0, 1), (2, 4)), ((0, 1), (0, 6)), ((0, 6),)) == ((2, 4),)
    assert counterpart(((2, 4), (0, 8)), ((0, 6), (0, 8)), ((0, 8), (0, 6))) is None
