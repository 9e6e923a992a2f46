"""AGO's CLUSTER and SPLIT."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.extract.partition.baselines.clustering import Clustering, StagedGraph, cluster, split
from eqfuse.extract.partition.baselines.weights import COMPLEX, weights
from eqfuse.extract.partition.groups import PartitionError, partition_of
from eqfuse.ir.graph import OperatorGraph
from eqfuse.support.directed_graphs import connected_components

from ..dags import Edges, edges, graph_of, stages
from ..graphs import Builder, operator_graphs

TRIANGLE: Edges = [[], [0], [0, 1]]
"""Fig. 9: Conv1 -> Conv2 -> Conv3 and Conv1 -> Conv3."""

SIZES = st.sampled_from((1.0, 2.0, 5.0, 9.0, 30.0))


@st.composite
def weighted(draw: st.DrawFn) -> tuple[Edges, list[float]]:
    predecessors = draw(edges())
    return predecessors, draw(st.lists(SIZES, min_size=len(predecessors), max_size=len(predecessors)))


@pytest.mark.parametrize(
    ("predecessors", "weights", "threshold", "groups"),
    [
        (TRIANGLE, [3.0, 100.0, 3.0], 50.0, [(0,), (1,), (2,)]),  # a path leaves {0, 2} and reenters it
        (TRIANGLE, None, inf, [(0, 1, 2)]),
        ([[], [], [0, 1]], [5.0, 3.0, 10.0], 16.0, [(0,), (1, 2)]),  # the heaviest takes its lightest neighbour
        ([[], [0]], [10.0, 4.0], 14.0, [(0,), (1,)]),
        ([], None, inf, []),
        ([[i - 1] if i else [] for i in range(3000)], None, inf, [tuple(range(3000))]),
    ],
    ids=["path outside", "all", "lightest", "threshold", "empty", "long chain"],
)
def test_small_graphs(
    predecessors: Edges, weights: list[float] | None, threshold: float, groups: list[tuple[int, ...]]
) -> None:
    partition = cluster(graph_of(predecessors), threshold=threshold, weights=weights)
    assert (partition.members, partition.method) == (tuple(groups), "ago")


def test_opaque_operators_stay_alone() -> None:
    graph = graph_of([[], [0], [1]], opaque=frozenset({1}))
    assert cluster(graph, threshold=inf).count == 3


def test_every_operator_needs_a_weight() -> None:
    with pytest.raises(PartitionError, match="2 weights given for 3 operators"):
        cluster(graph_of(TRIANGLE), weights=[1, 2])


@pytest.mark.parametrize("bad", [-1.0, nan])
def test_weights_are_not_negative(bad: float) -> None:
    with pytest.raises(PartitionError, match="n1: the weight must be at least 0"):
        cluster(graph_of(TRIANGLE), weights=[1, bad, 1])


@given(weighted(), st.sampled_from((4.0, 12.0, 40.0, inf)))
def test_the_quotient_is_acyclic_and_staged_exactly_after_every_merge(
    case: tuple[Edges, list[float]], threshold: float
) -> None:
    predecessors, sizes = case
    state = Clustering(StagedGraph(predecessors), sizes, threshold)
    while state.has_candidates:
        state.step()
        labels = [state.hyper_node(node) for node in range(len(predecessors))]
        assert state.graph.levels() == stages(predecessors, labels)


@given(weighted(), st.sampled_from((4.0, 12.0, 40.0)))
def test_groups_are_connected_and_weigh_less_than_the_threshold_unless_single(
    case: tuple[Edges, list[float]], threshold: float
) -> None:
    predecessors, sizes = case
    for members in cluster(graph_of(predecessors), threshold=threshold, weights=sizes).members:
        assert len(members) == 1 or sum(sizes[m] for m in members) < threshold
        readers = {m: [reader for reader in members if m in predecessors[reader]] for m in members}
        assert len(connected_components(readers)) == 1


@given(operator_graphs())
def test_mini_sub_graphs_make_up_the_group_run_in_their_order_and_hold_one_complex_operator(
    graph: OperatorGraph,
) -> None:
    labels = [0] * len(graph)
    for members in cluster(graph, threshold=inf).members:
        for threshold in (inf, 30.0):
            minis = split(graph, members, threshold)
            assert sorted(m for mini in minis for m in mini) == list(members)
            assert all(sum(graph.operators[m].op in COMPLEX for m in mini) <= 1 for mini in minis)
            place = {m: position for position, mini in enumerate(minis) for m in mini}
            for member in members:
                assert all(place[p] <= place[member] for p in graph.predecessors[member] if p in place)
                labels[member] = minis[place[member]][0]
    assert partition_of(graph, labels, "test").count == len(set(labels))


def test_two_products_with_steps_between_are_split_in_two() -> None:
    builder = Builder()
    value = builder.input(8, 8)
    for op in ("MatMul", "Relu", "MatMul", "Relu"):
        operands = (value, builder.constant(8, 8)) if op == "MatMul" else (value,)
        value = builder.op(op, *operands, shape=(8, 8))
    graph = builder.graph()
    assert split(graph, range(4), sum(weights(graph)) + 1) == ((0, 1), (2, 3))


@pytest.mark.parametrize(
    ("predecessors", "groups"),
    [
        pytest.param([[], [0], [0], [1, 2]], [0, 0, 1, 0], id="several nodes of one affix set at once"),
        pytest.param([[], [], [0, 1], [0, 1]], [0, 1, 0, 1], id="several pairs of affix nodes at once"),
        pytest.param([[], [], [0, 1], [0], [2, 3]], [0, 1, 0, 2, 0], id="stages that are not updated"),
        pytest.param([[], [0], [], [2], [], [4]], [0, 1, 1, 2, 2, 0], id="Definition 1, pairs of sub-graphs only"),
    ],
)
def test_theorem_1_read_widely_does_not_hold(predecessors: Edges, groups: list[int]) -> None:
    with pytest.raises(PartitionError, match="cycle"):
        partition_of(graph_of(predecessors), groups, "test")
