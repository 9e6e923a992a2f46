"""What a proof knows: facts about numbers, and facts about all axes that are used at the axes it mentions.

Ranks, sizes and positions are integers of z3; a shape is an uninterpreted function from axes to sizes. Nothing is
quantified: a fact about all axes is instantiated at finitely many of them, which proves no more than the fact itself,
and a goal about all axes is asked of one new axis of which nothing is known. So an answer holds for every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import z3

from ..proof_solver import limited_solver

Kind = Literal["axis", "place"]
"""Axes count from the last one, as broadcasting aligns them; places in a vector count from its front."""
Number = Any
Truth = Any
Property = Callable[[Number], Truth]

_DEEPEST = 2
"""A fact is used at axes that the rule or the goal mentions, and at those that come up there, and again there."""
_MOST_AXES = 150
"""Axes beyond this number are not looked at: a proof that needs more is given up."""
_QUESTION_MS = 1000
"""How long a question may take; z3 counts its steps, so that load does not change answers."""
_MOST_QUESTIONS = 500


class GaveUp(Exception):
    """A rule takes more questions than a proof may ask."""


@dataclass
class World:
    """Facts that hold in every case that a rule matches."""

    solver: Any = field(default_factory=lambda: limited_solver(_QUESTION_MS))
    mentioned: list[tuple[Kind, Number, int]] = field(default_factory=list)
    facts: list[tuple[Kind, Property]] = field(default_factory=list)
    questions: int = 0
    _known: set[tuple[Kind, int]] = field(default_factory=set)
    _done: set[tuple[int, int]] = field(default_factory=set)
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

    def function(self, name: str, kind: Kind) -> Callable[[Number], Number]:
        """A function of axes or places of which nothing is known. What it is asked for is mentioned thereby."""
        self._fresh += 1
        symbol = z3.Function(f"{name}!{self._fresh}", z3.IntSort(), z3.IntSort())
        return lambda at: symbol(self.mention(kind, at))

    def mention(self, kind: Kind, at: Number) -> Number:
        """Facts about all axes or places are used at this one."""
        at = z3.simplify(at if z3.is_expr(at) else z3.IntVal(at), som=True)
        if (kind, at.get_id()) not in self._known:
            self._known.add((kind, at.get_id()))
            self.mentioned.append((kind, at, self._depth))
        return at

    # --- facts

    def assume(self, fact: Truth) -> None:
        """A fact."""
        self.solver.add(fact)

    def assume_all(self, kind: Kind, fact: Property) -> None:
        """A fact about every axis, or every place."""
        self.facts.append((kind, fact))

    def every(self, kind: Kind, count: Number, holds: Property) -> Truth:
        """Whether something holds for all of the first `count`: where it does not, there is one for which it fails."""
        truth, witness = self.truth("every"), self.integer("witness")
        self.mention(kind, witness)
        self.assume_all(kind, lambda at: z3.Implies(z3.And(truth, at >= 0, at < count), holds(at)))
        self.assume(z3.Or(truth, z3.And(witness >= 0, witness < count, z3.Not(holds(witness)))))
        return truth

    @contextmanager
    def supposing(self, *facts: Truth) -> Iterator[None]:
        """A case; what is added or mentioned in it is forgotten at its end."""
        self._instantiate()  # once, rather than in every case
        self.solver.push()
        kept = len(self.mentioned), len(self.facts), set(self._known), set(self._done)
        try:
            self.solver.add(*facts)
            yield
        finally:
            self.solver.pop()
            del self.mentioned[kept[0] :], self.facts[kept[1] :]
            self._known, self._done = kept[2], kept[3]

    # --- questions

    def possible(self) -> bool:
        """Whether the facts may all hold: False is certain, True is not."""
        self.questions += 1
        if self.questions > _MOST_QUESTIONS:
            raise GaveUp
        self._instantiate()
        return bool(self.solver.check() != z3.unsat)

    def follows(self, goal: Truth) -> bool:
        """Whether a goal follows from the facts: True is certain."""
        with self.supposing(z3.Not(goal)):
            return not self.possible()

    def follows_all(self, kind: Kind, count: Number, goal: Property) -> bool:
        """Whether a goal follows for all of the first `count`."""
        with self.supposing():
            one = self.mention(kind, self.integer(kind))
            self.assume(z3.And(one >= 0, one < count))
            return self.follows(goal(one))

    def _instantiate(self) -> None:
        number = 0
        while number < len(self.mentioned) and number < _MOST_AXES:
            self._use_at(number)
            number += 1

    def _use_at(self, number: int) -> None:
        kind, at, depth = self.mentioned[number]
        if depth > _DEEPEST:
            return
        self._depth, before = depth + 1, self._depth
        try:
            for index, (own, fact) in enumerate(self.facts):
                if own == kind and (index, number) not in self._done:
                    self._done.add((index, number))
                    self.solver.add(fact(at))
        finally:
            self._depth = before
