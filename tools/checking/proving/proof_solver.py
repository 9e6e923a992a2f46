"""Questions about symbolic reals that z3 answers: can conditions hold while an expression is not zero?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any, Literal

import z3

from .symbolic_conditions import Condition
from .symbolic_fractions import cleared, is_multiple
from .symbolic_polynomial import (
    NEGATIVE,
    POSITIVE,
    ZERO,
    Atom,
    Monomial,
    Number,
    Polynomial,
    magnitude,
    of,
    product,
    total,
)

Answer = Literal["never", "sometimes", "unknown"]
_LARGEST_EXPONENT = 24
_MOST_SIGNS = 6
_MONOTONE = 4
_STEPS_PER_MS = 2000
_PATIENCE = 10


class Untranslatable(Exception):
    """An expression is too complicated to be asked about."""


@dataclass
class Translation:
    """Polynomials as z3 terms. Functions are numbers of which `axioms` say what is known; nothing is quantified."""

    axioms: list[Any] = field(default_factory=list)
    atoms: dict[Atom, Any] = field(default_factory=dict)
    roots: dict[tuple[Atom, int], Any] = field(default_factory=dict)
    exponentials: list[tuple[Any, Any]] = field(default_factory=list)
    sums: dict[Polynomial, Any] = field(default_factory=dict)

    def sum(self, x: Polynomial) -> Any:
        """A polynomial."""
        found = self.sums.get(x)
        if found is None:
            numerator, denominators = cleared(x)
            found = z3.Sum([self._component(c) for c in _components(numerator)] or [z3.RealVal(0)])
            for factor, exponent in denominators.items():
                for _ in range(exponent):
                    found = found / self.sum(factor.arguments[0])
            self.sums[x] = found
        return found

    def _component(self, x: Polynomial) -> Any:
        switches = {a for a in x.atoms() if a.kind in ("sign", "truth")}
        if not switches:
            return z3.Sum([self._monomial(m, c) for m, c in x.terms.items()])
        if len(switches) > _MOST_SIGNS:
            raise Untranslatable
        last = max(switches, key=lambda a: a.serial)
        if last.kind == "truth":
            return z3.If(self.truth(last), self.sum(_at(x, last, 1)), self.sum(_at(x, last, 0)))
        return self._by_sign(x, last)

    def _by_sign(self, x: Polynomial, sign: Atom) -> Any:
        inside = sign.arguments[0]
        above, zero, below = (_at(x, sign, v) for v in (1, 0, -1))
        compared = self.sum(inside)
        if is_multiple(above - zero, inside):
            return z3.If(compared >= 0, self.sum(above), self.sum(below))
        if is_multiple(below - zero, inside):
            return z3.If(compared > 0, self.sum(above), self.sum(below))
        return z3.If(compared > 0, self.sum(above), z3.If(compared < 0, self.sum(below), self.sum(zero)))

    def truth(self, factor: Atom) -> Any:
        """A truth value."""
        return self.atoms.setdefault(factor, z3.Bool(factor.label))

    def _monomial(self, monomial: Monomial, coefficient: Number) -> Any:
        fraction = Fraction(coefficient)
        result = z3.RealVal(f"{fraction.numerator}/{fraction.denominator}")
        for factor, exponent in monomial:
            one = self._power(factor, magnitude(exponent))
            result = result * one if exponent > 0 else result / one
        return result

    def _power(self, factor: Atom, exponent: Number) -> Any:
        fraction = Fraction(exponent)
        if fraction.numerator > _LARGEST_EXPONENT:
            raise Untranslatable
        base = self.atom(factor) if fraction.denominator == 1 else self._root(factor, fraction.denominator)
        return _product([base] * fraction.numerator)

    def _root(self, factor: Atom, degree: int) -> Any:
        if degree > _LARGEST_EXPONENT:
            raise Untranslatable
        if (factor, degree) not in self.roots:
            root = self.roots[factor, degree] = z3.FreshReal("root")
            self.axioms += [root >= 0, _product([root] * degree) == self.atom(factor)]
        return self.roots[factor, degree]

    # --- atoms

    def atom(self, factor: Atom) -> Any:
        """An atom, with what is known of it."""
        if factor not in self.atoms:
            made = self.atoms[factor] = self._made(factor)
            self.axioms += _signs(made, factor.signs)
        return self.atoms[factor]

    def _made(self, factor: Atom) -> Any:
        if factor.kind == "leaf":
            return z3.Real(factor.label)
        if factor.kind in ("truth", "sign"):
            return self.sum(of(factor))
        if factor.kind == "number":
            return z3.RealVal(factor.label)
        arguments = [self.sum(a) for a in factor.arguments]
        if factor.kind == "magnitude":
            return z3.If(arguments[0] >= 0, arguments[0], -arguments[0])
        if factor.kind == "maximum":
            return _largest(arguments)
        if factor.kind == "choice":
            return z3.If(arguments[0] == 1, arguments[1], arguments[2])
        return self._exponential(arguments[0]) if factor.kind == "exp" else self._function(factor.label, arguments)

    def _exponential(self, x: Any) -> Any:
        made = z3.FreshReal("exp")
        self.axioms += [made > 0, made >= 1 + x, (x > 0) == (made > 1), (x < 0) == (made < 1)]
        for other, value in self.exponentials[:_MONOTONE]:
            self.axioms.append((x > other) == (made > value))
        self.exponentials.append((x, made))
        return made

    def _function(self, name: str, arguments: Sequence[Any]) -> Any:
        x = arguments[0]
        if name == "floor":
            return z3.ToReal(z3.ToInt(x))
        if name == "trunc":
            return z3.If(x >= 0, z3.ToReal(z3.ToInt(x)), -z3.ToReal(z3.ToInt(-x)))
        made = z3.FreshReal(name)
        if name == "round":
            self.axioms += [z3.IsInt(made), made - x <= z3.Q(1, 2), x - made <= z3.Q(1, 2)]
        elif name == "log":
            magnitude = z3.If(x >= 0, x, -x)
            self.axioms += [z3.Implies(x != 0, z3.And(made <= magnitude - 1, (made > 0) == (magnitude > 1)))]
        elif name in ("erf", "sin", "cos"):
            self.axioms += [made <= 1, made >= -1]
        if name in ("erf", "asin", "atan", "asinh", "atanh"):
            self.axioms += [(made > 0) == (x > 0), (made < 0) == (x < 0)]
        return made

    # --- conditions

    def condition(self, condition: Condition) -> Any:
        """A condition as a z3 truth value."""
        first = self.sum(condition.arguments[0])
        if condition.inner is not None:
            return z3.Implies(first == 1, self.condition(condition.inner))
        if condition.kind == "power":
            exponent = self.sum(condition.arguments[1])
            return z3.Or(first > 0, z3.And(first == 0, exponent >= 0), z3.And(first < 0, z3.IsInt(exponent)))
        return z3.And(_signs(first, condition.allowed))


def _product(factors: Sequence[Any]) -> Any:
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


def _largest(numbers: Sequence[Any]) -> Any:
    result = numbers[0]
    for one in numbers[1:]:
        result = z3.If(result >= one, result, one)
    return result


def _signs(term: Any, signs: int) -> list[Any]:
    """Constraints that leave only some signs."""
    return {
        NEGATIVE: [term < 0],
        ZERO: [term == 0],
        POSITIVE: [term > 0],
        NEGATIVE | ZERO: [term <= 0],
        NEGATIVE | POSITIVE: [term != 0],
        ZERO | POSITIVE: [term >= 0],
    }.get(signs, [])


def _at(x: Polynomial, switch: Atom, value: int) -> Polynomial:
    """A polynomial with a number for one of its signs or truth values."""
    summands = []
    for monomial, coefficient in x.terms.items():
        exponents = dict(monomial)
        exponent = exponents.pop(switch, 0)
        scaled = coefficient * value ** int(exponent) if exponent else coefficient
        if scaled:
            summands.append(Polynomial({tuple(exponents.items()): scaled}))
    return total(summands)


def _components(x: Polynomial) -> list[Polynomial]:
    """Parts that have no sign in common: they can be told case by case, each for itself."""
    parts: list[tuple[set[Atom], dict[Monomial, Number]]] = []
    for monomial, coefficient in x.terms.items():
        switches = {a for a, _ in monomial if a.kind in ("sign", "truth")}
        terms = {monomial: coefficient}
        separate = []
        for others, own in parts:
            if others & switches or not (others or switches):
                switches |= others
                terms |= own
            else:
                separate.append((others, own))
        parts = [*separate, (switches, terms)]
    return [Polynomial(terms) for _, terms in parts]


# --- questions


def limited_solver(timeout_ms: int) -> Any:
    """A solver that gives up after about this time: by counting its steps, so that load does not change answers."""
    solver = z3.Solver()
    solver.set("rlimit", _STEPS_PER_MS * timeout_ms)
    solver.set("timeout", _PATIENCE * timeout_ms)
    solver.set("ctrl_c", False)
    return solver


def _whole(x: Polynomial) -> Polynomial:
    """A polynomial that is zero where a quotient is, given that no denominator is."""
    numerator, _ = cleared(x)
    for factor in numerator.atoms():
        least = min(dict(m).get(factor, 0) for m in numerator.terms)
        if least < 0:
            numerator = product(numerator, of(factor, ceil(-least)))
    return numerator


def ask(
    conditions: Iterable[Condition], nonzero: Polynomial | None, broken: Sequence[Condition], timeout_ms: int
) -> tuple[Answer, Mapping[str, Fraction | bool]]:
    """Whether `conditions` can hold while a polynomial is not zero, or while one of the `broken` does not hold.

    With ``sometimes`` come values of the leaves; where functions are involved these need not be a true example.
    """
    translation = Translation()
    try:
        asked = [translation.condition(c) for c in sorted(conditions, key=repr)]  # a set has no order of its own
        goals = [] if nonzero is None else [translation.sum(_whole(nonzero)) != 0]
        goals += [z3.Not(translation.condition(c)) for c in broken]
    except Untranslatable:
        return "unknown", {}
    solver = limited_solver(timeout_ms)
    solver.add(*asked, *translation.axioms, z3.Or(goals))
    status = solver.check()
    if status == z3.unsat:
        return "never", {}
    return ("sometimes", _values(solver.model(), translation)) if status == z3.sat else ("unknown", {})


def _values(model: Any, translation: Translation) -> dict[str, Fraction | bool]:
    values: dict[str, Fraction | bool] = {}
    for factor, term in translation.atoms.items():
        if factor.kind == "truth":
            values[factor.label] = bool(z3.is_true(model.eval(term, model_completion=True)))
        elif factor.kind == "leaf":
            value = model.eval(term, model_completion=True)
            value = value if z3.is_rational_value(value) else value.approx(20)
            values[factor.label] = Fraction(value.numerator_as_long(), value.denominator_as_long())
    return values
