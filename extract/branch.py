"""Proven optimal selections of a small core by branch and bound.

A state is a selection in the making: some classes are decided, some open, and some required: these two, and whatever
is in the must-set of an open class (the classes that every acyclic selection with it contains; see dominance.py). It
costs at least what is decided plus the cheapest choice of everything else that is required. The search goes on with
the open class whose choices raise this bound most, cheapest choice first, and gives up what reaches the best cost
known. Most cores are proven in milliseconds: the greedy answer is near the optimum, and the bound is close.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..support.deadlines import OutOfTime, is_over, require_time
from .answer import Answer, Selection
from .components import Core
from .cycles import strongly_connected
from .dominance import bits
from .problem import TOLERANCE

# Where more classes than this have a choice, the search seldom ends in time.
_DECISIONS = 64
# Choices looked at and costs added in one search: about a tenth of a second.
_EFFORT = 150_000
_STATES_PER_LOOK = 256
# Must-sets that are not settled after so many rounds are not used.
_SETTLING_ROUNDS = 50


def prove_by_branching(core: Core, answer: Answer, deadline: float) -> Answer:
    """Improve an answer, and prove it if that takes no more than a fixed effort and ends before the deadline
    (time.monotonic)."""
    decisions = sum(len(choices) > 1 for choices in core.classes)
    if answer.proven or decisions > _DECISIONS or is_over(deadline):
        return answer
    try:
        search = _Search(core, answer.cost, deadline)
    except OutOfTime:
        return answer
    exhausted = search.run(deadline)
    answer = answer.improved_by(search.found, core)
    return answer.bounded_by(answer.cost) if exhausted else answer


class _Option(NamedTuple):
    """A choice: its position, its cost above that of the cheapest of its class, its children, those among them that
    may lead back to its class, and all that every acyclic selection contains below it.

    Sets are integers used as bitsets.
    """

    position: int
    extra: float
    children: int
    looping: int
    below: int


class _Picked(NamedTuple):
    """A decision, and those before it."""

    number: int
    position: int
    before: _Picked | None


class _State(NamedTuple):
    """`above` holds for a class the decided ones that lead to it, `looping` for a decided one the children of its
    choice; both leave out what cannot be on a cycle."""

    decided: int
    open: int
    required: int
    cost: float
    picked: _Picked | None
    above: Mapping[int, int]
    looping: Mapping[int, int]


class _Search:
    def __init__(self, core: Core, cost: float, deadline: float) -> None:
        self.core, self.best = core, cost
        self.found: Selection | None = None
        self.must = _must_sets(core, deadline)
        self.least = [min(choice.cost for choice in choices) for choices in core.classes]
        loops = _loops(core)
        self.options = [list(self._options(number, loops[number])) for number in range(len(core.classes))]
        self.prices: dict[int, float] = {}
        self.effort = 0

    def _options(self, number: int, loop: int) -> Iterator[_Option]:
        for position, choice in enumerate(self.core.classes[number]):
            below = children = 0
            for child in choice.children:
                below |= self.must[child]
                children |= 1 << child
            if not below >> number & 1:
                yield _Option(position, choice.cost - self.least[number], children, children & loop, below)

    def _price(self, classes: int) -> float:
        """What some classes cost at least; asked for the same ones again and again."""
        price = self.prices.get(classes)
        if price is None:
            self.effort += classes.bit_count()
            price = self.prices[classes] = math.fsum(self.least[number] for number in bits(classes))
        return price

    def run(self, deadline: float) -> bool:
        """Search from the roots; whether nothing is left to search."""
        start = required = 0
        for root in self.core.roots:
            start |= 1 << root
            required |= self.must[root]
        pending = [_State(0, start, required, self._price(required), None, {}, {})]
        states = 0
        while pending:
            states += 1
            if self.effort > _EFFORT or (states % _STATES_PER_LOOK == 0 and is_over(deadline)):
                return False
            pending += self._followers(pending.pop())
        return True

    def _hopeless(self, cost: float) -> bool:
        return cost >= self.best * (1 - TOLERANCE)

    def _followers(self, state: _State) -> list[_State]:
        """The states that a decision for one open class leads to, the most promising last."""
        if self._hopeless(state.cost):
            return []
        if not state.open:
            self.best, self.found = state.cost, _selection(state)
            return []
        chosen, choices, rise = 0, [], -1.0
        for number in bits(state.open):
            ranked = self._ranked(state, number)
            if len(ranked) < 2:
                chosen, choices = number, ranked
                break
            if ranked[0][0] + ranked[1][0] - 2 * state.cost > rise:
                chosen, choices, rise = number, ranked, ranked[0][0] + ranked[1][0] - 2 * state.cost
        return [_decided(state, chosen, option, cost) for cost, _, option in reversed(choices)]

    def _ranked(self, state: _State, number: int) -> list[tuple[float, int, _Option]]:
        """The choices of a class that are neither hopeless nor cyclic, with what the selection then costs at least;
        cheapest first."""
        missing = ~state.required
        above = state.above.get(number, 0)
        ranked = []
        for option in self.options[number]:
            cost = state.cost + option.extra + self._price(option.below & missing)
            if not option.below & above and not self._hopeless(cost):
                ranked.append((cost, option.position, option))
        self.effort += len(self.options[number])
        return sorted(ranked)


def _decided(state: _State, number: int, option: _Option, cost: float) -> _State:
    decided = state.decided | 1 << number
    waiting = (state.open | option.children) & ~decided
    picked = _Picked(number, option.position, state.picked)
    above, looping = state.above, state.looping
    if option.looping:
        looping = {**looping, number: option.looping}
        above = _led_to(above, looping, number)
    return _State(decided, waiting, state.required | option.below, cost, picked, above, looping)


def _led_to(above: Mapping[int, int], looping: Mapping[int, int], number: int) -> dict[int, int]:
    """What is above every class once the children of one more are known."""
    above = dict(above)
    stack = [number]
    while stack:
        member = stack.pop()
        reached = above.get(member, 0) | 1 << member
        for child in bits(looping.get(member, 0)):
            if reached & ~above.get(child, 0):
                above[child] = above.get(child, 0) | reached
                stack.append(child)
    return above


def _selection(state: _State) -> Selection:
    selection: dict[int, int] = {}
    picked = state.picked
    while picked is not None:
        selection[picked.number] = picked.position
        picked = picked.before
    return selection


def _loops(core: Core) -> list[int]:
    """For each class those of its strongly connected component, none where it is alone."""
    loops = [0] * len(core.classes)
    children = {n: {c for choice in choices for c in choice.children} for n, choices in enumerate(core.classes)}
    for component in strongly_connected(children):
        if len(component) > 1:
            for member in component:
                loops[member] = sum(1 << other for other in component)
    return loops


def _must_sets(core: Core, deadline: float) -> list[int]:
    """For each class the classes that every acyclic selection with it contains: the greatest fixed point."""
    everything = (1 << len(core.classes)) - 1
    must = [everything] * len(core.classes)
    for _ in range(_SETTLING_ROUNDS):
        require_time(deadline)
        before = list(must)
        for number in reversed(range(len(must))):
            must[number] = _common(core, must, number, everything)
        if must == before:
            return must
    return [1 << number for number in range(len(must))]


def _common(core: Core, must: list[int], number: int, everything: int) -> int:
    common = everything
    for choice in core.classes[number]:
        below = 0
        for child in choice.children:
            below |= must[child]
        if not below >> number & 1:
            common &= below
    return common | 1 << number
