"""Quotients of polynomials: common denominators, common factors, division."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce

from .polynomial import Atom, Monomial, Number, Polynomial, monomial_of, multiply_monomials, of, power, product, total

_MOST_STEPS = 100
"""Steps of a division at most; each gives one term of the quotient, and a longer quotient counts as none."""


def clear_denominators(polynomial: Polynomial) -> tuple[Polynomial, dict[Atom, int]]:
    """The numerator without ``reciprocal`` atoms, and the exponents of such atoms: the polynomial is the product of the
    numerator and these powers."""
    denominators: dict[Atom, int] = {}
    while atoms := {a for a in polynomial.atoms() if a.kind == "reciprocal"}:
        factor = max(atoms, key=lambda a: a.serial)
        highest = max(int(dict(m).get(factor, 0)) for m in polynomial.terms)
        denominators[factor] = denominators.get(factor, 0) + highest
        polynomial = _multiply_by_denominator(polynomial, factor, highest)
    return polynomial, denominators


def _multiply_by_denominator(polynomial: Polynomial, reciprocal: Atom, exponent: int) -> Polynomial:
    """A polynomial times a power of the denominator that a reciprocal stands for."""
    powers = [power(reciprocal.arguments[0], k) for k in range(exponent + 1)]
    summands = []
    for monomial, coefficient in polynomial.terms.items():
        exponents = dict(monomial)
        missing = exponent - int(exponents.pop(reciprocal, 0))
        summands.append(product(Polynomial({monomial_of(exponents): coefficient}), powers[missing]))
    return total(summands)


def canonical(polynomial: Polynomial) -> Polynomial:
    """One fraction in place of a sum of fractions, without common factors of numerator and denominator."""
    numerator, denominators = clear_denominators(polynomial)
    if not denominators:
        return polynomial
    for factor, exponent in denominators.items():
        while exponent and (quotient := divide(numerator, factor.arguments[0])) is not None:
            numerator, exponent = quotient, exponent - 1
        denominators[factor] = exponent
    return reduce(product, (of(factor, e) for factor, e in denominators.items() if e), numerator)


def content(polynomial: Polynomial) -> tuple[Monomial, Number]:
    """The largest monomial that divides every term (with negative exponents if a term has them), and the leading
    coefficient: the quotient by both has no negative exponents and begins with 1."""
    if not polynomial:
        return (), 1
    exponents = [dict(m) for m in polynomial.terms]
    smallest = {factor: min(e.get(factor, 0) for e in exponents) for factor in polynomial.atoms()}
    return monomial_of(smallest), polynomial.terms[leading(polynomial)]


def split_content(polynomial: Polynomial) -> tuple[Polynomial, Monomial, Number]:
    """The polynomial divided by its content, and the content."""
    common, coefficient = content(polynomial)
    return divide_by_monomial(polynomial, common, coefficient), common, coefficient


def divide_by_monomial(polynomial: Polynomial, common: Monomial, coefficient: Number) -> Polynomial:
    """The quotient by a monomial."""
    terms = {}
    for monomial, own in polynomial.terms.items():
        exponents = dict(monomial)
        for factor, exponent in common:
            exponents[factor] = exponents.get(factor, 0) - exponent
        quotient = own if coefficient == 1 else Fraction(own) / coefficient
        terms[monomial_of(exponents)] = quotient.numerator if quotient.denominator == 1 else quotient
    return Polynomial(terms)


def leading(polynomial: Polynomial) -> Monomial:
    """The first monomial: for exponents that are not negative, in lexicographic order."""
    return max(polynomial.terms, key=lambda monomial: [(a.serial, e) for a, e in reversed(monomial)])


def is_multiple(polynomial: Polynomial, factor: Polynomial) -> bool:
    """Whether a polynomial is zero wherever a factor is, because the quotient has no pole there."""
    if not polynomial:
        return True
    numerator = clear_denominators(polynomial)[0]
    quotient = divide(numerator, factor)
    inside = factor.atoms()
    return quotient is not None and all(e > 0 for m in quotient.terms for a, e in m if a in inside)


def divide(dividend: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """The quotient if the division leaves no remainder, else None."""
    rest, common, scale = split_content(dividend)
    by, other, factor = split_content(divisor)
    quotient: dict[Monomial, Number] = {}
    lead = leading(by)
    for _ in range(_MOST_STEPS):
        if not rest:
            break
        first = leading(rest)
        step = multiply_monomials(first, tuple((a, -e) for a, e in lead))
        if any(e < 0 for _, e in step):
            return None
        quotient[step] = rest.terms[first]
        rest = rest - product(Polynomial({step: rest.terms[first]}), by)
    if rest:
        return None
    shift = product(Polynomial({common: scale}), power(Polynomial({other: factor}), -1))
    return product(Polynomial(quotient), shift)
