"""Independent components of a reduced problem, as cores: equal components have equal cores, which are solved once.

The reduction drops forced classes as children, since they are paid for in any case: classes that are still
connected must be decided together. That includes all classes of one strongly connected component of the e-graph, even
forced ones, for a cycle can run through all of them: decided apart they can give a cyclic selection.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...support.deadlines import is_over
from ...support.directed_graphs import connected_components, is_acyclic
from .options import Option
from .problem import TOLERANCE, selected_children, selection_cost
from .reduce import Reduced

_REFINEMENTS = 8
"""Rounds of colour refinement; classes that these cannot tell apart are numbered in the order of discovery."""

Selection = Mapping[int, int]
"""The position of the choice of every class of a core that is needed."""


class Choice(NamedTuple):
    """An option of a core: 0 if it is the earliest of its class else 1, its cost, its children (core numbers)."""

    later: int
    cost: float
    children: tuple[int, ...]


@dataclass(frozen=True)
class Core:
    """A small extraction problem by itself: the choices of its classes 0, 1, ..., and the classes that are required.

    As every required class is paid for, its readers get it for nothing; most such children are left out.
    """

    classes: tuple[tuple[Choice, ...], ...]
    roots: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """An acyclic selection of a core, its cost, and a cost that no selection undercuts."""

    selection: Selection
    cost: float
    lower_bound: float

    @property
    def is_proven(self) -> bool:
        """Whether the bound leaves no room for a better selection."""
        return self.lower_bound >= self.cost * (1 - TOLERANCE)

    def improve(self, selection: Selection | None, core: Core) -> Answer:
        """This answer, or the selection if that is acyclic and costs less."""
        if selection is None or not is_acyclic(selected_children(core, selection)):
            return self
        cost = selection_cost(core, selection)
        return self if cost >= self.cost * (1 - TOLERANCE) else Answer(selection, cost, self.lower_bound)

    def raise_bound(self, lower_bound: float) -> Answer:
        """This answer with a bound that was proven in addition."""
        return replace(self, lower_bound=min(max(self.lower_bound, lower_bound), self.cost))


@dataclass(frozen=True)
class Component:
    """Where a core occurs: for its classes their numbers in the e-graph, for its choices their candidates."""

    core: Core
    numbers: tuple[int, ...]
    candidates: tuple[tuple[int, ...], ...]


def split_into_components(reduced: Reduced, deadline: float = math.inf) -> list[Component]:
    """The parts that have to be decided together, smallest first; a component without any choice is left by a
    reduction that was cut short.

    After the deadline (time.monotonic) equal components may get distinct cores.
    """
    children = {n: [c for option in options for c in option.children] for n, options in reduced.graph.items()}
    components = [_make_component(members, reduced, deadline) for members in connected_components(children)]
    return sorted(components, key=lambda component: (len(component.numbers), component.numbers))


def _make_component(members: list[int], reduced: Reduced, deadline: float) -> Component:
    """Number the classes so that components of equal structure get equal cores."""
    colour = _colour_classes(members, reduced, deadline)
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


def _choices(options: Sequence[Option], numbers: Mapping[int, int]) -> Iterator[tuple[Choice, int]]:
    """The choices of a class, with their candidates; the children are written by their numbers."""
    for position, option in enumerate(options):
        children = tuple(sorted(numbers[child] for child in option.children))
        yield Choice(min(position, 1), option.cost, children), option.candidate


def _colour_classes(members: list[int], reduced: Reduced, deadline: float) -> dict[int, int]:
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
        below: dict[int, list[Choice]] = {}
        for member in members:
            below[member] = [choice for choice, _ in _choices(graph[member], colour)]
            for option in graph[member]:
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
        return sorted(numbers, key=lambda number: (colour[number], number), reverse=True)

    order: dict[int, None] = {}
    stack = by_colour(member for member in members if member in reduced.forced)
    while stack:
        member = stack.pop()
        if member not in order:
            order[member] = None
            stack += by_colour({c for option in reduced.graph[member] for c in option.children if c not in order})
    return list(order)
