"""Reductions: each drops what it says, and the optimum survives all of them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given

from eqfuse.extract.extraction.problem import Candidate, ExtractionError, Problem
from eqfuse.extract.extraction.reduce import reduce

from .graphs import WIDE_COSTS, all_extractions, least_cost, problems


def classes_left(*classes: tuple[Candidate, ...]) -> dict[int, int]:
    """The number of options of each class that is left, class 0 being the root."""
    return {number: len(options) for number, options in reduce(Problem(classes, (0,))).graph.items()}


def test_a_problem_without_a_choice_is_settled() -> None:
    reduced = reduce(Problem(((Candidate(1.0, (1, 1)),), (Candidate(2.0, ()),)), (0,)))
    assert (dict(reduced.graph), dict(reduced.settled), reduced.settled_cost) == ({}, {0: 0, 1: 0}, 3.0)


def test_free_leaves_cost_nothing() -> None:
    reduced = reduce(Problem(((Candidate(1.0, (1,)),), (Candidate(0.0, (2,)),), (Candidate(0.0, ()),)), (0,)))
    assert reduced.settled_cost == 1.0


def test_candidates_that_read_their_own_class_go() -> None:
    assert classes_left((Candidate(0.0, (0,)), Candidate(1.0, ()))) == {}


def test_candidates_without_a_finite_extraction_go() -> None:
    assert classes_left((Candidate(0.0, (1,)), Candidate(1.0, ())), (Candidate(0.0, (1,)),)) == {}


def test_a_commuted_duplicate_goes_and_the_original_stays() -> None:
    leaves = ((Candidate(1.0, ()),), (Candidate(1.0, ()),))
    reduced = reduce(Problem(((Candidate(2.0, (1, 2)), Candidate(2.0, (2, 1))), *leaves), (0,)))
    assert reduced.settled[0] == 0


def test_an_option_dearer_than_another_with_all_it_needs_goes() -> None:
    assert classes_left((Candidate(9.0, ()), Candidate(1.0, (1,))), (Candidate(7.0, ()),)) == {}


def test_an_option_that_shares_more_may_stay() -> None:
    """3 + 2 twice, or 4 twice: which is better depends on the sharing of class 3."""
    either = (Candidate(4.0, ()), Candidate(3.0, (3,)))
    left = classes_left((Candidate(0.0, (1, 2)),), either, either, (Candidate(1.5, ()),))
    assert left == {1: 2, 2: 2, 3: 1}


def test_options_that_need_their_own_class_further_down_go() -> None:
    assert (
        classes_left((Candidate(5.0, ()), Candidate(1.0, (1,))), (Candidate(1.0, (0,)), Candidate(1.0, (0, 0)))) == {}
    )


def test_a_class_in_every_option_is_forced() -> None:
    root = (Candidate(1.0, (1, 2)), Candidate(2.0, (1,)))
    assert reduce(Problem((root, (Candidate(3.0, ()),), (Candidate(0.5, ()),)), (0,))).settled_cost == 4.5


def test_a_root_without_extraction_is_an_error() -> None:
    with pytest.raises(ExtractionError, match=r"root e-classes \[0\] have no acyclic extraction"):
        reduce(Problem(((Candidate(1.0, (1,)),), (Candidate(1.0, (0,)),)), (0,)))


@given(problems(WIDE_COSTS))
def test_the_optimum_survives(problem: Problem) -> None:
    best = least_cost(problem)
    assume(best is not None)
    assert best is not None
    reduced = reduce(problem)
    kept = {number: {option.candidate for option in options} for number, options in reduced.graph.items()}
    kept |= {number: {candidate} for number, candidate in reduced.settled.items()}
    surviving = [
        cost
        for cost, choice in all_extractions(problem)
        if all(index in kept.get(number, ()) for number, index in choice.items())
    ]
    assert min(surviving) == pytest.approx(best, rel=1e-12)


@given(problems())
def test_forced_classes_are_in_every_extraction(problem: Problem) -> None:
    extractions = all_extractions(problem)
    assume(extractions)
    assert all(reduce(problem).forced <= choice.keys() for _, choice in extractions)
