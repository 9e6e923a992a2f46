"""Questions about symbolic reals that z3 answers: can conditions hold while an expression is not zero?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from math import ceil
from operator import mul
from typing import Any, Literal

import z3

from .definedness import Condition
from .fractions import clear_denominators, is_multiple
from .polynomial import NEGATIVE, POSITIVE, ZERO, Atom, Monomial, Number, Polynomial, of, product, total

Answer = Literal["never", "sometimes", "unknown"]
_LARGEST_EXPONENT = 24
"""The largest exponent for which powers are written as products, and roots as powers; z3 is not asked about larger
ones."""
_MOST_SIGNS = 6
"""Signs and truth values in shared terms, at most, for which all cases are written out: 2 or 3 cases for each."""
_MONOTONE = 4
"""For this many earlier exponentials, each one is stated to be larger exactly if its argument is larger."""
_STEPS = 600_000
"""Steps of z3 for one question: about 0.3 s. Counting steps rather than seconds keeps answers independent of load."""
_PATIENCE_MS = 3_000
"""Milliseconds by the clock for one question: only a machine that stands still needs this limit."""


class Untranslatable(Exception):
    """An expression is too complicated for z3."""


@dataclass
class Translation:
    """Translates polynomials into z3 terms.

    Functions become fresh numbers, constrained by the `axioms`; nothing is quantified.
    """

    axioms: list[Any] = field(default_factory=list)
    atoms: dict[Atom, Any] = field(default_factory=dict)
    roots: dict[tuple[Atom, int], Any] = field(default_factory=dict)
    exponentials: list[tuple[Any, Any]] = field(default_factory=list)
    sums: dict[Polynomial, Any] = field(default_factory=dict)

    def sum(self, x: Polynomial) -> Any:
        """A polynomial."""
        if x not in self.sums:
            numerator, denominators = clear_denominators(x)
            term = z3.Sum([self._component(c) for c in _components(numerator)] or [z3.RealVal(0)])
            for factor, exponent in denominators.items():
                for _ in range(exponent):
                    term = term / self.sum(factor.arguments[0])
            self.sums[x] = term
        return self.sums[x]

    def _component(self, x: Polynomial) -> Any:
        switches = {a for a in x.atoms() if a.kind in ("sign", "truth")}
        if not switches:
            return z3.Sum([self._monomial(m, Fraction(c)) for m, c in x.terms.items()])
        if len(switches) > _MOST_SIGNS:
            raise Untranslatable
        last = max(switches, key=lambda a: a.serial)
        if last.kind == "truth":
            truth = self.atoms.setdefault(last, z3.Bool(last.label))
            return z3.If(truth, self.sum(_substitute(x, last, 1)), self.sum(_substitute(x, last, 0)))
        inside = last.arguments[0]
        above, zero, below = (_substitute(x, last, v) for v in (1, 0, -1))
        compared = self.sum(inside)
        if is_multiple(above - zero, inside):
            return z3.If(compared >= 0, self.sum(above), self.sum(below))
        if is_multiple(below - zero, inside):
            return z3.If(compared > 0, self.sum(above), self.sum(below))
        return z3.If(compared > 0, self.sum(above), z3.If(compared < 0, self.sum(below), self.sum(zero)))

    def _monomial(self, monomial: Monomial, coefficient: Fraction) -> Any:
        result = z3.RealVal(f"{coefficient.numerator}/{coefficient.denominator}")
        for factor, exponent in monomial:
            power = self._power(factor, abs(Fraction(exponent)))
            result = result * power if exponent > 0 else result / power
        return result

    def _power(self, factor: Atom, exponent: Fraction) -> Any:
        if exponent.numerator > _LARGEST_EXPONENT:
            raise Untranslatable
        base = self.atom(factor) if exponent.denominator == 1 else self._root(factor, exponent.denominator)
        return reduce(mul, [base] * exponent.numerator)

    def _root(self, factor: Atom, degree: int) -> Any:
        if degree > _LARGEST_EXPONENT:
            raise Untranslatable
        if (factor, degree) not in self.roots:
            root = self.roots[factor, degree] = z3.FreshReal("root")
            self.axioms += [root >= 0, reduce(mul, [root] * degree) == self.atom(factor)]
        return self.roots[factor, degree]

    # --- atoms

    def atom(self, factor: Atom) -> Any:
        """An atom; its signs become axioms."""
        if factor not in self.atoms:
            term = self.atoms[factor] = self._translate_atom(factor)
            self.axioms += _constrain_signs(term, factor.signs)
        return self.atoms[factor]

    def _translate_atom(self, factor: Atom) -> Any:
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
            return reduce(lambda largest, x: z3.If(largest >= x, largest, x), arguments)
        if factor.kind == "choice":
            return z3.If(arguments[0] == 1, arguments[1], arguments[2])
        return self._exponential(arguments[0]) if factor.kind == "exp" else self._function(factor.label, arguments)

    def _exponential(self, x: Any) -> Any:
        result = z3.FreshReal("exp")
        self.axioms += [result > 0, result >= 1 + x, (x > 0) == (result > 1), (x < 0) == (result < 1)]
        for other, value in self.exponentials[:_MONOTONE]:
            self.axioms.append((x > other) == (result > value))
        self.exponentials.append((x, result))
        return result

    def _function(self, name: str, arguments: Sequence[Any]) -> Any:
        x = arguments[0]
        if name == "floor":
            return z3.ToReal(z3.ToInt(x))
        if name == "trunc":
            return z3.If(x >= 0, z3.ToReal(z3.ToInt(x)), -z3.ToReal(z3.ToInt(-x)))
        result = z3.FreshReal(name)
        if name == "round":
            self.axioms += [z3.IsInt(result), result - x <= z3.Q(1, 2), x - result <= z3.Q(1, 2)]
        elif name == "log":
            magnitude = z3.If(x >= 0, x, -x)
            self.axioms += [z3.Implies(x != 0, z3.And(result <= magnitude - 1, (result > 0) == (magnitude > 1)))]
        elif name in ("erf", "sin", "cos"):
            self.axioms += [result <= 1, result >= -1]
        if name in ("erf", "asin", "atan", "asinh", "atanh"):
            self.axioms += [(result > 0) == (x > 0), (result < 0) == (x < 0)]
        return result

    # --- conditions

    def condition(self, condition: Condition) -> Any:
        """A condition as a z3 truth value."""
        first = self.sum(condition.arguments[0])
        if condition.inner is not None:
            return z3.Implies(first == 1, self.condition(condition.inner))
        if condition.kind == "power":
            exponent = self.sum(condition.arguments[1])
            return z3.Or(first > 0, z3.And(first == 0, exponent >= 0), z3.And(first < 0, z3.IsInt(exponent)))
        return z3.And(_constrain_signs(first, condition.allowed))


def _constrain_signs(term: Any, signs: int) -> list[Any]:
    """Constraints that leave a number only some signs."""
    return {
        NEGATIVE: [term < 0],
        ZERO: [term == 0],
        POSITIVE: [term > 0],
        NEGATIVE | ZERO: [term <= 0],
        NEGATIVE | POSITIVE: [term != 0],
        ZERO | POSITIVE: [term >= 0],
    }.get(signs, [])


def _substitute(x: Polynomial, switch: Atom, value: int) -> Polynomial:
    """Put a number in the place of a sign or truth value."""
    summands = []
    for monomial, coefficient in x.terms.items():
        exponents = dict(monomial)
        exponent = exponents.pop(switch, 0)
        own = coefficient * value ** int(exponent) if exponent else coefficient
        if own:
            summands.append(Polynomial({tuple(exponents.items()): own}))
    return total(summands)


def _components(x: Polynomial) -> list[Polynomial]:
    """Groups of summands that share no sign, so that the cases of each are written out separately."""
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


def forget_past() -> None:
    """Give z3 a new context for the next proof. How far z3 comes depends on the numbers that it gave to terms before,
    so a proof near its limit of steps would depend on those before it. No term of another proof may be used."""
    z3.z3._main_ctx = z3.Context()


def limited_solver(patience_ms: int = _PATIENCE_MS) -> Any:
    """A solver that gives up a question after a fixed number of steps, or after a time by the clock."""
    solver = z3.Solver()
    solver.set("rlimit", _STEPS)
    solver.set("timeout", patience_ms)
    solver.set("ctrl_c", False)
    return solver


def _multiply_out(x: Polynomial) -> Polynomial:
    """A polynomial without quotients that is zero exactly if `x` is, provided that no denominator is zero."""
    numerator, _ = clear_denominators(x)
    for factor in numerator.atoms():
        least = min(dict(m).get(factor, 0) for m in numerator.terms)
        if least < 0:
            numerator = product(numerator, of(factor, ceil(-least)))
    return numerator


def ask(
    conditions: Iterable[Condition], nonzero: Polynomial | None, broken: Sequence[Condition]
) -> tuple[Answer, Mapping[str, Fraction | bool]]:
    """Whether `conditions` can hold while a polynomial is not zero, or while one of the `broken` does not hold.

    ``sometimes`` comes with values of the leaves; if functions are involved, these may be no real example.
    """
    translation = Translation()
    try:
        asked = [translation.condition(c) for c in sorted(conditions, key=repr)]  # a set has no order of its own
        goals = [] if nonzero is None else [translation.sum(_multiply_out(nonzero)) != 0]
        goals += [z3.Not(translation.condition(c)) for c in broken]
    except Untranslatable:
        return "unknown", {}
    solver = limited_solver()
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
