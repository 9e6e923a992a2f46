"""Strongly connected components and cycles, against reachability."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eqfuse.extract.cycles import is_acyclic, short_cycles, strongly_connected

GRAPHS = st.integers(1, 8).flatmap(
    lambda count: st.fixed_dictionaries(
        {number: st.lists(st.integers(0, count - 1), max_size=3) for number in range(count)}
    )
)
Graph = dict[int, list[int]]


def reachable(graph: Graph, start: int) -> set[int]:
    """The nodes that at least one step leads to."""
    seen: set[int] = set()
    stack = list(graph[start])
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(graph[node])
    return seen


@given(GRAPHS)
def test_components_are_the_classes_of_mutual_reachability(graph: Graph) -> None:
    below = {node: reachable(graph, node) | {node} for node in graph}
    expected = {frozenset(other for other in graph if other in below[node] and node in below[other]) for node in graph}
    assert {frozenset(component) for component in strongly_connected(graph)} == expected


@given(GRAPHS)
def test_components_come_successors_first(graph: Graph) -> None:
    seen: set[int] = set()
    for component in strongly_connected(graph):
        seen.update(component)
        assert all(following in seen for node in component for following in graph[node])


@given(GRAPHS)
def test_cycles_are_found_if_and_only_if_a_node_reaches_itself(graph: Graph) -> None:
    assert is_acyclic(graph) == (not any(node in reachable(graph, node) for node in graph))
    assert bool(short_cycles(graph)) != is_acyclic(graph)


@given(GRAPHS)
def test_every_cycle_closes(graph: Graph) -> None:
    for cycle in short_cycles(graph):
        assert all(following in graph[node] for node, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True))


def test_a_long_path_needs_no_recursion() -> None:
    assert len(strongly_connected({node: [node + 1] for node in range(50_000)})) == 50_000
