"""The best layouts exactly, by eliminating one group after the other (non-serial dynamic programming).

What depends on a group is added up to one table over it and its neighbours, and the group is minimised away; the one
with fewest neighbours goes first. That takes time linear in the length of chains and residual networks, and is
exponential only in how many branches run side by side.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from .problem import Choice, Flow, LayoutProblem

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


def eliminate(problem: LayoutProblem, largest: int = LARGEST_TABLE) -> Choice | None:
    """A choice of least cost; None where a table would have more entries than `largest`."""
    sizes = [len(preference.seconds) for preference in problem.preferences]
    if any(prod(sizes[g] for g in flow.groups) > largest for flow in problem.flows):
        return None
    return _Elimination(problem, sizes, largest).run()


class _Elimination:
    def __init__(self, problem: LayoutProblem, sizes: Sequence[int], largest: int) -> None:
        self.problem, self.sizes, self.largest = problem, sizes, largest
        self.names = [tuple(preference.seconds) for preference in problem.preferences]
        self.groups = [g for g, flows in enumerate(problem.flows_of) if flows]
        self.tables: dict[int, list[_Table]] = {group: [] for group in self.groups}
        self.neighbours: dict[int, set[int]] = {group: set() for group in self.groups}
        self.scratch = list(problem.favourites())
        for group in self.groups:
            self._add(self._own(group))
        for flow in problem.flows:
            self._add(self._of_flow(flow))

    def run(self) -> Choice | None:
        decided: list[tuple[int, tuple[int, ...], NDArray[numpy.intp]]] = []
        queue = [(len(self.neighbours[group]), group) for group in self.groups]
        heapq.heapify(queue)
        while queue:
            degree, group = heapq.heappop(queue)
            if group not in self.neighbours or degree != len(self.neighbours[group]):
                continue
            around = tuple(sorted(self.neighbours[group]))
            if prod(self.sizes[g] for g in (group, *around)) > self.largest:
                return None
            first, *others = (self._aligned(table, (group, *around)) for table in self._taken(group))
            joined = sum(others, start=first)
            decided.append((group, around, joined.argmin(axis=0)))
            if around:
                self._add(_Table(around, joined.min(axis=0)))
            for other in around:
                heapq.heappush(queue, (len(self.neighbours[other]), other))
        return self._choice(decided)

    def _choice(self, decided: list[tuple[int, tuple[int, ...], NDArray[numpy.intp]]]) -> Choice:
        choice = list(self.problem.favourites())
        position: dict[int, int] = {}
        for group, around, best in reversed(decided):
            position[group] = int(best[tuple(position[g] for g in around)])
            choice[group] = self.names[group][position[group]]
        return tuple(choice)

    def _taken(self, group: int) -> list[_Table]:
        """The tables over a group, taken out with it."""
        tables = self.tables.pop(group)
        for other in self.neighbours.pop(group):
            self.tables[other] = [table for table in self.tables[other] if group not in table.groups]
            self.neighbours[other].discard(group)
        return tables

    def _add(self, table: _Table) -> None:
        for group in table.groups:
            self.tables[group].append(table)
            self.neighbours[group].update(g for g in table.groups if g != group)

    def _aligned(self, table: _Table, groups: tuple[int, ...]) -> Costs:
        """The costs with an axis for each of `groups`, of length 1 where the table does not depend on it."""
        order = sorted(range(len(table.groups)), key=lambda axis: groups.index(table.groups[axis]))
        return table.costs.transpose(order).reshape([self.sizes[g] if g in table.groups else 1 for g in groups])

    def _own(self, group: int) -> _Table:
        preference = self.problem.preferences[group]
        return self._table((group,), [preference.beyond(layout) for layout in preference.seconds])

    def _of_flow(self, flow: Flow) -> _Table:
        groups = flow.groups
        costs = []
        for layouts in product(*(self.names[g] for g in groups)):
            for group, layout in zip(groups, layouts, strict=True):
                self.scratch[group] = layout
            costs.append(self.problem.flow_cost(flow, self.scratch))
        return self._table(groups, costs)

    def _table(self, groups: tuple[int, ...], costs: list[float]) -> _Table:
        import numpy

        return _Table(groups, numpy.array(costs).reshape([self.sizes[g] for g in groups]))

