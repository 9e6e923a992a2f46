"""DNNFusion's Listing 1: the paper's figures, what every plan keeps to, and blocks of known networks."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.costmodels.choices import DEFAULT_DEVICE
from eqfuse.costmodels.device import load_device
from eqfuse.extract.partition.baselines.fusion_plan import (
    TABLE,
    Colour,
    Combination,
    Cost,
    combine,
    compared_sets,
    fusion_plan,
    seeds,
)
from eqfuse.extract.partition.baselines.mapping_types import MappingType, edge_mapping_type, mapping_types
from eqfuse.extract.partition.groups import Partition
from eqfuse.ir.graph import OperatorGraph
from eqfuse.support.directed_graphs import connected_components

from ..graphs import Builder, chain, operator_graphs

DEVICE = load_device(DEFAULT_DEVICE)


def launches(operators: tuple[int, ...]) -> float:
    """Every kernel costs the same: fewer are better, so each yellow pair is fused."""
    return 1.0


def size(operators: tuple[int, ...]) -> float:
    """A kernel costs more than its parts: no yellow pair is fused."""
    return float(len(operators) ** 2)


def never(operators: tuple[int, ...]) -> float:
    raise AssertionError(f"asked for the cost of {operators}")


def names(partition: Partition) -> list[str]:
    """The operators of each group."""
    return [" ".join(partition.graph.operators[m].op for m in members) for members in partition.members]


def figure_3() -> OperatorGraph:
    """GEMM and another input feed Add; then Conv, Relu, Mul and Sub, all results of one size."""
    builder = Builder()
    product = builder.op("Gemm", builder.input(16, 16), builder.constant(16, 16), shape=(16, 16))
    image = builder.op("Add", product, builder.input(16, 16))
    rows = builder.op("Conv", image, builder.constant(16, 16, 1), shape=(16, 16), kernel_shape=(1,))
    relu = builder.op("Relu", rows)
    builder.op("Sub", builder.op("Mul", relu, builder.constant(16, 16)), relu)
    return builder.graph()


def test_figure_3_fuses_five_operators_and_rejects_the_second_product() -> None:
    assert names(fusion_plan(figure_3(), DEVICE, never)) == ["Gemm", "Add Conv Relu Mul Sub"]


def test_looking_back_first_the_seed_goes_to_the_product_before_it() -> None:
    plan = fusion_plan(figure_3(), DEVICE, never, predecessors_first=True)
    assert names(plan) == ["Gemm Add", "Conv Relu Mul Sub"]


def test_figure_4_is_one_kernel() -> None:
    """Out = Recip(GEMM) * C + Recip(GEMM) * D: the reciprocal is read twice."""
    builder = Builder()
    product = builder.op("MatMul", builder.input(4, 4), builder.constant(4, 4), shape=(4, 4))
    reciprocal = builder.op("Reciprocal", product)
    left = builder.op("Mul", reciprocal, builder.input(4, 4))
    builder.op("Add", left, builder.op("Mul", reciprocal, builder.input(4, 4)))
    assert names(fusion_plan(builder.graph(), DEVICE, never)) == ["MatMul Reciprocal Mul Mul Add"]


@pytest.mark.parametrize(("cost", "count"), [(launches, 1), (size, 2)])
def test_the_cost_decides_over_the_transpose_of_section_4_4(cost: Cost, count: int) -> None:
    """GEMM, Div and Transpose: Div and Transpose are green, GEMM before the Shuffle that they make is yellow."""
    builder = Builder()
    product = builder.op("MatMul", builder.input(4, 4), builder.constant(4, 4), shape=(4, 4))
    builder.op("Transpose", builder.op("Div", product, builder.constant()), shape=(4, 4), perm=(1, 0))
    assert fusion_plan(builder.graph(), DEVICE, cost).count == count


def test_a_yellow_pair_is_compared_with_its_parts_and_nothing_else() -> None:
    """Div and Transpose are green; the database is asked for the product with them, for them, and for the product."""
    builder = Builder()
    product = builder.op("MatMul", builder.input(4, 4), builder.constant(4, 4), shape=(4, 4))
    builder.op("Transpose", builder.op("Div", product, builder.constant()), shape=(4, 4), perm=(1, 0))
    assert compared_sets(builder.graph(), DEVICE, launches) == ((0, 1, 2), (1, 2), (0,))
    assert compared_sets(figure_3(), DEVICE, never) == ()


@pytest.mark.parametrize(
    ("operators", "count"),
    [
        ("Relu Transpose MatMul", 1),  # a cost that is equal fuses
        ("MatMul Transpose Softmax", 3),  # there is no seed
        (" ".join(["Relu"] * 300), 1),
    ],
    ids=["equal cost", "no seed", "long chain"],
)
def test_chains(operators: str, count: int) -> None:
    graph = chain(*operators.split())
    assert fusion_plan(graph, DEVICE, lambda operators: float(len(operators))).count == count


def test_seeds_are_one_to_one_and_the_smallest_come_first() -> None:
    builder = Builder()
    big = builder.op("Relu", builder.input(8, 8))
    summed = builder.op("ReduceSum", big, shape=(8, 1), axes=(1,))
    builder.op("Exp", builder.op("Neg", summed))
    graph = builder.graph()
    assert seeds(graph, mapping_types(graph)) == [2, 3, 0]


def test_an_opaque_operator_stays_by_itself() -> None:
    builder = Builder()
    x = builder.op("Relu", builder.input(4))
    (y,) = builder.node("Relu", [x], [(4,)], is_opaque=True)
    builder.op("Relu", y)
    assert fusion_plan(builder.graph(), DEVICE, never).count == 3


def test_an_output_of_the_graph_is_fused_like_others() -> None:
    builder = Builder()
    y = builder.op("Relu", builder.input(4))
    plan = fusion_plan(builder.graph(y, builder.op("Exp", y)), DEVICE, never)
    assert plan.count == 1
    assert plan.outputs == ((1, 2),)


def test_a_path_through_another_kernel_keeps_the_ends_apart() -> None:
    """The branch with the product cannot join (two products), so neither may the Add behind both branches."""
    builder = Builder()
    first = builder.op("MatMul", builder.input(4, 4), builder.constant(4, 4), shape=(4, 4))
    top = builder.op("Relu", first)
    branch = builder.op("MatMul", top, builder.constant(4, 4), shape=(4, 4))
    builder.op("Add", top, branch)
    plan = fusion_plan(builder.graph(), DEVICE, never, predecessors_first=True)
    assert names(plan) == ["MatMul Relu", "MatMul Add"]


def test_a_broadcast_on_the_other_operand_does_not_ask_for_a_cost() -> None:
    """The Add is One-to-Many for its bias, One-to-One for the product."""
    builder = Builder()
    product = builder.op("MatMul", builder.input(4, 4), builder.constant(4, 4), shape=(4, 4))
    builder.op("Add", builder.op("Relu", product), builder.input(4))
    assert fusion_plan(builder.graph(), DEVICE, never, predecessors_first=True).count == 1


def test_registers_limit_a_kernel() -> None:
    builder = Builder()
    x = builder.input(4)
    total = builder.op("Relu", x)
    parts = [builder.op("Exp", total) for _ in range(6)]
    for part in parts:
        total = builder.op("Add", total, part)
    graph = builder.graph()
    assert fusion_plan(graph, DEVICE, never).count == 1
    assert fusion_plan(graph, replace(DEVICE, vector_registers=6), never).count > 1


def residual_block(builder: Builder, x: int, channels: int) -> int:
    """Of ResNet, batch normalization folded away."""
    inner = builder.op("Relu", convolution(builder, x, channels))
    return builder.op("Relu", builder.op("Add", convolution(builder, inner, channels), x))


def convolution(builder: Builder, x: int, channels: int) -> int:
    weight = builder.constant(channels, channels, 3, 3)
    return builder.op("Conv", x, weight, builder.constant(channels), shape=builder.shape(x), kernel_shape=(3, 3))


def test_residual_blocks_take_one_kernel_for_each_convolution() -> None:
    builder = Builder()
    x = builder.input(1, 8, 14, 14)
    for _ in range(3):
        x = residual_block(builder, x, 8)
    plan = fusion_plan(builder.graph(), DEVICE, never, predecessors_first=True)
    assert names(plan) == ["Conv Relu", "Conv Add Relu"] * 3


def dense(builder: Builder, x: int, width: int) -> int:
    rows, depth = builder.shape(x)[-2:]
    product = builder.op("MatMul", x, builder.constant(depth, width), shape=(rows, width))
    return builder.op("Add", product, builder.constant(width))


def test_in_a_feed_forward_layer_the_smallest_seed_takes_the_second_product() -> None:
    builder = Builder()
    x = builder.input(16, 32)
    inner = dense(builder, x, 64)
    gate = builder.op("Add", builder.op("Erf", builder.op("Div", inner, builder.constant())), builder.constant())
    outer = dense(builder, builder.op("Mul", builder.op("Mul", inner, gate), builder.constant()), 32)
    builder.op("LayerNormalization", builder.op("Add", outer, x), builder.constant(32), builder.constant(32), axis=1)
    graph = builder.graph()
    ahead, back = (names(fusion_plan(graph, DEVICE, never, predecessors_first=p)) for p in (False, True))
    assert ahead == ["MatMul", "Add Div Erf Add Mul Mul MatMul", "Add Add LayerNormalization"]
    assert back == ["MatMul", "Add Div Erf Add Mul Mul MatMul Add Add", "LayerNormalization"]


def _has_red_edge(partition: Partition) -> bool:
    graph, types = partition.graph, mapping_types(partition.graph)
    for index, operator in enumerate(graph.operators):
        for value in (v for v in operator.inputs if v is not None):
            maker = graph.values[value].producer
            if maker is None or partition.group[maker] != partition.group[index]:
                continue
            first, second = types[maker], edge_mapping_type(graph, value, index)
            if first is None or second is None or combine(first, second).colour is Colour.RED:
                return True
    return False


@given(operator_graphs(), st.booleans(), st.sampled_from((launches, size)))
def test_groups_are_connected_hold_no_red_pair_and_are_the_same_each_time(
    graph: OperatorGraph, back: bool, cost: Cost
) -> None:
    plan = fusion_plan(graph, DEVICE, cost, predecessors_first=back)
    assert plan == fusion_plan(graph, DEVICE, cost, predecessors_first=back)
    assert not _has_red_edge(plan)
    types = mapping_types(graph)
    for members in plan.members:
        assert len(connected_components({m: set(graph.successors[m]) for m in members})) == 1
        assert sum(types[m] is MappingType.MANY_TO_MANY for m in members) <= 1
        assert len(members) == 1 or any(types[m] is MappingType.ONE_TO_ONE for m in members)


ONE, REORGANIZE, SHUFFLE, COPIED, MANY = MappingType
GREEN, YELLOW, RED = Colour

CELLS = [
    (ONE, ONE, ONE, GREEN),
    (ONE, COPIED, COPIED, GREEN),
    (ONE, MANY, MANY, GREEN),
    (ONE, REORGANIZE, REORGANIZE, GREEN),
    (ONE, SHUFFLE, SHUFFLE, GREEN),
    (COPIED, ONE, COPIED, GREEN),
    (COPIED, COPIED, COPIED, YELLOW),
    (COPIED, MANY, None, RED),
    (COPIED, REORGANIZE, COPIED, YELLOW),
    (COPIED, SHUFFLE, COPIED, YELLOW),
    (MANY, ONE, MANY, GREEN),
    (MANY, COPIED, MANY, YELLOW),
    (MANY, MANY, None, RED),
    (MANY, REORGANIZE, MANY, YELLOW),
    (MANY, SHUFFLE, MANY, YELLOW),
    (REORGANIZE, ONE, REORGANIZE, GREEN),
    (REORGANIZE, COPIED, COPIED, YELLOW),
    (REORGANIZE, MANY, MANY, YELLOW),
    (REORGANIZE, REORGANIZE, REORGANIZE, GREEN),
    (REORGANIZE, SHUFFLE, REORGANIZE, GREEN),
    (SHUFFLE, ONE, SHUFFLE, GREEN),
    (SHUFFLE, COPIED, COPIED, YELLOW),
    (SHUFFLE, MANY, MANY, YELLOW),
    (SHUFFLE, REORGANIZE, REORGANIZE, GREEN),
    (SHUFFLE, SHUFFLE, SHUFFLE, GREEN),
]


@pytest.mark.parametrize(("first", "second", "result", "colour"), CELLS)
def test_cell(first: MappingType, second: MappingType, result: MappingType | None, colour: Colour) -> None:
    assert combine(first, second) == Combination(result, colour)


def test_the_table_has_no_other_cells() -> None:
    assert TABLE.keys() == {(first, second) for first, second, _, _ in CELLS} == set(product(MappingType, repeat=2))


def test_the_results_agree_whichever_pair_is_fused_first() -> None:
    """So the type of a group does not depend on the order in which a chain was fused, wherever both orders exist."""
    for first, second, third in product(MappingType, repeat=3):
        left, right = combine(first, second).result, combine(second, third).result
        if left is not None and right is not None:
            assert combine(left, third).result == combine(first, right).result
