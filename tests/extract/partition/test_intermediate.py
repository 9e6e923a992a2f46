"""Which values a partition removes, and the bytes that it leaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eqfuse.extract.partition.groups import partition_of, unfused
from eqfuse.extract.partition.savings import intermediate_bytes, removed_values, storage
from eqfuse.ir.graph import OperatorGraph

from .graphs import Builder, chain, operator_graphs

BYTES = 4 * 4 * 4
"""Of one value of `chain`."""


def test_a_value_between_two_fused_operators_is_removed() -> None:
    assert removed_values(partition_of(chain("Relu", "Exp", "Neg"), (0, 0, 1), "test")) == {1}


def test_a_value_that_another_group_reads_too_stays() -> None:
    builder = Builder()
    shared = builder.op("Relu", builder.input(4))
    builder.op("Exp", shared)
    builder.op("Neg", shared)
    assert removed_values(partition_of(builder.graph(), (0, 0, 1), "test")) == frozenset()


def test_an_output_of_the_graph_stays() -> None:
    builder = Builder()
    y = builder.op("Relu", builder.input(4))
    z = builder.op("Exp", y)
    assert removed_values(partition_of(builder.graph(y, z), (0, 0), "test")) == frozenset()


def test_a_result_that_nobody_reads_is_removed() -> None:
    builder = Builder()
    first, second = builder.node("Split", [builder.input(4)], [(2,), (2,)])
    assert removed_values(unfused(builder.graph(first))) == {second}


def test_without_fusion_every_value_is_held() -> None:
    assert intermediate_bytes(unfused(chain("Relu", "Exp", "Neg"))) == 2 * BYTES


def test_what_only_the_caller_reads_is_no_intermediate_result() -> None:
    assert intermediate_bytes(unfused(chain("Relu"))) == 0


def test_fused_values_are_not_held() -> None:
    assert intermediate_bytes(partition_of(chain("Relu", "Exp", "Neg"), (0, 0, 1), "test")) == BYTES


def test_a_value_and_its_view_are_held_once() -> None:
    assert intermediate_bytes(unfused(chain("Relu", "Reshape", "Exp"))) == BYTES


def test_a_view_of_an_input_of_the_graph_holds_nothing() -> None:
    assert intermediate_bytes(unfused(chain("Reshape", "Squeeze", "Exp", "Neg"))) == BYTES


def test_a_view_that_leaves_holds_what_it_shows() -> None:
    assert intermediate_bytes(partition_of(chain("Relu", "Reshape", "Exp"), (0, 0, 1), "test")) == BYTES


def test_the_mask_of_a_dropout_is_no_view() -> None:
    builder = Builder()
    _, mask = builder.node("Dropout", [builder.input(4)], [(4,), (4,)])
    assert storage(builder.graph(), mask) == mask


@given(operator_graphs(), st.data())
def test_fusing_any_cut_of_the_order_never_holds_more(graph: OperatorGraph, data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph)))
    partition = partition_of(graph, [sum(steps[: i + 1]) for i in range(len(graph))], "test")
    assert intermediate_bytes(partition) <= intermediate_bytes(unfused(graph))
