"""Shrink an extraction problem without losing an optimal extraction.

In turn: candidates that read their own class, or a class that has no finite extraction, are dropped; classes that cost
nothing leave the problem; then, until nothing changes, candidates that another of their class dominates are dropped
(see dominance.py, which also finds the forced classes: those that every extraction contains), forced classes are
dropped as children of others, for they are paid for anyway, and classes without readers and choices are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...support.deadlines import OutOfTime
from .dominance import drop_dominated_options
from .options import (
    Graph,
    Option,
    drop_unextractable,
    extraction_ranks,
    restrict_to_reachable,
    strongly_connected_classes,
)
from .problem import ExtractionError, Problem


@dataclass(frozen=True)
class Reduced:
    """The rest of a problem.

    graph: options by class, in the order of the candidates; their children are the classes of the graph that the
    choice still concerns: not forced, or in the same strongly connected component.
    forced: the classes of the graph that every extraction contains; all others are reached from them.
    fixed: for the classes that left the graph and may be needed, the candidate to take.
    fixed_cost: the cost of those that every extraction contains; the others cost nothing.
    usable: every option that has a finite extraction, as before all other reductions.
    """

    graph: Graph
    forced: frozenset[int]
    fixed: Mapping[int, int]
    fixed_cost: float
    usable: Graph


def reduce(problem: Problem, deadline: float = math.inf) -> Reduced:
    """Reduce a problem as far as that goes before the deadline (time.monotonic).

    Raises ExtractionError if a root has no acyclic extraction.
    """
    usable = drop_unextractable(drop_self_cyclic(problem))
    missing = sorted(set(problem.roots) - usable.keys())
    if missing:
        raise ExtractionError(
            f"extraction: root e-classes {missing} have no acyclic extraction; "
            "every root needs a candidate that is built from leaves without going through itself"
        )
    graph, free = split_off_free_classes(usable)
    forced = frozenset(root for root in problem.roots if root not in free)
    graph = restrict_to_reachable(graph, forced)
    fixed: dict[int, Option] = {}
    while True:
        components = strongly_connected_classes(graph)
        try:
            smaller, required = drop_dominated_options(graph, components, forced, deadline)
        except OutOfTime:
            break
        smaller = drop_forced_children(smaller, components, required)
        fresh = frozenset(find_fixed_classes(smaller, components, required))
        fixed.update((number, smaller[number][0]) for number in fresh)
        required -= fresh
        smaller = restrict_to_reachable(smaller, required)
        if required == forced and smaller == graph:
            break
        graph, forced = smaller, required
    choice = {**free, **{number: option.candidate for number, option in fixed.items()}}
    return Reduced(graph, forced, choice, math.fsum(option.cost for option in fixed.values()), usable)


def find_fixed_classes(graph: Graph, components: Sequence[Sequence[int]], forced: frozenset[int]) -> Iterator[int]:
    """The forced classes that leave nothing to decide, in themselves or below, and that no class reads any more."""
    for component in components:
        number = component[0]
        if len(component) == 1 and number in forced and len(graph[number]) == 1 and not graph[number][0].children:
            yield number


def drop_forced_children(graph: Graph, components: Sequence[Sequence[int]], forced: frozenset[int]) -> Graph:
    """Options without the children that are forced, unless a cycle could run through both."""
    home = {member: number for number, members in enumerate(components) for member in members}
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


def split_off_free_classes(graph: Graph) -> tuple[Graph, dict[int, int]]:
    """Split off the classes that cost nothing, with their candidates: no other class depends on their choice."""
    free_graph = {number: tuple(option for option in options if option.cost == 0) for number, options in graph.items()}
    ranks = extraction_ranks(free_graph)
    choice = {
        number: next(o.candidate for o in free_graph[number] if all(ranks.get(c, rank) < rank for c in o.children))
        for number, rank in ranks.items()
    }
    rest = {
        number: tuple(_without(option, option.children & choice.keys()) for option in options)
        for number, options in graph.items()
        if number not in choice
    }
    return rest, choice


def _without(option: Option, gone: Collection[int]) -> Option:
    return option._replace(children=option.children.difference(gone)) if gone else option
