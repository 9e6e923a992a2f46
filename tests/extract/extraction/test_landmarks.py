"""Landmarks: every selection has a choice of each."""

from __future__ import annotations

from hypothesis import given

from eqfuse.extract.extraction.cores import Choice, Core
from eqfuse.extract.extraction.milp import find_landmarks
from eqfuse.extract.extraction.problem import Problem

from ...properties import examples
from .graphs import all_extractions, solvable_problems
from .test_solvers import core_of

MATRIX, TENSOR, USE = Choice(0, 9.0, ()), Choice(0, 8.0, ()), Choice(0, 5.0, (1,))


@examples(10)  # each is extracted in all ways
@given(solvable_problems())
def test_every_selection_has_a_choice_of_each_landmark(problem: Problem) -> None:
    core = core_of(problem)
    landmarks = find_landmarks(core, [range(len(choices)) for choices in core.classes])
    for _, selection in all_extractions(problem):
        assert all(any(selection.get(number) == position for number, position in each) for each in landmarks)


def test_a_value_in_two_shapes_is_made_in_one_of_them() -> None:
    """Class 0 reads 1; 1 and 2 are one value, each made by itself or a view of the other."""
    core = Core(((USE,), (MATRIX, Choice(1, 0.5, (2,))), (TENSOR, Choice(1, 0.5, (1,)))), (0,))
    assert find_landmarks(core, [(0,), (0, 1), (0, 1)]) == [[(0, 0)], [(1, 0), (2, 0)]]
