"""The extraction pipeline: reduce, split, answer each distinct component, combine, take back needless changes, check.

Solvers and reductions find some selection of least cost, which may differ from the original for nothing. So at the end
every selected class tries its earlier candidates in turn, with the classes that these need instead of those that
nothing needs any more, and keeps the first that costs no more.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...engine.choices import Extraction
from ...support.deadlines import OutOfTime, is_over, seconds_left
from ...support.directed_graphs import short_cycles
from ...support.solvers import as_integers, check_within
from .bounds import Kept, drop_unextractable_choices, reachable_components
from .branch import prove_by_frontiers, search_among
from .cores import Answer, Component, Core, split_into_components
from .greedy import extract_greedily, node_queue_selection
from .milp import Pair, cheapest_selection, prove_by_milp
from .options import Graph, extraction_ranks, strongly_connected_classes
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

_ROUNDING = 1e-12
"""Costs are sums of rounded figures: a swap may seem to cost this much more, relative to the classes it replaces."""


def prefer_earlier(
    problem: Problem, usable: Graph, choice: Mapping[int, int], deadline: float = math.inf
) -> dict[int, int]:
    """An acyclic selection of no higher cost in which no single class could take an earlier candidate for nothing.

    usable: the candidates with a finite extraction, and their classes. After the deadline (time.monotonic) the classes
    that were not tried keep their candidates.
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
        """Take another candidate for a class if that is acyclic and costs no more; returns whether it did."""
        if candidate not in self.usable[number]:
            return False
        before = self.picked[number]
        released = self._release(self._children(number))
        saved = math.fsum([self._cost(number), *map(self._cost, released)])
        self.picked[number] = candidate
        if self._select(number, saved * (1 + _ROUNDING)) and not self._on_cycle(number):
            # Classes that were just released have their spare candidates again: those are acyclic in any selection.
            self.picked.update((child, self.spare[child]) for child in released if not self.readers[child])
            self.journal.clear()
            return True
        for counted, step in self.journal:
            self.readers[counted] -= step
        self.journal.clear()
        self.picked[number] = before
        return False

    def _release(self, children: Sequence[int]) -> list[int]:
        """Count the children as read once less, and so on; returns the classes that this unselects."""
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


Answers = Mapping[Core, Answer]

_QUICK_EFFORT = 24
"""Frontiers that the first search may expand for each class of a component, in one round: that solves most components.
With a limit in time a busy machine would find another answer than a quiet one."""
_QUICK_CLASSES = 250
"""The classes from which a component gets fewer frontiers, as the square of the classes: there are more of them, and
each takes longer. With 738 classes the first search takes half a second instead of three."""
_NEXT_EFFORT = 200
"""Frontiers of the next search: it proves a network of 180 classes in half a second, for which HiGHS needs five."""
_QUICK_SHARE = 0.5
"""The share of the time that all first searches may take together, if they get that far."""
_SHARES = (0.6, 0.75, 0.85, 1.0)
"""The ends of the thorough provers, as shares of a component's time: the integer program (at first at the root of its
tree alone, then a search over frontiers); the search of neighbourhoods, which helps if a proof takes long; and
the search over frontiers and the program again with the better answer."""
_REDUCTION_SHARE = 0.5
"""Share of the time limit after which the reduction of the problem ends."""
_WHOLE_SHARE = 0.05
"""The share of the time, beyond its end, for the greedy answer to the whole of an unproven problem: if the time ended
the reduction, the answer of the components may be worse."""
_LEAST_PREPARATION = 1.0
"""Seconds that the reduction and the greedy answer have in any case: most of the gain comes from them."""


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
    if is_for_z3(core, kept):
        answer = prove_by_z3(core, answer, ends[0], kept)
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
    """A problem, the rest after its reduction, and the components of that."""

    problem: Problem
    reduced: Reduced
    parts: Sequence[Component]

    def finish(self, answers: Answers, deadline: float) -> Solution:
        """Put the answers together, prefer earlier candidates, and check the result."""
        picked = dict(self.reduced.fixed)
        for part in self.parts:
            for local, position in answers[part.core].selection.items():
                picked[part.numbers[local]] = part.candidates[local][position]
        choice = follow_choices(self.problem, picked.__getitem__)
        assert choice is not None, "every class that is needed is fixed or in a component"
        choice = prefer_earlier(self.problem, self.reduced.usable, choice, deadline)
        cycles = short_cycles(selected_children(self.problem, choice))
        if cycles:
            raise ExtractionError(
                f"extraction: the selection is cyclic through e-classes {cycles[0]}; please report this"
            )
        cost = selection_cost(self.problem, choice)
        bounds = (answers[part.core].lower_bound for part in self.parts)
        bound = min(math.fsum([self.reduced.fixed_cost, *bounds]), cost)
        return Solution(choice, cost, bound, _status(cost, bound))


def _status(cost: float, bound: float) -> Status:
    return "optimal" if bound >= cost * (1 - TOLERANCE) else "feasible"


def _better(first: Solution, second: Solution) -> Solution:
    """The cheaper of two solutions of one problem, with the better of their bounds."""
    best = min(first, second, key=lambda solution: solution.cost)
    bound = min(max(first.lower_bound, second.lower_bound), best.cost)
    return replace(best, lower_bound=bound, status=_status(best.cost, bound))


_FIRST_SIZE = 5
"""Classes that are free in the first round; a round that is solved adds one, another takes one away."""
_LEAST_SIZE = 3
_EFFORT = 2.0
"""Frontiers that one round may expand for each class: rounds are many and short."""
_PROGRAM_SECONDS = 1.0
"""Seconds that a round that the search does not solve may take as an integer program."""


def improve_by_neighbourhoods(core: Core, answer: Answer, kept: Kept, deadline: float) -> Answer:
    """A selection that costs no more, of choices that are kept or the answer's own, by the deadline (time.monotonic).

    The bound stays.
    """
    generator = random.Random(0)
    size = _FIRST_SIZE
    while not (answer.is_proven or is_over(deadline) or size > 2 * len(answer.selection)):
        free = _neighbours(core, answer, size, generator)
        around = [list(positions) for positions in kept]
        for number, position in answer.selection.items():
            around[number] = sorted({*kept[number], position}) if number in free else [position]
        unbounded = replace(answer, lower_bound=0.0)
        among = drop_unextractable_choices(core, around)
        try:
            better, left = search_among(core, unbounded, among, deadline, rounds=1, effort=_EFFORT)
        except OutOfTime:
            break
        better = prove_by_milp(core, better, min(deadline, time.monotonic() + _PROGRAM_SECONDS), left)
        size = size + 1 if better.is_proven else max(size - 1, _LEAST_SIZE)
        answer = replace(better, lower_bound=answer.lower_bound)
    return answer


def _neighbours(core: Core, answer: Answer, size: int, generator: random.Random) -> set[int]:
    """A selected class and those that it reaches in the fewest steps, up or down."""
    below = selected_children(core, answer.selection)
    near: dict[int, list[int]] = {number: list(children) for number, children in below.items()}
    for number, children in below.items():
        for child in children:
            near[child].append(number)
    order = [generator.choice(sorted(near))]
    free = set(order)
    for number in order:
        generator.shuffle(near[number])
        for other in near[number]:
            if len(order) < size and other not in free:
                free.add(other)
                order.append(other)
    return free


# Proven optimal selections of a core with loops by z3: a Boolean per choice, the costs as soft constraints, and for
# each class on a cycle an integer, its place, which a choice puts behind the places of the classes that it reads.
#
# On a large strongly connected component the search over frontiers (branch.py) must remember what was decided in it,
# and the integer program (milp.py) adds its cycles one by one. z3's difference logic knows them all from the start.

_MOST_CLASSES = 100
"""Classes of a core that z3 decides: with 99 it takes a second, with 250 it gives no answer in five."""
_LEAST_LOOP = 10
"""Classes of the largest strongly connected component from which on z3 is asked. Cores with smaller ones are proven by
the first search over frontiers, in a tenth of z3's time."""
_WORK_LIMIT = 60_000_000
"""The limit of z3's own count of its work, which depends on no clock: a core of 99 classes takes up to 15 million."""


def is_for_z3(core: Core, kept: Kept) -> bool:
    """Whether a core has the size and the shape that z3 decides sooner than other provers, if the quick search did not:
    few classes, many of them on cycles with each other."""
    components = reachable_components(core, kept)
    return sum(map(len, components)) <= _MOST_CLASSES and max(map(len, components), default=0) >= _LEAST_LOOP


def prove_by_z3(core: Core, answer: Answer, deadline: float, kept: Kept) -> Answer:
    """The optimum with its proof; the answer as it was if z3 has none by the deadline (time.monotonic) or within its
    limit of work.

    kept: for every class the positions of the choices that a better selection may have.
    """
    if answer.is_proven or is_over(deadline):
        return answer
    import z3  # here: importing it takes longer than most extractions

    context = z3.Context()  # of its own: what was asked before would change the answer among equal ones
    optimizer = z3.Optimize(ctx=context)
    optimizer.set("rlimit", _WORK_LIMIT)
    components = reachable_components(core, kept)
    home = {number: index for index, members in enumerate(components) for number in members}
    needed = {number: z3.Bool(f"needed{number}", context) for number in home}
    place = {number: z3.Int(f"place{number}", context) for number in home}
    picked: dict[Pair, z3.BoolRef] = {}
    for number in home:
        positions = [p for p in kept[number] if core.classes[number][p].cost <= answer.cost]
        literals = [z3.Bool(f"pick{number}_{position}", context) for position in positions]
        picked.update(((number, position), literal) for position, literal in zip(positions, literals, strict=True))
        optimizer.add(z3.Implies(needed[number], z3.Or([z3.BoolVal(False, context), *literals])))
        for position, literal in zip(positions, literals, strict=True):
            for child in core.classes[number][position].children:
                optimizer.add(z3.Implies(literal, needed[child]))
                if home[child] == home[number]:
                    optimizer.add(z3.Implies(literal, place[child] < place[number]))
    optimizer.add([needed[root] for root in core.roots])
    weights, _ = as_integers([core.classes[number][position].cost for number, position in picked])
    for literal, weight in zip(picked.values(), weights, strict=True):
        if weight:
            optimizer.add_soft(z3.Not(literal), str(weight))
    status = check_within(deadline, optimizer)
    if status == z3.unsat:
        return answer.raise_bound(answer.cost)
    if status != z3.sat:
        return answer
    model = optimizer.model()
    best = cheapest_selection(core, [pair for pair, literal in picked.items() if z3.is_true(model[literal])])
    assert best is not None, "what is picked needs what it reads"
    return answer.improve(best, core).raise_bound(selection_cost(core, best))
