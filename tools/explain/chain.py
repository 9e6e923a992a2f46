"""From a proof to a short chain of steps, each one instance of a rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...support.minimal_failure import minimal_failure
from .congruence import Congruence, Use
from .ground import reachable
from .patterns import Pattern, Template
from .proof import Proof

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


def build_chain(proof: Proof) -> tuple[Step, ...]:
    """The steps from the original to the chosen term; none of them can be left out."""
    used = sorted({use.equation for use in proof.terms.explain(proof.original, proof.chosen)})
    needed = _parts(proof, used)
    if 0 < len(used) <= _MINIMISED:
        used = list(minimal_failure(lambda some: _closure(proof, needed, some).proves(proof), used))
    return tuple(_step(proof, use) for use in _closure(proof, needed, used).explain(proof))


def _step(proof: Proof, use: Use) -> Step:
    equation = proof.equations[use.equation]
    left, right = equation.templates
    if use.forward:
        return Step(equation.pattern, equation.left, equation.right, (left, right), True)
    return Step(equation.pattern, equation.right, equation.left, (right, left), False)


def _parts(proof: Proof, equations: Iterable[int]) -> list[int]:
    """The terms that the equations and both ends consist of, operands first."""
    ends = (term for e in equations for term in (proof.equations[e].left, proof.equations[e].right))
    return reachable((proof.original, proof.chosen, *ends), lambda term: proof.terms.terms[term].children)


@dataclass(frozen=True)
class _Closure:
    """The equalities that follow from some of a proof's equations."""

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
