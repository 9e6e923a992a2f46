"""Elementary functions of one number, as expressions that vectorise: TVM has calls of the C library for most.

In float32 they are within a few units of the last place; other types take TVM's own. What decides on the speed is the
count of vector instructions: products are added by fused instructions, bounds keep NaN without a comparison, and the
nearest integer comes out of an addition. A division is one instruction beside which the others run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import te, tirx

from .integers import equal, less, multiply, truncate

Expr = Any

_LOG2_E = 1.44269504088896341
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
"""To what a float is added that is to be rounded; the last bits of the sum are the exponent of the power of two."""

# erf(x) = x p(x^2) / q(x^2) for |x| <= 4 (Eigen, GenericPacketMathFunctions.h)
_ERF_P = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_Q = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip

_TANH_REACH = 9.02
"""From here on tanh is 1 in float32."""
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
"""From here on mish(x) is x, in float64 as well."""
_ROOT_HALF_BITS = 0x3F3504F3
_LEAST_NORMAL = 2.0**-126


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
    """The larger one, NaN for NaN: one instruction, where TVM's own loses NaN."""
    return tirx.call_llvm_pure_intrin(dtype_of(x), "llvm.maximum", x, tirx.const(low, dtype_of(x)))


def _at_most(x: Expr, high: float) -> Expr:
    """The smaller one, NaN for NaN."""
    return tirx.call_llvm_pure_intrin(dtype_of(x), "llvm.minimum", x, tirx.const(high, dtype_of(x)))


def round_even(x: Expr) -> Expr:
    """The nearest integer, the even one of two: one instruction, where TVM's own is a call for each element."""
    return tirx.call_llvm_pure_intrin(dtype_of(x), "llvm.roundeven", x)


def between(x: Expr, low: float, high: float) -> Expr:
    """Not below `low`, not above `high`; NaN for NaN."""
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
    """The exponential of a number not above 88, by fewer instructions than `exp`; 0 where that is subnormal."""
    if dtype_of(x) != "float32":
        return tirx.exp(x)
    return _split(_at_least(x, -88.0), 1.0, lambda rest, power: horner(rest, _EXP) * power)


def _split(x: Expr, period: float, body: Callable[[Expr, Expr], Expr]) -> Expr:
    """`body` of r and 2^n, where x = n period ln(2) + r and |r| <= period ln(2)/2.

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
    """1 / (1 + exp(-x)); 0 where that is subnormal."""
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
    """alpha (exp(x) - 1) where x is negative, else x."""
    return if_negative(x, (exp_below_88(x) - 1.0) * tirx.const(alpha, dtype_of(x)), x)


def leaky(x: Expr, alpha: float) -> Expr:
    """alpha x where x is negative, else x."""
    return if_negative(x, x * tirx.const(alpha, dtype_of(x)), x)


def thresholded(x: Expr, alpha: float) -> Expr:
    """x where it is above alpha, else 0, for NaN too."""
    return tirx.Select(tirx.GT(x, tirx.const(alpha, dtype_of(x))), x, tirx.const(0, dtype_of(x)))


def hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    """alpha x + beta, between 0 and 1."""
    dtype = dtype_of(x)
    line = x * tirx.const(alpha, dtype) + tirx.const(beta, dtype)
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
