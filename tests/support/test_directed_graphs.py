"""Directed graphs: components, cycles, orders and dominators, against reachability."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.support.directed_graphs import (
    CycleError,
    connected_components,
    find_short_cycle,
    immediate_dominators,
    is_acyclic,
    short_cycles,
    strongly_connected_components,
    topological_order,
)

Graph = dict[int, list[int]]


def numbered_graphs(count: int) -> st.SearchStrategy[Graph]:
    """Nodes in any order, edges to any of them, and to one more that is no node."""
    edges = st.lists(st.integers(0, count), max_size=3)
    return st.permutations(range(count)).flatmap(lambda nodes: st.fixed_dictionaries(dict.fromkeys(nodes, edges)))


GRAPHS = st.integers(1, 8).flatmap(numbered_graphs)


def reachable(graph: Graph, start: int, without: int = -1) -> set[int]:
    """The nodes that at least one step leads to, none of them over the node `without`."""
    seen: set[int] = set()
    stack = [start]
    while stack:
        node = stack.pop()
        fresh = {following for following in graph[node] if following in graph and following != without} - seen
        seen |= fresh
        stack.extend(fresh)
    return seen


def drop_cycles(graph: Graph) -> Graph:
    return {node: [following for following in graph[node] if following > node] for node in graph}


@given(GRAPHS)
def test_strong_components_are_mutually_reachable_and_come_successors_first(graph: Graph) -> None:
    below = {node: reachable(graph, node) | {node} for node in graph}
    expected = {frozenset(other for other in graph if other in below[node] and node in below[other]) for node in graph}
    components = strongly_connected_components(graph)
    assert {frozenset(component) for component in components} == expected
    place = list(graph)
    assert all(component == sorted(component, key=place.index) for component in components)
    seen: set[int] = set()
    for component in components:
        seen.update(component)
        assert all(following in seen for node in component for following in graph[node] if following in graph)


@given(GRAPHS)
def test_components_are_reachable_along_edges_either_way(graph: Graph) -> None:
    both = {n: [m for m in graph if m in graph[n] or n in graph[m]] for n in graph}
    components = connected_components(graph)
    place = list(graph)
    expected = {tuple(sorted(reachable(both, node) | {node}, key=place.index)) for node in graph}
    assert [tuple(component) for component in components] == sorted(expected, key=lambda nodes: place.index(nodes[0]))


@given(GRAPHS)
def test_cycles_are_found_if_and_only_if_a_node_reaches_itself(graph: Graph) -> None:
    assert is_acyclic(graph) == (not any(node in reachable(graph, node) for node in graph))
    cycles = short_cycles(graph)
    assert bool(cycles) != is_acyclic(graph)
    for cycle in cycles:
        assert all(following in graph[node] for node, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
    edges = [(node, following) for node in graph for following in graph[node]]
    along = [edges[position][0] for position in find_short_cycle(edges)]
    with_edges = {node: following for node, following in graph.items() if following}
    assert tuple(along) == min(short_cycles(with_edges), key=len, default=())
    assert len(along) == min(map(len, cycles), default=0)


@given(GRAPHS)
def test_an_order_takes_the_least_key_that_is_ready(graph: Graph) -> None:
    if not is_acyclic(graph):
        with pytest.raises(CycleError):
            topological_order(graph, key=int)
    acyclic = drop_cycles(graph)
    left = set(acyclic)
    for node in topological_order(acyclic, key=lambda node: -node):
        ready = {one for one in left if not any(one in acyclic[other] for other in left)}
        assert node == max(ready)
        left.remove(node)
    assert not left


@given(GRAPHS)
def test_a_dominator_is_the_last_node_that_no_path_avoids(graph: Graph) -> None:
    start = next(iter(graph))
    below = reachable(graph, start) - {start}
    dominators = immediate_dominators(graph, start)
    strict = {n: {d for d in below - {n} if n not in reachable(graph, start, without=d)} | {start} for n in below}
    assert dominators == {n: max(strict[n], key=lambda d: len(strict.get(d, ()))) for n in below}


def test_a_long_path_needs_no_recursion() -> None:
    path = {node: [node + 1] for node in range(50_000)}
    assert len(strongly_connected_components(path)) == 50_000
    assert topological_order(path, key=int) == list(path)
