"""Sums of products, multiplied out: the normal form in which two linear expressions are compared.

Each step is an equation of finite sums that holds in every commutative ring, by induction over the number of terms:
a sum of sums is the sum over pairs, a sum of f + g is that of f plus that of g, a factor that does not depend on the
position may stand inside or outside, and a sum over axes of size 1 is its only term.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Any, Protocol

import z3

from .reading import Reading
from .tensors import Applied, Binder, Choice, Count, Expression, Parameter, Reduced
from .types import Type
from .world import World

_MOST_TERMS = 16


class Comparison(Protocol):
    """Where sums are taken apart: what is known of the numbers in them."""

    reading: Reading

    def is_nonzero(self, x: Expression) -> bool:
        """Whether an expression is never zero."""


@dataclass(frozen=True, eq=False)
class Term:
    """A number times a sum of products."""

    factor: Fraction
    sum: Reduced


@dataclass(frozen=True, eq=False)
class _Product:
    factor: Fraction
    binders: tuple[Binder, ...]
    factors: tuple[Expression, ...]


def normal_forms(comparison: Comparison, x: Expression) -> list[Term] | None:
    """The terms that an expression is the sum of; None where there are too many."""
    products = _expanded(comparison, x)
    if products is None or len(products) > _MOST_TERMS:
        return None
    return [Term(p.factor, Reduced("add", p.binders, _multiplied(p.factors), Type())) for p in products]


def _multiplied(factors: Iterable[Expression]) -> Expression:
    result: Expression | None = None
    for factor in factors:
        result = factor if result is None else Applied("Mul", (result, factor))
    return Parameter(1.0) if result is None else result


def _expanded(comparison: Comparison, x: Expression | None) -> list[_Product] | None:
    if isinstance(x, Parameter) and isinstance(number := comparison.reading.number(x), float) and isfinite(number):
        return [_Product(Fraction(number), (), ())] if number else []
    if isinstance(x, Reduced):
        return _sum(comparison, x)
    if not isinstance(x, Applied):
        return None if x is None else [_Product(Fraction(1), (), (x,))]
    parts = [_expanded(comparison, operand) for operand in x.operands]
    if any(p is None or len(p) > _MOST_TERMS for p in parts):
        return None
    known = [p for p in parts if p is not None]
    if x.head == "Add":
        return known[0] + known[1]
    if x.head == "Sub":
        return known[0] + _scaled(known[1], Fraction(-1))
    if x.head == "Neg":
        return _scaled(known[0], Fraction(-1))
    if x.head == "Mul":
        return _pairs(known[0], known[1])
    if x.head == "Div":
        return _divided(comparison, known[0], x.operands[1])
    return [_Product(Fraction(1), (), (x,))]


def _pairs(one: list[_Product], other: list[_Product]) -> list[_Product] | None:
    """All products of two; None where both run over positions of one name."""
    result = []
    for a in one:
        for b in other:
            if set(a.binders) & set(b.binders):
                return None
            result.append(_Product(a.factor * b.factor, a.binders + b.binders, a.factors + b.factors))
    return result


def _divided(comparison: Comparison, terms: list[_Product], divisor: Expression | None) -> list[_Product] | None:
    """Each term divided. A quotient by zero of a sum of nothing has no value, but a sum of no quotients has."""
    if divisor is None or not (comparison.is_nonzero(divisor) or all(not t.binders for t in terms)):
        return None
    inverse = Applied("Reciprocal", (divisor,))
    return [_Product(t.factor, t.binders, (*t.factors, inverse)) for t in terms]


def _scaled(terms: list[_Product], factor: Fraction) -> list[_Product]:
    return [_Product(factor * t.factor, t.binders, t.factors) for t in terms]


def _sum(comparison: Comparison, x: Reduced) -> list[_Product] | None:
    if x.total != "add" or isinstance(x.body, Choice):
        return [_Product(Fraction(1), (), (x,))]
    inner = _expanded(comparison, x.body)
    if inner is None:
        return None
    return [_Product(p.factor, x.binders + p.binders, p.factors) for p in inner]


def flattened(world: World, x: Any) -> Any:
    """An expression in which a reduction of a reduction of its kind is one, and a reduction over axes of size 1 is its
    only value."""
    if isinstance(x, Applied):
        return Applied(x.head, tuple(flattened(world, o) for o in x.operands), x.attributes)
    if isinstance(x, Count):
        several = tuple(b for b in x.binders if not _is_single(world, b))
        return Count(several, x.type) if several else Parameter(1.0, x.type)
    if not isinstance(x, Reduced):
        return x
    binders = tuple(b for b in x.binders if not _is_single(world, b))
    body = flattened(world, x.body)
    if isinstance(body, Reduced) and body.total == x.total:
        binders, body = binders + body.binders, body.body
    return Reduced(x.total, binders, body, x.type) if binders else body


def _is_single(world: World, binder: Binder) -> bool:
    """Whether a binder has one position, which is then assumed to be 0 along every axis."""
    if not world.follows_all(binder.rank, lambda at: z3.Implies(binder.among(at), binder.extent(at) == 1)):
        return False
    world.assume_all(lambda at: z3.Implies(z3.And(at >= 0, at < binder.rank, binder.among(at)), binder.at(at) == 0))
    return True
