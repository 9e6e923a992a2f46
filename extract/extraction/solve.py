"""The extraction pipeline: reduce, split, answer each distinct component, put together, check."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...engine.choices import Extraction
from ...support.deadlines import seconds_left
from ...support.directed_graphs import short_cycles
from .bounds import Kept
from .branch import prove_by_frontiers
from .cores import Answer, Component, Core, split_into_components
from .greedy import extract_greedily, node_queue_selection
from .milp import prove_by_milp
from .neighbourhoods import improve_by_neighbourhoods
from .problem import (
    TOLERANCE,
    ExtractionError,
    Problem,
    Solution,
    Status,
    follow_choices,
    selected_children,
    selection_cost,
)
from .reduce import Reduced, reduce
from .ties import prefer_earlier

Answers = Mapping[Core, Answer]

_QUICK_EFFORT = 24
"""Frontiers that the first search may expand for each class of a component, in one round: that settles most components.
By a limit in time a busy machine would find another answer than a quiet one."""
_QUICK_CLASSES = 250
"""In larger components that is less, as the square of the classes: there are more of them, and each takes longer. With
738 classes the first search takes half a second instead of three."""
_NEXT_EFFORT = 200
"""The same of the next search: it proves a network of 180 classes in half a second for which HiGHS needs five."""
_QUICK_SHARE = 0.5
"""The share of the time that all first searches may take together, where they get that far."""
_SHARES = (0.6, 0.75, 0.85, 1.0)
"""When each thorough prover ends, as shares of a component's time: the integer program (at first at the root of its
tree alone, then a search over frontiers), the search of neighbourhoods, which helps wherever a proof takes long, and
the search over frontiers and the program again with the better answer."""
_REDUCTION_SHARE = 0.5
_WHOLE_SHARE = 0.05
"""The share of the time, beyond its end, for the greedy answer to the whole of an unproven problem: where the time ends
the reduction, that of the components may be worse."""
_LEAST_PREPARATION = 1.0
"""Seconds for the reduction and the greedy answer in any case: most of the gain comes from them."""


def solve(problem: Problem, *, time_limit: float, method: Extraction = "exact") -> Solution:
    """Extract a cheapest acyclic selection; time_limit is in seconds.

    "greedy" stops at the greedy answer; "exact" goes on until every component is proven optimal or the time is up,
    and is never worse. Out of time, an answer is at worst the earliest candidate everywhere or the cheapest tree,
    which are found in a time that hardly grows faster than the problem. Raises ExtractionError, an EqfuseError, if a
    root has no acyclic extraction.
    """
    start = time.monotonic()
    prepared = start + max(time_limit, _LEAST_PREPARATION)
    reduced = reduce(problem, start + max(_REDUCTION_SHARE * time_limit, _LEAST_PREPARATION))
    # Finishing takes about half the time of reducing; the search gets the rest.
    deadline = start + time_limit - (time.monotonic() - start) / 2
    split = _Split(problem, reduced, split_into_components(reduced, prepared))
    cores = list(dict.fromkeys(part.core for part in split.parts))
    rough = {core: extract_greedily(core, prepared) for core in cores}
    if method == "greedy":
        return split.finish(rough, prepared)
    proven = _prove(cores, rough, deadline)
    solution = split.finish(proven, prepared)
    if solution.status == "optimal" or all(proven[core].selection is rough[core].selection for core in cores):
        return solution
    solution = _better(solution, split.finish(rough, prepared))
    whole = node_queue_selection(problem, prepared + _WHOLE_SHARE * time_limit)
    if whole is None:
        return solution
    cost = selection_cost(problem, whole)
    return _better(solution, replace(solution, choice=whole, cost=cost, lower_bound=0.0, status="feasible"))


def _prove(cores: Sequence[Core], rough: Answers, deadline: float) -> dict[Core, Answer]:
    """Exact answers: first a quick search for every core, smallest first; the others share the rest of the time."""
    proven = dict(rough)
    kept: dict[Core, Kept] = {}
    quick = time.monotonic() + _QUICK_SHARE * seconds_left(deadline)
    for core in cores:
        effort = _effort(_QUICK_EFFORT, core)
        proven[core], kept[core] = prove_by_frontiers(core, rough[core], quick, rounds=1, effort=effort)
    rest = [core for core in cores if not proven[core].is_proven]
    for done, core in enumerate(rest):
        share = seconds_left(deadline) / (len(rest) - done)
        proven[core] = _prove_thoroughly(core, proven[core], kept[core], share)
    return proven


def _prove_thoroughly(core: Core, answer: Answer, kept: Kept, seconds: float) -> Answer:
    """The provers in turn, each on the choices that the ones before have left."""
    start = time.monotonic()
    ends = [start + seconds * share for share in _SHARES]
    answer = prove_by_milp(core, answer, ends[0], kept, nodes=1)
    answer, kept = prove_by_frontiers(core, answer, ends[0], rounds=1, effort=_effort(_NEXT_EFFORT, core))
    answer = prove_by_milp(core, answer, ends[0], kept)
    answer = improve_by_neighbourhoods(core, answer, kept, ends[1])
    answer, kept = prove_by_frontiers(core, answer, ends[2])
    return prove_by_milp(core, answer, ends[3], kept)


def _effort(effort: float, core: Core) -> float:
    return effort * min(1.0, (_QUICK_CLASSES / len(core.classes)) ** 2)


@dataclass(frozen=True)
class _Split:
    """A problem, what its reduction left, and the components of that."""

    problem: Problem
    reduced: Reduced
    parts: Sequence[Component]

    def finish(self, answers: Answers, deadline: float) -> Solution:
        """Put the answers together, prefer earlier candidates, and check the result."""
        picked = dict(self.reduced.settled)
        for part in self.parts:
            for local, position in answers[part.core].selection.items():
                picked[part.numbers[local]] = part.candidates[local][position]
        choice = follow_choices(self.problem, picked.__getitem__)
        assert choice is not None, "every class that is needed is settled or in a component"
        choice = prefer_earlier(self.problem, self.reduced.usable, choice, deadline)
        cycles = short_cycles(selected_children(self.problem, choice))
        if cycles:
            raise ExtractionError(
                f"extraction: the selection is cyclic through e-classes {cycles[0]}; please report this"
            )
        cost = selection_cost(self.problem, choice)
        bounds = (answers[part.core].lower_bound for part in self.parts)
        bound = min(math.fsum([self.reduced.settled_cost, *bounds]), cost)
        return Solution(choice, cost, bound, _status(cost, bound))


def _status(cost: float, bound: float) -> Status:
    return "optimal" if bound >= cost * (1 - TOLERANCE) else "feasible"


def _better(first: Solution, second: Solution) -> Solution:
    """The cheaper of two solutions of one problem, with the better of their bounds."""
    best = min(first, second, key=lambda solution: solution.cost)
    bound = min(max(first.lower_bound, second.lower_bound), best.cost)
    return replace(best, lower_bound=bound, status=_status(best.cost, bound))
