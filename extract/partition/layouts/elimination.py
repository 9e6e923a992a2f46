"""The best layouts exactly, by eliminating one group after the other (non-serial dynamic programming).

What depends on a group is added up to one table over it and its neighbours, and the group is minimised away; the one
with fewest neighbours goes first. That takes time linear in the length of chains and residual networks, and is
exponential only in how many branches run side by side.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from .problem import Choice, LayoutProblem

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Costs = NDArray[numpy.float64]

LARGEST_TABLE = 3**8
"""Entries that one table may have: eight groups of three layouts each."""


@dataclass(frozen=True)
class _Table:
    """Seconds by the layouts of some groups, an axis each; the layouts are in the order of their preference."""

    groups: tuple[int, ...]
    costs: Costs

    def align(self, groups: tuple[int, ...]) -> Costs:
        """The costs with an axis for each of `groups`, of length 1 where the table does not depend on it."""
        order = sorted(range(len(self.groups)), key=lambda axis: groups.index(self.groups[axis]))
        size = dict(zip(self.groups, self.costs.shape, strict=True))
        return self.costs.transpose(order).reshape([size.get(group, 1) for group in groups])


def eliminate(problem: LayoutProblem, largest: int = LARGEST_TABLE) -> Choice | None:
    """A choice of least cost; None where a table would have more entries than `largest`."""
    sizes = [len(preference.seconds) for preference in problem.preferences]
    if any(prod(sizes[g] for g in flow.groups) > largest for flow in problem.flows):
        return None
    tables = _Tables(problem)
    steps: list[tuple[int, tuple[int, ...], NDArray[numpy.intp]]] = []
    queue = [(len(neighbours), group) for group, neighbours in tables.neighbours.items()]
    heapq.heapify(queue)
    while queue:
        degree, group = heapq.heappop(queue)
        if group not in tables.neighbours or degree != len(tables.neighbours[group]):
            continue
        around = tuple(sorted(tables.neighbours[group]))
        groups = (group, *around)
        if prod(sizes[g] for g in groups) > largest:
            return None
        first, *others = (table.align(groups) for table in tables.remove(group))
        total = sum(others, start=first)
        steps.append((group, around, total.argmin(axis=0)))
        if around:
            tables.add(_Table(around, total.min(axis=0)))
        for other in around:
            heapq.heappush(queue, (len(tables.neighbours[other]), other))
    choice = list(problem.favourites())
    position: dict[int, int] = {}
    for group, around, best in reversed(steps):
        position[group] = int(best[tuple(position[g] for g in around)])
        choice[group] = tables.layouts[group][position[group]]
    return tuple(choice)


class _Tables:
    """The tables that are left, by group, and the groups that share a table with each."""

    def __init__(self, problem: LayoutProblem) -> None:
        import numpy

        self.layouts = [tuple(preference.seconds) for preference in problem.preferences]
        groups = [group for group, flows in enumerate(problem.flows_of) if flows]
        self.by_group: dict[int, list[_Table]] = {group: [] for group in groups}
        self.neighbours: dict[int, set[int]] = {group: set() for group in groups}
        for group in groups:
            preference = problem.preferences[group]
            self.add(_Table((group,), numpy.array([preference.beyond(layout) for layout in self.layouts[group]])))
        choice = list(problem.favourites())
        for flow in problem.flows:
            costs = []
            for layouts in product(*(self.layouts[g] for g in flow.groups)):
                for group, layout in zip(flow.groups, layouts, strict=True):
                    choice[group] = layout
                costs.append(problem.flow_cost(flow, choice))
            shape = [len(self.layouts[g]) for g in flow.groups]
            self.add(_Table(flow.groups, numpy.array(costs).reshape(shape)))

    def add(self, table: _Table) -> None:
        """Add a table to those of its groups."""
        for group in table.groups:
            self.by_group[group].append(table)
            self.neighbours[group].update(g for g in table.groups if g != group)

    def remove(self, group: int) -> list[_Table]:
        """Remove a group, and return the tables over it, which go with it."""
        tables = self.by_group.pop(group)
        for other in self.neighbours.pop(group):
            self.by_group[other] = [table for table in self.by_group[other] if group not in table.groups]
            self.neighbours[other].discard(group)
        return tables
