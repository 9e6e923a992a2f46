"""Groups of FuseOps on small graphs, and what holds for every graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.extract.partition.baselines.fuse_ops import (
    Edge,
    ForwardGraph,
    FuseOpsLimits,
    PatternKind,
    edge_kind,
    forward_graph,
    fuse_ops,
    node_groups,
    pattern_kind,
    post_dominators,
)
from eqfuse.ir.graph import OperatorGraph, Value
from eqfuse.ir.operators import STANDARD
from eqfuse.ir.types import TensorType

from .. import blocks
from ..graphs import Builder, chain, operator_graphs
from .test_mapping_types import CALLS

ELEMENTWISE, BROADCAST, INJECTIVE, COMM_REDUCE, ANCHOR = list(PatternKind)[:5]
TUPLE, OPAQUE = PatternKind.TUPLE, PatternKind.OPAQUE


def groups(graph: OperatorGraph, **limits: int) -> list[list[int]]:
    return sorted(map(list, fuse_ops(graph, FuseOpsLimits(**limits)).members))


# Small graphs


def _readers_that_do_not_meet_again(b: Builder) -> None:
    x = b.op("Relu", b.input(4))
    b.op("Exp", x)
    b.op("Neg", x)


def _an_opaque_branch(b: Builder) -> None:
    """It keeps the branches apart."""
    x = b.op("Relu", b.input(4, 4))
    y = b.op("Gather", x, b.constant(4), shape=(4, 4))
    b.op("Add", b.op("Exp", x), y)


def _an_unknown_operator(b: Builder) -> None:
    b.op("Exp", b.node("Relu", (b.op("Exp", b.input(4)),), [(4,)], is_opaque=True)[0])


def _a_product_that_is_broadcast(b: Builder) -> None:
    x = b.op("MatMul", b.input(1, 4), b.constant(4, 4), shape=(1, 4))
    b.op("Add", x, b.input(4, 4))


def _a_product_that_is_broadcast_further_on(b: Builder) -> None:
    x = b.op("MatMul", b.input(1, 4), b.constant(4, 4), shape=(1, 4))
    wide = b.input(4, 4)
    left, right = (b.op("Add", b.op(op, x), wide) for op in ("Relu", "Exp"))
    b.op("Mul", left, right)


def _a_broadcast(b: Builder) -> None:
    b.op("Add", b.op("Relu", b.input(1, 4)), b.input(4, 4))


def _a_movement_that_comes_along_to_a_product(b: Builder) -> None:
    product = b.op("MatMul", b.input(4, 4), b.constant(4, 4), shape=(4, 4))
    x = b.op("Relu", b.input(4, 4))
    moved = b.op("Transpose", x, shape=(4, 4), perm=(1, 0))
    b.op("Add", b.op("Add", x, moved), product)


def _a_softmax_into_a_concat(b: Builder) -> None:
    """Only what feeds the Concat element by element joins it, and last."""
    x = b.op("Softmax", b.input(2, 4))
    both = b.op("Concat", x, b.op("Relu", b.input(2, 4)), shape=(2, 8), axis=1)
    b.op("Add", both, b.input(2, 8))


def _halves_that_part(b: Builder) -> None:
    left, right = b.node("Split", (b.op("Relu", b.input(4, 4)),), [(4, 2)] * 2, {"axis": 1})
    b.op("Exp", left)
    b.op("Neg", right)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (_readers_that_do_not_meet_again, [[0], [1], [2]]),
        (_an_opaque_branch, [[0], [1], [2, 3]]),
        (_an_unknown_operator, [[0], [1], [2]]),
        (_a_product_that_is_broadcast, [[0], [1]]),
        (_a_product_that_is_broadcast_further_on, [[0], [1, 2, 3, 4, 5]]),
        (_a_broadcast, [[0, 1]]),
        (_a_movement_that_comes_along_to_a_product, [[0, 1, 2, 3, 4]]),
        (_a_softmax_into_a_concat, [[0], [1, 2, 3]]),
        (_halves_that_part, [[0, 1], [2], [3]]),
    ],
)
def test_small_graphs(build: Callable[[Builder], None], expected: list[list[int]]) -> None:
    builder = Builder()
    build(builder)
    assert groups(builder.graph()) == expected


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        ("Relu Exp Sigmoid", [[0, 1, 2]]),
        ("Softmax Relu Softmax Relu", [[0, 1], [2, 3]]),  # two anchors stay apart
        ("Relu Softmax", [[0], [1]]),  # an operator before an anchor stays outside
        ("Relu Exp ReduceSum", [[0, 1, 2]]),
        ("Relu ReduceSum Exp Neg", [[0, 1], [2, 3]]),  # a reduction ends a group
        ("Softmax ReduceSum", [[0], [1]]),
        ("Relu Transpose Reshape Exp", [[0, 1, 2, 3]]),
        ("Softmax Transpose Reshape Exp", [[0], [1, 2, 3]]),
        ("Relu Transpose Reshape Softmax", [[0, 1, 2], [3]]),
    ],
)
def test_chains(operators: str, expected: list[list[int]]) -> None:
    builder = Builder()
    x = builder.input(4, 4)
    for op in operators.split():
        if op == "ReduceSum":
            x = builder.op(op, x, shape=(4, 1), axes=(1,), keepdims=1)
        elif op == "Transpose":
            x = builder.op(op, x, shape=(4, 4), perm=(1, 0))
        else:
            x = builder.op(op, x, shape=(2, 8)) if op == "Reshape" else builder.op(op, x)
    assert groups(builder.graph()) == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (blocks.the_texts_example, [[0, 1, 2, 3, 4]]),
        (blocks.normalised, [[0, 1, 2]]),
        (blocks.residual, [[0, 1, 2], [3, 4, 5, 6]]),
        (blocks.projected_residual, [[0, 1], [2, 4, 5], [3]]),
        (blocks.inverted_residual, [[0, 1], [2, 3], [4, 5]]),
        (blocks.squeeze_excitation, [[0, 1, 2], [3], [4, 5], [6, 7], [8], [9]]),
        (blocks.inception, [[0, 1], [2, 3], [4], [5], [6, 7]]),
        (blocks.lstm_step, [[0, 1, 4], [2, 3], [5], [6, 7, 8, 10, 11, 12], [9, 13, 14]]),
        (blocks.elementwise_into_concat, [[0, 1, 2, 3]]),
        (blocks.concat_on_a_branch, [[0], [1, 2, 3, 4]]),  # the tuple keeps the branches apart
    ],
)
def test_blocks(block: Callable[[], OperatorGraph], expected: list[list[int]]) -> None:
    partition = fuse_ops(block())
    assert sorted(map(list, partition.members)) == expected
    assert partition.method == "fuseops"


def test_no_operators() -> None:
    assert fuse_ops(OperatorGraph((), ())).count == 0


@pytest.mark.parametrize("read", [1, 2])
def test_a_split_joins_where_its_parts_meet(read: int) -> None:
    b = Builder()
    left, right = b.node("Split", (b.op("Relu", b.input(4, 4)),), [(4, 2)] * 2, {"axis": 1})
    assert groups(b.graph(b.op("Add", left, right if read == 2 else b.input(4, 2)))) == [[0, 1, 2]]


def test_a_value_that_the_caller_reads_ends_a_group() -> None:
    b = Builder()
    x = b.op("Relu", b.input(4))
    assert groups(b.graph(x, b.op("Exp", x))) == [[0], [1]]


def test_the_part_of_a_split_that_the_caller_reads_is_external() -> None:
    b = Builder()
    left, right = b.node("Split", (b.input(4, 4),), [(4, 2)] * 2, {"axis": 1})
    nodes = forward_graph(b.graph(left, b.op("Add", left, right)))
    assert nodes.is_external == [False, True, False, True]


def test_no_group_is_larger_than_the_depth() -> None:
    assert max(map(len, fuse_ops(chain(*["Relu"] * 600)).members)) <= 256


def test_a_long_chain_needs_no_deep_recursion() -> None:
    length = 5000
    assert groups(chain(*["Relu"] * length), max_fuse_depth=length) == [list(range(length))]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"fuse_opt_level": 0}, [[0], [1], [2], [3], [4]]),
        ({"fuse_opt_level": 4}, [[0, 1, 2, 3, 4]]),
        ({"max_function_args": 5}, [[0, 1, 2, 3, 4]]),
        # A bias and a factor, the convolution's two operands, and the result are one too many.
        ({"max_function_args": 4}, [[0], [1, 2, 3, 4]]),
        ({"max_function_args": 3, "link_params": True}, [[0, 1, 2, 3, 4]]),
        ({"max_function_args": 2, "link_params": True}, [[0], [1, 2], [3], [4]]),
        ({"max_function_args": 1}, [[0], [1], [2], [3], [4]]),
    ],
)
def test_limits_on_the_texts_example(limits: dict[str, int], expected: list[list[int]]) -> None:
    assert groups(blocks.the_texts_example(), **limits) == expected


def test_results_that_others_read_are_arguments() -> None:
    b = Builder()
    x, y = b.node("Split", (b.input(4, 4),), [(4, 2)] * 2, {"axis": 1})
    graph = b.graph(b.op("Neg", b.op("Add", x, y)))
    assert groups(graph, max_function_args=2) == [[0, 1, 2]]
    assert groups(graph, max_function_args=1) == [[0], [1], [2]]


# Kinds


def test_every_operator_of_the_rules_has_a_kind_but_those_that_never_fuse() -> None:
    graphs = [call.graph() for call in CALLS]
    kinds = {graph.operators[0].op: pattern_kind(graph, graph.operators[0]) for graph in graphs}
    assert kinds.keys() == STANDARD.keys()
    assert {op for op, kind in kinds.items() if kind is OPAQUE} == {"CumSum", "Gather", "Hardmax"}


@pytest.mark.parametrize(
    ("kind", "operand", "result", "expected"),
    [
        (BROADCAST, (2, 3), (2, 3), ELEMENTWISE),
        (BROADCAST, ("n", 3), ("n", 3), ELEMENTWISE),
        (BROADCAST, (3,), (2, 3), BROADCAST),
        (BROADCAST, None, None, BROADCAST),
        (INJECTIVE, (2, 3), (2, 3), INJECTIVE),
    ],
)
def test_edge_kind(
    kind: PatternKind, operand: tuple[int, ...] | None, result: tuple[int, ...] | None, expected: PatternKind
) -> None:
    values = [Value("v", TensorType("float32", shape)) for shape in (operand, result)]
    assert edge_kind(kind, *values) is expected


def test_an_edge_without_types_is_a_broadcast() -> None:
    assert edge_kind(BROADCAST, Value("a", None), Value("b", None)) is BROADCAST


# The tree


def forward(kinds: Sequence[PatternKind], edges: dict[int, list[int]]) -> ForwardGraph:
    """Each edge has the kind of the node that it leads to; the last node is read by the caller."""
    links = [[Edge(target, kinds[target]) for target in edges.get(node, [])] for node in range(len(kinds))]
    return ForwardGraph(list(kinds), links, [node == len(kinds) - 1 for node in range(len(kinds))])


@pytest.mark.parametrize(
    ("kinds", "edges", "expected"),
    [
        ([ELEMENTWISE] * 4, {0: [1, 2], 1: [3], 2: [3]}, [(3, ELEMENTWISE), (3, ELEMENTWISE), (3, ELEMENTWISE), None]),
        (
            [ANCHOR, ELEMENTWISE, INJECTIVE, BROADCAST],
            {0: [1, 2], 1: [3], 2: [3]},
            [(3, INJECTIVE), (3, BROADCAST), (3, BROADCAST), None],
        ),
        (
            [ANCHOR, ELEMENTWISE, ELEMENTWISE, INJECTIVE, ELEMENTWISE],
            {0: [1, 2], 1: [3], 3: [4], 2: [4]},
            [(4, INJECTIVE), (3, INJECTIVE), (4, ELEMENTWISE), (4, ELEMENTWISE), None],
        ),
        ([ELEMENTWISE] * 3, {0: [1, 2]}, [None, None, None]),
    ],
    ids=["diamond", "largest kind of all paths", "kind far from the node", "paths that do not meet"],
)
def test_post_dominators(
    kinds: list[PatternKind], edges: dict[int, list[int]], expected: list[tuple[int, PatternKind] | None]
) -> None:
    assert post_dominators(forward(kinds, edges)) == expected


@st.composite
def forward_graphs(draw: st.DrawFn) -> ForwardGraph:
    """Up to 10 nodes, each read by up to three later ones, or by the caller."""
    count = draw(st.integers(1, 10))
    kinds = draw(st.lists(st.sampled_from(PatternKind), min_size=count, max_size=count))
    edges = {n: sorted(draw(st.sets(st.integers(n + 1, count - 1), max_size=3))) for n in range(count - 1)}
    return forward(kinds, edges)


def _paths(graph: ForwardGraph, node: int) -> list[list[int]]:
    """All paths from `node` to a node without readers."""
    onwards = [path for edge in graph.edges[node] for path in _paths(graph, edge.target)]
    return [[node, *path] for path in onwards] or [[node]]


@given(forward_graphs())
def test_the_immediate_post_dominator_is_the_first_node_that_all_paths_share(graph: ForwardGraph) -> None:
    for node, nearest in enumerate(post_dominators(graph)):
        paths = [path[1:] for path in _paths(graph, node)]
        shared = set(paths[0]).intersection(*paths)
        assert (nearest and nearest.node) == next((n for n in paths[0] if n in shared), None)


# What holds for every graph


@given(operator_graphs())
def test_groups_are_acyclic_and_convex_and_only_their_ends_are_read_from_outside(graph: OperatorGraph) -> None:
    partition = fuse_ops(graph)
    for number, members in enumerate(partition.members):
        assert {graph.values[value].producer for value in partition.outputs[number]} <= {max(members)}
    group = partition.group
    assert all(group[source] <= group[n] for n, sources in enumerate(graph.predecessors) for source in sources)
    below: list[set[int]] = []
    for sources in graph.predecessors:
        below.append(set(sources).union(*(below[s] for s in sources)))
    for last, reached in enumerate(below):
        for middle in reached:
            assert group[middle] == group[last] or all(group[first] != group[last] for first in below[middle])


@given(operator_graphs())
def test_a_group_has_one_anchor_at_most_and_opaque_operators_stay_alone(graph: OperatorGraph) -> None:
    kinds = [pattern_kind(graph, operator) for operator in graph.operators]
    for members in fuse_ops(graph).members:
        assert [kinds[m] for m in members].count(ANCHOR) <= 1
        assert len(members) == 1 or all(kinds[m] is not OPAQUE for m in members)


@given(forward_graphs(), st.integers(1, 6))
def test_no_group_of_nodes_is_larger_than_the_depth(graph: ForwardGraph, depth: int) -> None:
    labels = node_groups(graph, FuseOpsLimits(max_fuse_depth=depth))
    assert max(labels.count(label) for label in labels) <= depth


@given(operator_graphs(), st.integers(1, 6))
def test_no_group_has_more_arguments_than_the_limit(graph: OperatorGraph, limit: int) -> None:
    partition = fuse_ops(graph, FuseOpsLimits(max_function_args=limit))
    for members, read, made in zip(partition.members, partition.inputs, partition.outputs, strict=True):
        assert len(members) == 1 or len(read) + len(made) <= limit


@given(operator_graphs())
def test_the_forward_graph_has_a_node_for_each_operator(graph: OperatorGraph) -> None:
    nodes = forward_graph(graph)
    assert [nodes.kinds[node] for node in nodes.node_of] == [pattern_kind(graph, o) for o in graph.operators]
