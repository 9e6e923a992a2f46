"""Where a selection could have a cycle: what z3 is asked says the same as the whole selection."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from eqfuse.engine.egraph.graph import postorder
from eqfuse.engine.egraph.loops import Acyclicity, Loops, find_loops
from eqfuse.support.directed_graphs import is_acyclic
from eqfuse.support.solvers import find_cycle

EGraph = list[list[tuple[int, ...]]]
"""Per class, the classes that each of its e-nodes reads."""


@st.composite
def choices(draw: st.DrawFn) -> tuple[EGraph, dict[int, tuple[int, ...]]]:
    """Up to 8 classes, and one e-node for each that the class 0 reaches by them: cyclic more often than not."""
    count = draw(st.integers(1, 8))
    node = st.lists(st.integers(0, count - 1), max_size=2).map(tuple)
    egraph = draw(st.lists(st.lists(node, min_size=1, max_size=3), min_size=count, max_size=count))
    choice: dict[int, tuple[int, ...]] = {}
    stack = [0]
    while stack:
        owner = stack.pop()
        if owner not in choice:
            choice[owner] = draw(st.sampled_from(egraph[owner]))
            stack += choice[owner]
    return egraph, choice


def loops_of(egraph: EGraph, choice: dict[int, tuple[int, ...]]) -> Loops:
    return find_loops(egraph.__getitem__, (0,), choice)


@given(choices())
def test_a_postorder_ends_and_follows_reads_where_it_can(drawn: tuple[EGraph, dict[int, tuple[int, ...]]]) -> None:
    """Each class comes once; without a cycle each comes after those that it reads."""
    _, choice = drawn
    order = postorder((0,), choice.__getitem__)
    assert sorted(order) == sorted(choice)
    is_ordered = all(order.index(read) < order.index(owner) for owner in order for read in choice[owner])
    assert is_ordered == is_acyclic(choice)


@settings(deadline=None)
@given(choices())
def test_the_reads_in_loops_have_an_order_exactly_where_the_choice_has(
    case: tuple[EGraph, dict[int, tuple[int, ...]]],
) -> None:
    egraph, choice = case
    found = loops_of(egraph, choice)
    cycle = find_cycle(found.reads, time.monotonic() + 60)
    assert (cycle == ()) == is_acyclic(choice)
    assert all(before in choice[after] for before, after in found.reads)


def test_a_loop_is_there_although_the_choice_goes_around_it() -> None:
    egraph: EGraph = [[(1,)], [(), (2,)], [(1,), ()]]
    assert loops_of(egraph, {0: (1,), 1: ()}) == Loops(1, 1, ())
    assert loops_of(egraph, {0: (1,), 1: (2,), 2: ()}) == Loops(1, 2, ((2, 1),))


def test_what_reads_itself_is_no_loop_until_it_is_chosen() -> None:
    egraph: EGraph = [[(0,), ()]]
    assert loops_of(egraph, {0: ()}) == Loops()
    assert loops_of(egraph, {0: (0,)}) == Loops(1, 1, ((0, 0),))


def test_a_choice_that_is_no_candidate_is_followed_all_the_same() -> None:
    assert loops_of([[(1,)], [()]], {0: (1,), 1: (0,)}).reads == ((1, 0), (0, 1))


def test_the_proof_in_words() -> None:
    assert str(Acyclicity.of(Loops())) == "acyclic (the e-graph has no loops)"
    assert str(Acyclicity.of(Loops(2, 1))) == "acyclic (the choices inside 2 loops do not read each other)"
    reads = Loops(1, 2, ((2, 1),))
    assert str(Acyclicity.of(reads)) == "acyclic (z3: 2 e-classes of 1 loop have an order)"
    assert Acyclicity.of(reads, is_decided=False).proof == "undecided"
