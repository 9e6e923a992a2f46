"""Proven optimal selections of a core by z3 (weighted MaxSAT), with cycles ruled out lazily.

A Boolean per choice; a required class has a chosen choice; a choice chosen implies one for each child; every choice
of positive cost is a soft constraint against it. Costs become integers without rounding. A model that holds a cycle
adds a clause against it (only classes of one strongly connected component can be on one) and the search goes on:
the optimum without those clauses remains a valid lower bound.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from ..support.deadlines import OutOfTime, require_time, seconds_left
from .answer import Answer, Selection, edges, follow
from .components import Core
from .cycles import short_cycles
from .solver import checked

_LEAST_BUDGET = 0.01


def integral(costs: Sequence[float]) -> tuple[list[int], Fraction]:
    """Integers and a unit such that cost = integer * unit exactly (floats are binary fractions)."""
    ratios = [cost.as_integer_ratio() for cost in costs]
    denominator = max((ratio[1] for ratio in ratios), default=1)
    numerators = [numerator * (denominator // own) for numerator, own in ratios]
    divisor = math.gcd(*numerators) or 1
    return [numerator // divisor for numerator in numerators], Fraction(divisor, denominator)


def cycle_edges(core: Core, cycle: Sequence[int]) -> list[list[tuple[int, int]]]:
    """For each step of a cycle, the choices (class, position) that make it: not every step may have one chosen."""
    steps = zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    return [
        [(number, position) for position, choice in enumerate(core.classes[number]) if child in choice.children]
        for number, child in steps
    ]


def supports(core: Core, number: int, child: int) -> list[tuple[int, int]]:
    """The choices of a child that do not read the class back: one of them is chosen if the class reads the child.

    This alone rules out the cycles of two classes that involutive rewrites make, for fractional solutions too.
    """
    return [(child, position) for position, choice in enumerate(core.classes[child]) if number not in choice.children]


def cheapest_chosen(core: Core, chosen: Iterable[tuple[int, int]]) -> Selection | None:
    """The selection in a solver's set of choices (class, position); None if the set is not closed."""
    best: dict[int, int] = {}
    for number, position in sorted(chosen, key=lambda pair: (core.classes[pair[0]][pair[1]].cost, pair)):
        best.setdefault(number, position)
    return follow(core, best.get)


def prove_by_maxsat(core: Core, answer: Answer, deadline: float) -> Answer:
    """Improve an answer and its bound until it is proven optimal or the deadline (time.monotonic) has come."""
    if answer.proven:
        return answer
    try:
        search = _Search(core, deadline)
    except OutOfTime:
        return answer
    while not answer.proven and seconds_left(deadline) > _LEAST_BUDGET:
        found = search.optimum(deadline)
        answer = answer.bounded_by(search.lower_bound())
        if found is None:
            return answer
        cycles = short_cycles(edges(core, found))
        if not cycles:
            return answer.improved_by(found, core)
        for cycle in cycles:
            search.forbid(cycle)
    return answer


@functools.cache
def _context() -> Any:
    """The z3 context of this module, made once: a new one costs more than most searches."""
    import z3

    return z3.Context()


class _Search:
    """One z3 optimisation over the choices of a core."""

    def __init__(self, core: Core, deadline: float) -> None:
        import z3

        self.core = core
        self.z3 = z3
        self.chosen = {
            (number, position): z3.Bool(f"c{number}_{position}", _context())
            for number, choices in enumerate(core.classes)
            for position in range(len(choices))
        }
        self.optimize = z3.Optimize(ctx=_context())
        self.optimize.set("ctrl_c", False)  # z3 would swallow the signal
        self._require(deadline)
        self._price()

    def _any_of(self, choices: Iterable[tuple[int, int]]) -> Any:
        return self.z3.Or([*(self.chosen[choice] for choice in choices), self.z3.BoolVal(False, _context())])

    def _require(self, deadline: float) -> None:
        for root in self.core.roots:
            self.optimize.add(self._any_of((root, position) for position in range(len(self.core.classes[root]))))
        for (number, position), chosen in self.chosen.items():
            require_time(deadline)  # a choice takes as long as its children have choices
            for child in self.core.classes[number][position].children:
                self.optimize.add(self.z3.Implies(chosen, self._any_of(supports(self.core, number, child))))

    def _price(self) -> None:
        costs = [self.core.classes[number][position].cost for number, position in self.chosen]
        weights, self.unit = integral(costs)
        self.objective = None
        for chosen, weight in zip(self.chosen.values(), weights, strict=True):
            if weight:
                self.objective = self.optimize.add_soft(self.z3.Not(chosen), str(weight))

    def forbid(self, cycle: Sequence[int]) -> None:
        """Rule out that every step of a cycle is chosen."""
        absent = [
            self.z3.And([self.z3.Not(self.chosen[choice]) for choice in step]) for step in cycle_edges(self.core, cycle)
        ]
        self.optimize.add(self.z3.Or(absent))

    def optimum(self, deadline: float) -> Selection | None:
        """A cheapest selection under the clauses so far, cyclic perhaps; None if none is proven in time."""
        status = checked(self.optimize, _context(), deadline)
        if status != self.z3.sat:
            return None
        model = self.optimize.model()
        return cheapest_chosen(self.core, (pair for pair, chosen in self.chosen.items() if model[chosen]))

    def lower_bound(self) -> float:
        """The bound that the last search has proven."""
        if self.objective is None:
            return 0.0
        bound = self.optimize.lower(self.objective)
        return float(bound.as_fraction() * self.unit) if self.z3.is_rational_value(bound) else self._integer(bound)

    def _integer(self, bound: Any) -> float:
        return float(bound.as_long() * self.unit) if self.z3.is_int_value(bound) else 0.0
