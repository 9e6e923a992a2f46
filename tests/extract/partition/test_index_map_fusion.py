"""Which operators that move data need no pass of their own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eqfuse.costmodels.device import DEFAULT, load_device
from eqfuse.extract.partition.groups import partition_of, unfused
from eqfuse.extract.partition.kernels import KernelModel
from eqfuse.extract.partition.savings import index_mapped_operators, saved_bytes
from eqfuse.ir.graph import OperatorGraph

from .graphs import Builder, chain, operator_graphs

HOST = load_device(DEFAULT)


def mapped(graph: OperatorGraph, *labels: int) -> frozenset[int]:
    partition = partition_of(graph, labels or [0] * len(graph), "test")
    return index_mapped_operators(partition, KernelModel(graph, HOST))


def transposed() -> tuple[Builder, int]:
    """A Transpose, operator 0, of an input."""
    builder = Builder()
    return builder, builder.op("Transpose", builder.input(64, 64), shape=(64, 64), perm=(1, 0))


def test_its_one_consumer_reads_through_it() -> None:
    builder, y = transposed()
    builder.op("Relu", y)
    assert mapped(builder.graph()) == {0}


def test_its_producer_writes_through_it() -> None:
    builder = Builder()
    builder.op("Transpose", builder.op("Relu", builder.input(64, 64)), shape=(64, 64), perm=(1, 0))
    assert mapped(builder.graph()) == {1}


def test_in_a_group_of_its_own_it_moves_bytes() -> None:
    builder, y = transposed()
    builder.op("Relu", y)
    assert mapped(builder.graph(), 0, 1) == frozenset()


def test_for_two_consumers_it_is_stored() -> None:
    builder, y = transposed()
    builder.op("Relu", y)
    builder.op("Neg", y)
    assert mapped(builder.graph()) == frozenset()


def test_an_output_of_the_graph_is_stored() -> None:
    builder, y = transposed()
    assert mapped(builder.graph(y, builder.op("Relu", y))) == frozenset()


def test_a_gather_by_constants_is_an_index_map() -> None:
    builder = Builder()
    taken = builder.op("Gather", builder.input(64, 64), builder.constant(8), shape=(8, 64), axis=0)
    builder.op("Relu", taken)
    assert mapped(builder.graph()) == {0}


def test_a_gather_by_what_is_computed_is_none() -> None:
    builder = Builder()
    taken = builder.op("Gather", builder.input(64, 64), builder.input(8), shape=(8, 64), axis=0)
    builder.op("Relu", taken)
    assert mapped(builder.graph()) == frozenset()


def test_arithmetic_is_no_index_map() -> None:
    assert mapped(chain("Relu", "Exp")) == frozenset()


def test_what_is_saved_is_what_it_would_read_and_write() -> None:
    builder, y = transposed()
    builder.op("Relu", y)
    assert saved_bytes(builder.graph(), {0}) == 2 * 4 * 64 * 64


@given(operator_graphs())
def test_without_fusion_there_are_none(graph: OperatorGraph) -> None:
    assert index_mapped_operators(unfused(graph), KernelModel(graph, HOST)) == frozenset()


@given(operator_graphs(), st.data())
def test_an_index_map_shares_a_kernel_with_a_neighbour(graph: OperatorGraph, data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph)))
    partition = partition_of(graph, [sum(steps[: i + 1]) for i in range(len(graph))], "test")
    model = KernelModel(graph, HOST)
    kernel = {m: k for members in partition.members for k in model.kernels(members) for m in k}
    for member in index_mapped_operators(partition, model):
        near = {*graph.predecessors[member], *graph.successors[member]}
        assert near & (set(kernel[member]) - {member})
