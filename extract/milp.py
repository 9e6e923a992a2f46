"""Proven optimal selections of a large core by mixed integer programming (HiGHS through scipy).

A binary variable per choice. A required class has one, any other at most one; for every class and child, the choices
that read the child are no more than the choices of the child that do not read the class back. Longer cycles are ruled
out lazily: an optimum that holds one adds the loop formulas of its classes, and without those it remains a valid bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..support.deadlines import OutOfTime, require_time, seconds_left
from ..support.directed_graphs import Successors, cyclic_components, short_cycles
from ..support.sparse import sparse_matrix
from .answer import Answer, Selection, edges, follow
from .components import Core
from .exact import integral
from .frontier.bounds import Kept, extractable, reachable_components
from .interruptible import interruptible

# The objective is scaled so that the known answer costs this: HiGHS stops at an absolute gap of 1e-6.
_SCALED_COST = 1e4
# Choices that cost more than the known answer are all alike, and none of an optimum: they cost twice that answer, for
# huge objective coefficients would leave HiGHS a bound that is off by more than the tolerance.
# Where all costs are multiples of a unit and the known answer has at most so many of them, the objective counts units:
# HiGHS then knows that the next better selection is a whole unit below.
_MOST_UNITS = 1e6
_LEAST_BUDGET = 0.05
_INFEASIBLE = 2
"""scipy's word for a program that no selection satisfies: none that is kept can be acyclic."""

Term = tuple[int, float]


def prove_by_milp(core: Core, answer: Answer, deadline: float, kept: Kept | None = None) -> Answer:
    """Improve an answer and its bound until it is proven optimal or the deadline (time.monotonic) has come.

    kept: for every class the positions of the choices that a better selection may have; all by default. The bound holds
    if that is so.
    """
    if answer.proven:
        return answer
    if kept is None:
        kept = extractable(core, [range(len(choices)) for choices in core.classes])
    try:
        program = _Program(core, kept, answer.cost, deadline)
    except OutOfTime:
        return answer
    while not answer.proven and seconds_left(deadline) > _LEAST_BUDGET:
        found, bound = program.optimum(deadline)
        if math.isinf(bound):
            return answer.bounded_by(answer.cost)
        answer = answer.bounded_by(bound)
        cycles = [] if found is None else unfounded_sets(edges(core, found))
        answer = answer.improved_by(found, core)
        if not cycles:
            return answer
        for cycle in cycles:
            program.found(cycle)
    return answer


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


def unfounded_sets(successors: Successors[int]) -> list[tuple[int, ...]]:
    """Sets of classes of a selection that are built from each other alone: its cyclic components and short cycles."""
    components = (tuple(sorted(component)) for component in cyclic_components(successors))
    return list(dict.fromkeys([*components, *short_cycles(successors)]))


def _scale(costs: Sequence[float], cost: float) -> float:
    """What costs are multiplied with for the objective."""
    unit = float(integral([own for own in costs if own <= cost])[1])
    if 0 < cost <= unit * _MOST_UNITS:
        return 1 / unit
    return _SCALED_COST / cost if cost > 0 else 1.0


class _Program:
    """The variables and the rows of the program; rows are lower <= sum of terms <= upper."""

    def __init__(self, core: Core, kept: Kept, cost: float, deadline: float) -> None:
        self.core = core
        self.kept = kept
        classes = [number for component in reachable_components(core, kept) for number in component]
        self.pairs = [(number, position) for number in sorted(classes) for position in kept[number]]
        self.column = {pair: number for number, pair in enumerate(self.pairs)}
        self.scale = _scale([core.classes[number][position].cost for number, position in self.pairs], cost)
        self.dearest = 2 * cost * self.scale
        self.rows: list[tuple[list[Term], float, float]] = []
        roots = frozenset(core.roots)
        for number in classes:
            own = ((number, position) for position in kept[number])
            self.rows.append((self._terms(own, 1.0), float(number in roots), 1.0))
            self._require_children(number, deadline)

    def _terms(self, choices: Iterable[tuple[int, int]], factor: float) -> list[Term]:
        return [(self.column[choice], factor) for choice in choices if choice in self.column]

    def _require_children(self, number: int, deadline: float) -> None:
        readers: dict[int, list[tuple[int, int]]] = {}
        for position in self.kept[number]:
            for child in self.core.classes[number][position].children:
                readers.setdefault(child, []).append((number, position))
        for child, choices in readers.items():
            require_time(deadline)
            terms = self._terms(supports(self.core, number, child), 1.0) + self._terms(choices, -1.0)
            self.rows.append((terms, 0.0, float("inf")))

    def found(self, unfounded: Sequence[int]) -> None:
        """Where one of some classes is selected, one of them is by a choice that reads none of them: what they are
        built from is outside of them (the loop formula of Lin & Zhao, "ASSAT", Artificial Intelligence 2004)."""
        members = frozenset(unfounded)
        ways_out = {
            number: [p for p in self.kept[number] if members.isdisjoint(self.core.classes[number][p].children)]
            for number in unfounded
        }
        for number in unfounded:
            inward = [(number, position) for position in self.kept[number] if position not in ways_out[number]]
            others = [(other, p) for other in unfounded if other != number for p in ways_out[other]]
            self.rows.append((self._terms(inward, 1.0) + self._terms(others, -1.0), -float("inf"), 0.0))

    def optimum(self, deadline: float) -> tuple[Selection | None, float]:
        """The best selection found under the rows so far, cyclic perhaps, and the bound proven."""
        import numpy
        from scipy.optimize import Bounds, LinearConstraint, milp

        costs = numpy.array([self.core.classes[number][position].cost for number, position in self.pairs]) * self.scale
        costs = numpy.minimum(costs, self.dearest)
        row_of = [number for number, (terms, _, _) in enumerate(self.rows) for _ in terms]
        terms = [term for row_terms, _, _ in self.rows for term in row_terms]
        factors, columns = [factor for _, factor in terms], [column for column, _ in terms]
        matrix = sparse_matrix(factors, row_of, columns, (len(self.rows), len(self.pairs)))
        limits = LinearConstraint(matrix, [lower for _, lower, _ in self.rows], [upper for _, _, upper in self.rows])
        options = {"time_limit": max(seconds_left(deadline), _LEAST_BUDGET), "mip_rel_gap": 0.0}
        integrality = numpy.ones(len(self.pairs))
        result = interruptible(
            lambda: milp(costs, constraints=limits, integrality=integrality, bounds=Bounds(0, 1), options=options)
        )
        if result.status == _INFEASIBLE:
            return None, math.inf
        bound = result.mip_dual_bound
        proven = 0.0 if bound is None or not numpy.isfinite(bound) else float(bound) / self.scale
        if result.x is None:
            return None, proven
        chosen = [pair for pair, value in zip(self.pairs, result.x, strict=True) if value > 0.5]
        return cheapest_chosen(self.core, chosen), proven
