"""Answers to a core, and the tools that every solver needs: follow a selection, price it, find its cycles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..support.directed_graphs import is_acyclic
from .components import Core
from .problem import TOLERANCE

Selection = Mapping[int, int]


@dataclass(frozen=True)
class Answer:
    """An acyclic selection (class of the core -> its choice), its cost, and a cost that no selection undercuts."""

    selection: Selection
    cost: float
    lower_bound: float

    @property
    def proven(self) -> bool:
        """Whether the bound leaves no room for a better selection."""
        return self.lower_bound >= self.cost * (1 - TOLERANCE)

    def improved_by(self, selection: Selection | None, core: Core) -> Answer:
        """This answer, or the selection if that is acyclic and really costs less."""
        if selection is None or not is_acyclic(edges(core, selection)):
            return self
        cost = selection_cost(core, selection)
        if cost >= self.cost * (1 - TOLERANCE):
            return self
        return Answer(selection, cost, self.lower_bound)

    def bounded_by(self, lower_bound: float) -> Answer:
        """This answer with a bound that was proven in addition."""
        return Answer(self.selection, self.cost, min(max(self.lower_bound, lower_bound), self.cost))


def follow(core: Core, pick: Callable[[int], int | None]) -> Selection | None:
    """The selection that a rule makes of the classes it reaches from the roots; None if it does not know one."""
    selection: dict[int, int] = {}
    stack = list(core.roots)
    while stack:
        number = stack.pop()
        if number in selection:
            continue
        position = pick(number)
        if position is None:
            return None
        selection[number] = position
        stack.extend(core.classes[number][position].children)
    return selection


def edges(core: Core, selection: Selection) -> dict[int, Sequence[int]]:
    """The children of every selected class."""
    return {number: core.classes[number][position].children for number, position in selection.items()}


def selection_cost(core: Core, selection: Selection) -> float:
    """The cost of a selection, correctly rounded."""
    return math.fsum(core.classes[number][position].cost for number, position in selection.items())


def least_cost(core: Core) -> float:
    """A bound without any search: the cheapest choice of every class that is required."""
    return math.fsum(min(choice.cost for choice in core.classes[root]) for root in core.roots)
