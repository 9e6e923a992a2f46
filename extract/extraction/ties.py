"""Give back the earliest candidates wherever a selection has others for nothing.

Solvers and reductions keep some selection of least cost. Here every selected class tries its earlier candidates in
turn, with the classes that these need in place of those that nobody needs any more, and keeps the first that costs
no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...support.deadlines import is_over
from .options import Graph, extraction_ranks, strongly_connected_classes
from .problem import Problem

_ROUNDING = 1e-12
"""Costs are sums of rounded figures: a swap may seem to cost this much more, relative to the classes it replaces."""


def prefer_earlier(
    problem: Problem, usable: Graph, choice: Mapping[int, int], deadline: float = math.inf
) -> dict[int, int]:
    """An acyclic selection of no higher cost in which no single class could take an earlier candidate for nothing.

    usable: the candidates with a finite extraction, and their classes. After the deadline (time.monotonic) the classes
    that were not tried keep what they have.
    """
    later = [number for number, index in choice.items() if index]
    if not later or is_over(deadline):
        return dict(choice)
    swaps = _Swaps(problem, usable, choice)
    for number in later:
        for index in range(swaps.picked[number]):
            if is_over(deadline):
                return swaps.selection()
            if swaps.readers[number] and swaps.try_swap(number, index):
                break
    return swaps.selection()


class _Swaps:
    """A selection that can be changed class by class, with the count of the selected readers of every class."""

    def __init__(self, problem: Problem, graph: Graph, choice: Mapping[int, int]) -> None:
        self.problem = problem
        self.usable = {number: {option.candidate for option in options} for number, options in graph.items()}
        self.home = {m: number for number, members in enumerate(strongly_connected_classes(graph)) for m in members}
        ranks = extraction_ranks(graph)
        self.spare = {
            number: next(
                option.candidate
                for option in options
                if all(self.home[c] != self.home[number] or ranks[c] < ranks[number] for c in option.children)
            )
            for number, options in graph.items()
        }
        self.picked = {**self.spare, **choice}
        self.readers = [0] * len(problem.classes)
        self.journal: list[tuple[int, int]] = []
        for root in problem.roots:
            self.readers[root] += 1
        for number in choice:
            for child in self._children(number):
                self.readers[child] += 1

    def selection(self) -> dict[int, int]:
        """The selected classes and their candidates."""
        return {number: index for number, index in self.picked.items() if self.readers[number]}

    def _children(self, number: int) -> tuple[int, ...]:
        return self.problem.classes[number][self.picked[number]].children

    def _cost(self, number: int) -> float:
        return self.problem.classes[number][self.picked[number]].cost

    def try_swap(self, number: int, candidate: int) -> bool:
        """Take another candidate for a class if that is acyclic and costs no more; whether it did."""
        if candidate not in self.usable[number]:
            return False
        before = self.picked[number]
        released = self._release(self._children(number))
        saved = math.fsum([self._cost(number), *map(self._cost, released)])
        self.picked[number] = candidate
        if self._select(number, saved * (1 + _ROUNDING)) and not self._on_cycle(number):
            # The classes that just went have their spare candidates again: those are acyclic whatever is selected.
            self.picked.update((child, self.spare[child]) for child in released if not self.readers[child])
            self.journal.clear()
            return True
        for counted, step in self.journal:
            self.readers[counted] -= step
        self.journal.clear()
        self.picked[number] = before
        return False

    def _release(self, children: Sequence[int]) -> list[int]:
        """Count the children as read once less, and so on through the classes that this unselects: those."""
        released: list[int] = []
        stack = list(children)
        while stack:
            child = stack.pop()
            self._count(child, -1)
            if not self.readers[child]:
                released.append(child)
                stack.extend(self._children(child))
        return released

    def _select(self, number: int, budget: float) -> bool:
        """Count the children of a class as read once more, and so on; False if that costs more than the budget."""
        cost = self._cost(number)
        stack = list(self._children(number))
        while stack and cost <= budget:
            child = stack.pop()
            self._count(child, 1)
            if self.readers[child] == 1:
                cost += self._cost(child)
                stack.extend(self._children(child))
        return cost <= budget

    def _count(self, number: int, step: int) -> None:
        self.readers[number] += step
        self.journal.append((number, step))

    def _on_cycle(self, number: int) -> bool:
        """Whether the selected class reaches itself; such a path cannot leave its strongly connected component."""
        home = self.home[number]
        stack = [child for child in self._children(number) if self.home[child] == home]
        seen = set(stack)
        while stack:
            member = stack.pop()
            if member == number:
                return True
            fresh = {child for child in self._children(member) if self.home[child] == home} - seen
            seen |= fresh
            stack.extend(fresh)
        return False
