"""Random small e-graphs, and their optimal extraction by enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from hypothesis import strategies as st

from eqfuse.extract.problem import Candidate, Problem
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


def closure(problem: Problem, picks: Mapping[int, int]) -> dict[int, int]:
    """The part of a full assignment that the roots reach."""
    chosen: dict[int, int] = {}
    stack = list(problem.roots)
    while stack:
        number = stack.pop()
        if number not in chosen:
            chosen[number] = picks[number]
            stack.extend(problem.classes[number][picks[number]].children)
    return chosen


def edges(problem: Problem, choice: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """The children of the chosen candidates."""
    return {number: problem.classes[number][index].children for number, index in choice.items()}


def all_extractions(problem: Problem) -> list[tuple[float, dict[int, int]]]:
    """Every acyclic extraction with its cost (some repeatedly)."""
    found = []
    for picks in itertools.product(*(range(len(candidates)) for candidates in problem.classes)):
        choice = closure(problem, dict(enumerate(picks)))
        if is_acyclic(edges(problem, choice)):
            found.append((math.fsum(problem.classes[n][i].cost for n, i in choice.items()), choice))
    return found


def least_cost(problem: Problem) -> float | None:
    """The optimum by enumeration; None if there is no acyclic extraction."""
    return min((cost for cost, _ in all_extractions(problem)), default=None)
