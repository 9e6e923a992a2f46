"""The working form of an e-graph: the options that are still in play, by class.

Classes keep the numbers they have in the problem, options the index of their candidate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...support.directed_graphs import strongly_connected_components


class Option(NamedTuple):
    """A candidate still in play: its index in the class of the problem, its cost, its distinct children."""

    candidate: int
    cost: float
    children: frozenset[int]


Graph = Mapping[int, tuple[Option, ...]]


def strongly_connected_classes(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """The strongly connected components of the e-graph (a class leads to the children of all its options)."""
    successors = {number: frozenset().union(*(option.children for option in graph[number])) for number in graph}
    return tuple(map(tuple, strongly_connected_components(successors)))


def extraction_ranks(graph: Graph) -> dict[int, int]:
    """Number the classes that have a finite extraction so that each has an option whose children come before it."""
    owners: list[int] = []
    missing: list[int] = []
    readers: dict[int, list[int]] = {}
    ranks: dict[int, int] = {}
    for number, options in graph.items():
        for option in options:
            if not option.children:
                ranks.setdefault(number, len(ranks))
                continue
            for child in option.children:
                readers.setdefault(child, []).append(len(owners))
            owners.append(number)
            missing.append(len(option.children))
    queue = deque(ranks)
    while queue:
        for option_number in readers.get(queue.popleft(), ()):
            missing[option_number] -= 1
            owner = owners[option_number]
            if not missing[option_number] and owner not in ranks:
                ranks[owner] = len(ranks)
                queue.append(owner)
    return ranks


def drop_unextractable(graph: Graph) -> Graph:
    """Only the classes that have a finite extraction, and the options whose children all have one."""
    ranks = extraction_ranks(graph)
    if len(ranks) == len(graph):
        return graph
    return {
        number: tuple(option for option in options if option.children <= ranks.keys())
        for number, options in graph.items()
        if number in ranks
    }


def restrict_to_reachable(graph: Graph, roots: Iterable[int]) -> Graph:
    """Only the classes that some choice of options reaches from the roots, in the order of the graph."""
    seen = set(roots)
    stack = list(roots)
    while stack:
        for option in graph[stack.pop()]:
            fresh = option.children - seen
            seen |= fresh
            stack.extend(fresh)
    return {number: options for number, options in graph.items() if number in seen}
