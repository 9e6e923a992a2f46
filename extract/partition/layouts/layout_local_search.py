"""Good layouts without a proof: from several starts, one group at a time takes the layout that is best for it."""

from __future__ import annotations

from .layout_flows import Choice, LayoutProblem
from .layouts import Layout, layouts


def settled(problem: LayoutProblem) -> Choice:
    """The best of the choices from which no change of one group leads down."""
    uniform = (problem.uniform(layout) for layout in layouts(problem.model.device))
    return min((_descend(start, problem) for start in (*uniform, problem.favourites())), key=problem.cost)


def _descend(start: Choice, problem: LayoutProblem) -> Choice:
    choice = list(start)
    waiting = dict.fromkeys(range(len(choice)))
    while waiting:
        group = next(iter(waiting))
        del waiting[group]
        best = _best(group, choice, problem)
        if best != choice[group]:
            choice[group] = best
            flows = problem.flows_of[group]
            waiting |= dict.fromkeys(g for f in flows for g in f.groups if g != group)
    return tuple(choice)


def _best(group: int, choice: list[Layout], problem: LayoutProblem) -> Layout:
    """The layout that is best while the others stay; the present one unless another is better beyond rounding."""
    before = choice[group]
    costs: dict[Layout, float] = {}
    for layout in problem.preferences[group].seconds:
        choice[group] = layout
        flows = sum(problem.flow_cost(flow, choice) for flow in problem.flows_of[group])
        costs[layout] = problem.preferences[group].beyond(layout) + flows
    choice[group] = before
    best = min(costs, key=lambda layout: costs[layout])
    return best if costs[best] < costs[before] * (1 - 1e-12) else before
