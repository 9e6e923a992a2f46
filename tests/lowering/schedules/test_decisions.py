"""What schedules leave open: sites, their options, and decisions that are followed where they can be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.schedules.decisions import MOST_OPTIONS, WORST_COST, Named, decide, decide_number, following, scope

NUMBERS = st.lists(st.integers(0, 1000), min_size=1, max_size=100, unique=True)


def identity(number: int) -> float:
    return float(number)


@given(NUMBERS)
def test_the_cheapest_is_taken_where_nothing_is_decided(numbers: list[int]) -> None:
    with following({}):
        inside = decide_number("n", numbers, identity)
    assert inside == decide_number("n", numbers, identity) == min(numbers)


@given(NUMBERS, st.data())
def test_a_decision_is_followed_where_it_is_an_option(numbers: list[int], data: st.DataObject) -> None:
    with following({}) as trace:
        decide_number("n", numbers, identity)
    labels = [option.label for site in trace.sites for option in site.options] or [str(min(numbers))]
    wanted = data.draw(st.sampled_from(labels))
    with following({"n": wanted}):
        assert decide_number("n", numbers, identity) == int(wanted)


@given(NUMBERS)
def test_options_are_ranked_and_the_device_model_prunes_them(numbers: list[int]) -> None:
    with following({}) as trace:
        decide_number("n", numbers, identity)
    for site in trace.sites:
        costs = [option.cost for option in site.options]
        assert costs == sorted(costs)
        assert len(costs) <= MOST_OPTIONS
        assert costs[-1] <= WORST_COST * costs[0] or costs[0] == 0


def test_a_decision_that_is_no_option_is_left_to_the_estimate() -> None:
    with following({"n": "7"}) as trace:
        assert decide_number("n", (2, 3), identity) == 2
    assert trace.sites[0].chosen == 0


def test_a_site_with_one_option_decides_nothing() -> None:
    with following({}) as trace:
        decide_number("n", (2,), identity)
    assert not trace.sites


def test_sites_that_are_asked_again_have_names_of_their_own() -> None:
    with following({"n 2": "3"}) as trace:
        assert [decide_number("n", (2, 3), identity) for _ in range(2)] == [2, 3]
    assert [site.name for site in trace.sites] == ["n", "n 2"]


def test_scopes_tell_blocks_of_a_kind_apart() -> None:
    with following({"second.n": "3"}) as trace:
        with scope("first"):
            assert decide_number("n", (2, 3), identity) == 2
        with scope("second"):
            assert decide_number("n", (2, 3), identity) == 3
    assert [site.name for site in trace.sites] == ["first.n", "second.n"]


def test_the_scope_ends_where_its_block_fails() -> None:
    with following({}) as trace:
        with pytest.raises(RuntimeError), scope("first"):
            raise RuntimeError
        decide_number("n", (2, 3), identity)
    assert trace.sites[0].name == "n"


def test_named_options_give_what_they_stand_for() -> None:
    options = [Named("rows first", 2.0, (0, 1)), Named("columns first", 1.0, (1, 0))]
    with following({"order": "rows first"}):
        assert decide("order", options, lambda option: option.cost).value == (0, 1)
