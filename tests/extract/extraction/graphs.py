"""Random small e-graphs, and their optimal extraction by enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from hypothesis import strategies as st

from eqfuse.extract.extraction.problem import Candidate, Problem, follow_choices, selected_children, selection_cost
from eqfuse.support.directed_graphs import is_acyclic

# Few distinct costs, so that ties and free classes are common; then a span as of seconds and of FLOPs.
TIED_COSTS = st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.0, 3.0])
WIDE_COSTS = st.one_of(st.just(0.0), st.floats(1e-7, 1.0), st.floats(1.0, 1e12))


@st.composite
def problems(draw: st.DrawFn, costs: st.SearchStrategy[float] = TIED_COSTS, most_classes: int = 6) -> Problem:
    """Any small e-graph, cyclic more often than not; the roots may have no extraction."""
    count = draw(st.integers(1, most_classes))
    numbers = st.integers(0, count - 1)
    candidate = st.builds(Candidate, costs, st.lists(numbers, max_size=3).map(tuple))
    classes = draw(st.lists(st.lists(candidate, min_size=1, max_size=3).map(tuple), min_size=count, max_size=count))
    return Problem(tuple(classes), tuple(draw(st.lists(numbers, min_size=1, max_size=2))))


@st.composite
def solvable_problems(draw: st.DrawFn, costs: st.SearchStrategy[float] = TIED_COSTS, most_classes: int = 6) -> Problem:
    """A small e-graph in which every class has an extraction: its first candidate reads classes of lower number."""
    problem = draw(problems(costs, most_classes))
    firsts = [
        Candidate(candidates[0].cost, tuple(child % number for child in candidates[0].children) if number else ())
        for number, candidates in enumerate(problem.classes)
    ]
    classes = tuple((first, *candidates[1:]) for first, candidates in zip(firsts, problem.classes, strict=True))
    return Problem(classes, problem.roots)


def check_extraction(problem: Problem, choice: Mapping[int, int]) -> None:
    """It is acyclic, and exactly what the roots need."""
    assert is_acyclic(selected_children(problem, choice))
    assert follow_choices(problem, choice.get) == choice


def all_extractions(problem: Problem) -> list[tuple[float, dict[int, int]]]:
    """Every acyclic extraction with its cost (some repeatedly)."""
    extractions = []
    for picks in itertools.product(*(range(len(candidates)) for candidates in problem.classes)):
        choice = follow_choices(problem, picks.__getitem__) or {}
        if is_acyclic(selected_children(problem, choice)):
            extractions.append((selection_cost(problem, choice), choice))
    return extractions


def least_cost(problem: Problem) -> float | None:
    """The optimum by enumeration; None if there is no acyclic extraction."""
    return min((cost for cost, _ in all_extractions(problem)), default=None)
