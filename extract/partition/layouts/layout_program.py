"""The choice of layouts as an integer program: a Markov random field over the groups.

A binary variable per group and layout. For two groups between which a value flows, the pairs of their layouts have
variables too, whose sums over one group are the variables of the other (the local polytope: tight where the groups form
a tree). A conversion is at least each pair that needs it, so that readers which want the same layout pay once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import isfinite

from ....support.sparse import sparse_matrix
from ...interruptible import interruptible
from .layout_flows import Choice, Flow, LayoutProblem
from .layouts import PLAIN, Layout

# The objective is scaled so that the known answer costs this: HiGHS stops at an absolute gap of 1e-6.
_SCALED_COST = 1e4
_LEAST_BUDGET = 0.05

Terms = dict[int, float]


@dataclass(frozen=True)
class Solution:
    """The best choice found, None where time ran out before any, and the proven bound in seconds."""

    choice: Choice | None
    bound: float


def solve(problem: LayoutProblem, known: float, deadline: float) -> Solution:
    """Solve the program by HiGHS until the deadline (time.monotonic). `known` is the cost of some answer, above 0."""
    return _Program(problem, _SCALED_COST / known).solve(deadline)


@dataclass
class _Program:
    """Columns, and rows lower <= sum of terms <= upper."""

    problem: LayoutProblem
    scale: float
    costs: list[float] = field(default_factory=list)
    binary: list[int] = field(default_factory=list)
    rows: list[tuple[Terms, float, float]] = field(default_factory=list)
    taken: dict[tuple[int, Layout], int] = field(default_factory=dict)
    pairs: dict[tuple[int, int, Layout, Layout], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for group in range(len(self.problem.preferences)):
            if self.problem.flows_of[group]:
                self._add_group(group)
        for flow in self.problem.flows:
            self._add_flow(flow)

    def solve(self, deadline: float) -> Solution:
        import numpy
        from scipy.optimize import Bounds, LinearConstraint, milp

        row_of = [number for number, (terms, _, _) in enumerate(self.rows) for _ in terms]
        columns = [column for terms, _, _ in self.rows for column in terms]
        factors = [factor for terms, _, _ in self.rows for factor in terms.values()]
        matrix = sparse_matrix(factors, row_of, columns, (len(self.rows), len(self.costs)))
        limits = LinearConstraint(matrix, [lower for _, lower, _ in self.rows], [upper for _, _, upper in self.rows])
        options = {"time_limit": max(deadline - time.monotonic(), _LEAST_BUDGET), "mip_rel_gap": 0.0}
        costs, integrality = numpy.array(self.costs) * self.scale, numpy.array(self.binary)
        result = interruptible(
            lambda: milp(costs, constraints=limits, integrality=integrality, bounds=Bounds(0, 1), options=options)
        )
        bound = result.mip_dual_bound
        proven = max(0.0, float(bound) / self.scale) if bound is not None and isfinite(bound) else 0.0
        return Solution(None if result.x is None else self._choice(result.x), proven)

    def _choice(self, solution: list[float]) -> Choice:
        choice = list(self.problem.favourites())
        for (group, layout), column in self.taken.items():
            if solution[column] > 0.5:
                choice[group] = layout
        return tuple(choice)

    def _column(self, cost: float, is_binary: bool = False) -> int:
        self.costs.append(cost)
        self.binary.append(int(is_binary))
        return len(self.costs) - 1

    def _add_group(self, group: int) -> None:
        preference = self.problem.preferences[group]
        for layout in preference.seconds:
            self.taken[group, layout] = self._column(preference.beyond(layout), is_binary=True)
        self.rows.append((dict.fromkeys((self.taken[group, x] for x in preference.seconds), 1.0), 1.0, 1.0))

    def _add_flow(self, flow: Flow) -> None:
        """What each reader needs, by conversion; one reader pays its own, several share."""
        needs: list[dict[tuple[Layout, Layout], list[int]]] = [self._needs(flow, reader) for reader in flow.readers]
        if flow.is_read_plain and flow.maker is not None:
            needs.append(self._needs_plain(flow, flow.maker))
        for conversion in dict.fromkeys(c for need in needs for c in need):
            cost = self.problem.conversion(flow.value, *conversion)
            who = [need[conversion] for need in needs if conversion in need]
            if cost > 0.0 and len(who) == 1:
                for column in who[0]:
                    self.costs[column] += cost
            elif cost > 0.0:
                self._share(cost, who)

    def _share(self, cost: float, who: list[list[int]]) -> None:
        shared = self._column(cost)
        for columns in who:
            self.rows.append(({shared: 1.0, **dict.fromkeys(columns, -1.0)}, 0.0, float("inf")))

    def _needs(self, flow: Flow, reader: int) -> dict[tuple[Layout, Layout], list[int]]:
        """Columns of which one is 1 where the reader makes a conversion necessary."""
        stored, found = self.problem.maps.stored, dict[tuple[Layout, Layout], list[int]]()
        for wanted in self.problem.preferences[reader].seconds:
            target = stored(wanted, flow.value)
            if flow.maker is None:
                found.setdefault((PLAIN, target), []).append(self.taken[reader, wanted])
                continue
            for made in self.problem.preferences[flow.maker].seconds:
                column = self._pair(flow.maker, reader, made, wanted)
                found.setdefault((stored(made, flow.value), target), []).append(column)
        return found

    def _needs_plain(self, flow: Flow, maker: int) -> dict[tuple[Layout, Layout], list[int]]:
        found: dict[tuple[Layout, Layout], list[int]] = {}
        for made in self.problem.preferences[maker].seconds:
            source = self.problem.maps.stored(made, flow.value)
            found.setdefault((source, PLAIN), []).append(self.taken[maker, made])
        return found

    def _pair(self, first: int, second: int, one: Layout, other: Layout) -> int:
        """The column of a pair of layouts; all pairs of two groups are made at once, with their marginals."""
        if (first, second, one, other) not in self.pairs:
            ones, others = self.problem.preferences[first].seconds, self.problem.preferences[second].seconds
            self.pairs.update({(first, second, a, b): self._column(0.0) for a in ones for b in others})
            for a in ones:
                self._marginal(self.taken[first, a], [self.pairs[first, second, a, b] for b in others])
            for b in others:
                self._marginal(self.taken[second, b], [self.pairs[first, second, a, b] for a in ones])
        return self.pairs[first, second, one, other]

    def _marginal(self, whole: int, parts: list[int]) -> None:
        self.rows.append(({whole: -1.0, **dict.fromkeys(parts, 1.0)}, 0.0, 0.0))
