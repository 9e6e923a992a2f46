"""The solvers on cores straight from e-graphs, without the reductions that would do most of the work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eqfuse.extract.extraction import solve
from eqfuse.extract.extraction.bounds import Kept, drop_unextractable_choices
from eqfuse.extract.extraction.branch import prove_by_frontiers as prove_and_narrow
from eqfuse.extract.extraction.cores import Answer, Choice, Core
from eqfuse.extract.extraction.greedy import extract_greedily
from eqfuse.extract.extraction.milp import prove_by_milp
from eqfuse.extract.extraction.problem import TOLERANCE, Candidate, Problem, selected_children, selection_cost
from eqfuse.support.directed_graphs import is_acyclic
from eqfuse.support.solvers import as_integers

from ...properties import examples
from .graphs import WIDE_COSTS, least_cost, solvable_problems

Prover = Callable[[Core, Answer, float], Answer]


def prove_by_frontiers(core: Core, answer: Answer, deadline: float) -> Answer:
    """The answer alone."""
    return prove_and_narrow(core, answer, deadline)[0]


def prove_by_z3(core: Core, answer: Answer, deadline: float) -> Answer:
    """The answer of z3 among all choices."""
    return solve.prove_by_z3(core, answer, deadline, all_choices(core))


def all_choices(core: Core) -> Kept:
    return drop_unextractable_choices(core, [range(len(choices)) for choices in core.classes])


PROVERS = pytest.mark.parametrize("prove", [prove_by_frontiers, prove_by_milp, prove_by_z3])


def core_of(problem: Problem) -> Core:
    """The whole problem as a core, earliest candidates first."""
    classes = tuple(
        tuple(
            Choice(min(index, 1), candidate.cost, tuple(sorted(set(candidate.children))))
            for index, candidate in enumerate(candidates)
        )
        for candidates in problem.classes
    )
    return Core(classes, tuple(dict.fromkeys(problem.roots)))


def later(seconds: float) -> float:
    """A deadline."""
    return time.monotonic() + seconds


def check(core: Core, answer: Answer, best: float) -> None:
    """An answer is acyclic, has the cost of its selection, and its bound holds."""
    assert is_acyclic(selected_children(core, answer.selection))
    assert answer.cost == selection_cost(core, answer.selection)
    assert answer.lower_bound <= best * (1 + TOLERANCE)
    assert answer.cost >= best * (1 - TOLERANCE)


@given(solvable_problems(WIDE_COSTS))
def test_greedy_is_acyclic_and_its_bound_holds(problem: Problem) -> None:
    best = least_cost(problem)
    assert best is not None
    check(core_of(problem), extract_greedily(core_of(problem)), best)


def test_greedy_counts_a_shared_class_once() -> None:
    """Class 0 from two readers of class 3 (2 + 3 for both), or by itself for 6; as a tree the former costs 8."""
    reader = (Choice(0, 1.0, (3,)),)
    core = Core(((Choice(0, 6.0, ()), Choice(1, 0.0, (1, 2))), reader, reader, (Choice(0, 3.0, ()),)), (0,))
    assert extract_greedily(core).cost == 5.0


def test_greedy_leaves_the_earliest_choices_on_equal_cost() -> None:
    core = Core(((Choice(0, 2.0, (1,)), Choice(1, 3.0, ())), (Choice(0, 1.0, ()),)), (0,))
    assert extract_greedily(core).selection == {0: 0, 1: 0}


# HiGHS's bound was off by more than the tolerance beside a cost as huge as this one.
ONE_HUGE_COST = Problem(
    (
        (Candidate(0.5, ()), Candidate(0.0, (0,))),
        (Candidate(0.0, ()),),
        (Candidate(0.0, ()),),
        (Candidate(1.0, (0, 1)), Candidate(20615845.0, (0,))),
    ),
    (3,),
)


@pytest.mark.representatives(2)
@PROVERS
@examples(20)
@given(problem=solvable_problems(WIDE_COSTS))
@example(problem=ONE_HUGE_COST)
def test_the_answer_is_the_proven_optimum(prove: Prover, problem: Problem) -> None:
    best = least_cost(problem)
    assert best is not None
    core = core_of(problem)
    answer = prove(core, extract_greedily(core), later(60))
    check(core, answer, best)
    assert answer.is_proven


@PROVERS
def test_cycles_are_cut(prove: Prover) -> None:
    """Three classes in a ring, each cheap if made from the next: one must be made in the dear way."""
    ring = tuple((Choice(0, 9.0, ()), Choice(1, 1.0, ((number + 1) % 3,))) for number in range(3))
    core = Core(ring, (0, 1, 2))
    assert prove(core, extract_greedily(core), later(60)).cost == 11.0


@PROVERS
def test_without_time_the_answer_stays_as_it_was(prove: Prover) -> None:
    core = Core(((Choice(0, 4.0, ()), Choice(1, 2.0, (1,))), (Choice(0, 1.0, ()),)), (0,))
    answer = Answer({0: 0}, 4.0, 2.0)
    assert prove(core, answer, later(-1)) == answer


@PROVERS
def test_an_equal_cost_does_not_displace_the_answer(prove: Prover) -> None:
    core = Core(((Choice(0, 3.0, ()), Choice(1, 2.0, (1,))), (Choice(0, 1.0, ()),)), (0,))
    assert prove(core, Answer({0: 0}, 3.0, 0.0), later(60)).selection == {0: 0}


@given(st.lists(WIDE_COSTS, min_size=1, max_size=8))
def test_integral_costs_are_exact(costs: list[float]) -> None:
    weights, unit = as_integers(costs)
    assert [Fraction(cost) for cost in costs] == [weight * unit for weight in weights]


def test_integral_costs_have_no_common_divisor() -> None:
    assert as_integers([1.5, 3.0, 0.0]) == ([1, 2, 0], Fraction(3, 2))


def looping_core(classes: int, seed: int, back: float) -> Core:
    """Classes that are each built from some of the next five, in a cheaper way perhaps from earlier ones: the share
    `back` of what the cheaper choices read."""
    draw = random.Random(f"{classes} {seed} {back}")

    def below(number: int) -> int:
        return draw.randrange(number + 1, min(classes, number + 6))

    def choice(number: int) -> Choice:
        above = number and draw.random() < back
        return Choice(1, draw.random(), (draw.randrange(max(0, number - 8), number) if above else below(number),))

    rows: list[tuple[Choice, ...]] = []
    for number in range(classes - 1):
        later = [choice(number) for _ in range(draw.randint(1, 3))]
        joined = [Choice(1, draw.random(), tuple(sorted({*choice(number).children, below(number)}))) for _ in range(2)]
        first = Choice(0, 2.0 + draw.random(), tuple(sorted({below(number), below(number)})))
        rows.append((first, *sorted(later + joined)))
    return Core((*rows, (Choice(0, 1.0, ()),)), (0,))


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 1000), marks=pytest.mark.conformance)])
def test_z3_and_the_search_prove_the_same_cost(seeds: range) -> None:
    for seed in seeds:
        core = looping_core(4 + seed % 14, seed, (0.1, 0.3, 0.6)[seed % 3])
        greedy = extract_greedily(core)
        by_search, by_z3 = (prove(core, greedy, later(60)) for prove in (prove_by_frontiers, prove_by_z3))
        assert by_search.is_proven, seed
        assert by_z3.is_proven, seed
        assert by_z3.cost == pytest.approx(by_search.cost, rel=TOLERANCE), seed
        assert is_acyclic(selected_children(core, by_z3.selection)), seed


def test_z3_proves_a_loop_that_the_quick_search_leaves_open() -> None:
    core = looping_core(44, 2, 0.3)
    quick, kept = prove_and_narrow(core, extract_greedily(core), later(60), rounds=1, effort=24)
    assert not quick.is_proven
    assert solve.is_for_z3(core, kept)
    proven = solve.prove_by_z3(core, quick, later(60), kept)
    assert proven.is_proven
    assert proven.cost <= quick.cost
    assert solve.prove_by_z3(core, quick, later(60), kept) == proven  # whatever it was asked before


def two_types_core(modules: int, branches: int, seed: int) -> Core:
    """A network of modules, each of some operators that read one and are read by one. Every value is there in floats
    and in integers, each computed from operands of its own type, or converted from the other."""
    draw = random.Random(seed)
    rows: list[tuple[Choice, ...]] = [(Choice(0, 1.0, ()),)]

    def value(operands: list[tuple[int, int]]) -> tuple[int, int]:
        floats, integers = len(rows), len(rows) + 1
        by_floats, by_integers = (tuple(sorted({operand[side] for operand in operands})) for side in (0, 1))
        rows.append((Choice(0, draw.uniform(2, 3), by_floats), Choice(1, 0.3, (integers,))))
        rows.append((Choice(0, 0.5, (floats,)), Choice(1, draw.uniform(1, 3), by_integers)))
        return floats, integers

    last = (0, 0)
    for _ in range(modules):
        first = value([last])
        last = value([value([first]) for _ in range(branches)])
    return Core(tuple(rows), (last[0],))


@pytest.mark.parametrize("seed", range(3))
def test_little_effort_for_each_class_is_enough_if_few_classes_need_more(seed: int) -> None:
    core = two_types_core(9, 4, seed)
    answer, _ = prove_and_narrow(core, extract_greedily(core), later(60), rounds=1, effort=6)
    assert answer.is_proven


def test_z3_is_for_few_classes_with_a_large_loop() -> None:
    cores = [looping_core(60, 0, 0.0), looping_core(60, 0, 0.3), looping_core(140, 0, 0.3)]
    assert [solve.is_for_z3(core, all_choices(core)) for core in cores] == [False, True, False]
