"""The layout of every group and the conversions between them, for the least time over the whole graph.

Where few branches run side by side, groups are eliminated one by one (elimination.py), which is exact.
Elsewhere local search gives an answer, and an integer program (integer_program.py) improves it and proves how good it
is. Inputs and outputs of the graph are plain.

DNNFusion (Niu et al., PLDI 2021), section 4.4.2, gives each fused block the layout that suits its dominant operator,
and leaves finer cost models to future work. Here preferences and conversions are weighed over the whole graph.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from math import inf

from ..groups import Partition
from ..kernels import KernelModel
from .elimination import LARGEST_TABLE, eliminate
from .feature_maps import FeatureMaps, Layout, layouts
from .integer_program import solve_layouts
from .preferences import Preference, preferences
from .problem import Choice, LayoutProblem

_TOLERANCE = 1e-6
"""Relative difference of cost and bound that is rounding of the solver."""


@dataclass(frozen=True)
class Conversion:
    """A value stored once more in another layout, for the groups `readers` that run in it; there are none where only
    the caller, or operators that work on plain maps only, read it. `bytes` are read plus written."""

    value: int
    source: Layout
    target: Layout
    readers: tuple[int, ...]
    seconds: float
    bytes: int


@dataclass(frozen=True)
class LayoutPlan:
    """A layout per group, and the conversions that these need, by value.

    `seconds` is what layouts cost: the conversions, and what groups lose in another layout than their favourite.
    `bound` is proven: no choice of layouts for this partition costs less.
    """

    layouts: Choice
    preferences: tuple[Preference, ...]
    conversions: tuple[Conversion, ...]
    seconds: float
    bound: float

    @property
    def conversion_seconds(self) -> float:
        """Seconds of all conversions."""
        return sum(c.seconds for c in self.conversions)

    @property
    def conversion_bytes(self) -> int:
        """Bytes that all conversions read and write."""
        return sum(c.bytes for c in self.conversions)

    @property
    def gap(self) -> float:
        """Share of the cost that is not proven necessary: 0 where the plan is optimal."""
        return 1.0 - self.bound / self.seconds if self.seconds > 0.0 else 0.0

    def summary(self) -> str:
        """One line for people."""
        groups = ", ".join(f"{count} {layout}" for layout, count in sorted(Counter(self.layouts).items()))
        proof = "proven optimal" if self.gap == 0.0 else f"at most {self.gap:.1%} above the optimum"
        moved = f"{self.conversion_bytes / 1e6:.2f} MB, {self.conversion_seconds * 1e6:.0f} us"
        return f"groups: {groups}; {len(self.conversions)} conversions ({moved}); {proof}"


def assign_layouts(partition: Partition, model: KernelModel, time_limit: float = 10.0) -> LayoutPlan:
    """The layouts of least cost. `time_limit`, in seconds, is for graphs too wide to be solved by elimination; with 0
    they get the choice that local search finds, and no bound."""
    return solve_layout_problem(layout_problem(partition, model), time_limit)


def layout_problem(partition: Partition, model: KernelModel) -> LayoutProblem:
    """The problem that `assign_layouts` solves."""
    maps = FeatureMaps(partition.graph)
    return LayoutProblem(partition, model, maps, preferences(partition, model, maps))


def solve_layout_problem(problem: LayoutProblem, time_limit: float, largest: int = LARGEST_TABLE) -> LayoutPlan:
    """A plan of least cost; `largest` is that of `eliminate`."""
    deadline = time.monotonic() + time_limit
    exact = eliminate(problem, largest)
    if exact is not None:
        return make_plan(problem, exact, inf)
    choice = search_locally(problem)
    cost = problem.cost(choice)
    if cost <= 0.0 or deadline <= time.monotonic():
        return make_plan(problem, choice, 0.0)
    solution = solve_layouts(problem, cost, deadline)
    if solution.choice is not None and problem.cost(solution.choice) < cost:
        choice = solution.choice
        cost = problem.cost(choice)
    return make_plan(problem, choice, inf if solution.bound >= cost * (1 - _TOLERANCE) else solution.bound)


def make_plan(problem: LayoutProblem, choice: Choice, bound: float) -> LayoutPlan:
    """A choice with the conversions it needs. A `bound` above its cost, up to infinity, says that it is optimal."""
    conversions = []
    for flow in problem.flows:
        source = problem.source(flow, choice)
        for target in problem.targets(flow, choice):
            seconds = problem.conversion(flow.value, source, target)
            if seconds > 0.0:
                readers = tuple(r for r in flow.readers if problem.maps.stored(choice[r], flow.value) == target)
                size = 2 * problem.partition.graph.values[flow.value].extent.bytes
                conversions.append(Conversion(flow.value, source, target, readers, seconds, size))
    cost = problem.cost(choice)
    return LayoutPlan(choice, problem.preferences, tuple(conversions), cost, min(cost, bound))


def search_locally(problem: LayoutProblem) -> Choice:
    """The best of the choices from which no change of one group leads down, found from several starts."""
    uniform = (problem.uniform(layout) for layout in layouts(problem.model.device))
    return min((_descend(start, problem) for start in (*uniform, problem.favourites())), key=problem.cost)


def _descend(start: Choice, problem: LayoutProblem) -> Choice:
    """One group at a time takes the layout that is best for it."""
    choice = list(start)
    waiting = dict.fromkeys(range(len(choice)))
    while waiting:
        group = next(iter(waiting))
        del waiting[group]
        best = _best_layout(group, choice, problem)
        if best != choice[group]:
            choice[group] = best
            waiting |= dict.fromkeys(g for f in problem.flows_of[group] for g in f.groups if g != group)
    return tuple(choice)


def _best_layout(group: int, choice: list[Layout], problem: LayoutProblem) -> Layout:
    """The layout that is best while the others stay; the present one unless another is better beyond rounding."""
    costs: dict[Layout, float] = {}
    for layout in problem.preferences[group].seconds:
        changed = [*choice[:group], layout, *choice[group + 1 :]]
        flows = sum(problem.flow_cost(flow, changed) for flow in problem.flows_of[group])
        costs[layout] = problem.preferences[group].beyond(layout) + flows
    best = min(costs, key=costs.__getitem__)
    return best if costs[best] < costs[choice[group]] * (1 - 1e-12) else choice[group]
