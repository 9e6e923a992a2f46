"""The merging patterns of a graph of sub-graphs (GraphTurbo, OSDI 2023, Fig. 4): straight, diamond, branch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Straight:
    """SG1 is the only producer of SG2, and SG2 the only consumer of SG1."""

    first: int
    second: int


@dataclass(frozen=True)
class Diamond:
    """Two or more paths from an entry to an exit, and no other way in or out of what is `inside`, ascending."""

    entry: int
    inside: tuple[int, ...]
    exit: int


@dataclass(frozen=True)
class Branch:
    """An exit with several producers, of which `second` (SG2) has no other consumer."""

    second: int
    exit: int


class Quotient:
    """A graph of sub-graphs that can be merged. Nodes are numbers; merged ones take the number of the last."""

    def __init__(self, edges: Mapping[int, Iterable[int]]) -> None:
        """`edges`: every node, in a topological order, with its consumers."""
        self.consumers = {node: set(users) for node, users in edges.items()}
        self.producers: dict[int, set[int]] = {node: set() for node in edges}
        for node, users in edges.items():
            for user in users:
                self.producers[user].add(node)

    def order(self) -> tuple[int, ...]:
        """The nodes in a topological order, by number where there is a choice at the start."""
        waiting = {node: len(sources) for node, sources in self.producers.items()}
        ready = sorted((node for node, count in waiting.items() if not count), reverse=True)
        found: list[int] = []
        while ready:
            node = ready.pop()
            found.append(node)
            for user in sorted(self.consumers[node], reverse=True):
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        return tuple(found)

    def merge(self, nodes: Iterable[int]) -> int:
        """Make several nodes the last of them."""
        merged = tuple(nodes)
        result = merged[-1]
        sources = set().union(*(self.producers.pop(n) for n in merged)) - set(merged)
        users = set().union(*(self.consumers.pop(n) for n in merged)) - set(merged)
        self.producers[result], self.consumers[result] = sources, users
        for source in sources:
            self.consumers[source] = self.consumers[source] - set(merged) | {result}
        for user in users:
            self.producers[user] = self.producers[user] - set(merged) | {result}
        return result


def straights(graph: Quotient) -> Iterator[Straight]:
    """Straight patterns in topological order (Fig. 4a)."""
    for node in graph.order():
        users = graph.consumers[node]
        if len(users) == 1:
            (user,) = users
            if graph.producers[user] == {node}:
                yield Straight(node, user)


def diamonds(graph: Quotient) -> Iterator[Diamond]:
    """Diamond patterns in the topological order of their exits (Fig. 4b).

    The entry is the exit's immediate dominator: everything between is reached through it alone.
    """
    order = graph.order()
    dominators = _immediate_dominators(graph, order)
    position = {node: index for index, node in enumerate(order)}
    for node in order:
        entry = dominators[node]
        if len(graph.producers[node]) > 1 and entry is not None:
            inside = _between(graph, entry, node)
            if all(graph.consumers[n] <= inside | {node} for n in inside):
                yield Diamond(entry, tuple(sorted(inside, key=position.__getitem__)), node)


def branches(graph: Quotient) -> Iterator[Branch]:
    """Branch patterns (Fig. 4c) in the topological order of their exits, the latest producer of each first."""
    order = graph.order()
    position = {node: index for index, node in enumerate(order)}
    for node in order:
        if len(graph.producers[node]) > 1:
            for producer in sorted(graph.producers[node], key=position.__getitem__, reverse=True):
                if graph.consumers[producer] == {node}:
                    yield Branch(producer, node)


def _between(graph: Quotient, entry: int, end: int) -> set[int]:
    found: set[int] = set()
    waiting = [end]
    while waiting:
        for source in graph.producers[waiting.pop()]:
            if source != entry and source not in found:
                found.add(source)
                waiting.append(source)
    return found


def _immediate_dominators(graph: Quotient, order: Iterable[int]) -> dict[int, int | None]:
    """Per node, the last one that all paths to it share; None where there is none. One pass: there are no cycles."""
    found: dict[int, int | None] = {}
    depth: dict[int | None, int] = {None: 0}
    for node in order:
        dominator = _common(graph.producers[node], found, depth)
        found[node], depth[node] = dominator, depth[dominator] + 1
    return found


def _common(nodes: Iterable[int], above: Mapping[int, int | None], depth: Mapping[int | None, int]) -> int | None:
    found: list[int | None] = [*nodes]
    first = found[0] if found else None
    for second in found[1:]:
        while first != second:
            if depth[first] >= depth[second] and first is not None:
                first = above[first]
            elif second is not None:
                second = above[second]
    return first
