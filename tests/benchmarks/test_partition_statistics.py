"""Sub-graph statistics of AGO's Fig. 14."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.benchmarks.measuring.partition_statistics import histogram, jain, statistics
from eqfuse.extract.partition.baselines.weights import weights
from eqfuse.extract.partition.groups import partition_of, unfused
from eqfuse.ir.graph import OperatorGraph

from ..extract.partition.graphs import chain

GRAPH = chain("Relu", "Exp", "Sqrt", "Neg")


def test_a_group_weighs_what_its_operators_weigh() -> None:
    found = statistics(partition_of(GRAPH, [0, 0, 1, 2], "test"), [10.0, 9.0, 20.0, 40.0])
    assert (found.count, found.trivial, found.total, found.median) == (3, 1, 79.0, 20.0)
    assert found.mean == pytest.approx(79 / 3)
    assert found.jain == pytest.approx(79**2 / (3 * (19**2 + 20**2 + 40**2)))


def test_without_weights_those_of_the_operators_count() -> None:
    assert statistics(unfused(GRAPH)).total == pytest.approx(sum(weights(GRAPH)))


def test_no_groups() -> None:
    found = statistics(unfused(OperatorGraph((), ())))
    assert (found.count, found.mean, found.median, found.jain, sum(found.histogram)) == (0, 0.0, 0.0, 1.0, 0)


def test_bins_are_half_open_powers_of_two() -> None:
    assert histogram([2.0, 3.9, 4.0, 511.9, 512.0]) == (0, 2, 1, 0, 0, 0, 0, 0, 1, 1)


def test_the_outer_bins_take_what_lies_outside() -> None:
    assert histogram([0.0, 0.5, 1e9]) == (2, 0, 0, 0, 0, 0, 0, 0, 0, 1)


def test_weights_that_are_equal_are_fair() -> None:
    assert jain([7.0] * 5) == pytest.approx(1.0)


def test_one_that_has_all_is_as_unfair_as_can_be() -> None:
    assert jain([7.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_the_index_lies_between_one_nth_and_one(sizes: list[float]) -> None:
    assert 1 / len(sizes) - 1e-9 <= jain(sizes) <= 1 + 1e-9
