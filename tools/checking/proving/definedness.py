"""Whether a symbolic number is defined: conditions on polynomials, all of which must hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from .algebra import Algebra
from .fractions import canonical, clear_denominators, content, split_content
from .polynomial import NEGATIVE, NOTHING, ONE, POSITIVE, ZERO, Polynomial, of, product
from .signs import signs_of_atom, signs_of_number

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
    numerator, denominators = clear_denominators(canonical(x))
    if not numerator:
        return NEVER
    rest, common, _ = split_content(numerator)
    conditions = _sum_nonzero(rest, algebra)
    for factor, _ in common:
        if factor.kind in ("magnitude", "sign"):
            conditions |= nonzero(factor.arguments[0], algebra)
        elif signs_of_atom(factor, algebra.facts) & ZERO:
            conditions |= _on_multiple(of(factor), POSITIVE | NEGATIVE)
    return conditions.union(*(_sum_nonzero(factor.arguments[0], algebra) for factor in denominators))


def _sum_nonzero(x: Polynomial, algebra: Algebra) -> Conditions:
    """A condition on a simpler expression of the same sign, if there is one: exp(x) - 1 is not zero if x is not."""
    if not algebra.signs(x) & ZERO:
        return ALWAYS
    return _signs_in(algebra.sign(x), POSITIVE | NEGATIVE, x)


def nonnegative(x: Polynomial, algebra: Algebra, strictly: bool = False) -> Conditions:
    """That a number is not below zero; `strictly`: that it is above zero."""
    allowed = POSITIVE if strictly else POSITIVE | ZERO
    signs = algebra.signs(canonical(x))
    if not signs & ~allowed:
        return ALWAYS
    if not signs & allowed:
        return NEVER
    return _signs_in(algebra.sign(x), allowed, canonical(x))


def _signs_in(sign: Polynomial, allowed: int, x: Polynomial) -> Conditions:
    """The condition on a product of signs: factors with an even exponent only have to differ from zero."""
    constant = sign.constant
    if constant is not None:
        return ALWAYS if signs_of_number(constant) & allowed else NEVER
    only = sign.monomial
    if only is None or (allowed & ZERO and any(e % 2 == 0 for _, e in only[0])):
        return _on_multiple(x, allowed)
    monomial, coefficient = only
    conditions: Conditions = ALWAYS
    whole = ONE if coefficient > 0 else -ONE
    for factor, exponent in monomial:
        inside = factor.arguments[0] if factor.kind == "sign" else of(factor)
        if exponent % 2 == 0 or allowed == POSITIVE | NEGATIVE:
            conditions |= _on_multiple(inside, POSITIVE | NEGATIVE)
        else:
            whole = product(whole, inside)
    return conditions if whole.constant == 1 else conditions | _on_multiple(whole, allowed)


def _on_multiple(x: Polynomial, allowed: int) -> Conditions:
    """The condition on the multiple whose first coefficient is 1, so that one condition has one form."""
    coefficient = content(x)[1]
    if coefficient < 0:
        allowed = (allowed & ZERO) | (POSITIVE if allowed & NEGATIVE else 0) | (NEGATIVE if allowed & POSITIVE else 0)
    return frozenset({Condition("signs", (x.times(Fraction(1) / coefficient),), allowed)})


def power_domain(x: Polynomial, exponent: Polynomial, algebra: Algebra) -> Conditions:
    """That x may be raised to a power: any above zero, those that are not negative at zero, whole ones below."""
    constant = exponent.constant
    if constant is None:
        if algebra.signs(canonical(x)) == POSITIVE:
            return ALWAYS
        return frozenset({Condition("power", (canonical(x), canonical(exponent)))})
    if constant % 1 == 0:
        return ALWAYS if constant >= 0 else nonzero(x, algebra)
    return nonnegative(x, algebra, strictly=constant < 0)


def if_true(truth: Polynomial, conditions: Conditions) -> Conditions:
    """Conditions that must hold only if a truth value is 1."""
    constant = truth.constant
    if constant is not None:
        return conditions if constant else ALWAYS
    return frozenset(Condition("either", (truth,), 0, inner) for inner in conditions)


def rebuild_conditions(conditions: Iterable[Condition], algebra: Algebra) -> Conditions:
    """The conditions that remain under the facts of an algebra."""
    return ALWAYS.union(*(_rebuild_condition(condition, algebra) for condition in conditions))


def _rebuild_condition(condition: Condition, algebra: Algebra) -> Conditions:
    arguments = [algebra.rebuild(a) for a in condition.arguments]
    if condition.kind == "power":
        return power_domain(arguments[0], arguments[1], algebra)
    if condition.inner is not None:
        if arguments[0].constant == 0:
            return ALWAYS
        return if_true(canonical(arguments[0]), _rebuild_condition(condition.inner, algebra))
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
