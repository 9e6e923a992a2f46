"""The facts of a proof: facts about numbers, and facts about all axes, which are used at the axes that it mentions.

Ranks, sizes and positions are integers of z3; a shape is an uninterpreted function from axes to sizes. Nothing is
quantified: a fact about all axes is instantiated at finitely many of them, which proves no more than the fact itself,
and a goal about all axes is asked about one new axis of which nothing is known. So an answer holds for every rank.

As in z3, triggers decide at which axes a fact is used: a fact that looks up a size at an axis is used at every axis at
which that size is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import z3

from ..proving.solver import limited_solver
from .logic import conjunction, disjunction, implication, negation

Number = Any
Truth = Any
Property = Callable[[Number], Truth]

_DEPTHS = (1, 2, 3)
"""Depths up to which facts are used, in turn until one gives an answer: at depth 1 at the axes that the rule or the
goal looks up, at depth 2 also at those that these uses look up, and so on."""
_MOST_USES = 900
"""Uses of facts in one case, at most: a proof that needs more is given up."""
_PATIENCE_MS = 60_000
"""Milliseconds by the clock for one question: z3 counts its steps, so only a machine that stands still needs this
limit."""
_MOST_QUESTIONS = 300
"""Questions to z3 in one proof, at most: a proof that needs more is given up."""


@dataclass(frozen=True)
class _Lookup:
    """A function at a position; `depth` counts the facts whose uses led to it."""

    function: str
    at: Number
    depth: int


@dataclass(frozen=True)
class _Trigger:
    """A fact about p looks up a function at sign * p + offset."""

    function: str
    sign: int
    offset: Number
    places: dict[int, Number] = field(default_factory=dict)
    """By z3's numbers of the positions at which the function was looked up the p that fit."""

    def place(self, at: Number) -> Number:
        """The p for which the fact looks up the function at a position."""
        if at.get_id() not in self.places:
            is_itself = self.sign == 1 and z3.is_int_value(self.offset) and self.offset.as_long() == 0
            self.places[at.get_id()] = at if is_itself else plain(self.sign * (at - self.offset))
        return self.places[at.get_id()]


@dataclass(frozen=True)
class _Instance:
    """What a fact says about one axis or place, and the functions and positions that it looks up."""

    truth: Truth
    lookups: tuple[tuple[str, Number], ...]


@dataclass(frozen=True, eq=False)
class _Fact:
    """A fact about every axis or place; it is used at lookups up to the depth `deepest`."""

    holds: Property
    deepest: int
    triggers: tuple[_Trigger, ...]
    instances: dict[int, _Instance] = field(default_factory=dict)
    """By z3's numbers of axes and places what it says about them, which cases share."""


_MOST_WORK = 10_000
"""Uses of facts in one attempt at a proof, at most, in all its cases together."""


class GaveUp(Exception):
    """A rule takes more questions than a proof may ask."""


class Undecided(Exception):
    """A proof has to be split into two cases."""


class Unproved(Exception):
    """Something does not follow from the conditions of a rule; the message names it."""


@dataclass(frozen=True, eq=False)
class Renaming:
    """A one-to-one map of axes or places, and its inverse."""

    forth: Callable[[Number], Number]
    back: Callable[[Number], Number]

    @property
    def inverse(self) -> Renaming:
        """The map back."""
        return Renaming(self.back, self.forth)


@dataclass
class World:
    """Facts that hold in every case that a rule matches."""

    solver: Any = field(default_factory=lambda: limited_solver(_PATIENCE_MS))
    decisions: tuple[bool, ...] = ()
    questions: int = 0
    work: int = 0
    permutations: list[Renaming] = field(default_factory=list)
    _lookups: list[_Lookup] = field(default_factory=list)
    _facts: list[_Fact] = field(default_factory=list)
    _looked_up: set[tuple[str, int]] = field(default_factory=set)
    """The lookups so far, as functions and z3's numbers of the positions."""
    _uses: set[tuple[int, int]] = field(default_factory=set)
    """The uses so far, as indices of facts and z3's numbers of the positions."""
    _tried: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of lookups and facts tried so far, by their indices."""
    _alive: list[Number] = field(default_factory=list)
    """Expressions whose numbers are in use: z3 gives a number again once its expression is gone."""
    _recorded: list[tuple[str, Number]] = field(default_factory=list)
    """Every lookup since the last use of a fact began, those that were made before, too."""
    _plain_forms: dict[int, tuple[Number, Number]] = field(default_factory=dict)
    """By z3's numbers of positions each position, which keeps its number, and its plain form."""
    _depth: int = 0
    _fresh: int = 0
    _witnesses: int = 0

    # --- names

    def integer(self, name: str) -> Number:
        """A new number."""
        self._fresh += 1
        return z3.Int(f"{name}!{self._fresh}")

    def truth(self, name: str) -> Truth:
        """A new truth value."""
        self._fresh += 1
        return z3.Bool(f"{name}!{self._fresh}")

    def function(self, name: str) -> Callable[[Number], Number]:
        """A new function of axes or places."""
        self._fresh += 1
        own = f"{name}!{self._fresh}"
        symbol = z3.Function(own, z3.IntSort(), z3.IntSort())

        def look_up(at: Number) -> Number:
            at = self._plain(at)
            self._recorded.append((own, at))
            self._note_lookup(own, at)
            return symbol(at)

        return look_up

    def _plain(self, number: Number) -> Number:
        """The same as `plain`; most positions are looked up again and again."""
        known = self._plain_forms.get(number.get_id()) if z3.is_expr(number) else None
        if known is None:
            known = number, plain(number)
            if z3.is_expr(number):
                self._plain_forms[number.get_id()] = known
        return known[1]

    def _note_lookup(self, function: str, at: Number) -> None:
        if (function, at.get_id()) not in self._looked_up:
            self._looked_up.add((function, at.get_id()))
            self._alive.append(at)
            self._lookups.append(_Lookup(function, at, self._depth))

    # --- facts

    def assume(self, fact: Truth) -> None:
        """Add a fact."""
        self.solver.add(fact)

    def assume_all(self, fact: Property, *, deepest: int = _DEPTHS[-1]) -> None:
        """Add a fact about every axis, or every place. A fact about neighbours, which would trigger itself again and
        again, has a small `deepest`: it is used only at places that a rule or goal looks up."""
        probe = self.integer("probe")
        before, looked_up = len(self._lookups), set(self._looked_up)
        fact(probe)
        lookups, self._looked_up = self._lookups[before:], looked_up
        del self._lookups[before:]
        triggers = tuple(t for lookup in lookups if (t := _trigger(lookup, probe)) is not None)
        self._facts.append(_Fact(fact, deepest, triggers))

    def every(self, count: Number, holds: Property) -> Truth:
        """Whether something holds for all of the first `count`; if not, it fails for a witness."""
        truth, witness = self.truth("every"), self.integer("witness")
        self.assume_all(lambda at: implication(conjunction(truth, at >= 0, at < count), holds(at)))
        self.assume(disjunction(truth, conjunction(witness >= 0, witness < count, negation(holds(witness)))))
        return truth

    @contextmanager
    def supposing(self, *facts: Truth) -> Iterator[None]:
        """A case; its end forgets the facts and lookups that it added."""
        self._use_facts(_DEPTHS[0])  # once, rather than in every case
        self.solver.push()
        lookups, before = len(self._lookups), len(self._facts)
        sets = set(self._looked_up), set(self._uses), set(self._tried)
        try:
            self.solver.add(*facts)
            yield
        finally:
            self.solver.pop()
            del self._lookups[lookups:], self._facts[before:]
            self._looked_up, self._uses, self._tried = sets

    def decide(self, condition: Truth) -> bool:
        """Whether a condition holds in this case. Raises Undecided if the proof has to split into two cases."""
        if self.follows(condition):
            return True
        if self.follows(negation(condition)):
            return False
        if not self.decisions:
            raise Undecided
        value, self.decisions = self.decisions[0], self.decisions[1:]
        self.assume(condition if value else negation(condition))
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
            if depth == _DEPTHS[0] or len(self._uses) > before:
                answer = self.solver.check()
                if answer == z3.unsat:
                    return False
                if answer == z3.unknown and depth > _DEPTHS[0]:  # still more facts would not help it
                    return True
        return True

    def follows(self, goal: Truth) -> bool:
        """Whether a goal follows from the facts: True is certain."""
        goal = z3.simplify(goal)
        if z3.is_true(goal):
            return True
        with self.supposing(negation(goal)):
            return not self.possible()

    def follows_all(self, count: Number, goal: Property) -> bool:
        """Whether a goal follows for all of the first `count`."""
        one = z3.Int(f"axis {self._witnesses}")  # no fact beyond this question knows it: a later one has it again
        self._witnesses += 1
        try:
            with self.supposing(one >= 0, one < count):
                return self.follows(goal(one))
        finally:
            self._witnesses -= 1

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
                if (number, index) in self._tried or lookup.depth > fact.deepest:
                    continue
                self._tried.add((number, index))
                for trigger in fact.triggers:
                    if trigger.function == lookup.function:
                        self._use(index, trigger.place(lookup.at))
        finally:
            self._depth = before

    def _use(self, index: int, at: Number) -> None:
        if (index, at.get_id()) not in self._uses:
            self.work += 1
            if self.work > _MOST_WORK:
                raise GaveUp
            self._alive.append(at)
            self._uses.add((index, at.get_id()))
            self.solver.add(self._instance(self._facts[index], at))

    def _instance(self, fact: _Fact, at: Number) -> Truth:
        """What a fact says about an axis or place; its lookups are noted in this case, too."""
        known = fact.instances.get(at.get_id())
        if known is None:
            self._recorded, fresh = [], self._fresh
            known = _Instance(fact.holds(at), tuple(self._recorded))
            if fresh == self._fresh:  # else it made names, about which this case alone has facts
                fact.instances[at.get_id()] = known
        else:
            for function, position in known.lookups:
                self._note_lookup(function, position)
        return known.truth


def plain(number: Number) -> Number:
    """A number in a form that is the same for equal sums."""
    return z3.simplify(number if z3.is_expr(number) else z3.IntVal(number), som=True)


def _trigger(lookup: _Lookup, probe: Number) -> _Trigger | None:
    """The trigger by which a lookup of its function uses a fact; None for a lookup that is not linear."""
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
