"""From a proof to a short chain of steps, each one instance of a rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .congruence import Congruence, Use
from .minimise import minimal
from .patterns import Pattern, Template
from .session.trial import Proof

_MINIMISED = 300
"""Equations up to which leaving out single ones is worth the time."""


@dataclass(frozen=True)
class Step:
    """An instance of a rule: the term `before` becomes `after`, two terms of the proof.

    `templates` are the two as the rule writes them; `forward` is false where it is read from right to left. A step is
    `joined` from two where both terms match the left side: the rule makes them equal by way of a third.
    """

    pattern: Pattern
    before: int
    after: int
    templates: tuple[Template, Template]
    forward: bool
    joined: bool = False


def chain(proof: Proof) -> tuple[Step, ...]:
    """The steps from the original to the chosen term; none of them can be left out."""
    used = sorted({use.equation for use in proof.terms.explain(proof.original, proof.chosen)})
    needed = _parts(proof, used)
    if len(used) <= _MINIMISED:
        used = list(minimal(used, lambda some: _closure(proof, needed, some).proves(proof)))
    return tuple(_step(proof, use) for use in _closure(proof, needed, used).explain(proof))


def _step(proof: Proof, use: Use) -> Step:
    equation = proof.equations[use.equation]
    left, right = equation.templates
    if use.forward:
        return Step(equation.pattern, equation.left, equation.right, (left, right), True)
    return Step(equation.pattern, equation.right, equation.left, (right, left), False)


def _parts(proof: Proof, equations: Iterable[int]) -> list[int]:
    """The terms that the equations and both ends consist of, operands first."""
    found: set[int] = set()
    ends = ((proof.equations[e].left, proof.equations[e].right) for e in equations)
    pending = [proof.original, proof.chosen, *(term for pair in ends for term in pair)]
    while pending:
        term = pending.pop()
        if term not in found:
            found.add(term)
            pending += proof.terms.terms[term].children
    return sorted(found)


@dataclass(frozen=True)
class _Closure:
    """What follows from some of a proof's equations."""

    terms: Congruence
    numbers: dict[int, int]

    def proves(self, proof: Proof) -> bool:
        """Whether it follows that both ends are equal."""
        return self.terms.find(self.numbers[proof.original]) == self.terms.find(self.numbers[proof.chosen])

    def explain(self, proof: Proof) -> list[Use]:
        """The equations from end to end."""
        return self.terms.explain(self.numbers[proof.original], self.numbers[proof.chosen])


def _closure(proof: Proof, parts: Sequence[int], equations: Iterable[int]) -> _Closure:
    terms = Congruence()
    numbers: dict[int, int] = {}
    for part in parts:
        node = proof.terms.terms[part]
        numbers[part] = terms.add(replace(node, children=tuple(numbers[c] for c in node.children)))
    for number in equations:
        equation = proof.equations[number]
        terms.equate(numbers[equation.left], numbers[equation.right], number)
    return _Closure(terms, numbers)
