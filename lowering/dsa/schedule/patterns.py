"""The merging patterns of a graph of sub-graphs (GraphTurbo, OSDI 2023, Fig. 4): straight, diamond, branch.

A pattern is given by the nodes that become one, in a topological order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ....support.directed_graphs import immediate_dominators

Pattern = tuple[int, ...]
_ROOT = -1
"""Stands before all nodes without producers: dominators need one start."""


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
        """The nodes in a topological order: depth first, by number where several are ready at once."""
        waiting = {node: len(sources) for node, sources in self.producers.items()}
        ready = sorted((node for node, count in waiting.items() if not count), reverse=True)
        order: list[int] = []
        while ready:
            node = ready.pop()
            order.append(node)
            for user in sorted(self.consumers[node], reverse=True):
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        return tuple(order)

    def merge(self, nodes: Pattern) -> int:
        """Make several nodes the last of them."""
        result, merged = nodes[-1], set(nodes)
        sources = set().union(*(self.producers.pop(node) for node in nodes)) - merged
        users = set().union(*(self.consumers.pop(node) for node in nodes)) - merged
        self.producers[result], self.consumers[result] = sources, users
        for source in sources:
            self.consumers[source] = self.consumers[source] - merged | {result}
        for user in users:
            self.producers[user] = self.producers[user] - merged | {result}
        return result


def straights(graph: Quotient) -> Iterator[Pattern]:
    """SG1 and SG2 where one is the only producer and the other its only consumer (Fig. 4a), in topological order."""
    for node in graph.order():
        for user in graph.consumers[node]:
            if graph.consumers[node] == {user} and graph.producers[user] == {node}:
                yield node, user


def diamonds(graph: Quotient) -> Iterator[Pattern]:
    """Exits with the nodes between an entry and them, in the topological order of the exits (Fig. 4b).

    Two or more paths lead from the entry to the exit, and no other way into or out of the nodes between: the entry is
    the exit's immediate dominator, so these are reached through it alone.
    """
    order = graph.order()
    starts = [node for node in order if not graph.producers[node]]
    dominators = immediate_dominators({_ROOT: starts, **{node: graph.consumers[node] for node in order}}, _ROOT)
    position = {node: index for index, node in enumerate(order)}
    for node in order:
        if len(graph.producers[node]) > 1 and dominators[node] != _ROOT:
            inside = _between(graph, dominators[node], node)
            if all(graph.consumers[n] <= inside | {node} for n in inside):
                yield *sorted(inside, key=position.__getitem__), node


def branches(graph: Quotient) -> Iterator[Pattern]:
    """SG2, which has no other consumer, and its exit, which has other producers (Fig. 4c).

    They come in the topological order of the exits, the latest producer of each first.
    """
    order = graph.order()
    position = {node: index for index, node in enumerate(order)}
    for node in order:
        if len(graph.producers[node]) > 1:
            for producer in sorted(graph.producers[node], key=position.__getitem__, reverse=True):
                if graph.consumers[producer] == {node}:
                    yield producer, node


def _between(graph: Quotient, entry: int, end: int) -> set[int]:
    inside: set[int] = set()
    waiting = [end]
    while waiting:
        new = graph.producers[waiting.pop()] - inside - {entry}
        inside |= new
        waiting += new
    return inside
