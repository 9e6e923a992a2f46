"""Where a symbolic number is defined: conditions on polynomials, all of which must hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from .symbolic_algebra import Algebra
from .symbolic_fractions import canonical, cleared, content, primitive
from .symbolic_polynomial import (
    NEGATIVE,
    NOTHING,
    ONE,
    POSITIVE,
    ZERO,
    Polynomial,
    of,
    product,
)
from .symbolic_signs import of_atom, of_number

Kind = Literal["signs", "power", "either"]


@dataclass(frozen=True)
class Condition:
    """One of three: ``signs``, that the first argument has one of the signs in `allowed`; ``power``, that the first
    may be raised to the second; ``either``, that the truth value `arguments[0]` is not 1, or that `inner` holds."""

    kind: Kind
    arguments: tuple[Polynomial, ...]
    allowed: int = 0
    inner: Condition | None = None


Conditions = frozenset[Condition]
ALWAYS: Conditions = frozenset()
NEVER: Conditions = frozenset({Condition("signs", (NOTHING,), POSITIVE)})


def nonzero(x: Polynomial, algebra: Algebra) -> Conditions:
    """That a number is not zero: none of its factors is."""
    numerator, denominators = cleared(canonical(x))
    if not numerator:
        return NEVER
    rest, common, _ = primitive(numerator)
    found = _sum_nonzero(rest, algebra)
    for factor, _ in common:
        inside = factor.arguments[0] if factor.kind in ("magnitude", "sign") else of(factor)
        if factor.kind in ("magnitude", "sign"):
            found |= nonzero(inside, algebra)
        elif of_atom(factor, algebra.facts) & ZERO:
            found |= _on_multiple(inside, POSITIVE | NEGATIVE)
    for factor in denominators:
        found |= _sum_nonzero(factor.arguments[0], algebra)
    return found


def _sum_nonzero(x: Polynomial, algebra: Algebra) -> Conditions:
    """Something of the same sign may be simpler: exp(x) - 1 is not zero where x is not."""
    if not algebra.signs(x) & ZERO:
        return ALWAYS
    return _signs_in(algebra.sign(x), POSITIVE | NEGATIVE, x)


def nonnegative(x: Polynomial, algebra: Algebra, strictly: bool = False) -> Conditions:
    """That a number is not below zero, or above it."""
    allowed = POSITIVE if strictly else POSITIVE | ZERO
    signs = algebra.signs(canonical(x))
    if not signs & ~allowed:
        return ALWAYS
    if not signs & allowed:
        return NEVER
    return _signs_in(algebra.sign(x), allowed, canonical(x))


def _signs_in(sign: Polynomial, allowed: int, x: Polynomial) -> Conditions:
    """A condition on a product of signs: of the factors with an even exponent only that they are not zero."""
    known = sign.constant
    if known is not None:
        return ALWAYS if of_number(known) & allowed else NEVER
    only = sign.monomial
    if only is None or (allowed & ZERO and any(e % 2 == 0 for _, e in only[0])):
        return _on_multiple(x, allowed)
    monomial, coefficient = only
    found: Conditions = ALWAYS
    whole = ONE if coefficient > 0 else -ONE
    for factor, exponent in monomial:
        inside = factor.arguments[0] if factor.kind == "sign" else of(factor)
        if exponent % 2 == 0 or allowed == POSITIVE | NEGATIVE:
            found |= _on_multiple(inside, POSITIVE | NEGATIVE)
        else:
            whole = product(whole, inside)
    return found if whole.constant == 1 else found | _on_multiple(whole, allowed)


def _on_multiple(x: Polynomial, allowed: int) -> Conditions:
    """The condition on the multiple whose first coefficient is 1, so that one condition has one form."""
    coefficient = content(x)[1]
    if coefficient < 0:
        allowed = (allowed & ZERO) | (POSITIVE if allowed & NEGATIVE else 0) | (NEGATIVE if allowed & POSITIVE else 0)
    return frozenset({Condition("signs", (x.scaled(Fraction(1) / coefficient),), allowed)})


def power_domain(x: Polynomial, exponent: Polynomial, algebra: Algebra) -> Conditions:
    """That x may be raised to a power: any above zero, those that are not negative at zero, whole ones below."""
    known = exponent.constant
    if known is None:
        if algebra.signs(canonical(x)) == POSITIVE:
            return ALWAYS
        return frozenset({Condition("power", (canonical(x), canonical(exponent)))})
    if known % 1 == 0:
        return ALWAYS if known >= 0 else nonzero(x, algebra)
    return nonnegative(x, algebra, strictly=known < 0)


def if_true(truth: Polynomial, conditions: Conditions) -> Conditions:
    """Conditions that are asked for only where a truth value is 1."""
    known = truth.constant
    if known is not None:
        return conditions if known else ALWAYS
    return frozenset(Condition("either", (truth,), 0, inner) for inner in conditions)


def rebuilt(conditions: Iterable[Condition], algebra: Algebra) -> Conditions:
    """The conditions that remain under the facts of an algebra."""
    found: Conditions = ALWAYS
    for condition in conditions:
        found |= _rebuilt(condition, algebra)
    return found


def _rebuilt(condition: Condition, algebra: Algebra) -> Conditions:
    arguments = [algebra.rebuild(a) for a in condition.arguments]
    if condition.kind == "power":
        return power_domain(arguments[0], arguments[1], algebra)
    if condition.inner is not None:
        if arguments[0].constant == 0:
            return ALWAYS
        return if_true(canonical(arguments[0]), _rebuilt(condition.inner, algebra))
    signs = algebra.signs(arguments[0])
    if not signs & ~condition.allowed:
        return ALWAYS
    if condition.allowed == ZERO:
        return _on_multiple(canonical(arguments[0]), ZERO) if signs & ZERO else NEVER
    if condition.allowed == POSITIVE | NEGATIVE:
        return nonzero(arguments[0], algebra)
    if condition.allowed in (POSITIVE, POSITIVE | ZERO):
        return nonnegative(arguments[0], algebra, strictly=condition.allowed == POSITIVE)
    return nonnegative(-arguments[0], algebra, strictly=condition.allowed == NEGATIVE)
