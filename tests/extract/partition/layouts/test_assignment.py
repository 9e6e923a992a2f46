"""The layouts of a whole graph: against every choice of small graphs, and as one knows them from networks."""

from __future__ import annotations

import time
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eqfuse.costmodels.device import DEFAULT, load_device
from eqfuse.extract.partition.groups import partition_of, unfused
from eqfuse.extract.partition.kernels import KernelModel
from eqfuse.extract.partition.layouts.assignment import (
    LayoutPlan,
    assign_layouts,
    layout_problem,
    make_plan,
    search_locally,
    solve_layout_problem,
)
from eqfuse.extract.partition.layouts.feature_maps import CHANNELS_LAST, PLAIN, Layout, Role, conversion_seconds
from eqfuse.extract.partition.layouts.integer_program import solve_layouts
from eqfuse.extract.partition.layouts.problem import Choice, LayoutProblem
from eqfuse.ir.graph import OperatorGraph

from ..blocks import conv, transformer
from ..graphs import Builder

HOST = load_device(DEFAULT)
BLOCKED = Layout("blocked", 16)
NO_TABLE = 1
"""As the largest table: nothing can be eliminated."""


def problem_of(graph: OperatorGraph, *labels: int) -> LayoutProblem:
    partition = partition_of(graph, labels, "test") if labels else unfused(graph)
    return layout_problem(partition, KernelModel(graph, HOST))


def planned(graph: OperatorGraph) -> LayoutPlan:
    return assign_layouts(unfused(graph), KernelModel(graph, HOST))


def favourites(problem: LayoutProblem) -> LayoutPlan:
    return make_plan(problem, problem.favourites(), 0.0)


# --- against every choice


def stated_cost(problem: LayoutProblem, choice: Choice) -> float:
    """The cost from its definition, operator by operator."""
    graph, maps, group = problem.partition.graph, problem.maps, problem.partition.group

    def layout_at(operator: int | None, value: int) -> Layout:
        if operator is None or maps.roles[operator] is Role.PLAIN:
            return PLAIN
        return maps.stored(choice[group[operator]], value)

    total = sum(p.seconds[x] - min(p.seconds.values()) for p, x in zip(problem.preferences, choice, strict=True))
    for number, value in enumerate(graph.values):
        if number in maps.values:
            made = layout_at(value.producer, number)
            wanted = {layout_at(user, number) for user in graph.consumers[number]}
            wanted |= {PLAIN} if value.is_output else set()
            total += sum(conversion_seconds(value, made, target, HOST) for target in wanted - {made})
    return total


STEPS = ("conv", "wide", "depthwise", "pool", "relu", "add", "shuffle")


@st.composite
def problems(draw: st.DrawFn) -> LayoutProblem:
    """Convolutions, poolings, element-wise operators and hostile shuffles, in at most 7 groups."""
    builder = Builder()
    side = draw(st.sampled_from((2, 8, 28)))
    values = [builder.input(1, 16, side, side), builder.input(1, 24, side, side)]
    for op in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=9)):
        x, other = (values[-1 - draw(st.integers(0, min(3, len(values) - 1)))] for _ in range(2))
        values.append(_step(builder, op, x, other))
    ends = [v for v in values if builder.values[v].producer is not None]
    graph = builder.graph(*draw(st.sets(st.sampled_from(ends), min_size=1, max_size=2)))
    cuts = draw(st.sets(st.integers(1, len(graph)), max_size=6))
    return problem_of(graph, *(sum(cut <= m for cut in cuts) for m in range(len(graph))))


def _step(builder: Builder, op: str, x: int, other: int) -> int:
    shape = tuple(int(d) for d in builder.shape(x))
    if op == "shuffle":
        return builder.op("Reshape", x, shape=(shape[0], shape[2], shape[1], shape[3]))
    if op in ("conv", "wide", "depthwise"):
        channels = {"conv": 16, "wide": 48, "depthwise": shape[1]}[op]
        return conv(builder, x, channels, 3, shape[1] if op == "depthwise" else 1)
    if op == "pool":
        return builder.op("MaxPool", x, shape=shape, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    return builder.op("Add", x, other) if op == "add" and builder.shape(other) == shape else builder.op("Relu", x)


def every_choice(problem: LayoutProblem) -> list[Choice]:
    return list(product(*(preference.seconds for preference in problem.preferences)))


@settings(max_examples=60, deadline=None)
@given(problems())
def test_no_choice_costs_less(problem: LayoutProblem) -> None:
    least = min(stated_cost(problem, choice) for choice in every_choice(problem))
    found = solve_layout_problem(problem, 0.0)
    assert found.seconds == pytest.approx(least, rel=1e-9)
    assert found.bound == found.seconds


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_program_proves_the_same(problem: LayoutProblem) -> None:
    best = solve_layout_problem(problem, 0.0).seconds
    assume(best > 0.0)
    solution = solve_layouts(problem, best, time.monotonic() + 30.0)
    assert solution.bound == pytest.approx(best, rel=1e-6)
    assert solution.choice is not None
    assert problem.cost(solution.choice) == pytest.approx(best, rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(problems())
def test_a_problem_too_wide_for_tables_is_solved_by_search_and_program(problem: LayoutProblem) -> None:
    found = solve_layout_problem(problem, 30.0, NO_TABLE)
    assert found.seconds == pytest.approx(solve_layout_problem(problem, 0.0).seconds, rel=1e-6)
    assert found.gap == 0.0


@settings(max_examples=60, deadline=None)
@given(problems(), st.data())
def test_a_plan_costs_what_the_definition_says(problem: LayoutProblem, data: st.DataObject) -> None:
    choice = tuple(data.draw(st.sampled_from(list(p.seconds))) for p in problem.preferences)
    found = make_plan(problem, choice, 0.0)
    lost = sum(p.beyond(layout) for p, layout in zip(problem.preferences, choice, strict=True))
    assert found.seconds == pytest.approx(stated_cost(problem, choice), rel=1e-9)
    assert found.seconds == pytest.approx(lost + found.conversion_seconds, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(problems())
def test_local_search_stops_where_no_single_change_helps(problem: LayoutProblem) -> None:
    choice = search_locally(problem)
    for group, preference in enumerate(problem.preferences):
        for layout in preference.seconds:
            changed = (*choice[:group], layout, *choice[group + 1 :])
            assert problem.cost(changed) >= problem.cost(choice) * (1 - 1e-9)


@settings(max_examples=20, deadline=None)
@given(problems())
def test_the_same_problem_has_the_same_plan(problem: LayoutProblem) -> None:
    again = layout_problem(problem.partition, KernelModel(problem.partition.graph, HOST))
    assert solve_layout_problem(problem, 0.0) == solve_layout_problem(again, 0.0)


# --- networks


def network(depth: int, *, skips: bool) -> OperatorGraph:
    """Convolutions of 64 channels on 28 x 28, each after a Relu, with or without residual additions."""
    builder = Builder()
    x = conv(builder, builder.input(1, 64, 28, 28), 64)
    for _ in range(depth - 1):
        y = conv(builder, builder.op("Relu", x), 64)
        x = builder.op("Add", x, y) if skips else y
    return builder.graph(conv(builder, x, 64))


@pytest.mark.parametrize("skips", [False, True])
def test_a_network_is_blocked_between_two_conversions(skips: bool) -> None:
    found = planned(network(6, skips=skips))
    assert set(found.layouts) == {BLOCKED}
    assert [(c.source, c.target) for c in found.conversions] == [(PLAIN, BLOCKED), (BLOCKED, PLAIN)]


def test_every_group_for_itself_converts_more() -> None:
    problem = problem_of(network(6, skips=True))
    assert len(favourites(problem).conversions) > len(solve_layout_problem(problem, 0.0).conversions)


def between_shuffles(side: int) -> OperatorGraph:
    """A small convolution whose input and output are reshaped across the channels."""
    builder = Builder()
    x = builder.op("Reshape", builder.input(1, side, 32, side), shape=(1, 32, side, side))
    y = conv(builder, x, 32, 1)
    return builder.graph(builder.op("Reshape", y, shape=(1, side, 32, side)))


def test_a_value_is_converted_once_for_all_that_want_the_same() -> None:
    builder = Builder()
    x = builder.input(1, 64, 28, 28)
    graph = builder.graph(*(conv(builder, x, 64) for _ in range(3)))
    found = planned(graph)
    assert [(c.readers, c.target) for c in found.conversions if c.value == x] == [((0, 1, 2), BLOCKED)]


def pooled_and_flattened() -> OperatorGraph:
    builder = Builder()
    pooled = builder.op("GlobalAveragePool", conv(builder, builder.input(1, 3, 28, 28), 64), shape=(1, 64, 1, 1))
    return builder.graph(builder.op("Flatten", pooled, shape=(1, 64)))


@pytest.mark.parametrize(
    ("graph", "is_plain"),
    [(between_shuffles(4), True), (transformer(), True), (pooled_and_flattened(), False)],
    ids=["little work between hostile reshapes", "transformer", "pooling"],
)
def test_networks_that_need_no_conversion(graph: OperatorGraph, is_plain: bool) -> None:
    found = planned(graph)
    assert found.conversions == ()
    assert (set(found.layouts) == {PLAIN}) >= is_plain


def test_a_long_chain_is_solved_exactly_without_time() -> None:
    assert solve_layout_problem(problem_of(network(300, skips=True)), 0.0).gap == 0.0


# --- proofs and reports


def test_without_time_a_wide_problem_has_no_bound() -> None:
    found = solve_layout_problem(problem_of(network(2, skips=True)), 0.0, NO_TABLE)
    assert (found.bound, found.gap) == (0.0, 1.0)


def test_the_summary_names_groups_conversions_and_the_proof() -> None:
    found = planned(network(2, skips=False))
    assert found.conversion_bytes == 2 * 2 * 4 * 64 * 28 * 28  # two maps, read and written
    assert found.summary() == "groups: 4 blocked by 16; 2 conversions (0.80 MB, 30 us); proven optimal"


def test_a_layout_that_a_group_cannot_have_is_not_forced_on_it() -> None:
    assert set(problem_of(transformer()).uniform(CHANNELS_LAST)) == {PLAIN}
