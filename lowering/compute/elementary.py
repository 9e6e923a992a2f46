"""Elementary functions of one number, as expressions that vectorise: TVM has calls of the C library for most.

In float32 they are within a few units of the last place; other types take TVM's own. Their speed depends on the
count of vector instructions: products are added by fused instructions, bounds keep NaN without a comparison, and the
nearest integer comes out of an addition. A division is one instruction beside which the others run. Sines, cosines and
tangents take off whole turns in float64, by the bits of 2/pi that count for a float of its size (Payne and Hanek,
1983).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import copysign
from typing import Any

from tvm import te, tirx

from .integers import equal, less, multiply, truncate

Expr = Any

_LOG2_E = 1.44269504088896341
"""log2(e), by which exp(x) becomes a power of two."""
# ln 2 in two parts, of which the first times a small integer is exact (Cephes, expf.c)
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (0.001382013550028205, 0.008368685841560364, 0.04166827350854874, 0.1666652113199234, 0.4999999403953552, 1, 1)
"""exp(r) for |r| <= ln(2)/2, to 3e-9 of it (minimax, coefficients in float32)."""
_EXP_WIDE = (
    1.9631025497801602e-4, 1.4105556765571237e-3, 8.335963822901249e-3, 0.04166119545698166,
    0.1666661649942398, 0.5000003576278687, 1, 1,
)  # fmt: skip
"""exp(r) for |r| <= ln(2), to 1.5e-8 of it (minimax)."""
_ROUNDING = 1.5 * 2**23 + 127
"""Adding it rounds a float to an integer; the last bits of the sum are the exponent of the power of two."""

# erf(x) = x p(x^2) / q(x^2) for |x| <= 4 (Eigen, GenericPacketMathFunctions.h)
_ERF_P = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_Q = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip

_TANH_REACH = 9.02
"""The x from which on tanh(x) is 1 in float32."""
# tanh(x) = x p(x^2) / q(x^2), to 2e-8 of it (minimax)
_TANH_P = (1.3384295654395969e-08, 2.0635826115458825e-05, 0.0034974579161287235, 0.1338268747355641, 1)
_TANH_Q = (7.790251190999557e-07, 3.288517729099068e-4, 0.02588436186141982, 0.4671600872098332, 1)

_LOG_ONE_MORE = (
    5.365422461181879e-3, -0.030068300664424896, 0.07920882850885391, -0.13754187524318695,
    0.1915384829044342, -0.24857217073440552, 0.33321329951286316, -0.49999648332595825, 1,
)  # fmt: skip
"""log(1 + x) / x for 0 <= x <= 1, to 3e-8 of it (minimax)."""
_LOG = (
    0.08699892461299896, -0.14268629252910614, 0.14915485680103302, -0.16577492654323578,
    0.19962990283966064, -0.2500133812427521, 0.333339124917984, -0.5,
)  # fmt: skip
"""log(1 + r) = r + r^2 p(r) for sqrt(1/2) <= 1 + r <= sqrt(2), to 3e-8 of it (minimax)."""
_MISH_REACH = 20.0
"""The x from which on mish(x) is x, in float64 as well."""
_ROOT_HALF_BITS = 0x3F3504F3
"""The bits of sqrt(1/2) as a float."""
_LEAST_NORMAL = 2.0**-126
"""The least float that is not subnormal."""


def dtype_of(x: Expr) -> str:
    """The element type of an expression, by numpy's name."""
    return str(x.ty.dtype)


def bound(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """`body` of a value that it reads more than once.

    Whatever is inlined into the value later is then written, and computed, once.
    """
    if isinstance(value, tirx.Var | tirx.FloatImm | tirx.IntImm):
        return body(value)
    variable = tirx.Var("t", dtype_of(value))
    return tirx.Let(variable, value, body(variable))


def hide_zero(x: Expr) -> Expr:
    """A written zero by the bits of -0, of which TVM does not see that it is one: it takes x * 0 for 0, though x may be
    negative or not finite."""
    if not isinstance(x, tirx.FloatImm) or x.value != 0.0:
        return x
    dtype = dtype_of(x)
    below = tirx.reinterpret(dtype, tirx.min_value(f"int{dtype.removeprefix('float')}"))
    return below if copysign(1.0, x.value) < 0 else below * tirx.const(-1.0, dtype)


def scale(x: Expr, factor: float) -> Expr:
    """x times a number, which may be 0."""
    return x if factor == 1.0 else x * hide_zero(tirx.const(factor, dtype_of(x)))


def square(x: Expr) -> Expr:
    """x x."""
    return bound(x, lambda t: multiply(t, t))


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """A polynomial, the highest power first."""
    result = tirx.const(coefficients[0], dtype_of(x))
    for coefficient in coefficients[1:]:
        result = result * x + tirx.const(coefficient, dtype_of(x))
    return result


def single(value: float) -> Expr:
    return tirx.const(value, "float32")


def _at_least(x: Expr, low: float) -> Expr:
    """The larger one, NaN for NaN: one instruction; TVM's own loses NaN."""
    return tirx.call_llvm_pure_intrin(dtype_of(x), "llvm.maximum", x, tirx.const(low, dtype_of(x)))


def _at_most(x: Expr, high: float) -> Expr:
    """The smaller one, NaN for NaN."""
    return tirx.call_llvm_pure_intrin(dtype_of(x), "llvm.minimum", x, tirx.const(high, dtype_of(x)))


def round_even(x: Expr) -> Expr:
    """The nearest integer, the even one of two: one instruction; TVM's own is a call for each element."""
    return tirx.call_llvm_pure_intrin(dtype_of(x), "llvm.roundeven", x)


def round_to_integer(x: Expr, dtype: str) -> Expr:
    """The nearest integer of a type that holds it, the even one of two."""
    return tirx.call_llvm_pure_intrin(dtype, "llvm.lrint", x)


def between(x: Expr, low: float, high: float) -> Expr:
    """The number, but not below `low` and not above `high`; NaN for NaN."""
    return _at_most(_at_least(x, low), high)


def exp(x: Expr) -> Expr:
    """The exponential: 0 for -infinity, NaN for NaN.

    exp(x) = exp(r) 2^n 2^n with x = 2 n ln(2) + r, so that 2^n is normal, or 0 or infinity, wherever exp(x) is not.
    """
    if dtype_of(x) != "float32":
        return tirx.exp(x)

    def combine(rest: Expr, power: Expr) -> Expr:
        return bound(power, lambda p: horner(rest, _EXP_WIDE) * p * p)

    return _split(between(x, -176.0, 177.4), 2.0, combine)


def exp_below_88(x: Expr) -> Expr:
    """The exponential of a number not above 88, by fewer instructions than `exp`; 0 if that is subnormal."""
    if dtype_of(x) != "float32":
        return tirx.exp(x)
    return _split(_at_least(x, -88.0), 1.0, lambda rest, power: horner(rest, _EXP) * power)


def _split(x: Expr, period: float, body: Callable[[Expr, Expr], Expr]) -> Expr:
    """`body` of r and 2^n for x = n period ln(2) + r and |r| <= period ln(2)/2.

    2^n is right for -126 <= n <= 127; it is 0 for -127 and infinity for 128.
    """

    def with_count(t: Expr) -> Expr:
        return bound(t * single(_LOG2_E / period) + single(_ROUNDING), lambda sum_: with_power(t, sum_))

    def with_power(t: Expr, sum_: Expr) -> Expr:
        power = tirx.reinterpret("float32", tirx.reinterpret("int32", sum_) << 23)
        return bound(rest(t, sum_ - single(_ROUNDING)), lambda r: body(r, power))

    def rest(t: Expr, count: Expr) -> Expr:
        return bound(count, lambda n: t - n * single(_LN2_HIGH * period) - n * single(_LN2_LOW * period))

    return bound(x, with_count)


def log(x: Expr) -> Expr:
    """The natural logarithm: -infinity for 0, NaN below."""
    return bound(x, _log) if dtype_of(x) == "float32" else tirx.log(x)


def _log(x: Expr) -> Expr:
    subnormal = x < single(_LEAST_NORMAL)
    scaled = tirx.Select(subnormal, x * single(2.0**23), x)
    moved = tirx.Select(subnormal, single(-23), single(0))
    pole = tirx.Select(tirx.EQ(x, single(0)), single(float("-inf")), single(float("nan")))
    inside = tirx.Select(x < single(float("inf")), _log_of_normal(scaled, moved), x)
    return tirx.Select(x > single(0), inside, pole)


def _log_of_normal(x: Expr, moved: Expr) -> Expr:
    """log(x) + moved ln(2) by x = 2^n (1 + r) with 1 + r between sqrt(1/2) and sqrt(2)."""

    def parts(bits: Expr) -> Expr:
        return bound((bits - _ROOT_HALF_BITS) >> 23, lambda n: with_count(n, bits - (n << 23)))

    def with_count(n: Expr, mantissa: Expr) -> Expr:
        return bound(n.astype("float32") + moved, lambda count: total(count, mantissa))

    def total(count: Expr, mantissa: Expr) -> Expr:
        return bound(tirx.reinterpret("float32", mantissa) - single(1), lambda r: series(count, r))

    def series(count: Expr, r: Expr) -> Expr:
        return horner(r, _LOG) * (r * r) + count * single(_LN2_LOW) + r + count * single(_LN2_HIGH)

    return bound(tirx.reinterpret("int32", x), parts)


def erf(x: Expr) -> Expr:
    """The error function."""
    return _odd_quotient(x, 4.0, _ERF_P, _ERF_Q) if dtype_of(x) == "float32" else tirx.erf(x)


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent, never beyond 1."""
    if dtype_of(x) != "float32":
        return tirx.tanh(x)
    return between(_odd_quotient(x, _TANH_REACH, _TANH_P, _TANH_Q), -1, 1)


def _odd_quotient(x: Expr, reach: float, above: Sequence[float], below: Sequence[float]) -> Expr:
    """x p(x^2) / q(x^2), with x no farther from 0 than `reach`."""
    return bound(between(x, -reach, reach), lambda t: t * bound(t * t, lambda s: horner(s, above) / horner(s, below)))


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x)); 0 if that is subnormal."""
    if dtype_of(x) != "float32":
        return tirx.const(1.0, dtype_of(x)) / (tirx.exp(-x) + 1.0)
    negated = -between(x, -88.7, 88.0)  # 1 + exp of it is infinity from 88.4 on
    return single(1) / _split(negated, 1.0, lambda rest, power: horner(rest, _EXP) * power + single(1))


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), without overflow."""

    def log_one_more(e: Expr) -> Expr:
        return bound(e, lambda t: horner(t, _LOG_ONE_MORE) * t) if dtype_of(e) == "float32" else tirx.log1p(e)

    return bound(x, lambda t: te.max(t, tirx.const(0.0, dtype_of(t))) + log_one_more(exp_below_88(-tirx.abs(t))))


def mish(x: Expr) -> Expr:
    """x tanh(softplus(x)) = x m / (m + 2) with m = (1 + exp(x))^2 - 1 = exp(x) (exp(x) + 2)."""

    def quotient(e: Expr) -> Expr:
        return bound(e * (e + tirx.const(2, dtype_of(e))), lambda m: m / (m + tirx.const(2, dtype_of(m))))

    return bound(x, lambda t: t * bound(exp_below_88(_at_most(t, _MISH_REACH)), quotient))


def elu(x: Expr, alpha: float) -> Expr:
    """alpha (exp(x) - 1) if x is negative, else x."""
    return if_negative(x, scale(exp_below_88(x) - 1.0, alpha), x)


def leaky(x: Expr, alpha: float) -> Expr:
    """alpha x if x is negative, else x."""
    return if_negative(x, scale(x, alpha), x)


def thresholded(x: Expr, alpha: float) -> Expr:
    """x if it is above alpha, else 0, for NaN too."""
    return tirx.Select(tirx.GT(x, tirx.const(alpha, dtype_of(x))), x, tirx.const(0, dtype_of(x)))


def hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    """alpha x + beta, between 0 and 1."""
    dtype = dtype_of(x)
    line = scale(x, alpha) + tirx.const(beta, dtype)
    return tirx.Min(tirx.const(1, dtype), tirx.Max(tirx.const(0, dtype), line))


def softsign(x: Expr) -> Expr:
    """x / (1 + |x|)."""
    return x / (tirx.abs(x) + tirx.const(1, dtype_of(x)))


def if_negative(x: Expr, then: Expr, otherwise: Expr) -> Expr:
    """One of two, by the sign of x."""
    return tirx.Select(less(x, tirx.const(0, dtype_of(x))), then, otherwise)


def power(x: Expr, y: Expr) -> Expr:
    """x to the power y, in the type of x; exponents that are known and simple cost no call."""
    exponent = float(y.value) if isinstance(y, tirx.FloatImm | tirx.IntImm) else float("nan")
    if exponent in _SIMPLE_POWERS:
        return bound(x, _SIMPLE_POWERS[exponent])
    if exponent in _ROOTS and dtype_of(x).startswith("float"):
        return bound(x, _ROOTS[exponent])
    return tirx.power(x, y.astype(dtype_of(x)))


def integer_power(x: Expr, y: Expr, multiplies: bool) -> Expr:
    """An integer to the power y, computed as a float64 and cut, as ONNX Runtime does; with `multiplies`, exponents of 2
    and 3 are products that wrap."""

    def choose(base: Expr, exponent: Expr) -> Expr:
        wide = base.astype("float64"), exponent.astype("float64")
        power = truncate(tirx.call_intrin("float64", "tirx.pow", *wide), dtype_of(base))
        if not multiplies:
            return power
        squared = multiply(base, base)
        cubed = tirx.Select(_is(exponent, 3), multiply(squared, base), power)
        return tirx.Select(_is(exponent, 2), squared, cubed)

    return bound(x, lambda base: bound(y, lambda exponent: choose(base, exponent)))


def _is(x: Expr, number: int) -> Expr:
    return equal(x, tirx.const(number, dtype_of(x)))


_SIMPLE_POWERS: Mapping[float, Callable[[Expr], Expr]] = {
    1.0: lambda x: x,
    2.0: lambda x: multiply(x, x),
    3.0: lambda x: multiply(multiply(x, x), x),
    4.0: lambda x: square(multiply(x, x)),
}
_ROOTS: Mapping[float, Callable[[Expr], Expr]] = {
    0.5: tirx.sqrt,
    0.75: lambda x: bound(tirx.sqrt(x), lambda root: root * tirx.sqrt(root)),
    -0.5: lambda x: tirx.const(1.0, dtype_of(x)) / tirx.sqrt(x),
}


def lowest(dtype: str) -> Expr:
    """A number that is not above any other of the type."""
    return tirx.const(float("-inf"), dtype) if dtype.startswith("float") else te.min_value(dtype)


def highest(dtype: str) -> Expr:
    """A number that is not below any other of the type."""
    return tirx.const(float("inf"), dtype) if dtype.startswith("float") else te.max_value(dtype)



_WHOLE = 1.5 * 2**52
"""Adding it rounds a double to an integer; the last bits of the sum are the integer."""
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
    """`body` of r and the last bits of n for x = n pi/2 + r and |r| <= pi/4."""
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
    """A number whose sign is exchanged if the bit is set."""
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
