"""Rewriting and fusing together: costs that add up, and a result that is never dearer than one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.costmodels.choices import DEFAULT_DEVICE
from eqfuse.costmodels.device import Device, load_device
from eqfuse.costmodels.fused import ArithmeticCost, FusedCost
from eqfuse.costmodels.model import CostModel
from eqfuse.engine.choices import PartitionMethod
from eqfuse.extract.joint import Extracted, joint, observe_shares
from eqfuse.extract.partition.groups import partition_of, unfused
from eqfuse.extract.partition.search.methods import merge_groups, partition_by, refine_partition, search_partition
from eqfuse.extract.partition.templates.kernels import KernelModel
from eqfuse.ir.graph import OperatorGraph
from eqfuse.ir.operation import Operation

from ...properties import examples
from .graphs import operator_graphs

HOST = load_device(DEFAULT_DEVICE)
DEVICES = [load_device(p.stem) for p in sorted((Path(__file__).parents[3] / "costmodels/devices").glob("*.toml"))]


@examples(12)
@given(operator_graphs())
def test_shares_add_up_to_the_cost(graph: OperatorGraph) -> None:
    model = KernelModel(graph, HOST)
    partition = partition_by("ago", graph, model)
    assert sum(model.shares(partition)) == pytest.approx(model.partition(partition))


@examples(12)
@given(operator_graphs(), st.sampled_from(DEVICES))
def test_the_search_is_never_dearer_than_a_baseline_nor_below_the_bound(graph: OperatorGraph, device: Device) -> None:
    model = KernelModel(graph, device)
    found = refine_partition(search_partition(graph, model), model, time_limit=0.5)
    assert found.bound <= found.cost * (1 + 1e-9)
    assert all(found.cost <= cost * (1 + 1e-9) for cost in found.baselines.values())
    assert found.cost == pytest.approx(model.partition(found.partition))


@examples(12)
@given(operator_graphs(), st.sampled_from(get_args(PartitionMethod)))
def test_every_method_gives_an_acyclic_partition(graph: OperatorGraph, method: PartitionMethod) -> None:
    partition = partition_by(method, graph, KernelModel(graph, HOST), time_limit=0.5)
    assert partition_of(graph, partition.group, method).count == partition.count


@examples(12)
@given(operator_graphs())
def test_merging_never_makes_a_partition_dearer(graph: OperatorGraph) -> None:
    model = KernelModel(graph, HOST)
    start = unfused(graph)
    rounding = 1 + 1e-12  # the same costs are added in another order
    assert model.partition(merge_groups(start, model)) <= model.partition(start) * rounding


@examples(12)
@given(operator_graphs())
def test_observed_costs_sum_up_to_the_cost_of_the_partition(graph: OperatorGraph) -> None:
    model = KernelModel(graph, HOST)
    partition = partition_by("dnnfusion", graph, model)
    cost = FusedCost(HOST, observe_shares(partition, model))
    assert total_cost(graph, cost) == pytest.approx(model.partition(partition), rel=1e-6)


@examples(12)
@given(operator_graphs())
def test_arithmetic_alone_is_below_every_partition(graph: OperatorGraph) -> None:
    model = KernelModel(graph, HOST)
    assert total_cost(graph, ArithmeticCost(HOST)) <= model.partition(partition_by("ago", graph, model))


def total_cost(graph: OperatorGraph, cost: CostModel) -> float:
    """The sum of the costs of all operators, none of them constant."""
    total = 0.0
    for operator in graph.operators:
        types = tuple(None if v is None else graph.values[v].type for v in operator.inputs)
        output = graph.values[operator.outputs[0]].type
        total += cost.cost(Operation.of(operator.op, operator.attributes, types, output, (False,) * len(types)))
    return total


@examples(8)
@given(operator_graphs(), operator_graphs())
def test_the_cheaper_of_two_graphs_is_kept(first: OperatorGraph, second: OperatorGraph) -> None:
    """An extraction that cannot do better than the original: then the original is what comes out."""
    answers = {"roofline": second, "fused": second}
    found = joint(
        Extracted("original", first),
        lambda cost: Extracted("rewritten", answers[cost.name]),
        lambda cost: 0.0,
        HOST,
        time_limit=0,
    )
    costs = found.costs
    assert costs.joint == min(costs.fused, costs.sequence)
    assert found.chosen == ("original" if costs.fused <= costs.sequence else "rewritten")
    assert costs.bound <= costs.joint


@examples(8)
@given(operator_graphs(), operator_graphs())
def test_out_of_time_there_are_no_further_rounds(first: OperatorGraph, second: OperatorGraph) -> None:
    asked: list[str] = []

    def extract(cost: CostModel) -> Extracted[str]:
        asked.append(cost.name)
        return Extracted("rewritten", second)

    def lower_bound(cost: CostModel) -> float:
        asked.append("bound")
        return 0.0

    found = joint(Extracted("original", first), extract, lower_bound, HOST, time_limit=0.0)
    assert asked == ["roofline"]
    assert not found.complete
    assert found.costs.rounds == 0


@examples(12)
@given(operator_graphs())
def test_out_of_time_no_groups_are_merged(graph: OperatorGraph) -> None:
    model = KernelModel(graph, HOST)
    assert merge_groups(unfused(graph), model, deadline=0.0).count == len(graph)
    assert set(search_partition(graph, model, deadline=0.0).baselines) == {"fuseops"}
