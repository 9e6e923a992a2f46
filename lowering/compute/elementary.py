"""Elementary functions of one number, as expressions that vectorise: TVM has calls of the C library for most.

In float32 they are within a few units of the last place; other types take TVM's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log2
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


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """A polynomial, the highest power first."""
    result = tirx.const(coefficients[0], x.ty.dtype if hasattr(x, "ty") else x.dtype)
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def exp(x: Expr) -> Expr:
    """The exponential: 0 for -infinity, NaN for NaN."""
    if x.dtype != "float32":
        return tirx.exp(x)
    near = te.min(te.max(x, tirx.const(_EXP_LOWEST, x.dtype)), tirx.const(_EXP_HIGHEST, x.dtype))
    power = te.floor(near * _LOG2_E + 0.5)
    rest = near - power * _LN2_HIGH - power * _LN2_LOW
    value = horner(rest, _EXP) * (rest * rest) + rest + 1.0
    whole = power.astype("int32")
    half = whole >> 1  # 2^128 and 2^-149 are reached in two steps, each a normal number
    return tirx.Select(tirx.isnan(x), x, value * _power_of_two(half) * _power_of_two(whole - half))


def _power_of_two(exponent: Expr) -> Expr:
    return tirx.reinterpret("float32", (exponent + 127) << 23)


def erf(x: Expr) -> Expr:
    """The error function."""
    if x.dtype != "float32":
        return tirx.erf(x)
    near = te.min(te.max(x, tirx.const(-4.0, x.dtype)), tirx.const(4.0, x.dtype))
    square = near * near
    return near * horner(square, _ERF_P) / horner(square, _ERF_Q)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    return tirx.const(1.0, x.dtype) / (exp(-x) + 1.0)


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), without overflow."""
    return te.max(x, tirx.const(0.0, x.dtype)) + tirx.log1p(exp(-tirx.abs(x)))


def power(x: Expr, y: Expr) -> Expr:
    """x to the power y, in the type of x; exponents that are known and simple cost no call."""
    exponent = float(y.value) if isinstance(y, tirx.FloatImm | tirx.IntImm) else float("nan")
    if exponent in (1.0, 2.0, 3.0, 4.0):
        return _product(x, int(exponent))
    if x.dtype.startswith(("int", "uint")):
        return tirx.power(x.astype("float64"), y.astype("float64")).astype(x.dtype)
    roots = {0.5: (1,), 0.25: (2,), 0.75: (1, 2), -0.5: (1,)}.get(exponent)
    if roots is None:
        return tirx.power(x, y.astype(x.dtype))
    value = _product_of_roots(x, roots)
    return value if exponent > 0 else tirx.const(1.0, x.dtype) / value


def _product(x: Expr, count: int) -> Expr:
    return x if count == 1 else _product(x, count - 1) * x


def _product_of_roots(x: Expr, depths: Sequence[int]) -> Expr:
    result = None
    for depth in depths:
        root = x
        for _ in range(depth):
            root = tirx.sqrt(root)
        result = root if result is None else result * root
    return result


def lowest(dtype: str) -> Expr:
    """What is not above any number of the type."""
    return tirx.const(float("-inf"), dtype) if dtype.startswith("float") else te.min_value(dtype)


def highest(dtype: str) -> Expr:
    """What is not below any number of the type."""
    return tirx.const(float("inf"), dtype) if dtype.startswith("float") else te.max_value(dtype)
