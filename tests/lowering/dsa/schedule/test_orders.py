"""Instances of Fig. 6, and their orders of Fig. 7."""

from __future__ import annotations

from eqfuse.costmodels.dsa_device import load_dsa_device
from eqfuse.lowering.dsa.schedule.instances import InstanceGraph
from eqfuse.lowering.dsa.schedule.orders import better_order, bfs_order, dfs_order, memory_use

from ..graphs import HALVING_LOCAL_BYTES, accelerator, halving_stages, resnet50
from ..scheduled import schedule

NAMES = [*(f"a{i}" for i in range(1, 9)), "b1", "b2", "b3", "b4", "c1", "c2", "d1"]


def stages() -> InstanceGraph:
    builder, result = halving_stages()
    return schedule(builder.graph(result), builder.layers, accelerator(HALVING_LOCAL_BYTES)).graph


def test_figure_6_has_these_edges_and_no_others() -> None:
    graph = stages()
    edges = {NAMES[i]: {NAMES[p] for p in sources} for i, sources in enumerate(graph.producers) if sources}
    assert edges == {
        "b1": {"a1", "a2"}, "b2": {"a3", "a4"}, "b3": {"a5", "a6"}, "b4": {"a7", "a8"},
        "c1": {"b1", "b2"}, "c2": {"b3", "b4"}, "d1": {"c1", "c2"},
    }  # fmt: skip


def test_figure_7a_is_the_order_of_bfs() -> None:
    assert [NAMES[i] for i in bfs_order(stages())] == NAMES


def test_figure_7f_is_the_order_of_dfs() -> None:
    expected = "a8 a7 b4 a6 a5 b3 c2 a4 a3 b2 a2 a1 b1 c1 d1"
    assert " ".join(NAMES[i] for i in dfs_order(stages())) == expected


def test_figure_3b_is_when_each_stage_runs() -> None:
    order = dfs_order(stages())
    times = {name: [t for t, i in enumerate(order, 1) if NAMES[i][0] == name] for name in "abcd"}
    assert times == {"a": [1, 2, 4, 5, 8, 9, 11, 12], "b": [3, 6, 10, 13], "c": [7, 14], "d": [15]}


def test_dfs_keeps_less_and_is_chosen() -> None:
    graph = stages()
    assert memory_use(graph, dfs_order(graph)) < memory_use(graph, bfs_order(graph))
    assert better_order(graph) == dfs_order(graph)


def test_bfs_keeps_all_of_the_first_stage() -> None:
    """Eight outputs of the first stage and the first of the second."""
    graph = stages()
    output = graph.network.bytes(graph.groups[0].subgraph.primary)
    assert memory_use(graph, bfs_order(graph)).peak == output + output // 8


def test_resnet_50_runs_in_the_order_of_figure_3b() -> None:
    builder, result = resnet50(8)
    found = schedule(builder.graph(result), builder.layers, load_dsa_device("stcp920-1mb"))
    stage_at = [found.graph.instances[i].subgraph + 1 for i in found.order]
    assert stage_at == [1, 1, 2, 1, 1, 2, 3, 1, 1, 2, 1, 1, 2, 3, 4]
