"""Signs, absolute values, maxima and choices of polynomials, in normal form.

All are sums of products with signs: ``|x| = x*sign(x)``, ``max(x, y) = (x + y + |x - y|)/2``, and the number that is 1
if x > y and else 0 is ``(s*s + s)/2`` for ``s = sign(x - y)``. So a ReLU is the same polynomial, however it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import reduce
from math import lcm
from operator import or_

from .fractions import canonical, clear_denominators, content, divide_by_monomial, split_content
from .polynomial import (
    NEGATIVE,
    NOTHING,
    ONE,
    POSITIVE,
    ZERO,
    Atom,
    Monomial,
    Number,
    Polynomial,
    atom,
    magnitude,
    monomial_of,
    number,
    of,
    power,
    product,
    total,
)
from .signs import Facts, signs_of, signs_of_atom

HALF = number(Fraction(1, 2))
ODD = frozenset({"erf", "sin", "asin", "atan", "asinh", "atanh", "round", "trunc"})
EVEN = frozenset({"cos"})
INCREASING = frozenset({"erf", "asin", "atan", "asinh", "atanh", "acosh"})
"""Functions that increase strictly; those that are also odd are zero only at zero."""
_LARGEST_DEGREE = 12
"""The largest degree of roots that a comparison removes by powers of both sides; larger powers have too many terms."""
_SIGN = {NEGATIVE: -ONE, ZERO: NOTHING, POSITIVE: ONE}


class Order:
    """Comparisons under facts about the signs of polynomials, which hold wherever the results are used.

    `replace` maps atoms to the polynomials that stand for them; `atoms` remembers atoms that were computed again.
    """

    def __init__(self, facts: Facts | None = None, replace: Mapping[Atom, Polynomial] | None = None) -> None:
        self.facts: Facts = {} if facts is None else facts
        self.replace = dict(replace or {})
        self.atoms: dict[Atom, Polynomial] = {}

    def signs(self, x: Polynomial) -> int:
        """The signs that a polynomial may have."""
        return signs_of(x, self.facts)

    # --- signs, maxima, choices

    def sign(self, x: Polynomial) -> Polynomial:
        """-1, 0 or 1."""
        signs = self.signs(x)
        if signs in _SIGN:
            return _SIGN[signs]
        x, denominators = clear_denominators(canonical(x))
        rest, common, coefficient = split_content(x)
        result = self._sign_of_sum(rest).times(1 if coefficient > 0 else -1)
        for factor, exponent in common:
            whole = abs(int(exponent)) if exponent % 1 == 0 else 2  # only numbers >= 0 have fractional exponents
            result = product(result, power(self._sign_of_atom(factor, negative=exponent < 0), whole))
        for factor, exponent in denominators.items():
            result = product(result, power(self._sign_of_sum(factor.arguments[0]), exponent))
        return result

    def _sign_of_atom(self, factor: Atom, negative: bool) -> Polynomial:
        signs = signs_of_atom(factor, self.facts) & ~(ZERO if negative else 0)
        if signs in _SIGN:
            return _SIGN[signs]
        if factor.kind in ("truth", "sign"):
            return of(factor)
        if factor.kind == "magnitude":
            return power(self.sign(factor.arguments[0]), 2)
        if factor.kind == "function" and factor.label in INCREASING & ODD:
            return self.sign(factor.arguments[0])
        return of(atom("sign", "", (of(factor),), signs))

    def _sign_of_sum(self, x: Polynomial) -> Polynomial:
        """The sign of a polynomial without content."""
        signs = self.signs(x)
        if signs in _SIGN:
            return _SIGN[signs]
        single = x.single
        if single is not None:
            return self._sign_of_atom(single, negative=False)
        simpler = self._simplify_comparison(x)
        return of(atom("sign", "", (x,), signs)) if simpler is None else self.sign(simpler)

    def _simplify_comparison(self, x: Polynomial) -> Polynomial | None:
        """A simpler expression of the same sign: u - v for f(u) - f(v), if f is increasing."""
        if len(x.terms) != 2:
            return None
        (one, first), (other, second) = x.terms.items()
        if first != -second:
            return None
        if first < 0:
            one, other = other, one
        left, right = Polynomial({one: 1}), Polynomial({other: 1})
        if all(a.kind == "exp" for a, _ in (*one, *other)):
            return _exponent(one) - _exponent(other)
        degree = lcm(*(Fraction(e).denominator for _, e in (*one, *other)))
        if 1 < degree <= _LARGEST_DEGREE and not (self.signs(left) | self.signs(right)) & NEGATIVE:
            return power(left, degree) - power(right, degree)
        f, g = left.single, right.single
        if f is None or g is None or f.label != g.label or {f.kind, g.kind} != {"function"}:
            return None
        if f.label == "log":
            return self.absolute(f.arguments[0]) - self.absolute(g.arguments[0])
        return f.arguments[0] - g.arguments[0] if f.label in INCREASING else None

    def absolute(self, x: Polynomial) -> Polynomial:
        """The absolute value."""
        signs = self.signs(x)
        if not signs & NEGATIVE:
            return x
        if not signs & POSITIVE:
            return -x
        numerator, denominators = clear_denominators(canonical(x))
        rest, common, coefficient = split_content(numerator)
        if common and len(rest.terms) > 1 and not denominators and not self.signs(rest) & NEGATIVE:
            return product(rest, self.absolute(Polynomial({common: coefficient})))  # a factor like (1 + b)^2
        return product(x, self.sign(x))

    def positive(self, x: Polynomial) -> Polynomial:
        """1 if a number is above zero, else 0."""
        sign = self.sign(x)
        return (product(sign, sign) + sign) * HALF

    def nonzero(self, x: Polynomial) -> Polynomial:
        """0 if a number is zero, else 1."""
        sign = self.sign(x)
        return product(sign, sign)

    def maximum(self, choices: Sequence[Polynomial]) -> Polynomial:
        """The largest of some numbers."""
        candidates = self._drop_smaller([canonical(x) for x in choices])
        if len(candidates) == 1:
            return candidates[0]
        first, *others = candidates
        shared = Polynomial({m: c for m, c in first.terms.items() if all(o.terms.get(m) == c for o in others)})
        rest = [x - shared for x in candidates]
        if len(rest) == 2:
            return shared + (rest[0] + rest[1] + self.absolute(rest[0] - rest[1])) * HALF
        factor, rest = self._common_factor(rest)
        signs = _maximum_signs([self.signs(x) for x in rest])
        arguments = tuple(sorted(rest, key=_sort_key))
        return shared + product(factor, of(atom("maximum", "", arguments, signs)))

    def _drop_smaller(self, choices: Sequence[Polynomial]) -> list[Polynomial]:
        """The choices without those that are never above another one."""
        candidates: list[Polynomial] = []
        for x in choices:
            differences = [ZERO if x == y else self.signs(x - y) for y in candidates]
            if all(d & POSITIVE for d in differences):
                candidates = [y for y, d in zip(candidates, differences, strict=True) if d & NEGATIVE]
                candidates.append(x)
        return candidates

    def _common_factor(self, choices: list[Polynomial]) -> tuple[Polynomial, list[Polynomial]]:
        """Take out a common factor that is not negative, so that the largest number stays the largest."""
        contents = [content(x) for x in choices if x]
        exponents = [dict(c) for c, _ in contents]
        shared: dict[Atom, Number] = {}
        for factor in exponents[0]:
            least = min(e.get(factor, 0) for e in exponents)
            if least > 0 and not signs_of_atom(factor, self.facts) & NEGATIVE:
                shared[factor] = least
        scales = {magnitude(c) for _, c in contents}
        scale: Number = scales.pop() if len(scales) == 1 else 1
        monomial = monomial_of(shared)
        return Polynomial({monomial: scale}), [divide_by_monomial(x, monomial, scale) for x in choices]

    def choice(self, condition: Polynomial, then: Polynomial, otherwise: Polynomial) -> Polynomial:
        """One of two numbers that are defined for the same values of leaves."""
        return otherwise + product(condition, then - otherwise)

    def guarded_choice(self, condition: Polynomial, then: Polynomial, otherwise: Polynomial) -> Polynomial:
        """One of two numbers, of which each may be undefined when the other is chosen."""
        constant = condition.constant
        if constant is not None:
            return then if constant else otherwise
        if then == otherwise:
            return then
        return of(atom("choice", "", (condition, canonical(then), canonical(otherwise))))


def _exponent(monomial: Monomial) -> Polynomial:
    return total(a.arguments[0].times(e) for a, e in monomial)


def _sort_key(x: Polynomial) -> list[tuple[list[tuple[int, Number]], Number]]:
    return sorted(([(a.serial, e) for a, e in m], c) for m, c in x.terms.items())


def _maximum_signs(signs: Sequence[int]) -> int:
    if POSITIVE in signs:
        return POSITIVE
    union = reduce(or_, signs)
    return union if all(s & NEGATIVE for s in signs) else union & ~NEGATIVE
