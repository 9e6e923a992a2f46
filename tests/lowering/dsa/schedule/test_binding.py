"""Algorithm 4."""

from __future__ import annotations

import pytest

from eqfuse.lowering.dsa.network.core_factors import core_count, plain_binding
from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.network.subgraphs import sub_graph
from eqfuse.lowering.dsa.program.instructions import Level
from eqfuse.lowering.dsa.schedule.grouping import Group, splits_of
from eqfuse.lowering.dsa.schedule.instances import InstanceGraph, instance_graph
from eqfuse.lowering.dsa.schedule.scheduler import Schedule, infer_bindings

from ..graphs import HALVING_LOCAL_BYTES, Builder, accelerator, halving_stages
from ..scheduled import schedule


def test_a_plain_binding_gives_cores_to_outer_axes_first() -> None:
    assert plain_binding((4, 28, 28, 512), 8) == (4, 2, 1, 1)
    assert plain_binding((2, 28, 28, 512), 8) == (2, 4, 1, 1)
    assert plain_binding((16, 7), 8) == (8, 1)
    assert plain_binding((3, 6, 12), 8) == (1, 2, 4)


def test_a_plain_binding_leaves_axes_alone_that_must_be_whole() -> None:
    assert plain_binding((2, 8, 8), 8, {1}) == (2, 1, 4)


def test_a_plain_binding_suits_any_number_of_cores() -> None:
    assert plain_binding((6, 12), 9) == (3, 3)
    assert plain_binding((6, 12), 1) == (1, 1)
    assert core_count(plain_binding((), 8)) == 1


def stages() -> Schedule:
    builder, result = halving_stages()
    return schedule(builder.graph(result), builder.layers, accelerator(HALVING_LOCAL_BYTES))


def test_instances_of_the_stages_run_on_all_cores() -> None:
    found = stages()
    assert [core_count(found.binding(i)) for i in range(len(found.graph))] == [8] * 15
    assert found.binding(0) == (1, 8, 1, 1)
    assert found.binding(14) == (8, 1, 1, 1)


def test_tensors_between_instances_are_in_local_buffers_and_results_in_ddr() -> None:
    found = stages()
    result = found.graph.groups[-1].subgraph.primary
    assert found.bindings.scope[14, result] is Level.DDR
    assert {scope for (i, _), scope in found.bindings.scope.items() if i < 14} == {Level.LB}


def apart(builder: Builder, *outputs: int) -> InstanceGraph:
    """Each layer a sub-graph of its own, in one instance."""
    network, device = Network(builder.graph(*outputs)), accelerator(1 << 20)
    groups = []
    for layer in builder.layers:
        own = sub_graph(network, [layer])
        options = splits_of(network, own, device)
        groups.append(Group(own, options[0], options))
    return instance_graph(network, groups)


def turned(builder: Builder, x: int) -> int:
    return builder.add("Transpose", [x], (8, 8), perm=(1, 0))


def test_a_consumer_says_how_it_wants_its_input() -> None:
    """Its rows are the columns of x."""
    builder = Builder()
    x = builder.relu(builder.value((8, 8)))
    found = infer_bindings(apart(builder, turned(builder, x)), (0, 1), 8)
    assert (found.binding[0, x], found.scope[0, x]) == ((1, 8), Level.LB)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_a_binding_that_two_consumers_want_differently_costs_the_local_buffer(order: tuple[int, ...]) -> None:
    """One consumer cuts rows, the other columns; x is then bound plainly."""
    builder = Builder()
    x = builder.relu(builder.value((8, 8)))
    graph = apart(builder, builder.relu(x), turned(builder, x))
    found = infer_bindings(graph, order, 8)
    assert (found.binding[0, x], found.scope[0, x]) == ((8, 1), Level.GB)
