from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.dsa.simulate.timing import connected_flows, fair_rates

LINKS = "abcd"
FLOWS = st.lists(st.sets(st.sampled_from(LINKS), min_size=1).map(sorted), min_size=1, max_size=8).map(
    lambda each: dict(enumerate(each))
)
BANDWIDTHS = st.fixed_dictionaries({link: st.integers(1, 100).map(float) for link in LINKS})


def test_one_link_is_shared_equally() -> None:
    assert fair_rates({1: "a", 2: "a", 3: "a"}, {"a": 12.0}) == {1: 4.0, 2: 4.0, 3: 4.0}


def test_what_a_flow_cannot_use_goes_to_the_others() -> None:
    # Bertsekas and Gallager: the flow held back to 1 on link b leaves 9 of link a to the other.
    assert fair_rates({1: "ab", 2: "a"}, {"a": 10.0, "b": 1.0}) == {1: 1.0, 2: 9.0}


@given(FLOWS, BANDWIDTHS)
def test_no_link_carries_more_than_it_can(flows: dict[int, list[str]], bandwidth: dict[str, float]) -> None:
    rates = fair_rates(flows, bandwidth)
    for link in LINKS:
        assert sum(rates[flow] for flow in flows if link in flows[flow]) <= bandwidth[link] * (1 + 1e-9)


@given(FLOWS, BANDWIDTHS)
def test_every_flow_is_among_the_fastest_of_a_full_link(
    flows: dict[int, list[str]], bandwidth: dict[str, float]
) -> None:
    # This is what defines max-min fairness.
    rates = fair_rates(flows, bandwidth)
    for flow, links in flows.items():
        users = {link: [rates[other] for other in flows if link in flows[other]] for link in links}
        full = [link for link in links if sum(users[link]) == pytest.approx(bandwidth[link])]
        assert any(rates[flow] >= max(users[link]) * (1 - 1e-9) for link in full)


@given(FLOWS)
def test_unconnected_flows_do_not_matter(flows: dict[int, list[str]]) -> None:
    bandwidth = {link: float(place + 1) for place, link in enumerate(LINKS)}
    together = fair_rates(flows, bandwidth)
    for flow in flows:
        assert fair_rates(connected_flows([flow], flows), bandwidth)[flow] == pytest.approx(together[flow])
