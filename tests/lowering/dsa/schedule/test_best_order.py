"""Orders with the least memory, against all orders."""

from __future__ import annotations

import math
from functools import cache
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqfuse.costmodels.dsa_device import load_dsa_device
from eqfuse.lowering.dsa.schedule.best_order import (
    best_order,
    best_order_of_jobs,
    demand_order,
    footprint_order,
    improve_by_moves,
    is_forest,
    least_peak_of_forest,
    least_total_of_forest,
)
from eqfuse.lowering.dsa.schedule.instances import InstanceGraph
from eqfuse.lowering.dsa.schedule.order_problem import Claim, Effort, OrderProblem, problem_of, series
from eqfuse.lowering.dsa.schedule.orders import MemoryUse, bfs_order, dfs_order, memory_use

from ..graphs import HALVING_LOCAL_BYTES, accelerator, halving_stages, resnet50
from ..random_graphs import Case, cases
from ..scheduled import schedule


@st.composite
def problems(draw: st.DrawFn) -> OrderProblem:
    """Jobs that read some of the results of the three before."""
    count = draw(st.integers(1, 8))
    sources = [draw(st.sets(st.integers(max(0, job - 3), job - 1))) if job else set() for job in range(count)]
    claims: list[Claim] = []
    for job in range(count):
        readers = tuple(other for other in range(count) if job in sources[other])
        half = draw(st.integers(0, len(readers)))
        stays = draw(st.integers(0, 5)) == 0
        claims += [
            Claim(draw(st.integers(0, 9)), job, part, stays) for part in (readers[:half], readers[half:]) if part
        ]
    claims += [Claim(draw(st.integers(1, 9)), None, (draw(st.integers(0, count - 1)),))]
    return problem(sources, claims, [draw(st.integers(0, 4)) for _ in range(count)])


@st.composite
def forests(draw: st.DrawFn) -> OrderProblem:
    """Jobs whose result one later job reads, or none."""
    count = draw(st.integers(1, 8))
    users = [draw(st.sampled_from([*range(job + 1, count), None])) for job in range(count)]
    sources = [{job for job, user in enumerate(users) if user == other} for other in range(count)]
    claims = [Claim(draw(st.integers(0, 9)), j, (user,)) for j, user in enumerate(users) if user is not None]
    return problem(sources, claims, [draw(st.integers(0, 4)) for _ in range(count)])


def problem(sources: list[set[int]], claims: list[Claim], unread: list[int]) -> OrderProblem:
    kept = [sum(claim.size for claim in claims if claim.maker == job) for job in range(len(sources))]
    made = tuple(a + b for a, b in zip(kept, unread, strict=True))
    return OrderProblem(made, tuple(tuple(sorted(s)) for s in sources), tuple(claims))


def least(jobs: OrderProblem) -> MemoryUse:
    """The smallest peak and, with no more than it, the smallest sum of all orders."""

    @cache
    def peak(done: int) -> int:
        return min((max(use, peak(after)) for after, use in steps(jobs, done)), default=0)

    return MemoryUse(peak(0), int(least_total(jobs, peak(0))))


def least_total(jobs: OrderProblem, cap: float = math.inf) -> float:
    """The smallest sum of all orders with no more than `cap` at once."""

    @cache
    def total(done: int) -> float:
        fitting = [use + total(after) for after, use in steps(jobs, done) if use <= cap]
        return 0 if done == (1 << len(jobs)) - 1 else min(fitting, default=math.inf)

    return total(0)


def steps(jobs: OrderProblem, done: int) -> list[tuple[int, int]]:
    """The sets of jobs after one more has run, and the buffers that stay while it runs."""
    made = [c for c in jobs.claims if c.maker is None or done >> c.maker & 1]
    kept = sum(c.size for c in made if c.stays or any(not done >> reader & 1 for reader in c.readers))
    ready = [j for j in range(len(jobs)) if not done >> j & 1 and all(done >> s & 1 for s in jobs.sources[j])]
    return [(done | 1 << job, kept + jobs.made[job]) for job in ready]


def is_order(jobs: OrderProblem, order: tuple[int, ...]) -> bool:
    place = {job: position for position, job in enumerate(order)}
    in_turn = all(place[source] < place[job] for job in place for source in jobs.sources[job])
    return in_turn and sorted(order) == list(range(len(jobs)))


def stages() -> InstanceGraph:
    builder, result = halving_stages()
    return schedule(builder.graph(result), builder.layers, accelerator(HALVING_LOCAL_BYTES)).graph


@settings(deadline=None)
@given(problems())
def test_no_order_uses_less(jobs: OrderProblem) -> None:
    order, proven = best_order_of_jobs(jobs, (), Effort(10**6))
    assert (jobs.use(order), proven, is_order(jobs, order)) == (least(jobs), True, True)


@settings(deadline=None)
@given(problems(), st.integers(0, 50))
def test_with_little_effort_what_is_proven_is_optimal(jobs: OrderProblem, effort: int) -> None:
    order, proven = best_order_of_jobs(jobs, (), Effort(effort))
    assert jobs.use(order) == least(jobs) if proven else jobs.use(order) >= least(jobs)
    assert is_order(jobs, order)


@settings(deadline=None)
@given(forests())
def test_forests_have_orders_with_the_least_peak_and_the_least_sum(jobs: OrderProblem) -> None:
    assert is_forest(jobs)
    assert jobs.use(least_peak_of_forest(jobs)).peak == least(jobs).peak
    assert jobs.use(least_total_of_forest(jobs)).total == least_total(jobs)


@settings(deadline=None)
@given(problems())
def test_moves_make_orders_that_use_less(jobs: OrderProblem) -> None:
    order = tuple(range(len(jobs)))
    cap = jobs.use(order).peak
    found = improve_by_moves(jobs, order, cap, Effort(10**5))
    assert is_order(jobs, found)
    assert jobs.use(found).total <= jobs.use(order).total
    assert jobs.use(found).peak <= cap


@settings(deadline=None)
@given(problems())
def test_pieces_add_up_to_the_whole(jobs: OrderProblem) -> None:
    pieces = series(jobs)
    starts = [0, *accumulate(map(len, pieces))]
    uses = [use for piece in pieces for use in piece.uses(range(len(piece)))]
    assert (uses, starts[-1]) == (list(jobs.uses(range(len(jobs)))), len(jobs))


@pytest.mark.conformance
@settings(max_examples=40, deadline=None)
@given(cases())
def test_never_worse_than_the_orders_of_the_text(case: Case) -> None:
    operators, layers, device, up_sampling = case
    graph = schedule(operators, layers, device, up_sampling=up_sampling).graph
    best, _ = best_order(graph, effort=20_000)
    use = memory_use(graph, best)
    others = [bfs_order(graph), dfs_order(graph), footprint_order(graph), demand_order(problem_of(graph))]
    assert all(use <= memory_use(graph, order) for order in others)
    assert use == problem_of(graph).use(best)
    assert all(is_order(problem_of(graph), order) for order in (best, *others))


def test_figure_3b_is_optimal() -> None:
    graph = stages()
    best, proven = best_order(graph)
    assert (memory_use(graph, best), proven) == (memory_use(graph, dfs_order(graph)), True)


def test_the_heaviest_claim_first_is_as_good_as_figure_3b() -> None:
    graph = stages()
    assert memory_use(graph, footprint_order(graph)) == memory_use(graph, dfs_order(graph))


def test_resnet_50_in_parts_cannot_run_in_less() -> None:
    builder, result = resnet50(64)
    found = schedule(builder.graph(result), builder.layers, load_dsa_device("stcp920-1mb"), order="best")
    assert best_order(found.graph) == (found.order, True)


def test_results_are_the_same_again() -> None:
    builder, result = resnet50(4)
    graph = schedule(builder.graph(result), builder.layers, load_dsa_device("stcp920")).graph
    assert best_order(graph, effort=50_000) == best_order(graph, effort=50_000)


def test_what_frees_most_is_first() -> None:
    """Of two readers that are ready, the one of the larger tensor."""
    jobs = problem([set(), set(), {0}, {1}], [Claim(1, 0, (2,)), Claim(8, 1, (3,))], [0] * 4)
    order, _ = best_order_of_jobs(jobs, (), Effort(0))
    assert order == (0, 2, 1, 3)
