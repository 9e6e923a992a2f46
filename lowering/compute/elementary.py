"""Elementary functions of one number, as expressions that vectorise: TVM has calls of the C library for most.

In float32 they are within a few units of the last place; other types take TVM's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import te, tirx

Expr = Any

_LOG2_E = 1.44269504088896341
# ln 2 in two parts, of which the first times a small integer is exact (Cephes, expf.c)
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
"""exp(r) = 1 + r + r^2 p(r) for |r| <= ln(2)/2 (Cephes, expf.c)."""
_EXP_LOWEST, _EXP_HIGHEST = -104.0, 89.0
"""Below it is 0, above it infinity in float32."""

# erf(x) = x p(x^2) / q(x^2) for |x| <= 4 (Eigen, GenericPacketMathFunctions.h)
_ERF_P = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_Q = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip

# tanh(x) = x p(x^2) / q(x^2) (Eigen, MathFunctionsImpl.h)
_TANH_REACH = 7.90531110763549805
"""From here on tanh is 1 in float32."""
_TANH_P = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)


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
    return bound(x, lambda t: t * t)


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """A polynomial, the highest power first."""
    result = tirx.const(coefficients[0], dtype_of(x))
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def exp(x: Expr) -> Expr:
    """The exponential: 0 for -infinity, NaN for NaN."""
    return bound(x, _exp) if dtype_of(x) == "float32" else tirx.exp(x)


def _exp(x: Expr) -> Expr:
    near = te.min(te.max(x, tirx.const(_EXP_LOWEST, "float32")), tirx.const(_EXP_HIGHEST, "float32"))

    def reduced(near: Expr) -> Expr:
        return bound(te.floor(near * _LOG2_E + 0.5), lambda power: scaled(power, near - power * _LN2_HIGH))

    def scaled(power: Expr, rest: Expr) -> Expr:
        value = bound(rest - power * _LN2_LOW, lambda r: horner(r, _EXP) * (r * r) + r + 1.0)
        return _times_power_of_two(value, power.astype("int32"))

    # a comparison, for isnan is no vector instruction: NaN is not below, and stays NaN; from 89 on there is infinity
    beyond = x + tirx.const(float("inf"), "float32")
    return tirx.Select(x < tirx.const(89.0, "float32"), bound(near, reduced), beyond)


def _times_power_of_two(value: Expr, power: Expr) -> Expr:
    """In two steps, each by a normal number, so that 2^128 and 2^-149 are reached."""

    def steps(whole: Expr) -> Expr:
        return bound(whole >> 1, lambda half: value * _normal_power(half) * _normal_power(whole - half))

    return bound(power, steps)


def _normal_power(exponent: Expr) -> Expr:
    return tirx.reinterpret("float32", (exponent + 127) << 23)


def erf(x: Expr) -> Expr:
    """The error function."""
    if dtype_of(x) != "float32":
        return tirx.erf(x)
    near = te.min(te.max(x, tirx.const(-4.0, "float32")), tirx.const(4.0, "float32"))
    return bound(near, lambda t: t * bound(t * t, lambda s: horner(s, _ERF_P) / horner(s, _ERF_Q)))


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent."""
    if dtype_of(x) != "float32":
        return tirx.tanh(x)
    near = te.min(te.max(x, tirx.const(-_TANH_REACH, "float32")), tirx.const(_TANH_REACH, "float32"))
    return bound(near, lambda t: t * bound(t * t, lambda s: horner(s, _TANH_P) / horner(s, _TANH_Q)))


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    return tirx.const(1.0, dtype_of(x)) / (exp(-x) + 1.0)


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), without overflow."""
    return bound(x, lambda t: te.max(t, tirx.const(0.0, dtype_of(t))) + tirx.log1p(exp(-tirx.abs(t))))


def power(x: Expr, y: Expr) -> Expr:
    """x to the power y, in the type of x; exponents that are known and simple cost no call."""
    exponent = float(y.value) if isinstance(y, tirx.FloatImm | tirx.IntImm) else float("nan")
    if exponent in _SIMPLE_POWERS:
        return bound(x, _SIMPLE_POWERS[exponent])
    if dtype_of(x).startswith(("int", "uint")):
        return tirx.power(x.astype("float64"), y.astype("float64")).astype(dtype_of(x))
    if exponent in _ROOTS and dtype_of(x).startswith("float"):
        return bound(x, _ROOTS[exponent])
    return tirx.power(x, y.astype(dtype_of(x)))


def _three_quarters(x: Expr) -> Expr:
    return bound(tirx.sqrt(x), lambda root: root * tirx.sqrt(root))


_SIMPLE_POWERS: Mapping[float, Callable[[Expr], Expr]] = {
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: square(x * x),
}
_ROOTS: Mapping[float, Callable[[Expr], Expr]] = {
    0.5: tirx.sqrt,
    0.75: _three_quarters,
    -0.5: lambda x: tirx.const(1.0, dtype_of(x)) / tirx.sqrt(x),
}


def lowest(dtype: str) -> Expr:
    """What is not above any number of the type."""
    return tirx.const(float("-inf"), dtype) if dtype.startswith("float") else te.min_value(dtype)


def highest(dtype: str) -> Expr:
    """What is not below any number of the type."""
    return tirx.const(float("inf"), dtype) if dtype.startswith("float") else te.max_value(dtype)
