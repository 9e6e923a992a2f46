"""What a proof knows: facts about numbers, and facts about all axes that are used at the axes it mentions.

Ranks, sizes and positions are integers of z3; a shape is an uninterpreted function from axes to sizes. Nothing is
quantified: a fact about all axes is instantiated at finitely many of them, which proves no more than the fact itself,
and a goal about all axes is asked of one new axis of which nothing is known. So an answer holds for every rank.

Where a fact is used is found as by the triggers of z3: a fact that looks up a size at an axis is used at every axis at
which that size is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import z3

from ..proving.proof_solver import limited_solver

Number = Any
Truth = Any
Property = Callable[[Number], Truth]

_DEPTHS = (1, 2, 3)
"""A fact is used at what the rule or the goal looks up, at what is looked up in that use, and so on, this many times:
where few times are not enough for an answer, more are tried."""
_MOST_USES = 900
"""Facts are used at most this often in one case: a proof that needs more is given up."""
_QUESTION_MS = 300
"""How long a question may take; z3 counts its steps, so that load does not change answers."""
_PATIENCE_MS = 60_000
"""After this time by the clock a question is given up whatever its steps: only a machine that stands still needs it."""
_MOST_QUESTIONS = 300


@dataclass(frozen=True)
class _Lookup:
    """A function at a position; `depth` counts the facts that it comes from."""

    function: str
    at: Number
    depth: int


@dataclass(frozen=True)
class _Trigger:
    """A fact about p looks up a function at sign * p + offset."""

    function: str
    sign: int
    offset: Number


@dataclass(frozen=True)
class _Fact:
    holds: Property
    deepest: int
    triggers: tuple[_Trigger, ...]


_MOST_WORK = 10_000
"""Uses of facts in all cases of a rule together."""


class GaveUp(Exception):
    """A rule takes more questions than a proof may ask."""


class Undecided(Exception):
    """A proof goes on differently in two cases."""


class Unproved(Exception):
    """Something does not follow from what a rule asks for; the message says what."""


@dataclass
class World:
    """Facts that hold in every case that a rule matches."""

    solver: Any = field(default_factory=lambda: _solver())
    decisions: tuple[bool, ...] = ()
    questions: int = 0
    work: int = 0
    permutations: list[tuple[Callable[[Number], Number], Callable[[Number], Number]]] = field(default_factory=list)
    _lookups: list[_Lookup] = field(default_factory=list)
    _facts: list[_Fact] = field(default_factory=list)
    _known: set[tuple[str, int]] = field(default_factory=set)
    _uses: set[tuple[int, int]] = field(default_factory=set)
    _joined: set[tuple[int, int]] = field(default_factory=set)
    _kept: list[Number] = field(default_factory=list)
    _depth: int = 0
    _fresh: int = 0

    # --- names

    def integer(self, name: str) -> Number:
        """A number of which nothing is known."""
        self._fresh += 1
        return z3.Int(f"{name}!{self._fresh}")

    def truth(self, name: str) -> Truth:
        """A truth value of which nothing is known."""
        self._fresh += 1
        return z3.Bool(f"{name}!{self._fresh}")

    def function(self, name: str) -> Callable[[Number], Number]:
        """A function of axes or places of which nothing is known."""
        self._fresh += 1
        own = f"{name}!{self._fresh}"
        symbol = z3.Function(own, z3.IntSort(), z3.IntSort())

        def look_up(at: Number) -> Number:
            at = plain(at)
            if (own, at.get_id()) not in self._known:
                self._known.add((own, at.get_id()))
                self._kept.append(at)  # numbers of expressions are used again once these are gone
                self._lookups.append(_Lookup(own, at, self._depth))
            return symbol(at)

        return look_up

    # --- facts

    def assume(self, fact: Truth) -> None:
        """A fact."""
        self.solver.add(fact)

    def assume_all(self, fact: Property, *, deepest: int = _DEPTHS[-1]) -> None:
        """A fact about every axis, or every place. One about neighbours is used where a rule or goal looks only."""
        probe = self.integer("probe")
        before, known = len(self._lookups), set(self._known)
        fact(probe)
        seen, self._known = self._lookups[before:], known
        del self._lookups[before:]
        triggers = tuple(t for lookup in seen if (t := _trigger(lookup, probe)) is not None)
        self._facts.append(_Fact(fact, deepest, triggers))

    def every(self, count: Number, holds: Property) -> Truth:
        """Whether something holds for all of the first `count`: where it does not, there is one for which it fails."""
        truth, witness = self.truth("every"), self.integer("witness")
        self.assume_all(lambda at: z3.Implies(z3.And(truth, at >= 0, at < count), holds(at)))
        self.assume(z3.Or(truth, z3.And(witness >= 0, witness < count, z3.Not(holds(witness)))))
        return truth

    @contextmanager
    def supposing(self, *facts: Truth) -> Iterator[None]:
        """A case; what is added or looked up in it is forgotten at its end."""
        self._use_facts(_DEPTHS[0])  # once, rather than in every case
        self.solver.push()
        kept = len(self._lookups), len(self._facts), set(self._known), set(self._uses), set(self._joined)
        try:
            self.solver.add(*facts)
            yield
        finally:
            self.solver.pop()
            del self._lookups[kept[0] :], self._facts[kept[1] :]
            self._known, self._uses, self._joined = kept[2:]

    def decide(self, condition: Truth) -> bool:
        """Whether a condition holds in this case. Raises Undecided where the case does not say it: there are two."""
        if self.follows(condition):
            return True
        if self.follows(z3.Not(condition)):
            return False
        if not self.decisions:
            raise Undecided
        value, self.decisions = self.decisions[0], self.decisions[1:]
        self.assume(condition if value else z3.Not(condition))
        return value

    # --- questions

    def possible(self) -> bool:
        """Whether the facts may all hold: False is certain, True is not."""
        self.questions += 1
        if self.questions > _MOST_QUESTIONS:
            raise GaveUp
        for depth in _DEPTHS:
            before = len(self._uses)
            self._use_facts(depth)
            if (depth == _DEPTHS[0] or len(self._uses) > before) and self.solver.check() == z3.unsat:
                return False
        return True

    def follows(self, goal: Truth) -> bool:
        """Whether a goal follows from the facts: True is certain."""
        goal = z3.simplify(goal)
        if z3.is_true(goal):
            return True
        with self.supposing(z3.Not(goal)):
            return not self.possible()

    def follows_all(self, count: Number, goal: Property) -> bool:
        """Whether a goal follows for all of the first `count`."""
        with self.supposing():
            one = self.integer("one")
            self.assume(z3.And(one >= 0, one < count))
            return self.follows(goal(one))

    def _use_facts(self, deepest: int) -> None:
        number = 0
        while number < len(self._lookups) and len(self._uses) < _MOST_USES:
            if self._lookups[number].depth <= deepest:
                self._use_at(number, self._lookups[number])
            number += 1

    def _use_at(self, number: int, lookup: _Lookup) -> None:
        self._depth, before = lookup.depth + 1, self._depth
        try:
            for index, fact in enumerate(self._facts):
                if (number, index) in self._joined or lookup.depth > fact.deepest:
                    continue
                self._joined.add((number, index))
                for trigger in fact.triggers:
                    if trigger.function == lookup.function:
                        self._use(index, plain(trigger.sign * (lookup.at - trigger.offset)))
        finally:
            self._depth = before

    def _use(self, index: int, at: Number) -> None:
        if (index, at.get_id()) not in self._uses:
            self.work += 1
            if self.work > _MOST_WORK:
                raise GaveUp
            self._kept.append(at)
            self._uses.add((index, at.get_id()))
            self.solver.add(self._facts[index].holds(at))


def _solver() -> Any:
    solver = limited_solver(_QUESTION_MS)
    solver.set("timeout", _PATIENCE_MS)
    return solver


def plain(number: Number) -> Number:
    """A number in the form that equal sums have in common."""
    return z3.simplify(number if z3.is_expr(number) else z3.IntVal(number), som=True)


def _trigger(lookup: _Lookup, probe: Number) -> _Trigger | None:
    """Where a fact has to be used if its function is looked up somewhere; None where that has no answer."""
    for sign in (1, -1):
        offset = plain(lookup.at - sign * probe)
        if not _contains(offset, probe):
            return _Trigger(lookup.function, sign, offset)
    return None


def _contains(number: Number, part: Number) -> bool:
    waiting = [number]
    while waiting:
        one = waiting.pop()
        if one.eq(part):
            return True
        waiting += one.children()
    return False
