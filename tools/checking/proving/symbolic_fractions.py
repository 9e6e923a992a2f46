"""Quotients of polynomials: common denominators, common factors, division."""

from __future__ import annotations

from fractions import Fraction

from .symbolic_polynomial import (
    Atom,
    Monomial,
    Number,
    Polynomial,
    merged,
    of,
    ordered,
    power,
    product,
    total,
)

_MOST_STEPS = 100
"""Of a division; longer quotients are not looked for."""


def cleared(polynomial: Polynomial) -> tuple[Polynomial, dict[Atom, int]]:
    """A numerator without atoms ``reciprocal``, and the powers of these that make the polynomial of it again."""
    found: dict[Atom, int] = {}
    while True:
        atoms = {a for a in polynomial.atoms() if a.kind == "reciprocal"}
        if not atoms:
            return polynomial, found
        factor = max(atoms, key=lambda a: a.serial)
        highest = max(int(dict(m).get(factor, 0)) for m in polynomial.terms)
        found[factor] = found.get(factor, 0) + highest
        polynomial = _multiplied(polynomial, factor, highest)


def _multiplied(polynomial: Polynomial, reciprocal: Atom, exponent: int) -> Polynomial:
    """A polynomial times a power of what a reciprocal is of."""
    powers = [power(reciprocal.arguments[0], k) for k in range(exponent + 1)]
    summands = []
    for monomial, coefficient in polynomial.terms.items():
        exponents = dict(monomial)
        missing = exponent - int(exponents.pop(reciprocal, 0))
        summands.append(product(Polynomial({ordered(exponents): coefficient}), powers[missing]))
    return total(summands)


def canonical(polynomial: Polynomial) -> Polynomial:
    """One fraction in place of a sum of fractions, without common factors of numerator and denominator."""
    numerator, denominators = cleared(polynomial)
    if not denominators:
        return polynomial
    for factor, exponent in denominators.items():
        left = exponent
        while left and (quotient := divided(numerator, factor.arguments[0])) is not None:
            numerator, left = quotient, left - 1
        denominators[factor] = left
    for factor, exponent in denominators.items():
        if exponent:
            numerator = product(numerator, of(factor, exponent))
    return numerator


def content(polynomial: Polynomial) -> tuple[Monomial, Number]:
    """The largest monomial that divides every term (of negative exponents where a term has them), and the coefficient
    of the first term after that: what is left after division has only exponents above zero and begins with 1."""
    if not polynomial:
        return (), 1
    exponents = [dict(m) for m in polynomial.terms]
    smallest = {factor: min(e.get(factor, 0) for e in exponents) for factor in polynomial.atoms()}
    return ordered(smallest), polynomial.terms[leading(polynomial)]


def primitive(polynomial: Polynomial) -> tuple[Polynomial, Monomial, Number]:
    """The polynomial without its content, and that."""
    common, coefficient = content(polynomial)
    return without(polynomial, common, coefficient), common, coefficient


def without(polynomial: Polynomial, common: Monomial, coefficient: Number) -> Polynomial:
    """The quotient by a monomial."""
    taken = dict(common)
    terms = {}
    for monomial, own in polynomial.terms.items():
        exponents = dict(monomial)
        for factor, exponent in taken.items():
            exponents[factor] = exponents.get(factor, 0) - exponent
        terms[ordered(exponents)] = _quotient(own, coefficient)
    return Polynomial(terms)


def _quotient(dividend: Number, divisor: Number) -> Number:
    if divisor == 1:
        return dividend
    result = Fraction(dividend) / divisor
    return result.numerator if result.denominator == 1 else result


def _order(monomial: Monomial) -> list[tuple[int, Number]]:
    return [(a.serial, e) for a, e in reversed(monomial)]


def leading(polynomial: Polynomial) -> Monomial:
    """The first monomial: for exponents that are not negative, in lexicographic order."""
    return max(polynomial.terms, key=_order)


def is_multiple(polynomial: Polynomial, of_what: Polynomial) -> bool:
    """Whether a polynomial is zero wherever another one is: the quotient has no pole there."""
    if not polynomial:
        return True
    numerator = cleared(polynomial)[0]
    quotient = divided(numerator, of_what)
    inside = of_what.atoms()
    return quotient is not None and all(e > 0 for m in quotient.terms for a, e in m if a in inside)


def divided(dividend: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """The quotient where the division leaves nothing, else None."""
    rest, common, scale = primitive(dividend)
    by, other, factor = primitive(divisor)
    quotient: dict[Monomial, Number] = {}
    lead = leading(by)
    for _ in range(_MOST_STEPS):
        if not rest:
            break
        first = leading(rest)
        step = merged(first, tuple((a, -e) for a, e in lead))
        if any(e < 0 for _, e in step):
            return None
        quotient[step] = rest.terms[first]
        rest = rest - product(Polynomial({step: rest.terms[first]}), by)
    if rest:
        return None
    shift = product(Polynomial({common: scale}), power(Polynomial({other: factor}), -1))
    return product(Polynomial(quotient), shift)
