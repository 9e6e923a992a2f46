"""Addresses for buffers with lifetimes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.dsa.codegen.memory_map import Lifetime, NoRoomError, Request, assign_addresses


def request(key: str, size: int, start: int, end: int, shorter: Lifetime | None = None) -> Request[str]:
    return Request(key, size, Lifetime(start, end), shorter=shorter)


@st.composite
def many_requests(draw: st.DrawFn) -> list[Request[int]]:
    requests = []
    for key in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 10))
        life = Lifetime(start, start + draw(st.integers(0, 5)))
        requests.append(Request(key, draw(st.integers(1, 50)), life, draw(st.booleans())))
    return requests


@given(many_requests())
def test_what_lives_at_once_does_not_overlap(requests: list[Request[int]]) -> None:
    places = assign_addresses(requests, 1000, 8)
    for one in requests:
        assert places[one.key] % 8 == 0
        for other in requests:
            if one.key != other.key and one.life.start <= other.life.end and other.life.start <= one.life.end:
                first, second = sorted((one, other), key=lambda r: places[r.key])
                assert places[first.key] + first.size <= places[second.key]


def test_bytes_are_used_again() -> None:
    assert assign_addresses([request("a", 64, 0, 1), request("b", 64, 2, 3)], 64, 64) == {"a": 0, "b": 0}


def test_a_shorter_life_is_taken_where_the_longer_does_not_fit() -> None:
    requests = [request("a", 64, 0, 1), request("b", 64, 1, 2, Lifetime(2, 2))]
    assert assign_addresses(requests, 64, 64) == {"a": 0, "b": 0}


def test_all_that_finds_no_room_is_named_at_once() -> None:
    requests = [request("a", 65, 0, 0), request("b", 64, 0, 1), request("c", 64, 1, 1)]
    with pytest.raises(NoRoomError, match="no 65 bytes in one piece at time 0") as caught:
        assign_addresses(requests, 64, 1)
    assert [each.key for each in caught.value.requests] == ["a", "c"]
