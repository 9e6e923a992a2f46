"""Split a reduced problem into independent components, in a form in which equal ones are equal.

Forced classes are paid for whoever reads them, so the reduction has dropped them as children: what is still connected
must be decided together. That includes the classes of one strongly connected component of the e-graph, whichever of
them are forced, for a cycle can run through all of them: decided apart they can give a cyclic selection.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..support.deadlines import is_over
from ..support.directed_graphs import connected_components
from .graph import Option
from .reduce import Reduced

# Rounds of colour refinement; classes it cannot tell apart are numbered in the order of discovery.
_REFINEMENTS = 8


class Choice(NamedTuple):
    """An option of a core: 0 if it is the earliest of its class else 1, its cost, its children (core numbers)."""

    later: int
    cost: float
    children: tuple[int, ...]


@dataclass(frozen=True)
class Core:
    """A small extraction problem by itself: the choices of its classes 0, 1, ..., and the classes that are required.

    As every required class is paid for, whatever reads it gets it for nothing; most such children are left out.
    """

    classes: tuple[tuple[Choice, ...], ...]
    roots: tuple[int, ...]


@dataclass(frozen=True)
class Component:
    """Where a core occurs: for its classes their numbers in the e-graph, for its choices their candidates."""

    core: Core
    numbers: tuple[int, ...]
    candidates: tuple[tuple[int, ...], ...]


def components(reduced: Reduced, deadline: float = math.inf) -> list[Component]:
    """What has to be decided together, smallest first; a component without any choice is left by a reduction that was
    cut short.

    After the deadline (time.monotonic) some that are equal may get distinct cores.
    """
    found = [_component(members, reduced, deadline) for members in _groups(reduced)]
    return sorted(found, key=lambda component: (len(component.numbers), component.numbers))


def _groups(reduced: Reduced) -> list[list[int]]:
    """The classes that must be decided together."""
    graph = reduced.graph
    return connected_components({n: [c for option in options for c in option.children] for n, options in graph.items()})


def _component(members: list[int], reduced: Reduced, deadline: float) -> Component:
    """Number the classes so that components of equal structure get equal cores."""
    colour = _colours(members, reduced, deadline)
    order = _discovery_order(members, colour, reduced)
    local = {member: position for position, member in enumerate(order)}
    classes = []
    candidates = []
    for member in order:
        ranked = sorted(_choices(reduced.graph[member], local))
        classes.append(tuple(choice for choice, _ in ranked))
        candidates.append(tuple(index for _, index in ranked))
    roots = tuple(local[member] for member in order if member in reduced.forced)
    return Component(Core(tuple(classes), roots), tuple(order), tuple(candidates))


def _choices(options: Sequence[Option], local: Mapping[int, int]) -> Iterator[tuple[Choice, int]]:
    for position, option in enumerate(options):
        numbers = tuple(sorted(local[child] for child in option.children))
        yield Choice(min(position, 1), option.cost, numbers), option.candidate


def _colours(members: list[int], reduced: Reduced, deadline: float) -> dict[int, int]:
    """Colour refinement: classes of equal colour look alike from above and from below.

    Colours are hashes of tuples of numbers, which no hash seed changes; a collision costs a missed repetition at most.
    """
    graph = reduced.graph
    colour = {member: hash((member in reduced.forced, len(graph[member]))) for member in members}
    kinds = len(set(colour.values()))
    for _ in range(_REFINEMENTS):
        if is_over(deadline):
            break
        above: dict[int, list[tuple[int, float]]] = {member: [] for member in members}
        below: dict[int, list[tuple[int, float, tuple[int, ...]]]] = {}
        for member in members:
            below[member] = []
            for position, option in enumerate(graph[member]):
                colours = tuple(sorted(colour[child] for child in option.children))
                below[member].append((min(position, 1), option.cost, colours))
                for child in option.children:
                    above[child].append((colour[member], option.cost))
        colour = {m: hash((colour[m], tuple(sorted(below[m])), tuple(sorted(above[m])))) for m in members}
        before, kinds = kinds, len(set(colour.values()))
        if kinds in (before, len(members)):
            break
    return colour


def _discovery_order(members: list[int], colour: Mapping[int, int], reduced: Reduced) -> list[int]:
    """The classes in the order of a walk from the forced ones that follows colours, then e-graph numbers."""

    def by_colour(numbers: Iterable[int]) -> list[int]:
        return sorted(numbers, key=lambda number: (colour[number], number))

    order: dict[int, None] = {}
    starts = [member for member in members if member in reduced.forced]
    stack = [*reversed(by_colour(starts))]
    while stack:
        member = stack.pop()
        if member not in order:
            order[member] = None
            below = {child for option in reduced.graph[member] for child in option.children if child not in order}
            stack.extend(reversed(by_colour(below)))
    return list(order)
