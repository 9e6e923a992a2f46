"""Cycles: strongly connected components of an e-graph, and the cycles of a selection."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

Successors = Mapping[int, Iterable[int]]

# Cycles reported from one strongly connected component of a selection: each becomes a clause of the exact solvers.
_CYCLES_PER_COMPONENT = 16


def strongly_connected(successors: Successors) -> list[list[int]]:
    """The strongly connected components, successors first (Tarjan 1972, without recursion).

    Successors that are no key of the mapping are ignored.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    done: set[int] = set()
    found: list[list[int]] = []
    for start in successors:
        if start in index:
            continue
        index[start] = low[start] = len(index)
        stack.append(start)
        path = [(start, iter(successors[start]))]
        while path:
            node, rest = path[-1]
            following = _next_unvisited(node, rest, successors, index, low, done)
            if following is not None:
                index[following] = low[following] = len(index)
                stack.append(following)
                path.append((following, iter(successors[following])))
                continue
            path.pop()
            if path:
                parent = path[-1][0]
                low[parent] = min(low[parent], low[node])
            if low[node] == index[node]:
                found.append(_pop_component(node, stack, done))
    return found


def _next_unvisited(
    node: int, rest: Iterator[int], successors: Successors, index: dict[int, int], low: dict[int, int], done: set[int]
) -> int | None:
    for following in rest:
        seen = index.get(following)
        if seen is None:
            if following in successors:
                return following
        elif following not in done and seen < low[node]:
            low[node] = seen
    return None


def _pop_component(node: int, stack: list[int], done: set[int]) -> list[int]:
    component = []
    while True:
        member = stack.pop()
        done.add(member)
        component.append(member)
        if member == node:
            return component


def cyclic_components(successors: Successors) -> list[list[int]]:
    """The strongly connected components that hold a cycle: several nodes, or one that follows itself."""
    return [
        component
        for component in strongly_connected(successors)
        if len(component) > 1 or component[0] in successors[component[0]]
    ]


def is_acyclic(successors: Successors) -> bool:
    """Whether no node reaches itself."""
    return not cyclic_components(successors)


def short_cycles(successors: Successors) -> list[tuple[int, ...]]:
    """Some cycles, none if and only if there is none: from every cyclic component, the shortest through a few nodes.

    A cycle is given in the direction of the successors, starting at its smallest node.
    """
    cycles: dict[tuple[int, ...], None] = {}
    for component in cyclic_components(successors):
        members = set(component)
        for start in sorted(component)[:_CYCLES_PER_COMPONENT]:
            cycles.setdefault(_rotated(_shortest_cycle(start, members, successors)))
    return list(cycles)


def _shortest_cycle(start: int, members: set[int], successors: Successors) -> tuple[int, ...]:
    previous: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for following in successors[node]:
            if following == start:
                return _path_back(node, start, previous)
            if following in members and following not in previous:
                previous[following] = node
                queue.append(following)
    raise AssertionError("every node of a cyclic component lies on a cycle")


def _path_back(node: int, start: int, previous: Mapping[int, int]) -> tuple[int, ...]:
    path = [node]
    while path[-1] != start:
        path.append(previous[path[-1]])
    return tuple(reversed(path))


def _rotated(cycle: tuple[int, ...]) -> tuple[int, ...]:
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]
