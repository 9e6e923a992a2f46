"""The element-wise operators, and If, which chooses which of its operands is computed."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np

from ..index_maps import (
    broadcast_maps,
    first_operand_maps,
)
from ..operation import Operation
from .arithmetic import Arithmetic, Array, Unsupported, floats_only
from .schema import Family, no_flops, per_output

Meaning = Callable[..., Any]


def _named(function: str) -> Meaning:
    return lambda arithmetic, *operands: arithmetic.apply(function, *operands)


def _swap_operands(function: str) -> Meaning:
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


def _thresholded_relu(x: Expression, alpha: float) -> Expression:
    threshold = Expression(x.arithmetic, x.of(alpha))
    return threshold("less", x).where(x, Expression(x.arithmetic, x.of(0.0)))


def _hard_sigmoid(x: Expression, alpha: float, beta: float) -> Expression:
    return (x * alpha + beta).clipped(0.0, 1.0)


def _hard_swish(x: Expression) -> Expression:
    return x * _hard_sigmoid(x, 1 / 6, 0.5)


def swish(x: Expression, alpha: float) -> Expression:
    """x * sigmoid(alpha * x), element by element."""
    return x * (x * alpha)("sigmoid")


def gelu(x: Expression, approximate: str) -> Expression:
    """ONNX's Gelu, element by element; `approximate` is "none" or "tanh"."""
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
    """ONNX's bounds are finite by default: infinities become the ends of the type. Reals have no ends."""
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


def _gelu_flops(operation: Operation) -> float:
    return operation.output.elements * (8.0 if operation.attributes.get("approximate") == "tanh" else 5.0)


def _variadic_flops(operation: Operation) -> float:
    """Operands are combined two at a time."""
    return float(operation.output.elements * max(1, len(operation.operands) - 1))


def _if(arithmetic: Arithmetic, condition: Array, then: Array, otherwise: Array) -> Array:
    if condition.shape != ():
        raise Unsupported("a condition of several elements")
    if then.shape != otherwise.shape:
        if condition.dtype.kind != "b":
            raise Unsupported("branches of several shapes")
        return then if condition else otherwise
    return arithmetic.apply("where", condition, then, otherwise)


_unary = Family("elementwise.unary", broadcast_maps, per_output(1), is_total=True)
_binary = Family("elementwise.binary", broadcast_maps, per_output(1), is_total=True)
_ternary = Family("elementwise.ternary", broadcast_maps, per_output(1), is_total=True)
_variadic = Family("elementwise.variadic", broadcast_maps, _variadic_flops)
_same = Family("elementwise.unary", first_operand_maps, no_flops)

OPERATORS = (
    Family("control", broadcast_maps, per_output(2))("If", "cond then_branch else_branch", _if),
    _unary("Abs", "X", _named("absolute")),
    _unary("Neg", "X", _named("negative")),
    _unary("Exp", "X", _named("exp")),
    _unary("Log", "X", _named("log")),
    _unary("Sqrt", "X", _named("sqrt")),
    _unary("Reciprocal", "X", _named("reciprocal")),
    _unary("Relu", "X", _relu),
    _unary("Sigmoid", "X", _named("sigmoid")),
    _unary("Tanh", "X", _named("tanh")),
    _unary("Erf", "X", _named("erf")),
    _unary("Sin", "X", _named("sin")),
    _unary("Cos", "X", _named("cos")),
    _unary("Tan", "X", _named("tan")),
    _unary("Asin", "X", _named("asin")),
    _unary("Acos", "X", _named("acos")),
    _unary("Atan", "X", _named("atan")),
    _unary("Sinh", "X", _named("sinh")),
    _unary("Cosh", "X", _named("cosh")),
    _unary("Asinh", "X", _named("asinh")),
    _unary("Acosh", "X", _named("acosh")),
    _unary("Atanh", "X", _named("atanh")),
    _unary("Floor", "X", _named("floor")),
    _unary("Ceil", "X", _named("ceil")),
    _unary("Round", "X", _named("round")),
    _unary("Sign", "X", _named("sign")),
    _unary("Not", "X", _named("logical_not")),
    _unary("BitwiseNot", "X", _named("bitwise_not")),
    _unary("Softplus", "X", _named("softplus")),
    _unary("Softsign", "X", _formula(_softsign)),
    _unary("HardSwish", "X", _formula(_hard_swish), flops=per_output(2)),
    _unary("Mish", "X", _formula(_mish), flops=per_output(3)),
    _unary("IsNaN", "X", _named("isnan")),
    _unary("Elu", "X | alpha:f64=1.0", _formula(_elu)),
    _unary("Celu", "X | alpha:f64=1.0", _formula(_celu)),
    _unary("Selu", "X | alpha:f64=1.67326319217681884765625 gamma:f64=1.05070102214813232421875", _formula(_selu)),
    _unary("LeakyRelu", "X | alpha:f64=0.01", _formula(_scaled_below)),
    _unary("ThresholdedRelu", "X | alpha:f64=1.0", _formula(_thresholded_relu)),
    _unary("HardSigmoid", "X | alpha:f64=0.2 beta:f64=0.5", _formula(_hard_sigmoid)),
    _unary("Swish", "X | alpha:f64=1.0", _formula(swish), flops=per_output(2)),
    _unary("Gelu", "X | approximate:String=none", _formula(gelu), flops=_gelu_flops),
    _unary("Cast", "X | to:String", _cast, flops=no_flops),
    _binary("Add", "A B", _named("add")),
    _binary("Sub", "A B", _named("subtract")),
    _binary("Mul", "A B", _named("multiply")),
    _binary("Div", "A B", _named("divide"), is_total=False),
    _binary("Pow", "X Y", _named("power"), is_total=False),
    _binary("PRelu", "X slope", _prelu),
    _binary("Min", "A B", _named("minimum"), flops=_variadic_flops),
    _binary("Max", "A B", _named("maximum"), flops=_variadic_flops),
    _binary("Equal", "A B", _named("equal")),
    _binary("Less", "A B", _named("less")),
    _binary("LessOrEqual", "A B", _named("less_equal")),
    _binary("Greater", "A B", _swap_operands("less")),
    _binary("GreaterOrEqual", "A B", _swap_operands("less_equal")),
    _binary("And", "A B", _named("logical_and")),
    _binary("Or", "A B", _named("logical_or")),
    _binary("Xor", "A B", _named("logical_xor")),
    _binary("BitwiseAnd", "A B", _named("bitwise_and")),
    _binary("BitwiseOr", "A B", _named("bitwise_or")),
    _binary("BitwiseXor", "A B", _named("bitwise_xor")),
    _binary("BitShift", "X Y | direction:String", _shift, is_total=False),
    _binary("Mod", "A B | fmod:i64=0", _modulo, is_total=False),
    _ternary("Where", "condition X Y", _named("where"), is_total=False),
    _ternary("Clip", "input min? max?", _clip),
    *_unary.hidden("IsInf"),
    *Family("elementwise.unary", first_operand_maps).hidden("Shrink Trilu"),
    *_variadic.hidden("Sum Mean"),
    *_same.hidden("Identity", is_view=True, is_total=True),
    *_same.hidden("Dropout CastLike"),
)
