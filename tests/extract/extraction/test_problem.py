"""Problems refuse malformed e-graphs; solutions report their gap."""

from __future__ import annotations

import pytest

from eqfuse.extract.extraction.problem import Candidate, Problem, Solution, selection_cost
from eqfuse.support.errors import EqfuseError


@pytest.mark.parametrize(
    ("candidate", "root", "message"),
    [
        (Candidate(-1.0, ()), 0, "e-class 0: cost"),
        (Candidate(float("nan"), ()), 0, "e-class 0: cost"),
        (Candidate(float("inf"), ()), 0, "e-class 0: cost"),
        (Candidate(1.0, (-1,)), 0, "e-class 0: children"),
        (Candidate(1.0, (1,)), 0, "e-class 0: children"),
        (Candidate(1.0, ()), 1, "roots"),
    ],
)
def test_costs_are_finite_and_not_negative_and_children_and_roots_are_classes(
    candidate: Candidate, root: int, message: str
) -> None:
    with pytest.raises(EqfuseError, match=message):
        Problem(((candidate,),), (root,))


def test_the_gap_is_relative_to_the_cost() -> None:
    assert Solution({}, 4.0, 3.0, "feasible").gap == 0.25
    assert Solution({}, 0.0, 0.0, "optimal").gap == 0.0


def test_selection_cost_counts_a_shared_class_once() -> None:
    problem = Problem(((Candidate(1.0, (1, 1)),), (Candidate(2.0, ()),)), (0,))
    assert selection_cost(problem, {0: 0, 1: 0}) == 3.0
