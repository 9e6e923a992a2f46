"""What a partition saves: values that need no memory, and operators that need no pass of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.costmodels.choices import DEFAULT_DEVICE
from eqfuse.costmodels.device import load_device
from eqfuse.extract.partition.groups import Partition, partition_of, unfused
from eqfuse.extract.partition.templates.kernels import KernelModel
from eqfuse.extract.partition.templates.savings import (
    index_mapped_operators,
    intermediate_bytes,
    removed_values,
    saved_bytes,
    storage,
)
from eqfuse.ir.graph import OperatorGraph

from ..graphs import Builder, chain, operator_graphs

HOST = load_device(DEFAULT_DEVICE)
BYTES = 4 * 4 * 4
"""Of one value of `chain`."""


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    """A graph cut anywhere in its order."""
    graph = draw(operator_graphs())
    steps = draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph)))
    return partition_of(graph, [sum(steps[: i + 1]) for i in range(len(graph))], "test")


# --- intermediate results


def test_a_value_between_fused_operators_is_removed_unless_others_read_it() -> None:
    assert removed_values(partition_of(chain("Relu", "Exp", "Neg"), (0, 0, 1), "test")) == {1}
    builder = Builder()
    shared = builder.op("Relu", builder.input(4))
    ends = builder.op("Exp", shared), builder.op("Neg", shared)
    assert removed_values(partition_of(builder.graph(), (0, 0, 1), "test")) == frozenset()
    assert removed_values(partition_of(builder.graph(shared, *ends), (0, 0, 0), "test")) == frozenset()


def test_a_result_that_nobody_reads_is_removed() -> None:
    builder = Builder()
    first, second = builder.node("Split", [builder.input(4)], [(2,), (2,)])
    assert removed_values(unfused(builder.graph(first))) == {second}


@pytest.mark.parametrize(
    ("operators", "labels", "values"),
    [
        ("Relu Exp Neg", (0, 1, 2), 2),
        ("Relu", (0,), 0),  # only the caller reads it
        ("Relu Exp Neg", (0, 0, 1), 1),
        ("Relu Reshape Exp", (0, 1, 2), 1),  # a value and its view are held once
        ("Reshape Squeeze Exp Neg", (0, 1, 2, 3), 1),  # views of an input hold nothing
        ("Relu Reshape Exp", (0, 0, 1), 1),  # a view that leaves holds its source
    ],
)
def test_values_are_held_between_groups(operators: str, labels: Sequence[int], values: int) -> None:
    assert intermediate_bytes(partition_of(chain(*operators.split()), labels, "test")) == values * BYTES


def test_the_mask_of_a_dropout_is_no_view() -> None:
    builder = Builder()
    _, mask = builder.node("Dropout", [builder.input(4)], [(4,), (4,)])
    assert storage(builder.graph(), mask) == mask


@given(partitions())
def test_fusing_never_holds_more(partition: Partition) -> None:
    assert intermediate_bytes(partition) <= intermediate_bytes(unfused(partition.graph))


# --- index maps


def mapped(graph: OperatorGraph, *labels: int) -> frozenset[int]:
    partition = partition_of(graph, labels or [0] * len(graph), "test")
    return index_mapped_operators(partition, KernelModel(graph, HOST))


def test_a_transpose_is_an_index_map_for_one_consumer_in_its_kernel() -> None:
    builder = Builder()
    y = builder.op("Transpose", builder.input(64, 64), shape=(64, 64), perm=(1, 0))
    end = builder.op("Relu", y)
    assert mapped(builder.graph()) == {0}
    assert saved_bytes(builder.graph(), {0}) == 2 * 4 * 64 * 64
    assert mapped(builder.graph(), 0, 1) == frozenset()
    assert mapped(builder.graph(y, end)) == frozenset()
    builder.op("Neg", y)
    assert mapped(builder.graph()) == frozenset()


def test_the_producer_writes_through_an_index_map() -> None:
    builder = Builder()
    builder.op("Transpose", builder.op("Relu", builder.input(64, 64)), shape=(64, 64), perm=(1, 0))
    assert mapped(builder.graph()) == {1}


@pytest.mark.parametrize("is_constant", [True, False])
def test_a_gather_is_an_index_map_where_its_indices_are_constant(is_constant: bool) -> None:
    builder = Builder()
    indices = builder.constant(8) if is_constant else builder.input(8)
    builder.op("Relu", builder.op("Gather", builder.input(64, 64), indices, shape=(8, 64), axis=0))
    assert mapped(builder.graph()) == ({0} if is_constant else frozenset())


def test_arithmetic_is_no_index_map() -> None:
    assert mapped(chain("Relu", "Exp")) == frozenset()


@given(partitions())
def test_an_index_map_shares_a_kernel_with_a_neighbour(partition: Partition) -> None:
    graph, model = partition.graph, KernelModel(partition.graph, HOST)
    kernel = {m: k for members in partition.members for k in model.kernels(members) for m in k}
    for member in index_mapped_operators(partition, model):
        near = {*graph.predecessors[member], *graph.successors[member]}
        assert near & (set(kernel[member]) - {member})
    assert index_mapped_operators(unfused(graph), model) == frozenset()
