"""Sines, cosines, tangents and their inverses in float32, as expressions that vectorise.

The turns are taken off in float64 by the bits of 2/pi that count for a float of its size (Payne and Hanek, 1983).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from .elementary import bound, dtype_of, horner, if_negative, single

Expr = Any

_WHOLE = 1.5 * 2**52
"""To what a double is added that is to be rounded; the last bits of the sum are the integer."""
_TWO_BY_PI = {
    0: (0.636619770899415, 1.4681663246252086e-09, 2.276010073078396e-18),
    2.0**51: (1.0781392056902206e-08, 1.6153797855624593e-17, 2.52682603558315e-26),
    2.0**77: (7.166494882838848e-17, 2.8376220161182397e-25, 1.668286766860824e-34),
    2.0**103: (2.765304035419047e-24, 4.018688561039878e-33, 4.420676015940119e-42),
}
"""2/pi for numbers from 2^a on, by 2^a, in three parts: two of 29 bits, whose products with a float are exact doubles,
and the rest. It begins with the bit of weight 2^(24-a), for those before it make whole turns of any such float."""
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
    return _take_off_turns(x, lambda r, turns: _with_sign(_sin_or_cos(r, turns), (turns & 2) << 30))


def cos(x: Expr) -> Expr:
    """The cosine: the sine of a quarter turn more."""
    if dtype_of(x) != "float32":
        return tirx.cos(x)
    return _take_off_turns(
        x, lambda r, turns: bound(turns + 1, lambda more: _with_sign(_sin_or_cos(r, more), (more & 2) << 30))
    )


def tan(x: Expr) -> Expr:
    """The tangent."""
    if dtype_of(x) != "float32":
        return tirx.tan(x)

    def quotient(r: Expr, turns: Expr) -> Expr:
        return bound(_sin_of(r), lambda s: bound(_cos_of(r), lambda c: tirx.Select((turns & 1) > 0, -c / s, s / c)))

    return _take_off_turns(x, quotient)


def _take_off_turns(x: Expr, body: Callable[[Expr, Expr], Expr]) -> Expr:
    """`body` of r and the last bits of n, where x = n pi/2 + r and |r| <= pi/4."""
    return bound(x, lambda t: bound(t.astype("float64"), lambda wide: _count_turns(t, wide, body)))


def _count_turns(x: Expr, wide: Expr, body: Callable[[Expr, Expr], Expr]) -> Expr:
    """Each product is rounded by itself: without a fused instruction, too, no digit is lost."""

    def product(part: int) -> Expr:
        factor = _double(_TWO_BY_PI[0][part])
        for least, parts in _TWO_BY_PI.items():
            if least:
                factor = tirx.Select(tirx.abs(x) >= single(least), _double(parts[part]), factor)
        return wide * factor

    def bits(sum_: Expr) -> Expr:
        return tirx.reinterpret("int64", sum_)

    def with_products(high: Expr, low: Expr) -> Expr:
        return bound(high + whole, lambda a: bound(low + whole, lambda b: with_sums(high, a, low, b)))

    def with_sums(high: Expr, a: Expr, low: Expr, b: Expr) -> Expr:
        left, more = high - (a - whole), low - (b - whole)
        return bound(left, lambda f: bound(more, lambda g: bound(f + g + whole, lambda c: with_rest(f, g, a, b, c))))

    def with_rest(f: Expr, g: Expr, a: Expr, b: Expr, c: Expr) -> Expr:
        rest = (f - (c - whole) + g + product(2)) * _double(_HALF_PI)
        turns = (bits(a) + bits(b) + bits(c)).astype("int32")
        return bound(rest.astype("float32"), lambda r: bound(turns, lambda t: body(r, t)))

    whole = _double(_WHOLE)
    return bound(product(0), lambda high: bound(product(1), lambda low: with_products(high, low)))


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
