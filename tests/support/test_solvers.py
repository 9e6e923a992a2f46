"""Orders by z3: against a count of what has no pair before it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqfuse.support.solvers import OrderQuestion, Pair, UndecidedOrderError, find_cycle

NODES = st.integers(0, 7)


def has_order(pairs: Sequence[Pair]) -> bool:
    """By taking away pairs whose first node is the second of none, until none is left or none can go."""
    left = set(pairs)
    while left:
        free = {pair for pair in left if all(pair[0] != after for _, after in left)}
        if not free:
            return False
        left -= free
    return True


@settings(deadline=None)
@given(st.lists(st.tuples(NODES, NODES), max_size=14))
def test_there_is_a_cycle_exactly_where_there_is_no_order(pairs: list[Pair]) -> None:
    cycle = [pairs[position] for position in find_cycle(pairs, time.monotonic() + 60)]
    assert bool(cycle) != has_order(pairs)
    assert all(one[1] == other[0] for one, other in pairwise([*cycle, *cycle[:1]]))
    assert len({before for before, _ in cycle}) == len(cycle)


def test_a_long_chain_has_an_order_until_its_end_comes_before_its_start() -> None:
    chain = [(node, node + 1) for node in range(300)]
    back = [(node + 7, node) for node in range(0, 290, 10)]
    assert OrderQuestion(tuple(chain), 60.0).answer() == ()
    assert OrderQuestion((*chain, (300, 0)), 60.0).answer() == tuple(range(301))
    assert len(OrderQuestion((*chain, (300, 0), *back), 60.0).answer()) in {8, 301}


def test_without_time_there_is_no_answer() -> None:
    with pytest.raises(UndecidedOrderError, match="no time"):
        OrderQuestion(((0, 1),), 0.0).answer()
