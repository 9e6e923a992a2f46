"""The connectives of z3, for truth values and integers of one context alone.

z3's own functions first find out of which kind their arguments are, which takes several times as long as making the
expression.
"""

from __future__ import annotations

from typing import Any

import z3

Number = Any
Truth = Any


def conjunction(*truths: Truth) -> Truth:
    """Whether all hold."""
    return _join(z3.Z3_mk_and, truths)


def disjunction(*truths: Truth) -> Truth:
    """Whether one of them holds."""
    return _join(z3.Z3_mk_or, truths)


def _join(make: Any, truths: tuple[Truth, ...]) -> Truth:
    if not truths:
        return z3.BoolVal(make is z3.Z3_mk_and)
    context = truths[0].ctx
    array = (z3.Ast * len(truths))(*[each.ast for each in truths])
    return z3.BoolRef(make(context.ref(), len(truths), array), context)


def negation(truth: Truth) -> Truth:
    """Whether it does not hold."""
    return z3.BoolRef(z3.Z3_mk_not(truth.ctx.ref(), truth.ast), truth.ctx)


def implication(condition: Truth, truth: Truth) -> Truth:
    """Whether the second holds if the first does."""
    return z3.BoolRef(z3.Z3_mk_implies(condition.ctx.ref(), condition.ast, truth.ast), condition.ctx)


def choice(condition: Truth, first: Number, second: Number) -> Number:
    """The first integer if the condition holds, else the second."""
    context = condition.ctx
    one, other = (n if z3.is_expr(n) else z3.IntVal(n, context) for n in (first, second))
    return z3.ArithRef(z3.Z3_mk_ite(context.ref(), condition.ast, one.ast, other.ast), context)
