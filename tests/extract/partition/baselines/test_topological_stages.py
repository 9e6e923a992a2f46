"""Stages of a graph of hyper nodes, kept up to date merge by merge; AGO's Theorem 1."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.extract.partition.baselines.clustering import StagedGraph

from ..dags import Edges, edges, stages


@given(edges())
def test_stages_are_longest_paths(predecessors: Edges) -> None:
    assert StagedGraph(predecessors).levels() == stages(predecessors, range(len(predecessors)))


@given(edges(), st.randoms(use_true_random=False))
def test_any_affix_pair_may_merge_and_the_stages_stay_exact(predecessors: Edges, random: Random) -> None:
    """Theorem 1 for one pair at a time, joined by an edge or not: `stages` raises where there is a cycle."""
    graph, labels = StagedGraph(predecessors), list(range(len(predecessors)))
    while pairs := [pair for pair in combinations(sorted(set(labels)), 2) if graph.is_affix(*pair)]:
        pair = random.choice(pairs)
        merged = graph.merge(*pair)
        labels = [merged if label in pair else label for label in labels]
        assert graph.levels() == stages(predecessors, labels)


@given(edges())
def test_neighbours_are_the_affix_nodes_that_an_edge_connects(predecessors: Edges) -> None:
    graph = StagedGraph(predecessors)
    for node in range(len(predecessors)):
        beside = graph.predecessors[node] | graph.successors[node]
        assert sorted(graph.neighbours(node)) == sorted(n for n in beside if graph.is_affix(node, n))


def test_edges_of_merged_nodes_are_united() -> None:
    graph = StagedGraph([[], [0], [0], [1, 2]])
    merged = graph.merge(0, 1)
    assert graph.successors[merged] == {2, 3}
    assert graph.predecessors[3] == {merged, 2}


@pytest.mark.parametrize(("predecessors", "second"), [([[], [0], [0, 1]], 2), ([[], []], 1)])
def test_nodes_that_are_not_affix_do_not_merge(predecessors: Edges, second: int) -> None:
    with pytest.raises(ValueError, match=f"the stages of 0 and {second} do not differ by one"):
        StagedGraph(predecessors).merge(0, second)


def test_a_merge_may_lengthen_the_longest_path() -> None:
    graph = StagedGraph([[], [], [0, 1], [0]])
    graph.merge(0, 2)
    assert [len(level) for level in graph.levels()] == [1, 1, 1]


def test_a_graph_without_nodes_has_no_stages() -> None:
    assert StagedGraph([]).levels() == []
