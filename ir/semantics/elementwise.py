"""The element-wise operators."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np

from .arithmetic import Arithmetic, Array, Unsupported, floats_only

Meaning = Callable[..., Any]


def _named(function: str) -> Meaning:
    return lambda arithmetic, *operands: arithmetic.apply(function, *operands)


def _swapped(function: str) -> Meaning:
    return lambda arithmetic, a, b: arithmetic.apply(function, b, a)


class Expression:
    """An array with the arithmetic it is computed in, so that formulas read as formulas."""

    def __init__(self, arithmetic: Arithmetic, array: Array) -> None:
        self.arithmetic, self.array = arithmetic, array

    def of(self, other: Expression | float) -> Array:
        """The other operand: a number becomes a constant of this one's type."""
        return other.array if isinstance(other, Expression) else self.arithmetic.constant(other, self.array)

    def __call__(self, function: str, *others: Expression | float) -> Expression:
        """An element-wise function of this and other operands."""
        return Expression(self.arithmetic, self.arithmetic.apply(function, self.array, *map(self.of, others)))

    def __add__(self, other: Expression | float) -> Expression:
        return self("add", other)

    def __sub__(self, other: Expression | float) -> Expression:
        return self("subtract", other)

    def __mul__(self, other: Expression | float) -> Expression:
        return self("multiply", other)

    def __truediv__(self, other: Expression | float) -> Expression:
        return self("divide", other)

    def __neg__(self) -> Expression:
        return self("negative")

    def where(self, then: Expression, otherwise: Expression) -> Expression:
        """One of two, this being the condition."""
        return Expression(self.arithmetic, self.arithmetic.apply("where", self.array, then.array, otherwise.array))

    def clipped(self, low: float, high: float) -> Expression:
        """Not below `low`, not above `high`."""
        return self("maximum", low)("minimum", high)


def _formula(function: Callable[..., Expression]) -> Meaning:
    def apply(arithmetic: Arithmetic, x: Array, *attributes: float) -> Array:
        floats_only(x)
        return function(Expression(arithmetic, x), *attributes).array

    return apply


def _scaled_below(x: Expression, alpha: float) -> Expression:
    return x("less", 0.0).where(x * alpha, x)


def _elu(x: Expression, alpha: float) -> Expression:
    return x("less", 0.0).where((x("exp") - 1.0) * alpha, x)


def _celu(x: Expression, alpha: float) -> Expression:
    return x("maximum", 0.0) + (((x / alpha)("exp") - 1.0) * alpha)("minimum", 0.0)


def _selu(x: Expression, alpha: float, gamma: float) -> Expression:
    return _elu(x, alpha) * gamma


def _thresholded(x: Expression, alpha: float) -> Expression:
    return x("less_equal", alpha).where(Expression(x.arithmetic, x.of(0.0)), x)


def _hard_sigmoid(x: Expression, alpha: float, beta: float) -> Expression:
    return (x * alpha + beta).clipped(0.0, 1.0)


def _hard_swish(x: Expression) -> Expression:
    return x * _hard_sigmoid(x, 1 / 6, 0.5)


def _swish(x: Expression, alpha: float) -> Expression:
    return x * (x * alpha)("sigmoid")


def _gelu(x: Expression, approximate: str) -> Expression:
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * sqrt(2 / pi)
        return x * 0.5 * (inner("tanh") + 1.0)
    return x * 0.5 * ((x / sqrt(2))("erf") + 1.0)


def _mish(x: Expression) -> Expression:
    return x * x("softplus")("tanh")


def _softsign(x: Expression) -> Expression:
    return x / (x("absolute") + 1.0)


def _prelu(arithmetic: Arithmetic, x: Array, slope: Array) -> Array:
    value, factor = Expression(arithmetic, x), Expression(arithmetic, slope)
    result = value("less", 0.0).where(value * factor, value).array
    if result.shape != x.shape:
        raise Unsupported("the slopes widen the tensor")
    return result


_ENDED = ("float16", "float32", "float64")


def _clip(arithmetic: Arithmetic, x: Array, low: Array | None, high: Array | None) -> Array:
    """ONNX's bounds are finite unless given: infinities become the ends of the type. Reals have no ends."""
    if x.dtype in _ENDED:
        ends = np.finfo(x.dtype)
        low = np.asarray(ends.min) if low is None else low
        high = np.asarray(ends.max) if high is None else high
    for function, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            if bound.size != 1:
                raise Unsupported("the bounds of Clip are scalars")
            x = arithmetic.apply(function, x, bound.reshape(()))
    return x


def _relu(arithmetic: Arithmetic, x: Array) -> Array:
    return arithmetic.apply("maximum", x, arithmetic.constant(0, x))


def _shift(arithmetic: Arithmetic, x: Array, y: Array, direction: str) -> Array:
    return arithmetic.apply("shift_left" if direction == "LEFT" else "shift_right", x, y)


def _modulo(arithmetic: Arithmetic, x: Array, y: Array, fmod: int) -> Array:
    if not fmod and x.dtype.kind in "fV":
        raise Unsupported("Mod of floats needs fmod = 1")
    return arithmetic.apply("fmod" if fmod else "remainder", x, y)


def _cast(arithmetic: Arithmetic, x: Array, dtype: str) -> Array:
    return arithmetic.cast(x, dtype)


_SAME_NAME = (
    "Exp", "Log", "Sqrt", "Reciprocal", "Sigmoid", "Tanh", "Erf", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan",
    "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Floor", "Ceil", "Round", "Sign", "Softplus", "Where", "Equal",
    "Less",
)  # fmt: skip
"""Operators called, in small letters, as the primitive they are."""

MEANINGS: dict[str, Meaning] = {
    "Abs": _named("absolute"),
    "Neg": _named("negative"),
    "Relu": _relu,
    "Not": _named("logical_not"),
    "BitwiseNot": _named("bitwise_not"),
    "IsNaN": _named("isnan"),
    **{name: _named(name.lower()) for name in _SAME_NAME},
    "Softsign": _formula(_softsign),
    "HardSwish": _formula(_hard_swish),
    "Mish": _formula(_mish),
    "Elu": _formula(_elu),
    "Celu": _formula(_celu),
    "Selu": _formula(_selu),
    "LeakyRelu": _formula(_scaled_below),
    "ThresholdedRelu": _formula(_thresholded),
    "HardSigmoid": _formula(_hard_sigmoid),
    "Swish": _formula(_swish),
    "Gelu": _formula(_gelu),
    "Cast": _cast,
    "Add": _named("add"),
    "Sub": _named("subtract"),
    "Mul": _named("multiply"),
    "Div": _named("divide"),
    "Pow": _named("power"),
    "PRelu": _prelu,
    "Min": _named("minimum"),
    "Max": _named("maximum"),
    "LessOrEqual": _named("less_equal"),
    "Greater": _swapped("less"),
    "GreaterOrEqual": _swapped("less_equal"),
    "And": _named("logical_and"),
    "Or": _named("logical_or"),
    "Xor": _named("logical_xor"),
    "BitwiseAnd": _named("bitwise_and"),
    "BitwiseOr": _named("bitwise_or"),
    "BitwiseXor": _named("bitwise_xor"),
    "BitShift": _shift,
    "Mod": _modulo,
    "Clip": _clip,
}
