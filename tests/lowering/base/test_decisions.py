"""The decisions of a schedule: sites, their options, and wanted decisions that are taken if they can be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.base.decisions import MOST_OPTIONS, WORST_COST, Alternative, Trace

NUMBERS = st.lists(st.integers(0, 1000), min_size=1, max_size=100, unique=True)


def decide(trace: Trace, *numbers: int) -> int:
    return trace.decide_number("n", numbers, float)


@given(NUMBERS)
def test_the_cheapest_is_taken_where_nothing_is_wanted(numbers: list[int]) -> None:
    assert decide(Trace(), *numbers) == min(numbers)


@given(NUMBERS, st.data())
def test_a_wanted_decision_is_taken_where_it_is_an_option(numbers: list[int], data: st.DataObject) -> None:
    decide(trace := Trace(), *numbers)
    labels = [option.label for site in trace.sites for option in site.options] or [str(min(numbers))]
    wanted = data.draw(st.sampled_from(labels))
    assert decide(Trace({"n": wanted}), *numbers) == int(wanted)


@given(NUMBERS)
def test_options_are_ranked_and_the_device_model_prunes_them(numbers: list[int]) -> None:
    decide(trace := Trace(), *numbers)
    for site in trace.sites:
        costs = [option.cost for option in site.options]
        assert costs == sorted(costs)
        assert len(costs) <= MOST_OPTIONS
        assert costs[-1] <= WORST_COST * costs[0] or costs[0] == 0


def test_a_decision_that_is_no_option_is_left_to_the_estimate() -> None:
    assert decide(trace := Trace({"n": "7"}), 2, 3) == 2
    assert trace.sites[0].chosen == 0


def test_a_site_with_one_option_decides_nothing() -> None:
    decide(trace := Trace(), 2)
    assert not trace.sites


def test_sites_that_are_asked_again_have_names_of_their_own() -> None:
    trace = Trace({"n 2": "3"})
    assert [decide(trace, 2, 3) for _ in range(2)] == [2, 3]
    assert [site.name for site in trace.sites] == ["n", "n 2"]


def test_scopes_tell_blocks_of_a_kind_apart() -> None:
    trace = Trace({"second.n": "3"})
    assert decide(trace.within("first"), 2, 3) == 2
    assert decide(trace.within("second"), 2, 3) == 3
    assert decide(trace, 2, 3) == 2
    assert [site.name for site in trace.sites] == ["first.n", "second.n", "n"]


def test_flags_and_alternatives_give_their_values() -> None:
    alternatives = [Alternative("rows first", 2.0, (0, 1)), Alternative("columns first", 1.0, (1, 0))]
    assert Trace().choose("order", alternatives) == (1, 0)
    assert Trace({"order": "rows first"}).choose("order", alternatives) == (0, 1)
    assert (Trace().decide_flag("f", True), Trace({"f": "0"}).decide_flag("f", True)) == (True, False)
