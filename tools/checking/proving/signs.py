"""Which signs a polynomial may have, from the signs of its atoms, from known facts, and as a sum of squares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache

from .fractions import split_content
from .polynomial import ANY, NEGATIVE, POSITIVE, ZERO, Atom, Monomial, Number, Polynomial

Facts = Mapping[Atom | Polynomial, int]
"""Signs of atoms, and of polynomials without content, see `split_content`."""

_MARGIN = 1e-9
"""Relative error of constants computed in float64: one nearer to zero may be zero."""
_LARGEST_ANGLE = 1e4
"""The largest angle, in radians, whose sine is computed: sines of larger ones lose digits."""
_SURE = (NEGATIVE, ZERO, POSITIVE)
"""The sets of a single sign."""
_LARGEST_FORM = 12
"""Squares in a polynomial, at most, for which it is tried as a sum of squares: the elimination takes cubic time."""


def signs_of_number(value: Number | float) -> int:
    """The sign of a number, as a set."""
    return POSITIVE if value > 0 else NEGATIVE if value < 0 else ZERO


@cache
def _sum(left: int, right: int) -> int:
    signs = {a + b for a in _members(left) for b in _members(right)}
    both = (left & NEGATIVE and right & POSITIVE) or (left & POSITIVE and right & NEGATIVE)
    return ANY if both else _bits(signs)


@cache
def product_signs(left: int, right: int) -> int:
    """The signs of a product."""
    return _bits({a * b for a in _members(left) for b in _members(right)})


def _members(signs: int) -> list[int]:
    return [s for s, bit in ((-1, NEGATIVE), (0, ZERO), (1, POSITIVE)) if signs & bit]


def _bits(signs: set[int]) -> int:
    return sum({signs_of_number(sign) for sign in signs})


def signs_of_power(signs: int, exponent: Number) -> int:
    """The signs of a power; a negative exponent says that the base is not zero."""
    if exponent < 0:
        signs &= ~ZERO
    if exponent % 2 == 0:
        return _bits({abs(s) for s in _members(signs)})
    return signs if exponent % 1 == 0 else signs & ~NEGATIVE


def signs_of_atom(factor: Atom, facts: Facts) -> int:
    """The signs of an atom."""
    if factor.kind == "magnitude":
        return POSITIVE | (signs_of(factor.arguments[0], facts) & ZERO)
    if factor.kind == "reciprocal":
        return signs_of(factor.arguments[0], facts) & ~ZERO
    return factor.signs & facts.get(factor, ANY)


def _of_monomial(monomial: Monomial, coefficient: Number, facts: Facts) -> int:
    signs = signs_of_number(coefficient)
    for factor, exponent in monomial:
        signs = product_signs(signs, signs_of_power(signs_of_atom(factor, facts), exponent))
    return signs


def signs_of(polynomial: Polynomial, facts: Facts) -> int:
    """The signs that a polynomial may have."""
    signs = _of_sum(polynomial, facts)
    if signs in _SURE:
        return signs
    signs &= _signs_of_constant(polynomial)
    if signs in _SURE or polynomial.monomial is not None:
        return signs
    rest, common, coefficient = split_content(polynomial)
    outside = _of_monomial(common, coefficient, facts)
    inside = _of_sum(rest, facts) & facts.get(rest, ANY)
    if inside not in _SURE:
        inside &= _signs_of_squares(rest)
    return signs & product_signs(outside, inside)


def _of_sum(polynomial: Polynomial, facts: Facts) -> int:
    signs = ZERO
    for monomial, coefficient in polynomial.terms.items():
        signs = _sum(signs, _of_monomial(monomial, coefficient, facts))
        if signs == ANY:
            break
    return signs


# --- constants that are no fractions


def _signs_of_constant(polynomial: Polynomial) -> int:
    terms = _approximate_terms(polynomial)
    if terms is None:
        return ANY
    value = sum(terms)
    return ANY if abs(value) <= _MARGIN * max(map(abs, terms), default=0) else signs_of_number(value)


def approximate(polynomial: Polynomial) -> float | None:
    """The value of an expression without leaves, or None."""
    terms = _approximate_terms(polynomial)
    return None if terms is None else sum(terms)


def _approximate_terms(polynomial: Polynomial) -> list[float] | None:
    terms = []
    for monomial, coefficient in polynomial.terms.items():
        try:
            term = float(coefficient)
            for factor, exponent in monomial:
                base = _approximate_atom(factor)
                if base is None or (base < 0 and exponent % 1):
                    return None
                term *= base ** float(exponent)
        except (OverflowError, ZeroDivisionError):
            return None
        terms.append(term)
    return terms


_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "magnitude": abs,
    "reciprocal": lambda x: 1 / x,
    "sin": lambda x: math.sin(_require_small(x)),
    "cos": lambda x: math.cos(_require_small(x)),
    "erf": math.erf,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "asinh": math.asinh,
    "acosh": math.acosh,
    "atanh": math.atanh,
    "log": lambda x: math.log(abs(x)),
    "floor": lambda x: math.floor(_require_fraction(x)),
    "trunc": lambda x: math.trunc(_require_fraction(x)),
    "round": lambda x: round(_require_fraction(2 * x) / 2),
}


def _require_small(x: float) -> float:
    if abs(x) > _LARGEST_ANGLE:
        raise ValueError
    return x


def _require_fraction(x: float) -> float:
    """Raise ValueError for a number so near a whole one that its whole part is uncertain."""
    if abs(x - round(x)) < _MARGIN:
        raise ValueError
    return x


def _approximate_atom(factor: Atom) -> float | None:
    if factor.kind == "number":
        return float(factor.label)
    if factor.kind not in ("exp", "function", "magnitude", "reciprocal") or len(factor.arguments) != 1:
        return None
    inside = approximate(factor.arguments[0])
    if inside is None:
        return None
    try:
        return _FUNCTIONS[factor.label or factor.kind](inside)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None


# --- sums of squares


def _signs_of_squares(polynomial: Polynomial) -> int:
    """POSITIVE, or with ZERO, if the polynomial is a sum of squares, of which one may be a constant; else ANY."""
    form = _quadratic_form(polynomial)
    last = None if form is None else _last_pivot(form)
    if last is None:
        return ANY
    return POSITIVE if last > 0 and () in polynomial.terms else POSITIVE | ZERO


def _quadratic_form(polynomial: Polynomial) -> list[list[Fraction]] | None:
    """The matrix of the polynomial as a quadratic form of the roots of its square monomials, the constant last."""
    squares = [root for m, c in polynomial.terms.items() if c > 0 and (root := _square_root(m)) is not None]
    if not 0 < len(squares) <= _LARGEST_FORM:
        return None
    roots = sorted(squares, key=len, reverse=True)
    index = {_product(a, b): (i, j) for i, a in enumerate(roots) for j, b in enumerate(roots) if i <= j}
    matrix = [[Fraction(0)] * len(roots) for _ in roots]
    for monomial, coefficient in polynomial.terms.items():
        if monomial not in index:
            return None
        i, j = index[monomial]
        matrix[i][j] = matrix[j][i] = Fraction(coefficient) / (1 if i == j else 2)
    return matrix


def _square_root(monomial: Monomial) -> Monomial | None:
    if any(e % 2 and a.kind != "exp" for a, e in monomial):
        return None
    return tuple((a, Fraction(e) / 2 if a.kind == "exp" else e // 2) for a, e in monomial)


def _product(left: Monomial, right: Monomial) -> Monomial:
    return next(iter((Polynomial({left: 1}) * Polynomial({right: 1})).terms), ())


def _last_pivot(matrix: list[list[Fraction]]) -> Fraction | None:
    """The last pivot of symmetric elimination; None if a pivot is negative, or is zero in a row that is not zero."""
    rows = [row[:] for row in matrix]
    for k, row in enumerate(rows):
        pivot = row[k]
        if pivot < 0 or (pivot == 0 and any(row[k + 1 :])):
            return None
        for i in range(k + 1, len(rows)) if pivot else ():
            factor = rows[i][k] / pivot
            for j in range(k + 1, len(rows)):
                rows[i][j] -= factor * row[j]
    return rows[-1][-1]
