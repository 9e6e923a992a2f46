"""Sines, cosines, tangents and their inverses in float32, as expressions that vectorise.

The turns are taken off in float64, where a fused instruction leaves what a float has left of any number below 2^50.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from .elementary import between, bound, dtype_of, horner, if_negative, single

Expr = Any

_TWO_BY_PI = 0.6366197723675814
# pi / 2 in two parts of float64: a multiple of the first is exact in a fused instruction
_HALF_PI_HIGH, _HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
_WHOLE = 1.5 * 2**52
"""To what a double is added that is to be rounded; the last bits of the sum are the integer."""
_TURNS_REACH = 2.0**50
"""Beyond it, where neighbouring floats are many turns apart, sine and cosine are those of this number."""
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
"""(sin(r) - r) / r^3 for |r| <= pi/4, as a polynomial in r^2 (Cephes, sinf.c)."""
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2, -0.5, 1)
"""cos(r) for |r| <= pi/4, as a polynomial in r^2 (Cephes, sinf.c)."""
_ATAN = (
    -0.0017873210599645972, 0.01087702251970768, -0.031085604801774025, 0.05783577635884285, -0.08394000679254532,
    0.1094779372215271, -0.14263050258159637, 0.19998374581336975, -0.3333328664302826, 1,
)  # fmt: skip
"""atan(x) / x for |x| <= 1, as a polynomial in x^2, to 3e-9 of it (minimax)."""
_ASIN = (
    0.034625861793756485, 0.016612622886896133, 0.031206520274281502, 0.044591162353754044,
    0.07500115036964417, 0.1666666567325592,
)  # fmt: skip
"""(asin(x) - x) / x^3 for |x| <= 1/2, as a polynomial in x^2, to 5e-9 of it (minimax)."""
_HALF_PI, _PI = 1.5707963267948966, 3.141592653589793


def sin(x: Expr) -> Expr:
    """The sine."""
    if dtype_of(x) != "float32":
        return tirx.sin(x)
    return _turned(x, lambda r, turns: _with_sign(_sin_or_cos(r, turns), (turns & 2) << 30))


def cos(x: Expr) -> Expr:
    """The cosine: the sine of a quarter turn more."""
    if dtype_of(x) != "float32":
        return tirx.cos(x)
    return _turned(
        x, lambda r, turns: bound(turns + 1, lambda more: _with_sign(_sin_or_cos(r, more), (more & 2) << 30))
    )


def tan(x: Expr) -> Expr:
    """The tangent."""
    if dtype_of(x) != "float32":
        return tirx.tan(x)

    def quotient(r: Expr, turns: Expr) -> Expr:
        return bound(_sin_of(r), lambda s: bound(_cos_of(r), lambda c: tirx.Select((turns & 1) > 0, -c / s, s / c)))

    return _turned(x, quotient)


def _turned(x: Expr, body: Callable[[Expr, Expr], Expr]) -> Expr:
    """`body` of r and the last bits of n, where x = n pi/2 + r and |r| <= pi/4."""

    def with_count(wide: Expr) -> Expr:
        return bound(wide * _double(_TWO_BY_PI) + _double(_WHOLE), lambda sum_: with_rest(wide, sum_))

    def with_rest(wide: Expr, sum_: Expr) -> Expr:
        turns = tirx.reinterpret("int64", sum_).astype("int32")
        count = sum_ - _double(_WHOLE)
        rest = bound(count, lambda n: wide - n * _double(_HALF_PI_HIGH) - n * _double(_HALF_PI_LOW))
        return bound(rest.astype("float32"), lambda r: bound(turns, lambda t: body(r, t)))

    def limit(t: Expr) -> Expr:
        limited = between(t, -_TURNS_REACH, _TURNS_REACH)
        return tirx.Select(tirx.abs(t) < single(float("inf")), limited, single(float("nan")))

    return bound(bound(x, limit).astype("float64"), with_count)


def _double(value: float) -> Expr:
    return tirx.const(value, "float64")


def _sin_of(r: Expr) -> Expr:
    return bound(r * r, lambda s: horner(s, _SIN) * (s * r) + r)


def _cos_of(r: Expr) -> Expr:
    return bound(r * r, lambda s: horner(s, _COS))


def _sin_or_cos(r: Expr, turns: Expr) -> Expr:
    """The cosine after an odd number of quarter turns."""
    return tirx.Select((turns & 1) > 0, _cos_of(r), _sin_of(r))


def _with_sign(x: Expr, bit: Expr) -> Expr:
    """A number whose sign is exchanged where the bit is set."""
    return tirx.reinterpret("float32", tirx.reinterpret("int32", x) ^ bit)


def _sign_of(x: Expr) -> Expr:
    return tirx.reinterpret("int32", x) & tirx.const(-(2**31), "int32")


def atan(x: Expr) -> Expr:
    """The arc tangent; beyond 1 it is pi/2 less that of the reciprocal."""
    if dtype_of(x) != "float32":
        return tirx.atan(x)

    def of_size(size: Expr, sign: Expr) -> Expr:
        inverse = tirx.Select(size > single(1), single(1) / size, size)
        value = bound(inverse, lambda t: bound(t * t, lambda s: horner(s, _ATAN) * t))
        turned = bound(value, lambda v: tirx.Select(size > single(1), single(_HALF_PI) - v, v))
        return _with_sign(turned, sign)

    return bound(x, lambda t: bound(tirx.abs(t), lambda size: of_size(size, _sign_of(t))))


def asin(x: Expr) -> Expr:
    """The arc sine; NaN beyond 1."""
    if dtype_of(x) != "float32":
        return tirx.asin(x)

    def turned(size: Expr, value: Expr) -> Expr:
        return tirx.Select(size > single(0.5), single(_HALF_PI) - value * single(2), value)

    return bound(x, lambda t: _with_sign(_arc(t, turned), _sign_of(t)))


def acos(x: Expr) -> Expr:
    """The arc cosine; NaN beyond 1."""
    if dtype_of(x) != "float32":
        return tirx.acos(x)

    def turned(size: Expr, value: Expr, of: Expr) -> Expr:
        far = value * single(2)
        beyond = if_negative(of, single(_PI) - far, far)
        return tirx.Select(size > single(0.5), beyond, single(_HALF_PI) - if_negative(of, -value, value))

    return bound(x, lambda t: _arc(t, lambda size, value: turned(size, value, t)))


def _arc(x: Expr, body: Callable[[Expr, Expr], Expr]) -> Expr:
    """`body` of |x| and asin(|x|) up to 1/2, beyond it asin(sqrt((1 - |x|) / 2))."""

    def with_square(size: Expr, s: Expr) -> Expr:
        root = tirx.Select(size > single(0.5), tirx.sqrt(s), size)
        value = bound(root, lambda t: horner(s, _ASIN) * (s * t) + t)
        return bound(value, lambda v: body(size, v))

    def with_size(size: Expr) -> Expr:
        s = tirx.Select(size > single(0.5), (single(1) - size) * single(0.5), size * size)
        return bound(s, lambda t: with_square(size, t))

    return bound(tirx.abs(x), with_size)
