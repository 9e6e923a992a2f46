"""Arithmetic of floats that tensors hold: each operation rounds, and NaN, infinities and zeros are those of IEEE 754.

TVM simplifies floats as if they were real numbers: x + y - y becomes x, x * 0 becomes 0, x == x and "x < y or x >= y"
become true. The rewrite rules of a model's precision say which of that a user asked for; what is left for TVM says
exactly what is computed, in forms that its simplifier leaves alone and LLVM makes the plain instructions of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, te, tirx
from tvm.ir import Call

from .elementary import bound, dtype_of, hide_zero

Expr = Any

# TVM does not know that there are vectors of this: it would compute a whole statement that has it element by element,
# and without the vectors around the statement that have names.
ir.register_op_attr("tirx.isnan", "TVectorizable", True)


def is_float(x: Expr) -> bool:
    """Whether an expression is a float of a type that TVM computes with."""
    return dtype_of(x).startswith("float")


def larger(x: Expr, y: Expr) -> Expr:
    """The larger one; NaN if either is."""
    return _extreme(x, y, tirx.Max)


def smaller(x: Expr, y: Expr) -> Expr:
    """The smaller one; NaN if either is."""
    return _extreme(x, y, tirx.Min)


def _extreme(x: Expr, y: Expr, choose: Callable[[Expr, Expr], Expr]) -> Expr:
    """Of two floats that do not compare the processor takes the second one, which has to be the one that may be NaN."""
    if isinstance(y, tirx.FloatImm):
        return choose(y, x)
    if isinstance(x, tirx.FloatImm):
        return choose(x, y)
    return bound(x, lambda t: tirx.Select(tirx.isnan(t), t, choose(t, y)))


def add(x: Expr, y: Expr) -> Expr:
    """x + y; -0 + 0 is 0."""
    return hide_zero(tirx.convert(x)) + hide_zero(tirx.convert(y))


def multiply(x: Expr, y: Expr) -> Expr:
    """x * y, also if one of them is a written 0."""
    return hide_zero(tirx.convert(x)) * hide_zero(tirx.convert(y))


def divide(x: Expr, y: Expr) -> Expr:
    """x / y, also if one of them is a written 0."""
    return hide_zero(tirx.convert(x)) / hide_zero(tirx.convert(y))


def subtract(x: Expr, y: Expr) -> Expr:
    """x - y, as a sum with a negative number if x and y have anything in common."""
    if isinstance(y, tirx.FloatImm):
        return add(x, tirx.const(-y.value, dtype_of(y)))
    return x + -y if _reads(x, y) or _reads(y, x) else x - y


def _reads(whole: Expr, part: Expr) -> bool:
    """Whether element-wise operators compute an element of one tensor from the other tensor, or both are one."""
    loaded, sought = _loaded(whole), _loaded(part)
    if loaded is None or sought is None:
        return False
    waiting, seen = [loaded], set[Any]()
    while waiting:
        tensor = waiting.pop()
        if tensor.op.same_as(sought.op):
            return True
        bodies = list(getattr(tensor.op, "body", ()))
        if tensor.op not in seen and not any(isinstance(body, tirx.Reduce) for body in bodies):
            seen.add(tensor.op)
            waiting.extend(tensor.op.input_tensors)
    return False


def _loaded(x: Expr) -> te.Tensor | None:
    """The tensor that an expression is an element of; None if it is something else."""
    return x.args[0] if isinstance(x, Call) and x.args and isinstance(x.args[0], te.Tensor) else None


def equal(x: Expr, y: Expr) -> Expr:
    """Whether both are one number, which NaN is not."""
    return _ordered(x, lambda t: tirx.EQ(t, y))


def less_or_equal(x: Expr, y: Expr) -> Expr:
    """Whether x is at most y, which NaN never is."""
    return _ordered(x, lambda t: tirx.LE(t, y))


def _ordered(x: Expr, compare: Callable[[Expr], Expr]) -> Expr:
    return bound(x, lambda t: tirx.And(compare(t), tirx.EQ(tirx.isnan(t).astype("int8"), tirx.const(0, "int8"))))


def either(x: Expr, y: Expr) -> Expr:
    """Whether one of two truth values holds, as arithmetic of numbers: they may be comparisons of floats."""
    return tirx.NE(x.astype("int8") | y.astype("int8"), tirx.const(0, "int8"))
