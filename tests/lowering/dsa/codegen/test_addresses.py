"""Addresses for buffers with lifetimes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.dsa.codegen.addresses import NoRoomError, Request, assign


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    found = []
    for key in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 10))
        end = start + draw(st.integers(0, 5))
        found.append(Request(key, draw(st.integers(1, 50)), start, end, draw(st.booleans())))
    return found


@given(requests())
def test_what_lives_at_once_does_not_overlap(wanted: list[Request]) -> None:
    places = assign(wanted, 1000, 8)
    for one in wanted:
        assert places[one.key] % 8 == 0
        for other in wanted:
            if one.key != other.key and one.start <= other.end and other.start <= one.end:
                first, second = sorted((one, other), key=lambda r: places[r.key])
                assert places[first.key] + first.size <= places[second.key]


def test_bytes_are_used_again() -> None:
    assert assign([Request("a", 64, 0, 1), Request("b", 64, 2, 3)], 64, 64) == {"a": 0, "b": 0}


def test_a_shorter_life_is_taken_where_the_longer_does_not_fit() -> None:
    wanted = [Request("a", 64, 0, 1), Request("b", 64, 1, 2, least=(2, 2))]
    assert assign(wanted, 64, 64) == {"a": 0, "b": 0}


def test_no_room_names_the_request() -> None:
    with pytest.raises(NoRoomError, match="no 128 bytes in one piece at time 0"):
        assign([Request("a", 65, 0, 0)], 64, 64)


def test_all_that_finds_no_room_is_named_at_once() -> None:
    wanted = [Request("a", 65, 0, 0), Request("b", 64, 0, 1), Request("c", 64, 1, 1)]
    with pytest.raises(NoRoomError) as caught:
        assign(wanted, 64, 1)
    assert [request.key for request in caught.value.requests] == ["a", "c"]
