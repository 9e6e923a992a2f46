"""Leaving out what a result does not need."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from eqfuse.tools.explain.minimise import minimal


@given(st.integers(0, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, max(n - 1, 0)), max_size=n))))
def test_exactly_what_is_needed_stays_in_order(case: tuple[int, set[int]]) -> None:
    count, needed = case

    def suffices(items: Sequence[int]) -> bool:
        return needed <= set(items)

    assert minimal(range(count), suffices) == tuple(sorted(needed))


def test_of_two_alternatives_one_stays() -> None:
    assert minimal("abcd", lambda items: "a" in items or "d" in items) == ("a",)
