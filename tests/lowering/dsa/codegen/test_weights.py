"""The memories that weights pass through."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.dsa.codegen.weights import Ring, Staging


def test_a_ring_goes_round_and_forgets_what_it_overwrites() -> None:
    ring = Ring(100)
    assert [ring.take("a", 40), ring.take("b", 40), ring.take("c", 40)] == [0, 40, 0]
    assert [ring.find(key) for key in "abc"] == [None, 40, 0]


def test_what_is_needed_soonest_stays() -> None:
    staging = Staging(0, 150, list("abcdefa"))
    for time, key in enumerate("abcdef"):
        staging.fetch(key, 30, time)
    assert staging.fetch("a", 30, 6) == (0, True)


def test_what_was_fetched_last_stays_though_it_is_not_needed_again() -> None:
    """It may still be on its way."""
    staging = Staging(0, 100, ["a", "b", "c", "a", "b"])
    for time, key in enumerate("abc"):
        staging.fetch(key, 40, time)
    assert "c" in staging.late


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=30), st.integers(20, 120))
def test_nothing_overlaps_in_the_staging_buffer(uses: list[str], capacity: int) -> None:
    staging = Staging(64, capacity, uses)
    for time, key in enumerate(uses):
        address, _ = staging.fetch(key, 1 + ord(key) % 20, time)
        held = {**staging.early, **staging.late}
        places = sorted((each.start, each.stop) for each in held.values())
        assert held[key].start == address
        assert places[0][0] >= 64
        assert places[-1][1] <= 64 + capacity
        assert all(before[1] <= after[0] for before, after in pairwise(places))
