"""Merging groups: never into a cycle, always where there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.extract.partition.contraction import Contraction
from eqfuse.extract.partition.groups import PartitionError, partition_of
from eqfuse.ir.graph import OperatorGraph

from .graphs import Builder, chain, operator_graphs


def is_acyclic(graph: OperatorGraph, labels: tuple[int, ...]) -> bool:
    try:
        partition_of(graph, labels, "test")
    except PartitionError:
        return False
    return True


def diamond() -> OperatorGraph:
    builder = Builder()
    top = builder.op("Relu", builder.input(4))
    builder.op("Add", builder.op("Exp", top), builder.op("Neg", top))
    return builder.graph()


def test_a_chain_is_merged_from_either_end() -> None:
    groups = Contraction(chain("Relu", "Exp", "Neg").successors)
    groups.merge(1, 0)
    groups.merge(2, 1)
    assert groups.labels == (2, 2, 2)
    assert groups.members(2) == (0, 1, 2)


def test_the_ends_of_a_chain_have_a_third_between_them() -> None:
    assert not Contraction(chain("Relu", "Exp", "Neg").successors).can_merge(2, 0)


def test_a_merge_into_a_cycle_is_refused() -> None:
    groups = Contraction(diamond().successors)
    with pytest.raises(ValueError, match="a third group lies between 0 and 3"):
        groups.merge(0, 3)


def test_a_diamond_closes_when_both_sides_are_in() -> None:
    groups = Contraction(diamond().successors)
    groups.merge(0, 1)
    assert not groups.can_merge(0, 3)
    groups.merge(0, 2)
    assert groups.can_merge(0, 3)


def test_the_arms_of_a_diamond_may_be_merged() -> None:
    assert Contraction(diamond().successors).can_merge(1, 2)


def test_a_path_through_another_group_counts() -> None:
    """Of two chains a-b and c-d, merging a with d leaves b and c on no path; then b with c would make a cycle."""
    builder = Builder()
    x = builder.input(4)
    for _ in range(2):
        builder.op("Exp", builder.op("Relu", x))
    groups = Contraction(builder.graph().successors)
    groups.merge(0, 3)
    assert not groups.can_merge(1, 2)


def test_the_groups_of_a_partition_are_where_it_goes_on() -> None:
    groups = Contraction(diamond().successors, partition_of(diamond(), (0, 1, 0, 2), "test").members)
    assert groups.labels == (0, 1, 0, 2)
    assert not groups.can_merge(0, 2)
    groups.merge(0, 1)
    assert groups.can_merge(0, 2)


@given(operator_graphs(), st.data())
def test_a_merge_is_allowed_exactly_where_the_groups_stay_acyclic(graph: OperatorGraph, data: st.DataObject) -> None:
    groups = Contraction(graph.successors)
    for _ in range(len(graph) - 1):
        left = sorted(set(groups.labels))
        if len(left) < 2:
            break
        first, second = data.draw(st.permutations(left))[:2]
        merged = tuple(first if label == second else label for label in groups.labels)
        assert groups.can_merge(first, second) == is_acyclic(graph, merged)
        if groups.can_merge(first, second):
            groups.merge(first, second)
            assert groups.labels == merged
