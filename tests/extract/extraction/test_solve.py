"""The pipeline against enumeration, its ties, its determinism and its time limit."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.extract.extraction.dominance import drop_dominated_options
from eqfuse.extract.extraction.greedy import node_queue_selection
from eqfuse.extract.extraction.options import Graph
from eqfuse.extract.extraction.problem import TOLERANCE, Candidate, Problem, follow_choices, selection_cost
from eqfuse.extract.extraction.solve import solve
from eqfuse.support.deadlines import OutOfTime
from eqfuse.support.errors import EqfuseError

from .graphs import TIED_COSTS, WIDE_COSTS, check_extraction, least_cost, problems, solvable_problems


def entangled(classes: int, seed: int) -> Problem:
    """A large cyclic e-graph: every class can be made from later ones, and all is one strongly connected component."""
    source = random.Random(seed)

    def candidate(lowest: int, highest: int) -> Candidate:
        cost = round(source.uniform(1, 10), 3)
        return Candidate(cost, tuple(source.randrange(lowest, highest) for _ in range(source.choice((1, 2)))))

    leaves = [(Candidate(1.0, ()),)] * 4
    others = [
        (candidate(max(0, number - 30), number), *(candidate(max(0, number - 30), min(classes, number + 30)),) * 2)
        for number in range(4, classes)
    ]
    return Problem((*leaves, *others), (classes - 1, classes - 2))


@pytest.mark.parametrize("costs", [TIED_COSTS, WIDE_COSTS])
@given(data=st.data())
def test_exact_is_the_optimum_and_no_extraction_an_error(costs: st.SearchStrategy[float], data: st.DataObject) -> None:
    problem = data.draw(problems(costs))
    best = least_cost(problem)
    if best is None:
        with pytest.raises(EqfuseError, match="no acyclic extraction"):
            solve(problem, time_limit=60)
        return
    solution = solve(problem, time_limit=60)
    assert solution.status == "optimal"
    assert solution.cost == pytest.approx(best, rel=TOLERANCE, abs=0)
    assert solution.gap <= TOLERANCE


@given(solvable_problems(WIDE_COSTS))
def test_solutions_are_acyclic_closed_and_have_their_cost_and_greedy_ones_never_better(problem: Problem) -> None:
    greedy, exact = solve(problem, time_limit=60, method="greedy"), solve(problem, time_limit=60)
    for solution in (greedy, exact):
        check_extraction(problem, solution.choice)
        assert solution.cost == selection_cost(problem, solution.choice)
        assert solution.lower_bound <= solution.cost
    assert greedy.lower_bound <= exact.cost * (1 + TOLERANCE)
    assert exact.cost <= greedy.cost * (1 + TOLERANCE)


@given(solvable_problems(), solvable_problems(most_classes=1))
def test_more_candidates_or_fewer_roots_never_cost_more(problem: Problem, other: Problem) -> None:
    first, *rest = problem.classes
    wider = Problem(((*first, *other.classes[0]), *rest), problem.roots)
    fewer = Problem(problem.classes, problem.roots[:1])
    cost = solve(problem, time_limit=60).cost
    assert max(solve(easier, time_limit=60).cost for easier in (wider, fewer)) <= cost


@given(solvable_problems())
def test_the_originals_stay_where_nothing_is_gained(problem: Problem) -> None:
    """With every candidate of a class at the same cost and over the same children, all first candidates are kept."""
    classes = tuple((candidates[0],) * 3 for candidates in problem.classes)
    solution = solve(Problem(classes, problem.roots), time_limit=60)
    assert set(solution.choice.values()) <= {0}


LEAF = (Candidate(1.0, ()),)


@pytest.mark.parametrize(
    ("classes", "roots", "choice", "cost"),
    [
        # A class on a cycle that everything needs is paid once.
        (
            (
                (Candidate(2.0, ()), Candidate(0.0, (1, 2))),
                (Candidate(0.0, (0,)), Candidate(1.0, ())),
                (Candidate(1.0, ()), Candidate(0.0, (1,))),
            ),
            (0,), {0: 1, 1: 1, 2: 1}, 1.0,
        ),
        # 0.1 + 0.2 is not 0.3 to a computer, but no reason to rewrite.
        (((Candidate(0.1, (1,)), Candidate(0.3, ())), (Candidate(0.2, ()),)), (0,), {0: 0, 1: 0}, 0.3),
        # The original reads one class more, which is there anyway.
        (((Candidate(1.0, (1, 2)), Candidate(1.0, (1,))), LEAF, LEAF), (0, 2), {0: 0, 1: 0, 2: 0}, 3.0),
        # A real gain, however small.
        (((Candidate(1.0, (1,)), Candidate(1.0 + 1e-6, ())), (Candidate(1e-5, ()),)), (0,), {0: 1}, 1.0 + 1e-6),
        # Both roots are cheap if made from the other; each is forced, so they share no unforced class.
        (
            ((Candidate(5.0, ()), Candidate(1.0, (1,))), (Candidate(6.0, ()), Candidate(1.0, (0,)))),
            (0, 1), {0: 0, 1: 1}, 6.0,
        ),
    ],
    ids=["cycle", "rounding", "forced class", "gain", "roots apart"],
)  # fmt: skip
def test_small_problems(
    classes: tuple[tuple[Candidate, ...], ...], roots: tuple[int, ...], choice: dict[int, int], cost: float
) -> None:
    solution = solve(Problem(classes, roots), time_limit=60)
    assert (solution.status, solution.choice) == ("optimal", choice)
    assert solution.cost == pytest.approx(cost, rel=1e-12)


def test_answers_of_equal_components_are_put_together() -> None:
    """Twelve equal layers with a shared helper each."""
    classes: list[tuple[Candidate, ...]] = [(Candidate(0.5, ()),)]
    for _ in range(12):
        below, first = len(classes) - 1, len(classes)
        either = (Candidate(4.0, ()), Candidate(3.0, (first,)))
        classes += [(Candidate(1.5, ()),), either, either, (Candidate(1.0, (first + 1, first + 2, below)),)]
    solution = solve(Problem(tuple(classes), (len(classes) - 1,)), time_limit=60)
    assert solution.cost == 0.5 + 12 * (1.0 + 3.0 + 3.0 + 1.5)


def test_a_deep_e_graph_needs_no_recursion() -> None:
    classes = [(Candidate(1.0, ()),)] + [
        (Candidate(1.0, (number,)), Candidate(2.0, (number,))) for number in range(5000)
    ]
    assert solve(Problem(tuple(classes), (5000,)), time_limit=60).cost == 5001.0


@pytest.mark.parametrize("time_limit", [0.0, 0.3])
def test_out_of_time_the_answer_is_feasible_and_its_bound_honest(
    monkeypatch: pytest.MonkeyPatch, time_limit: float
) -> None:
    monkeypatch.setattr("eqfuse.extract.extraction.solve._LEAST_PREPARATION", 60.0)
    problem = entangled(400, 1)
    greedy = solve(problem, time_limit=60, method="greedy")
    solution = solve(problem, time_limit=time_limit)
    assert solution.status == "feasible"
    check_extraction(problem, solution.choice)
    assert 0 < solution.lower_bound < solution.cost <= greedy.cost
    assert 0 < solution.gap < 1


@pytest.mark.parametrize("sweeps", [0, 1])
def test_a_reduction_that_was_cut_short_loses_no_optimum(monkeypatch: pytest.MonkeyPatch, sweeps: int) -> None:
    @given(solvable_problems(WIDE_COSTS))
    def check(problem: Problem) -> None:
        left = iter(range(sweeps))

        def limited(*arguments: Any) -> tuple[Graph, frozenset[int]]:
            if next(left, None) is None:
                raise OutOfTime
            return drop_dominated_options(*arguments)

        monkeypatch.setattr("eqfuse.extract.extraction.reduce.drop_dominated_options", limited)
        solution = solve(problem, time_limit=60)
        assert solution.status == "optimal"
        assert solution.cost == pytest.approx(least_cost(problem), rel=TOLERANCE, abs=0)

    check()


def test_without_any_time_the_answer_is_no_dearer_than_the_earliest_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eqfuse.extract.extraction.solve._LEAST_PREPARATION", 0.0)
    source = random.Random(3)
    classes: list[tuple[Candidate, ...]] = [(Candidate(1.0, ()),)]
    for number in range(1, 30):
        rows = [(source.randrange(number), source.randrange(number)) for _ in range(60)]
        classes.append(tuple(Candidate(source.uniform(1.0, 1.1), row) for row in rows))
    problem = Problem(tuple(classes), (29,))
    earliest = follow_choices(problem, lambda number: 0)
    assert earliest is not None
    compare = "eqfuse.extract.extraction.dominance._Sweep._undominated_views"
    monkeypatch.setattr(compare, lambda *_: pytest.fail("options are compared"))
    solution = solve(problem, time_limit=0.0)
    assert solution.status == "feasible"
    check_extraction(problem, solution.choice)
    assert solution.lower_bound <= solution.cost <= selection_cost(problem, earliest)


@pytest.mark.parametrize("seed", range(3))
def test_out_of_time_the_answer_is_no_dearer_than_greedy_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("eqfuse.extract.extraction.solve._LEAST_PREPARATION", 60.0)
    problem = entangled(120, seed)
    whole = node_queue_selection(problem)
    assert whole is not None
    check_extraction(problem, whole)
    assert solve(problem, time_limit=0.0).cost <= selection_cost(problem, whole)


def test_a_bound_found_in_little_time_holds() -> None:
    problem = entangled(40, 2)
    rushed, patient = solve(problem, time_limit=0.05), solve(problem, time_limit=60)
    assert patient.status == "optimal"
    assert rushed.lower_bound <= patient.cost * (1 + TOLERANCE) <= rushed.cost * (1 + 2 * TOLERANCE)


SCRIPT = """
import random
from eqfuse.extract.extraction.problem import Candidate, Problem
from eqfuse.extract.extraction.solve import solve
source = random.Random(7)
classes = [(Candidate(1.0, ()),)]
for number in range(1, 40):
    reads = lambda: tuple(source.randrange(max(0, number - 6), number) for _ in range(2))
    classes.append(tuple(Candidate(float(source.randrange(1, 4)), reads()) for _ in range(3)))
solution = solve(Problem(tuple(classes), (39, 38)), time_limit=60)
print(solution.status, solution.cost, sorted(solution.choice.items()))
"""


def test_the_hash_seed_changes_nothing() -> None:
    answers = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(answers) == 1
    assert answers.pop().startswith("optimal")
