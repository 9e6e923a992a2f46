"""Proven optimal selections by a memoised search over frontiers.

Classes are decided from the roots down, each after all that can lead to it from outside of its own cycle. The cost
still to be paid then depends on the open classes alone, and, within a strongly connected component, on the decisions
made in it: on the frontier, not on the way to it. So the search keeps an interval of the cost to complete each
frontier that it has met, and meets far fewer of them than there are selections. Before the roots, every class is
searched for by itself, from the leaves up, with little effort: the bounds that come out (bounds.py) are what prunes
the others, as in a pattern database (Culberson & Schaeffer, "Pattern Databases", Computational Intelligence 1998). In
between, choices that cannot be part of a better selection are dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from ...support.bitsets import bits
from ...support.deadlines import OutOfTime, is_over
from .bounds import Kept, Pick, Space, drop_unextractable_choices
from .cores import Answer, Core
from .problem import TOLERANCE, follow_choices

_EFFORT = 100
"""Frontiers that the first round of searches may expand for each class."""
_CLASS_EFFORT = 400
"""Frontiers that a search for one class may expand in any round, as long as all classes together take at most twice the
effort of the round: what is proven below a class makes its own search short."""
_MORE_EFFORT = 4
"""The factor by which every further round may expand more."""
_ROUNDS = 12
"""Rounds if time is not limited: as good as no limit."""
_STATES_PER_LOOK = 4
"""The clock is read after this many expansions."""
_WORTHWHILE = 0.02
"""The share of the choices that narrowing must drop to be worth another round at once."""


class Decided(NamedTuple):
    """A decided class of the strongly connected component at hand: its rank, its cost, its children on a cycle."""

    rank: int
    cost: float
    children: int


class Frontier(NamedTuple):
    """The open classes (a bitset of ranks), and the decided ones through which a cycle can still be closed."""

    open: int
    decided: tuple[Decided, ...] = ()


class Completion(NamedTuple):
    """Bounds of the cost of completing a frontier: the lower one, and the upper one with its choices."""

    low: float
    high: float
    step: Step | None


class Step(NamedTuple):
    """A decision: the least cost of completing the frontier with it, and the next frontier."""

    low: float
    cost: float
    rank: int
    position: int
    after: Frontier


@dataclass
class _Expansion:
    """A frontier whose decisions are being tried, cheapest first, as far as they cost less than `budget`."""

    frontier: Frontier
    budget: float
    steps: list[Step]
    tried: int = 0
    low: float = math.inf
    high: float = math.inf
    best: Step | None = None

    def limit(self) -> float:
        """The cost that a completion must stay below to be of use."""
        return min(self.budget, self.high)

    def finish_step(self, after: Completion) -> None:
        """Note the cost of completing the frontier with the decision that is being tried."""
        step = self.steps[self.tried]
        self.tried += 1
        self.low = min(self.low, step.cost + after.low)
        if step.cost + after.high < self.high:
            self.high, self.best = step.cost + after.high, step


@dataclass
class FrontierSearch:
    """The frontiers met so far in one space."""

    space: Space
    completions: dict[Frontier, Completion] = field(default_factory=dict)
    expanded: int = 0
    """Frontiers that were expanded so far."""

    def complete(self, frontier: Frontier, budget: float, effort: float) -> Completion:
        """The cost to complete a frontier: exactly, or that it is no less than the budget, unless more than `effort`
        frontiers must be expanded for that or the deadline comes; the interval holds in any case."""
        answer = self._look_up(frontier, budget)
        if answer is not None:
            return answer
        stack = [self._expand(frontier, budget)]
        left = effort
        while True:
            top = stack[-1]
            over = left <= 0
            step = None if over or top.tried == len(top.steps) else top.steps[top.tried]
            if step is not None and step.low < top.limit():
                answer = self._look_up(step.after, top.limit() - step.cost)
                if answer is None:
                    left -= 1
                    if left % _STATES_PER_LOOK == 0 and is_over(self.space.deadline):
                        left = 0
                    stack.append(self._expand(step.after, top.limit() - step.cost))
                    continue
                top.finish_step(answer)
                continue
            low = min(top.low, top.steps[top.tried].low) if top.tried < len(top.steps) else top.low
            answer = Completion(min(low, top.high), top.high, top.best)
            before = self.completions.get(top.frontier)
            if before is not None:
                upper = before if before.high < answer.high else answer
                answer = Completion(max(before.low, answer.low), upper.high, upper.step)
            self.completions[top.frontier] = answer
            stack.pop()
            if not stack:
                return answer
            stack[-1].finish_step(answer)

    def _look_up(self, frontier: Frontier, budget: float) -> Completion | None:
        """The interval of a frontier if it needs no search: exact, or no less than the budget."""
        if not frontier.open:
            return Completion(0.0, 0.0, None)
        answer = self.completions.get(frontier)
        if answer is not None and (answer.low >= answer.high or answer.low >= budget):
            return answer
        return None

    def _expand(self, frontier: Frontier, budget: float) -> _Expansion:
        """The decisions for one open class of the highest component, the most promising first."""
        self.expanded += 1
        space = self.space
        top = frontier.open.bit_length() - 1
        loop = space.loop[top]
        steps = []
        if not loop:
            rest = frontier.open ^ 1 << top
            steps = [self._step(top, pick, Frontier(rest | pick.children)) for pick in space.picks[top]]
        else:
            rank = min(bits(frontier.open & loop), key=lambda rank: (len(space.picks[rank]), -rank))
            leading = _mask_ancestors(frontier.decided, rank)
            for pick in space.picks[rank]:
                if not pick.below & leading:
                    steps.append(self._step(rank, pick, _decide(frontier, rank, pick, loop)))
        steps.sort()
        return _Expansion(frontier, budget, steps)

    def _step(self, rank: int, pick: Pick, after: Frontier) -> Step:
        before = self.completions.get(after)
        low = self.least(after) if before is None else before.low
        return Step(pick.cost + low, pick.cost, rank, pick.position, after)

    def least(self, frontier: Frontier) -> float:
        """A lower bound of the cost of completing a frontier, without any search."""
        space = self.space
        if not frontier.decided:
            return space.least_below(frontier.open)
        decided = sum(1 << item.rank for item in frontier.decided)
        required = space.must_contain(frontier.open) & ~decided
        least = space.cost(required)
        for member in bits(frontier.open):
            had = math.fsum(item.cost for item in frontier.decided if space.reach[member] >> item.rank & 1)
            least = max(least, space.floor[member] - had + space.cost(required & ~space.reach[member]))
        return least

    def selection(self, frontier: Frontier) -> dict[int, int]:
        """The cheapest completion known of a frontier: positions by class of the core."""
        selection: dict[int, int] = {}
        while frontier.open:
            step = self.completions[frontier].step
            assert step is not None, "only a frontier with a completion is asked for"
            selection[self.space.numbers[step.rank]] = step.position
            frontier = step.after
        return selection


def _mask_ancestors(decided: tuple[Decided, ...], rank: int) -> int:
    """The class and the decided ones that lead to it."""
    leading, before = 1 << rank, 0
    while leading != before:
        before = leading
        for item in decided:
            if item.children & leading:
                leading |= 1 << item.rank
    return leading


def _decide(frontier: Frontier, rank: int, pick: Pick, loop: int) -> Frontier:
    decided = (*frontier.decided, Decided(rank, pick.cost, pick.children & loop))
    done = sum(1 << item.rank for item in decided)
    after = (frontier.open | pick.children) & ~done
    return Frontier(after, tuple(sorted(decided)) if after & loop else ())


def prove_by_frontiers(
    core: Core, answer: Answer, deadline: float, rounds: int = _ROUNDS, effort: float = _EFFORT
) -> tuple[Answer, Kept]:
    """Improve an answer and its bound until it is proven optimal, `rounds` have passed or the deadline (time.monotonic)
    has come; also the choices that a better selection may still have. `effort`: the frontiers that the first round may
    expand for each class."""
    kept: Kept = drop_unextractable_choices(core, [range(len(choices)) for choices in core.classes])
    if answer.is_proven:
        return answer, kept
    try:
        return search_among(core, answer, kept, deadline, rounds, effort)
    except OutOfTime:
        return answer, kept


def search_among(
    core: Core, answer: Answer, kept: Kept, deadline: float, rounds: int, effort: float = _EFFORT
) -> tuple[Answer, Kept]:
    """As `prove_by_frontiers`, among the choices that are kept: the bound holds for selections of these below the
    answer's cost. `effort`: the frontiers that the first round may expand for each class.

    Raises OutOfTime if the deadline comes before there are any bounds.
    """
    answer, kept, space = _narrow(core, answer, kept, deadline)
    search = FrontierSearch(space)
    for number in range(rounds):
        if answer.is_proven or is_over(deadline):
            break
        cost = answer.cost
        answer = _deepen(core, answer, search, effort * _MORE_EFFORT**number)
        if answer.is_proven or is_over(deadline):
            break
        fewer = space.choices_below(core, answer.cost)
        if answer.cost < cost or _is_worthwhile(kept, fewer):
            try:
                answer, kept, space = _narrow(core, answer, fewer, deadline)
            except OutOfTime:
                break
            search = FrontierSearch(space)
    return answer, kept


def _deepen(core: Core, answer: Answer, search: FrontierSearch, effort: float) -> Answer:
    """Search for every class by itself, with some effort, then for each part with that effort for each of its
    classes."""
    space = search.space
    lows = [space.least_below(part) for part in space.parts]
    fixed = space.fixed_cost()
    least = fixed + math.fsum(lows)
    above = space.least_above()
    target = answer.cost * (1 - TOLERANCE)
    spare = effort * len(space.numbers)
    for part, low in zip(space.parts, lows, strict=True):
        for rank in bits(space.below(part)):
            budget = target - (least - low) - above[rank]
            if budget > space.floor[rank] and not is_over(space.deadline):
                before, own = search.expanded, max(effort, min(effort + spare, _CLASS_EFFORT))
                space.floor[rank] = max(space.floor[rank], search.complete(Frontier(1 << rank), budget, own).low)
                spare -= max(0.0, search.expanded - before - effort)
    picked = dict(answer.selection)
    for rank in bits(space.required):
        if len(space.picks[rank]) == 1:
            picked[space.numbers[rank]] = space.picks[rank][0].position
    for index, part in enumerate(space.parts):
        rest = fixed + math.fsum(low for other, low in enumerate(lows) if other != index)
        completion = search.complete(Frontier(part), target - rest, effort * len(space.numbers))
        lows[index] = max(lows[index], completion.low)
        if completion.step is not None:
            picked.update(search.selection(Frontier(part)))
    return answer.raise_bound(fixed + math.fsum(lows)).improve(follow_choices(core, picked.get), core)


def _narrow(core: Core, answer: Answer, kept: Kept, deadline: float) -> tuple[Answer, Kept, Space]:
    """Drop choices until that brings little more; the answer is proven if a root has none left."""
    while True:
        space = Space(core, kept, deadline)
        answer = answer.raise_bound(space.least_cost())
        fewer = space.choices_below(core, answer.cost)
        if not all(fewer[root] for root in core.roots):
            return answer.raise_bound(answer.cost), kept, space
        before, kept = kept, fewer
        if not _is_worthwhile(before, kept):
            return answer, kept, Space(core, kept, deadline)


def _is_worthwhile(kept: Kept, fewer: Kept) -> bool:
    before, after = (sum(map(len, lists)) for lists in (kept, fewer))
    return after < before * (1 - _WORTHWHILE)
