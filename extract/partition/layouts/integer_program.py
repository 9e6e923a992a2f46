"""The choice of layouts as an integer program: a Markov random field over the groups.

A binary variable per group and layout. For two groups between which a value flows, the pairs of their layouts have
variables too, whose sums over one group are the variables of the other (the local polytope: tight where the groups form
a tree). A conversion is at least each pair that needs it, so that readers which want the same layout pay once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ....support.solvers import IntegerProgram, Row
from .feature_maps import PLAIN, Layout
from .problem import Choice, Flow, LayoutProblem

_SCALED_COST = 1e4
"""The objective is scaled so that the choice at hand costs this: HiGHS stops at an absolute gap of 1e-6."""

Needs = dict[tuple[Layout, Layout], list[int]]
"""By conversion, the columns of which one is 1 where a reader makes it necessary."""


@dataclass(frozen=True)
class LayoutSolution:
    """The best choice found, None where time ran out before any, and the proven bound in seconds."""

    choice: Choice | None
    bound: float


def solve_layouts(problem: LayoutProblem, cost: float, deadline: float) -> LayoutSolution:
    """Solve the program by HiGHS until the deadline (time.monotonic). `cost` is that of some choice, above 0."""
    layouts = _LayoutProgram(problem)
    program, scale = layouts.program, _SCALED_COST / cost
    program.costs = [own * scale for own in program.costs]
    values, bound = program.minimise(deadline)
    choice = list(problem.favourites())
    if values is not None:
        for (group, layout), column in layouts.runs_in.items():
            if values[column] > 0.5:
                choice[group] = layout
    return LayoutSolution(None if values is None else tuple(choice), max(0.0, bound / scale))


@dataclass
class _LayoutProgram:
    """The program of a problem; the columns by group and layout, and by pairs of them."""

    problem: LayoutProblem
    program: IntegerProgram = field(default_factory=IntegerProgram)
    runs_in: dict[tuple[int, Layout], int] = field(default_factory=dict)
    pairs: dict[tuple[int, int, Layout, Layout], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for group, preference in enumerate(self.problem.preferences):
            if self.problem.flows_of[group]:
                for layout in preference.seconds:
                    column = self.program.add_column(preference.beyond(layout), is_integral=True)
                    self.runs_in[group, layout] = column
                self._add_row([self.runs_in[group, layout] for layout in preference.seconds], lower=1.0, upper=1.0)
        for flow in self.problem.flows:
            self._add_flow(flow)

    def _add_row(self, columns: list[int], whole: int | None = None, *, lower: float, upper: float) -> None:
        """lower <= sum of columns - whole <= upper."""
        terms = [] if whole is None else [(whole, -1.0)]
        self.program.rows.append(Row([*terms, *((column, 1.0) for column in columns)], lower, upper))

    def _add_flow(self, flow: Flow) -> None:
        """The conversions that each reader needs; one reader pays its own, several share."""
        needs = [self._needs(flow, reader) for reader in flow.readers]
        if flow.is_read_plain and flow.maker is not None:
            needs.append(self._needs_plain(flow, flow.maker))
        for conversion in dict.fromkeys(c for need in needs for c in need):
            cost = self.problem.conversion(flow.value, *conversion)
            who = [need[conversion] for need in needs if conversion in need]
            if cost > 0.0 and len(who) == 1:
                for column in who[0]:
                    self.program.costs[column] += cost
            elif cost > 0.0:
                shared = self.program.add_column(cost, is_integral=False)
                for columns in who:
                    terms = [(shared, 1.0), *((column, -1.0) for column in columns)]
                    self.program.rows.append(Row(terms, lower=0.0))

    def _needs(self, flow: Flow, reader: int) -> Needs:
        stored, needs = self.problem.maps.stored, Needs()
        for wanted in self.problem.preferences[reader].seconds:
            target = stored(wanted, flow.value)
            if flow.maker is None:
                needs.setdefault((PLAIN, target), []).append(self.runs_in[reader, wanted])
                continue
            for source in self.problem.preferences[flow.maker].seconds:
                column = self._pair(flow.maker, reader, source, wanted)
                needs.setdefault((stored(source, flow.value), target), []).append(column)
        return needs

    def _needs_plain(self, flow: Flow, maker: int) -> Needs:
        needs = Needs()
        for layout in self.problem.preferences[maker].seconds:
            source = self.problem.maps.stored(layout, flow.value)
            needs.setdefault((source, PLAIN), []).append(self.runs_in[maker, layout])
        return needs

    def _pair(self, first: int, second: int, one: Layout, other: Layout) -> int:
        """The column of a pair of layouts; all pairs of two groups are made at once, with their marginals."""
        if (first, second, one, other) not in self.pairs:
            ones, others = self.problem.preferences[first].seconds, self.problem.preferences[second].seconds
            for a in ones:
                for b in others:
                    self.pairs[first, second, a, b] = self.program.add_column(0.0, is_integral=False)
            for a in ones:
                columns = [self.pairs[first, second, a, b] for b in others]
                self._add_row(columns, self.runs_in[first, a], lower=0.0, upper=0.0)
            for b in others:
                columns = [self.pairs[first, second, a, b] for a in ones]
                self._add_row(columns, self.runs_in[second, b], lower=0.0, upper=0.0)
        return self.pairs[first, second, one, other]
