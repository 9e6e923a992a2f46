"""Sums of products, multiplied out: the normal form in which two linear expressions are compared.

Each step is an equation of finite sums that holds in every commutative ring, by induction over the number of terms:
a sum of sums is the sum over pairs, a sum of f + g is that of f plus that of g, a factor that does not depend on the
position may stand inside or outside, and a sum over axes of size 1 is its only term.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import isfinite
from typing import Any

import z3

from .reading import Reading
from .tensors import Applied, Binder, Conditional, Count, Expression, Parameter, Reduced
from .types import ElementType
from .world import World

_MOST_TERMS = 16
"""Products of one expression, at most: all pairs of them are compared."""


@dataclass(frozen=True, eq=False)
class Summand:
    """A number times a sum of products."""

    factor: Fraction
    sum: Reduced


@dataclass(frozen=True, eq=False)
class _Product:
    """A number times the sum, over all positions of the binders, of a product."""

    factor: Fraction
    binders: tuple[Binder, ...] = ()
    factors: tuple[Expression, ...] = ()


def normal_form(reading: Reading, x: Expression) -> list[Summand] | None:
    """The summands of an expression; None if there are too many."""
    products = _expand(reading, x)
    if products is None or len(products) > _MOST_TERMS:
        return None
    return [Summand(p.factor, Reduced("add", p.binders, _multiply(p.factors), ElementType())) for p in products]


def _multiply(factors: tuple[Expression, ...]) -> Expression:
    return reduce(lambda x, y: Applied("Mul", (x, y)), factors) if factors else Parameter(1.0)


def _expand(reading: Reading, x: Expression | None) -> list[_Product] | None:
    """The products whose sum an expression is; None if there are too many."""
    if x is None:
        return None
    atom = [_Product(Fraction(1), (), (x,))]
    if isinstance(x, Parameter) and isinstance(number := reading.number(x), float) and isfinite(number):
        return [_Product(Fraction(number))] if number else []
    if isinstance(x, Reduced):
        if x.total != "add" or isinstance(x.body, Conditional):
            return atom
        inner = _expand(reading, x.body)
        return None if inner is None else [replace(p, binders=x.binders + p.binders) for p in inner]
    if not isinstance(x, Applied):
        return atom
    operands: list[list[_Product]] = []
    for operand in x.operands:
        products = _expand(reading, operand)
        if products is None or len(products) > _MOST_TERMS:
            return None
        operands.append(products)
    if x.head == "Add":
        return operands[0] + operands[1]
    if x.head == "Sub":
        return operands[0] + _negate(operands[1])
    if x.head == "Neg":
        return _negate(operands[0])
    if x.head == "Mul":
        return _pairs(operands[0], operands[1])
    if x.head == "Div":
        return _divide(reading, operands[0], x.operands[1])
    return atom


def _negate(terms: list[_Product]) -> list[_Product]:
    return [replace(t, factor=-t.factor) for t in terms]


def _pairs(one: list[_Product], other: list[_Product]) -> list[_Product] | None:
    """All products of a term of one with a term of the other; None if two such terms share a binder."""
    if any(set(a.binders) & set(b.binders) for a in one for b in other):
        return None
    return [_Product(a.factor * b.factor, a.binders + b.binders, a.factors + b.factors) for a in one for b in other]


def _divide(reading: Reading, terms: list[_Product], divisor: Expression | None) -> list[_Product] | None:
    """Each term divided. A quotient by zero of an empty sum has no value, but an empty sum of quotients has one."""
    if divisor is None or not (reading.is_nonzero(divisor) or all(not t.binders for t in terms)):
        return None
    inverse = Applied("Reciprocal", (divisor,))
    return [replace(t, factors=(*t.factors, inverse)) for t in terms]


def flatten(world: World, x: Any) -> Any:
    """Merge reductions of reductions of the same kind, and drop those over axes of size 1."""
    if isinstance(x, Applied):
        return Applied(x.head, tuple(flatten(world, o) for o in x.operands), x.attributes)
    if not isinstance(x, (Count, Reduced)):
        return x
    binders = tuple(b for b in x.binders if not _is_single(world, b))
    if isinstance(x, Count):
        return Count(binders, x.type) if binders else Parameter(1.0, x.type)
    body = flatten(world, x.body)
    if isinstance(body, Reduced) and body.total == x.total:
        binders, body = binders + body.binders, body.body
    return Reduced(x.total, binders, body, x.type) if binders else body


def _is_single(world: World, binder: Binder) -> bool:
    """Whether a binder has only one position; then this is assumed to be 0 along every axis."""
    if not world.follows_all(binder.rank, lambda at: z3.Implies(binder.among(at), binder.extent(at) == 1)):
        return False
    world.assume_all(lambda at: z3.Implies(z3.And(at >= 0, at < binder.rank, binder.among(at)), binder.at(at) == 0))
    return True
