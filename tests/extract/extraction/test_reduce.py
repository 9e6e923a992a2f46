"""Reductions: each drops what it says, and the optimum survives all of them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given

from eqfuse.extract.extraction.problem import Candidate, ExtractionError, Problem
from eqfuse.extract.extraction.reduce import reduce

from .graphs import WIDE_COSTS, all_extractions, least_cost, problems

EITHER = (Candidate(4.0, ()), Candidate(3.0, (3,)))
LEAF = (Candidate(1.0, ()),)


@pytest.mark.parametrize(
    ("classes", "left", "fixed", "cost"),
    [
        (((Candidate(1.0, (1, 1)),), (Candidate(2.0, ()),)), {}, {0: 0, 1: 0}, 3.0),
        (((Candidate(1.0, (1,)),), (Candidate(0.0, (2,)),), (Candidate(0.0, ()),)), {}, {0: 0, 1: 0, 2: 0}, 1.0),
        (((Candidate(0.0, (0,)), Candidate(1.0, ())),), {}, {0: 1}, 1.0),
        (((Candidate(0.0, (1,)), Candidate(1.0, ())), (Candidate(0.0, (1,)),)), {}, {0: 1}, 1.0),
        (((Candidate(2.0, (1, 2)), Candidate(2.0, (2, 1))), LEAF, LEAF), {}, {0: 0, 1: 0, 2: 0}, 4.0),
        (((Candidate(9.0, ()), Candidate(1.0, (1,))), (Candidate(7.0, ()),)), {}, {0: 1, 1: 0}, 8.0),
        # 3 + 2 twice, or 4 twice: which is better depends on the sharing of class 3.
        (((Candidate(0.0, (1, 2)),), EITHER, EITHER, (Candidate(1.5, ()),)), {1: 2, 2: 2, 3: 1}, {0: 0}, 0.0),
        (((Candidate(5.0, ()), Candidate(1.0, (1,))), (Candidate(1.0, (0,)), Candidate(1.0, (0, 0)))), {}, {0: 0}, 5.0),
        (((Candidate(1.0, (1, 2)), Candidate(2.0, (1,))), (Candidate(3.0, ()),), (Candidate(0.5, ()),)), {}, None, 4.5),
    ],
    ids=[
        "no choice", "free leaves", "reads its own class", "no finite extraction", "commuted duplicate", "dominated",
        "shares more", "own class further down", "class in every option",
    ],
)  # fmt: skip
def test_the_options_left_and_the_fixed_classes(
    classes: tuple[tuple[Candidate, ...], ...], left: dict[int, int], fixed: dict[int, int] | None, cost: float
) -> None:
    reduced = reduce(Problem(classes, (0,)))
    assert {number: len(options) for number, options in reduced.graph.items()} == left
    assert fixed is None or dict(reduced.fixed) == fixed
    assert reduced.fixed_cost == cost


def test_a_root_without_extraction_is_an_error() -> None:
    with pytest.raises(ExtractionError, match=r"root e-classes \[0\] have no acyclic extraction"):
        reduce(Problem(((Candidate(1.0, (1,)),), (Candidate(1.0, (0,)),)), (0,)))


@given(problems(WIDE_COSTS))
def test_the_optimum_survives_and_forced_classes_are_in_every_extraction_left(problem: Problem) -> None:
    best = least_cost(problem)
    assume(best is not None)
    assert best is not None
    reduced = reduce(problem)
    kept = {number: {option.candidate for option in options} for number, options in reduced.graph.items()}
    kept |= {number: {candidate} for number, candidate in reduced.fixed.items()}
    extractions = all_extractions(problem)
    surviving = [
        (cost, choice)
        for cost, choice in extractions
        if all(index in kept.get(number, ()) for number, index in choice.items())
    ]
    assert all(reduced.forced <= choice.keys() for _, choice in surviving)
    assert min(cost for cost, _ in surviving) == pytest.approx(best, rel=1e-12)
