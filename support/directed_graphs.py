"""Directed graphs, given as each node's successors: components, cycles, orders and dominators, by rustworkx.

Successors that are no key of the mapping are ignored. Results depend on the order of the mapping and of the successors
alone, never on hash seeds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import rustworkx

Node = TypeVar("Node")
Successors = Mapping[Node, Iterable[Node]]

_CYCLES_PER_COMPONENT = 16
"""The most nodes of a component from which `short_cycles` starts: each cycle becomes a clause of an exact solver."""


class CycleError(ValueError):
    """A graph that was to be ordered has a cycle."""


def strongly_connected_components(successors: Successors[Node]) -> list[list[Node]]:
    """The strongly connected components, each after those that it leads to; nodes in the order of the mapping."""
    nodes = list(successors)
    components = rustworkx.strongly_connected_components(_graph(successors))
    return [[nodes[index] for index in sorted(component)] for component in components]


def connected_components(successors: Successors[Node]) -> list[list[Node]]:
    """The components that edges connect in whichever direction; nodes, and components by their first nodes, in the
    order of the mapping."""
    nodes = list(successors)
    components = map(sorted, rustworkx.weakly_connected_components(_graph(successors)))
    return [[nodes[index] for index in component] for component in sorted(components)]


def is_acyclic(successors: Successors[Node]) -> bool:
    """Whether no node reaches itself."""
    return rustworkx.is_directed_acyclic_graph(_graph(successors))


def topological_order(successors: Successors[Node], key: Callable[[Node], Any]) -> list[Node]:
    """All nodes, each before its successors; of those that can be next, the one with the least key.

    Keys are distinct. Raises CycleError if a node reaches itself.
    """
    place = {node: f"{index:09}" for index, node in enumerate(sorted(successors, key=key))}
    order = list(rustworkx.lexicographical_topological_sort(_graph(successors), key=place.__getitem__))
    if len(order) < len(place):  # rustworkx leaves out nodes on a cycle or behind it
        raise CycleError("the graph has a cycle, so its nodes have no order")
    return order


def immediate_dominators(successors: Successors[Node], start: Node) -> dict[Node, Node]:
    """For each node that `start` reaches, but itself, the last node that all paths from `start` to it go through."""
    nodes = list(successors)
    dominators = rustworkx.immediate_dominators(_graph(successors), nodes.index(start))
    return {nodes[index]: nodes[dominator] for index, dominator in dominators.items() if nodes[index] != start}


def cyclic_components(successors: Successors[Node]) -> list[list[Node]]:
    """The strongly connected components that hold a cycle: several nodes, or one that follows itself."""
    return [
        component
        for component in strongly_connected_components(successors)
        if len(component) > 1 or component[0] in successors[component[0]]
    ]


def short_cycles(successors: Successors[int]) -> list[tuple[int, ...]]:
    """Some cycles, none if and only if there is none: from every cyclic component, the shortest through a few nodes.

    A cycle is given in the direction of the successors, starting at its smallest node.
    """
    cycles: dict[tuple[int, ...], None] = {}
    for component in cyclic_components(successors):
        members = set(component)
        for start in sorted(component)[:_CYCLES_PER_COMPONENT]:
            cycle = _shortest_cycle(start, members, successors)
            first = cycle.index(min(cycle))
            cycles[cycle[first:] + cycle[:first]] = None
    return list(cycles)


def find_short_cycle(edges: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The positions of the edges of the shortest of `short_cycles`, along it; () if there is none."""
    successors: dict[int, list[int]] = {}
    for tail, head in edges:
        successors.setdefault(tail, []).append(head)
    cycle = min(short_cycles(successors), key=len, default=())
    positions = {edge: position for position, edge in enumerate(edges)}
    return tuple(positions[edge] for edge in zip(cycle, (*cycle[1:], *cycle[:1]), strict=True))


def _shortest_cycle(start: int, members: set[int], successors: Successors[int]) -> tuple[int, ...]:
    """The shortest cycle through a node of a cyclic component, by breadth-first search."""
    previous: dict[int, int] = {}
    queue = deque([start])
    while start not in previous:
        node = queue.popleft()
        for following in successors[node]:
            if following in members and following not in previous:
                previous[following] = node
                queue.append(following)
    path = [previous[start]]
    while path[-1] != start:
        path.append(previous[path[-1]])
    return tuple(reversed(path))


def _graph(successors: Successors[Node]) -> rustworkx.PyDiGraph[Node, None]:
    """The graph of rustworkx; indices are positions in the mapping."""
    index = {node: position for position, node in enumerate(successors)}
    graph: rustworkx.PyDiGraph[Node, None] = rustworkx.PyDiGraph()
    graph.add_nodes_from(list(successors))
    graph.add_edges_from_no_data(
        [(tail, index[node]) for tail, heads in enumerate(successors.values()) for node in heads if node in index]
    )
    return graph
