"""Parts of buffers as regions of bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.dsa.codegen.layout import enclosing, is_region, region, regions_of_both
from eqfuse.lowering.dsa.network.boxes import Box, contains, shape_of, size, whole
from eqfuse.lowering.dsa.program.instructions import DDR, Buffer


@st.composite
def parts(draw: st.DrawFn, count: int = 1) -> tuple[Box, ...]:
    """A buffer, and parts of it."""
    held = tuple((start, start + draw(st.integers(1, 4))) for start in draw(st.lists(st.integers(0, 3), max_size=4)))
    found = []
    for _ in range(count):
        box = []
        for start, stop in held:
            first = draw(st.integers(start, stop - 1))
            box.append((first, draw(st.integers(first + 1, stop))))
        found.append(tuple(box))
    return held, *found


def numbers(held: Box, box: Box) -> list[int]:
    """The places of a part's elements in its buffer, in order."""
    places = np.arange(size(held)).reshape(shape_of(held))
    inner = tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(box, held, strict=True))
    return [int(place) for place in places[inner].ravel()]


@given(parts())
def test_a_region_has_the_bytes_of_its_part_in_order(drawn: tuple[Box, Box]) -> None:
    held, box = drawn[0], enclosing(*drawn)
    buffer = Buffer("b", DDR, 64, 4 * size(held), "float32", shape_of(held))
    found = region(buffer, held, box, 4)
    bytes_ = [start + offset for start in found.starts for offset in range(0, found.row_bytes, 4)]
    assert bytes_ == [64 + 4 * place for place in numbers(held, box)]


@given(parts())
def test_the_enclosing_part_is_a_region_around_it(drawn: tuple[Box, Box]) -> None:
    held, box = drawn
    found = enclosing(held, box)
    assert is_region(held, found)
    assert contains(found, box)
    assert contains(held, found)


@given(parts())
def test_a_part_of_two_buffers_comes_in_pieces_that_make_it_up(drawn: tuple[Box, Box]) -> None:
    held, box = drawn
    pieces = list(regions_of_both(held, box, box))
    assert all(is_region(held, piece) for piece in pieces)
    assert sorted(n for piece in pieces for n in numbers(held, piece)) == sorted(numbers(held, box))


def test_planes_of_rows_are_one_region() -> None:
    held = whole((2, 8, 8, 16))
    assert is_region(held, ((0, 2), (2, 5), (1, 8), (0, 16)))
    assert is_region(held, ((0, 1), (2, 5), (1, 8), (4, 12)))
    assert not is_region(held, ((0, 2), (2, 5), (1, 8), (4, 12)))
