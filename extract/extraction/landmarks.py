"""Landmarks: sets of choices of which every selection has one (Hoffmann, Porteous & Sebastia, JAIR 2004).

A value that exists in several shapes is several classes, none of which must be selected, though one of them must: the
linear relaxation of an integer program then takes half of each. Classes that read each other at the least cost there
is (a Reshape's) are taken for one value; a value that every selection contains is built by a choice that reads none of
its own classes. Values are a partition of the classes: which one it is decides on how strong the landmarks are, and not
on whether they hold.
"""

from __future__ import annotations

from ...support.directed_graphs import connected_components
from .bounds import Kept
from .cores import Core
from .dominance import drop_dominated_options
from .options import Graph, Option, drop_unextractable, restrict_to_reachable, strongly_connected_classes

_LEAST_COSTS = 1.01
"""Choices of one child count as views up to this multiple of the cheapest."""

Landmark = list[tuple[int, int]]
"""Classes and positions of their choices."""


def find_landmarks(core: Core, kept: Kept) -> list[Landmark]:
    """The landmarks of a core among the choices that are kept; none if these choices leave no selection."""
    home = _values(core, kept)
    ways: dict[int, Landmark] = {value: [] for value in home}
    for number, positions in enumerate(kept):
        for position in positions:
            if all(home[child] != home[number] for child in core.classes[number][position].children):
                ways[home[number]].append((number, position))
    graph: Graph = {
        value: tuple(
            Option(index, 0.0, frozenset(home[child] for child in core.classes[number][position].children))
            for index, (number, position) in enumerate(choices)
        )
        for value, choices in ways.items()
        if choices
    }
    roots = frozenset(home[root] for root in core.roots)
    graph = drop_unextractable(graph)
    if not roots <= graph.keys():
        return []
    graph = restrict_to_reachable(graph, roots)
    _, forced = drop_dominated_options(graph, strongly_connected_classes(graph), roots)
    return [ways[value] for value in sorted(forced)]


def _values(core: Core, kept: Kept) -> list[int]:
    """For each class a number that the classes of one value share."""
    unary = {
        (number, choice.children[0]): choice.cost
        for number, positions in enumerate(kept)
        for choice in (core.classes[number][position] for position in positions)
        if len(choice.children) == 1 and choice.cost > 0
    }
    limit = _LEAST_COSTS * min(unary.values(), default=0.0)
    views: dict[int, set[int]] = {number: set() for number in range(len(core.classes))}
    for (number, child), cost in unary.items():
        if cost <= limit:
            views[number].add(child)
    home = list(range(len(core.classes)))
    for members in connected_components(views):
        for member in members:
            home[member] = min(members)
    return home
