"""Components: independent classes fall apart, classes that can close a cycle stay together, repeats are recognised."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from eqfuse.extract.extraction.cores import split_into_components
from eqfuse.extract.extraction.problem import Candidate, Problem
from eqfuse.extract.extraction.reduce import reduce

Classes = tuple[tuple[Candidate, ...], ...]


def layer(first: int, below: int) -> Classes:
    """Four classes: a root over two that can share a third, which has one below it."""
    either = (Candidate(4.0, ()), Candidate(3.0, (first + 3,)))
    return (Candidate(1.0, (first + 1, first + 2, below)),), either, either, (Candidate(1.5, ()),)


def layers(count: int) -> Problem:
    """A stack of equal layers, the root on top, over a leaf."""
    leaf = 4 * count
    classes = [part for number in range(count) for part in layer(4 * number, min(4 * number + 4, leaf))]
    return Problem((*classes, (Candidate(1.0, ()),)), (0,))


def renumbered(problem: Problem, order: list[int]) -> Problem:
    """The same e-graph with class i called order[i]."""
    classes: list[tuple[Candidate, ...]] = [()] * len(order)
    for number, candidates in enumerate(problem.classes):
        classes[order[number]] = tuple(Candidate(c.cost, tuple(order[x] for x in c.children)) for c in candidates)
    return Problem(tuple(classes), tuple(order[root] for root in problem.roots))


def test_layers_fall_apart_where_a_class_is_forced() -> None:
    assert [len(part.numbers) for part in split_into_components(reduce(layers(5)))] == [3] * 5


def test_equal_layers_have_one_core() -> None:
    assert len({part.core for part in split_into_components(reduce(layers(24)))}) == 1


@given(st.randoms(use_true_random=False))
def test_the_core_does_not_depend_on_the_numbers_of_the_classes(source: random.Random) -> None:
    problem = layers(2)
    order = list(range(len(problem.classes)))
    source.shuffle(order)
    found = {part.core for part in split_into_components(reduce(renumbered(problem, order)))}
    assert found == {part.core for part in split_into_components(reduce(problem))}


def test_forced_classes_that_could_close_a_cycle_stay_together() -> None:
    """Two roots that can each be made from the other: apart, both would take the cheap way."""
    problem = Problem(((Candidate(5.0, ()), Candidate(1.0, (1,))), (Candidate(6.0, ()), Candidate(1.0, (0,)))), (0, 1))
    assert [sorted(part.numbers) for part in split_into_components(reduce(problem))] == [[0, 1]]


def test_numbers_and_candidates_lead_back_to_the_problem() -> None:
    problem = layers(1)
    (part,) = split_into_components(reduce(problem))
    for number, choices, candidates in zip(part.numbers, part.core.classes, part.candidates, strict=True):
        costs = [problem.classes[number][candidate].cost for candidate in candidates]
        assert costs == [choice.cost for choice in choices]
