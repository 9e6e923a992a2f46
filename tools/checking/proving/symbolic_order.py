"""Signs, absolute values, maxima and choices of polynomials, in normal form.

All of them are sums of products with signs: ``|x| = x*sign(x)``, ``max(x, y) = (x + y + |x - y|)/2``, and 1 where x > y
is ``(s*s + s)/2`` for ``s = sign(x - y)``. So a ReLU is the same polynomial, however it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm

from .symbolic_fractions import canonical, cleared, content, primitive, without
from .symbolic_polynomial import (
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
    number,
    of,
    ordered,
    power,
    product,
    total,
)
from .symbolic_signs import Facts, of_atom, signs_of

HALF = number(Fraction(1, 2))
ODD = frozenset({"erf", "sin", "asin", "atan", "asinh", "atanh", "round", "trunc"})
EVEN = frozenset({"cos"})
INCREASING = frozenset({"erf", "asin", "atan", "asinh", "atanh", "acosh"})
"""Strictly increasing; those that are odd too are zero at zero only."""
_LARGEST_DEGREE = 12
_SIGN = {NEGATIVE: -ONE, ZERO: NOTHING, POSITIVE: ONE}


class Order:
    """What is larger, under facts about the signs of polynomials and with values for some leaves.

    The facts are valid wherever what is computed is looked at; `replace` maps atoms to what stands for them.
    """

    def __init__(self, facts: Facts | None = None, replace: Mapping[Atom, Polynomial] | None = None) -> None:
        self.facts: Facts = {} if facts is None else facts
        self.replace = dict(replace or {})
        self.rebuilt: dict[Atom, Polynomial] = {}

    def signs(self, x: Polynomial) -> int:
        """The signs that a polynomial may have."""
        return signs_of(x, self.facts)

    # --- signs, maxima, choices

    def sign(self, x: Polynomial) -> Polynomial:
        """-1, 0 or 1."""
        known = self.signs(x)
        if known in (NEGATIVE, ZERO, POSITIVE):
            return _SIGN[known]
        x, denominators = cleared(canonical(x))
        rest, common, coefficient = primitive(x)
        result = self._sign_of_sum(rest).scaled(1 if coefficient > 0 else -1)
        for factor, exponent in common:
            result = product(result, power(self._sign_of_atom(factor, negative=exponent < 0), _whole(exponent)))
        for factor, exponent in denominators.items():
            result = product(result, power(self._sign_of_sum(factor.arguments[0]), exponent))
        return result

    def _sign_of_atom(self, factor: Atom, negative: bool) -> Polynomial:
        signs = of_atom(factor, self.facts) & ~(ZERO if negative else 0)
        if signs in (NEGATIVE, ZERO, POSITIVE):
            return _SIGN[signs]
        if factor.kind in ("truth", "sign"):
            return of(factor)
        if factor.kind == "magnitude":
            return power(self.sign(factor.arguments[0]), 2)
        if factor.kind == "function" and factor.label in INCREASING & ODD:
            return self.sign(factor.arguments[0])
        return of(atom("sign", "", (of(factor),), signs))

    def _sign_of_sum(self, x: Polynomial) -> Polynomial:
        """Of a polynomial without content."""
        signs = self.signs(x)
        if signs in (NEGATIVE, ZERO, POSITIVE):
            return _SIGN[signs]
        single = x.single
        if single is not None:
            return self._sign_of_atom(single, negative=False)
        simpler = self._compared(x)
        return of(atom("sign", "", (x,), signs)) if simpler is None else self.sign(simpler)

    def _compared(self, x: Polynomial) -> Polynomial | None:
        """Something simpler of the same sign: f(u) - f(v) for an increasing f is looked at as u - v."""
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
        return self._arguments_compared(left, right)

    def _arguments_compared(self, left: Polynomial, right: Polynomial) -> Polynomial | None:
        one, other = left.single, right.single
        if one is None or other is None or one.label != other.label or {one.kind, other.kind} != {"function"}:
            return None
        if one.label == "log":
            return self.absolute(one.arguments[0]) - self.absolute(other.arguments[0])
        return one.arguments[0] - other.arguments[0] if one.label in INCREASING else None

    def absolute(self, x: Polynomial) -> Polynomial:
        """The absolute value."""
        signs = self.signs(x)
        if not signs & NEGATIVE:
            return x
        if not signs & POSITIVE:
            return -x
        numerator, denominators = cleared(canonical(x))
        rest, common, coefficient = primitive(numerator)
        if common and len(rest.terms) > 1 and not denominators and not self.signs(rest) & NEGATIVE:
            return product(rest, self.absolute(Polynomial({common: coefficient})))  # a factor like (1 + b)^2
        return product(x, self.sign(x))

    def positive(self, x: Polynomial) -> Polynomial:
        """1 where a number is above zero, 0 elsewhere."""
        sign = self.sign(x)
        return (product(sign, sign) + sign) * HALF

    def nonzero(self, x: Polynomial) -> Polynomial:
        """0 where a number is zero, 1 elsewhere."""
        sign = self.sign(x)
        return product(sign, sign)

    def maximum(self, choices: Sequence[Polynomial]) -> Polynomial:
        """The largest of some numbers."""
        left = self._undominated([canonical(x) for x in choices])
        if len(left) == 1:
            return left[0]
        shared = _shared(left)
        rest = [x - shared for x in left]
        if len(rest) == 2:
            return shared + (rest[0] + rest[1] + self.absolute(rest[0] - rest[1])) * HALF
        factor, rest = self._common_factor(rest)
        signs = _maximum_signs([self.signs(x) for x in rest])
        arguments = tuple(sorted(rest, key=_text))
        return shared + product(factor, of(atom("maximum", "", arguments, signs)))

    def _undominated(self, choices: Sequence[Polynomial]) -> list[Polynomial]:
        left: list[Polynomial] = []
        for x in choices:
            differences = [self._signs_of_difference(x, y) for y in left]
            if any(not d & POSITIVE for d in differences):
                continue
            left = [y for y, d in zip(left, differences, strict=True) if d & NEGATIVE]
            left.append(x)
        return left

    def _signs_of_difference(self, x: Polynomial, y: Polynomial) -> int:
        return ZERO if x == y else self.signs(x - y)

    def _common_factor(self, choices: list[Polynomial]) -> tuple[Polynomial, list[Polynomial]]:
        """A factor that is not negative out of all numbers, so that the largest keeps its place."""
        contents = [content(x) for x in choices if x]
        exponents = [dict(c) for c, _ in contents]
        shared: dict[Atom, Number] = {}
        for factor in exponents[0]:
            least = min(e.get(factor, 0) for e in exponents)
            if least > 0 and not of_atom(factor, self.facts) & NEGATIVE:
                shared[factor] = least
        scales = {magnitude(c) for _, c in contents}
        scale: Number = scales.pop() if len(scales) == 1 else 1
        taken = ordered(shared)
        return Polynomial({taken: scale}), [without(x, taken, scale) for x in choices]

    def choice(self, condition: Polynomial, then: Polynomial, otherwise: Polynomial) -> Polynomial:
        """One of two numbers that are defined in the same places."""
        return otherwise + product(condition, then - otherwise)

    def guarded_choice(self, condition: Polynomial, then: Polynomial, otherwise: Polynomial) -> Polynomial:
        """One of two numbers of which one may be undefined where the other is chosen."""
        known = condition.constant
        if known is not None:
            return then if known else otherwise
        if then == otherwise:
            return then
        return of(atom("choice", "", (condition, canonical(then), canonical(otherwise))))


def _whole(exponent: Number) -> int:
    """An exponent of a sign: fractional ones stand on what is not negative."""
    return abs(int(exponent)) if exponent % 1 == 0 else 2


def _exponent(monomial: Monomial) -> Polynomial:
    return total(a.arguments[0].scaled(e) for a, e in monomial)


def _text(x: Polynomial) -> list[tuple[list[tuple[int, Number]], Number]]:
    return sorted(([(a.serial, e) for a, e in m], c) for m, c in x.terms.items())


def _shared(choices: Sequence[Polynomial]) -> Polynomial:
    """The terms that all have."""
    first, *others = choices
    return Polynomial({m: c for m, c in first.terms.items() if all(o.terms.get(m) == c for o in others)})


def _maximum_signs(signs: Sequence[int]) -> int:
    if any(s == POSITIVE for s in signs):
        return POSITIVE
    result = 0
    for one in signs:
        result |= one
    if any(not s & NEGATIVE for s in signs):
        result &= ~NEGATIVE
    return result
