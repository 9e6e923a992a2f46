"""Shrink an extraction problem without losing an optimal extraction.

In turn: candidates that read their own class, or a class that has no finite extraction, go; classes that cost nothing
leave the problem; then, until nothing changes, candidates that another of their class dominates go (see dominance.py,
which also tells the classes that every extraction contains: the forced ones), forced classes are dropped as children
of others, for they are paid for anyway, and what nothing reads any more and has no choice left is settled.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..support.deadlines import OutOfTime
from .dominance import sweep
from .graph import (
    Graph,
    Option,
    connected_components,
    drop_unextractable,
    extraction_ranks,
    restrict_to_reachable,
)
from .problem import ExtractionError, Problem


@dataclass(frozen=True)
class Reduced:
    """What is left of a problem.

    graph: options by class, in the order of the candidates; their children are the classes of the graph that the
    choice still concerns: not forced, or in the same strongly connected component.
    forced: the classes of the graph that every extraction contains; all others are reached from them.
    connected: the strongly connected components of the graph, children first.
    settled: for the classes that left the graph and may be needed, the candidate to take.
    settled_cost: the cost of those that every extraction contains; the others cost nothing.
    usable: every option that has a finite extraction, as before all other reductions.
    """

    graph: Graph
    forced: frozenset[int]
    connected: tuple[tuple[int, ...], ...]
    settled: Mapping[int, int]
    settled_cost: float
    usable: Graph


def reduce(problem: Problem, deadline: float = math.inf) -> Reduced:
    """Reduce a problem as far as that goes before the deadline (time.monotonic).

    Raises ExtractionError if a root has no acyclic extraction.
    """
    usable = drop_unextractable(drop_self_cyclic(problem))
    _require_roots(problem, usable)
    graph, leaves = take_out_leaves(usable)
    forced = frozenset(root for root in problem.roots if root not in leaves)
    graph = restrict_to_reachable(graph, forced)
    settled: dict[int, Option] = {}
    while True:
        connected = connected_components(graph)
        try:
            smaller, required = sweep(graph, connected, forced, deadline)
        except OutOfTime:
            break
        smaller = drop_forced_children(smaller, connected, required)
        fresh = frozenset(settled_classes(smaller, connected, required))
        settled.update((number, smaller[number][0]) for number in fresh)
        required -= fresh
        smaller = restrict_to_reachable(smaller, required)
        if required == forced and smaller == graph:
            break
        graph, forced = smaller, required
    choice = {**leaves, **{number: option.candidate for number, option in settled.items()}}
    return Reduced(graph, forced, connected, choice, math.fsum(option.cost for option in settled.values()), usable)


def settled_classes(graph: Graph, connected: Sequence[Sequence[int]], forced: frozenset[int]) -> Iterator[int]:
    """The forced classes that leave nothing to decide, in themselves or below, and that nothing reads any more."""
    for component in connected:
        number = component[0]
        if len(component) == 1 and number in forced and len(graph[number]) == 1 and not graph[number][0].children:
            yield number


def drop_forced_children(graph: Graph, connected: Sequence[Sequence[int]], forced: frozenset[int]) -> Graph:
    """Options without the children that are forced, unless a cycle could run through both."""
    home = {member: number for number, members in enumerate(connected) for member in members}
    return {
        number: tuple(
            _without(option, [child for child in option.children if child in forced and home[child] != home[number]])
            for option in options
        )
        for number, options in graph.items()
    }


def drop_self_cyclic(problem: Problem) -> Graph:
    """All candidates but those that read their own class."""
    return {
        number: tuple(
            Option(index, candidate.cost, frozenset(candidate.children))
            for index, candidate in enumerate(candidates)
            if number not in candidate.children
        )
        for number, candidates in enumerate(problem.classes)
    }


def _require_roots(problem: Problem, graph: Graph) -> None:
    missing = sorted({root for root in problem.roots if root not in graph})
    if missing:
        raise ExtractionError(
            f"extraction: root e-classes {missing} have no acyclic extraction; "
            "every root needs a candidate that is built from leaves without going through itself"
        )


def take_out_leaves(graph: Graph) -> tuple[Graph, dict[int, int]]:
    """Split off the classes that can be had for nothing, with their candidates: they are no one's concern."""
    free_graph = {number: tuple(option for option in options if option.cost == 0) for number, options in graph.items()}
    ranks = extraction_ranks(free_graph)
    leaves = {number: _leaf_choice(free_graph[number], ranks, rank) for number, rank in ranks.items()}
    gone = frozenset(leaves)
    rest = {
        number: tuple(_without(option, option.children & gone) for option in options)
        for number, options in graph.items()
        if number not in gone
    }
    return rest, leaves


def _leaf_choice(options: tuple[Option, ...], ranks: Mapping[int, int], rank: int) -> int:
    return next(
        option.candidate
        for option in options
        if all(child in ranks and ranks[child] < rank for child in option.children)
    )


def _without(option: Option, gone: Collection[int]) -> Option:
    return Option(option.candidate, option.cost, option.children.difference(gone)) if gone else option
