"""Problems refuse what is no e-graph; solutions report their gap."""

from __future__ import annotations

import pytest

from eqfuse.errors import EqfuseError
from eqfuse.extract.extraction.problem import Candidate, Problem, Solution, selection_cost


@pytest.mark.parametrize("cost", [-1.0, float("nan"), float("inf")])
def test_costs_must_be_finite_and_not_negative(cost: float) -> None:
    with pytest.raises(EqfuseError, match="e-class 0: cost"):
        Problem(((Candidate(cost, ()),),), (0,))


@pytest.mark.parametrize("child", [-1, 1])
def test_children_must_be_classes(child: int) -> None:
    with pytest.raises(EqfuseError, match="e-class 0: children"):
        Problem(((Candidate(1.0, (child,)),),), (0,))


def test_roots_must_be_classes() -> None:
    with pytest.raises(EqfuseError, match="roots"):
        Problem(((Candidate(1.0, ()),),), (1,))


def test_gap_is_relative_to_the_cost() -> None:
    assert Solution({}, 4.0, 3.0, "feasible", 0, 0).gap == 0.25


def test_gap_of_a_free_solution_is_zero() -> None:
    assert Solution({}, 0.0, 0.0, "optimal", 0, 0).gap == 0.0


def test_selection_cost_counts_a_shared_class_once() -> None:
    problem = Problem(((Candidate(1.0, (1, 1)),), (Candidate(2.0, ()),)), (0,))
    assert selection_cost(problem, {0: 0, 1: 0}) == 3.0
