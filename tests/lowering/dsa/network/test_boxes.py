"""Boxes of tensors."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.dsa.network.boxes import (
    Box,
    Shape,
    contains,
    hull,
    intersection,
    pieces,
    reshaped,
    shape_of,
    size,
    whole,
)


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[Shape, Shape, Box]:
    """A shape, another one of as many elements, and a box of the first."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=5))
    shapes = []
    for _ in range(2):
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=3)))
        ends = zip([0, *cuts], [*cuts, len(factors)], strict=True)
        shapes.append(tuple(prod(factors[a:b]) for a, b in ends))
    bounds = [sorted(draw(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))) for n in shapes[0]]
    return shapes[0], shapes[1], tuple((a, b + 1) for a, b in bounds)


@given(reshapes())
def test_a_reshaped_box_holds_every_element(case: tuple[Shape, Shape, Box]) -> None:
    source, target, box = case
    marked = np.zeros(source, bool)
    marked[tuple(slice(*i) for i in box)] = True
    found = np.zeros(target, bool)
    found[tuple(slice(*i) for i in reshaped(box, source, target))] = True
    assert not (marked.reshape(target) & ~found).any()


def test_a_reshaped_box_is_small_where_axes_are_kept() -> None:
    assert reshaped(((2, 4), (0, 12)), (8, 12), (8, 3, 4)) == ((2, 4), (0, 3), (0, 4))
    assert reshaped(((2, 4), (0, 6), (0, 5)), (8, 6, 5), (48, 5)) == ((12, 24), (0, 5))
    assert reshaped(((1, 2), (3, 5)), (4, 6), (1, 4, 1, 6, 1)) == ((0, 1), (1, 2), (0, 1), (3, 5), (0, 1))


def test_pieces_share_nothing_and_are_everything() -> None:
    found = list(pieces((4, 6), (2, 3)))
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
