"""Earlier candidates come back where they cost nothing, and only there."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eqfuse.extract.extraction.options import Graph, drop_unextractable
from eqfuse.extract.extraction.problem import Candidate, Problem, selection_cost
from eqfuse.extract.extraction.reduce import drop_self_cyclic
from eqfuse.extract.extraction.solve import prefer_earlier

from .graphs import WIDE_COSTS, all_extractions, check_extraction, problems


def usable(problem: Problem) -> Graph:
    """The candidates with a finite extraction."""
    return drop_unextractable(drop_self_cyclic(problem))


@pytest.mark.parametrize(
    ("classes", "choice", "expected"),
    [
        # The root's original reads a class that nothing selected yet, in place of one that goes.
        (
            ((Candidate(1.0, (1,)), Candidate(1.0, (2,))), (Candidate(2.0, ()),), (Candidate(2.0, ()),)),
            {0: 1, 2: 0}, {0: 0, 1: 0},
        ),
        (((Candidate(1.0, (1,)), Candidate(2.0, ())), (Candidate(1.5, ()),)), {0: 1}, {0: 1}),
        (((Candidate(1.0, (1,)), Candidate(1.0, ())), (Candidate(1.0, (0,)),)), {0: 1, 1: 0}, {0: 1, 1: 0}),
    ],
    ids=["a chain comes back", "a dearer one does not", "one that closes a cycle does not"],
)  # fmt: skip
def test_small_problems(
    classes: tuple[tuple[Candidate, ...], ...], choice: dict[int, int], expected: dict[int, int]
) -> None:
    problem = Problem(classes, tuple(number for number in choice if number < 2))
    assert prefer_earlier(problem, usable(problem), choice) == expected


@given(problems(WIDE_COSTS), st.data())
def test_any_selection_stays_acyclic_closed_and_as_cheap(problem: Problem, data: st.DataObject) -> None:
    extractions = all_extractions(problem)
    assume(extractions)
    cost, choice = data.draw(st.sampled_from(extractions))
    found = prefer_earlier(problem, usable(problem), choice)
    check_extraction(problem, found)
    assert selection_cost(problem, found) <= cost * (1 + 1e-9)
