"""The element-wise operators; what each one computes is said in rules/semantics/elementwise.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log, pi, sqrt
from typing import Any

from tvm import te, tirx

from . import elementary
from .call import Call, Expr, Lowering, NotLowered, Shape, Source, read, sizes
from .elementary import bound, dtype_of, exp, exp_below_88, sigmoid

Formula = Callable[..., Expr]
"""A function of the call and one element of each operand."""


def elementwise(formula: Formula, reads_once: bool = False) -> Lowering:
    """The lowering of a formula on broadcast operands. `reads_once`: it writes each of them down no more than once."""

    def lower(call: Call) -> te.Tensor:
        def element(*indices: Expr) -> Expr:
            values = [_element(s, indices, call.shape) for s in call.operands]
            return formula(call, *values) if reads_once else _bound(lambda *v: formula(call, *v), values, ())

        return call.stage(call.shape, element)

    return lower


def _bound(formula: Callable[..., Expr], values: Sequence[Expr], done: tuple[Expr, ...]) -> Expr:
    if not values:
        return formula(*done)
    return bound(values[0], lambda value: _bound(formula, values[1:], (*done, value)))


def _element(source: Source, indices: tuple[Expr, ...], shape: Shape) -> Expr:
    return tirx.convert(read(source, indices, shape))


def _of(function: Callable[..., Expr]) -> Formula:
    """A formula that reads no attributes."""
    return lambda call, *operands: function(*operands)


def _number(value: float, like: Expr) -> Expr:
    return tirx.const(value, dtype_of(like))


def _is_float(x: Expr) -> bool:
    return dtype_of(x).startswith("float")


def _is_unsigned(x: Expr) -> bool:
    return dtype_of(x).startswith("uint")


def _where(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    return tirx.Select(condition, then, otherwise)


def _clipped(x: Expr, low: float, high: float) -> Expr:
    return _at_most(_at_least(x, _number(low, x)), _number(high, x))


def _at_least(x: Expr, bound: Expr) -> Expr:
    """The larger one; NaN where x is NaN, for of two operands that do not compare the processor takes the second."""
    return tirx.Max(bound, x)


def _at_most(x: Expr, bound: Expr) -> Expr:
    """The smaller one; NaN where x is NaN."""
    return tirx.Min(bound, x)


# --- one operand


def _absolute(x: Expr) -> Expr:
    return x if _is_unsigned(x) else tirx.abs(x)


def _sign(x: Expr) -> Expr:
    zero = _number(0, x)
    one = _number(1, x)
    above = _where(tirx.GT(x, zero), one, zero)
    signed = above if _is_unsigned(x) else _where(tirx.LT(x, zero), _number(-1, x), above)
    return _where(tirx.isnan(x), x, signed) if _is_float(x) else signed


def _asinh(x: Expr) -> Expr:
    """Odd, so that no digits cancel left of zero; log1p keeps those next to it. Large squares overflow."""
    size = tirx.abs(x)
    value = tirx.log1p(size + size * size / (tirx.sqrt(size * size + 1.0) + 1.0))
    value = _where(tirx.GT(size, _number(1e9, x)), tirx.log(size) + _number(log(2.0), x), value)
    return _where(tirx.LT(x, _number(0, x)), -value, value)


def _elu(x: Expr, alpha: float) -> Expr:
    return _where(tirx.LT(x, _number(0, x)), (exp_below_88(x) - 1.0) * _number(alpha, x), x)


def _celu(call: Call, x: Expr) -> Expr:
    alpha = _number(call.number("alpha", 1.0), x)
    return _at_least(x, _number(0, x)) + _at_most((exp(x / alpha) - 1.0) * alpha, _number(0, x))


def _leaky(call: Call, x: Expr) -> Expr:
    return _where(tirx.LT(x, _number(0, x)), x * _number(call.number("alpha", 0.01), x), x)


def _selu(call: Call, x: Expr) -> Expr:
    return _elu(x, call.number("alpha")) * _number(call.number("gamma"), x)


def _thresholded(call: Call, x: Expr) -> Expr:
    return _where(tirx.LE(x, _number(call.number("alpha", 1.0), x)), _number(0, x), x)


def _hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    return _clipped(x * _number(alpha, x) + _number(beta, x), 0.0, 1.0)


def _swish(call: Call, x: Expr) -> Expr:
    alpha = call.number("alpha", 1.0)
    return x * sigmoid(x if alpha == 1.0 else x * _number(alpha, x))


def _gelu(call: Call, x: Expr) -> Expr:
    if call.text("approximate", "none") == "tanh":
        # (1 + tanh(t)) / 2 is the sigmoid of 2 t
        factor = x * x * _number(0.044715 * sqrt(8 / pi), x) + _number(sqrt(8 / pi), x)
        return x * sigmoid(x * factor)
    error = elementary.erf(x * _number(1 / sqrt(2), x))
    return bound(x * _number(0.5, x), lambda half: half * error + half)


def _cast(call: Call, x: Expr) -> Expr:
    return tirx.NE(x, _number(0, x)) if call.dtype == "bool" and dtype_of(x) != "bool" else x.astype(call.dtype)


# --- two and three operands


def _divide(x: Expr, y: Expr) -> Expr:
    return x / y if _is_float(x) else tirx.truncdiv(x, y)


def _modulo(call: Call, x: Expr, y: Expr) -> Expr:
    """Without fmod, which is for integers, the result has the sign of the divisor."""
    truncates = bool(call.integer("fmod", 0))
    if _is_float(x):
        if not truncates:
            raise NotLowered("a remainder of floats without fmod")
        return tirx.call_pure_extern(dtype_of(x), "fmodf" if dtype_of(x) == "float32" else "fmod", x, y)
    return tirx.truncmod(x, y) if truncates or _is_unsigned(x) else tirx.floormod(x, y)


def _shift(call: Call, x: Expr, y: Expr) -> Expr:
    """Nothing is left where all bits are shifted out."""
    if not _is_unsigned(x):
        raise NotLowered("a shift of signed integers")
    bits = int(dtype_of(x).removeprefix("uint"))
    near = te.min(y, _number(bits - 1, y))
    return _where(
        tirx.LT(y, _number(bits, y)), x << near if call.text("direction") == "LEFT" else x >> near, _number(0, x)
    )


def _xor(x: Expr, y: Expr) -> Expr:
    return tirx.NE(x.astype("int8"), y.astype("int8"))


def _equal(x: Expr, y: Expr) -> Expr:
    return tirx.EQ(x.astype("int8"), y.astype("int8")) if dtype_of(x) == "bool" else tirx.EQ(x, y)


def _prelu(x: Expr, slope: Expr) -> Expr:
    return _where(tirx.LT(x, _number(0, x)), x * slope, x)


def _clip(call: Call) -> te.Tensor:
    """A bound is a scalar, or has one element; either may be absent."""
    x, low, high = call.source(0), call.optional(1), call.optional(2)
    if any(sizes(bound) not in ((), (1,)) for bound in (low, high) if bound is not None):
        raise NotLowered("a bound with several elements")

    def element(*indices: Expr) -> Expr:
        value = x(*indices)
        value = value if low is None else _at_least(value, low(*(0 for _ in low.shape)))
        return value if high is None else _at_most(value, high(*(0 for _ in high.shape)))

    return call.stage(call.shape, element)


def _sum(call: Call, *operands: Expr) -> Expr:
    total = operands[0]
    for operand in operands[1:]:
        total = total + operand
    return total


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Abs": _absolute,
    "Neg": lambda x: -x,
    "Exp": exp,
    "Log": elementary.log,
    "Sqrt": tirx.sqrt,
    "Reciprocal": lambda x: _number(1, x) / x,
    "Relu": lambda x: _at_least(x, _number(0, x)),
    "Sigmoid": sigmoid,
    "Tanh": elementary.tanh,
    "Erf": elementary.erf,
    "Sin": tirx.sin,
    "Cos": tirx.cos,
    "Tan": tirx.tan,
    "Asin": tirx.asin,
    "Acos": tirx.acos,
    "Atan": tirx.atan,
    "Sinh": tirx.sinh,
    "Cosh": tirx.cosh,
    "Asinh": _asinh,
    "Acosh": tirx.acosh,
    "Atanh": lambda x: (tirx.log1p(x) - tirx.log1p(-x)) * 0.5,
    "Floor": tirx.floor,
    "Ceil": tirx.ceil,
    "Round": tirx.nearbyint,
    "Sign": _sign,
    "Not": tirx.Not,
    "BitwiseNot": lambda x: ~x,
    "Softplus": elementary.softplus,
    "Softsign": lambda x: x / (tirx.abs(x) + 1.0),
    "HardSwish": lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5),
    "Mish": elementary.mish,
    "IsNaN": tirx.isnan,
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Div": _divide,
    "Pow": elementary.power,
    "PRelu": _prelu,
    "Min": te.min,
    "Max": te.max,
    "Equal": _equal,
    "Less": tirx.LT,
    "LessOrEqual": tirx.LE,
    "Greater": tirx.GT,
    "GreaterOrEqual": tirx.GE,
    "And": tirx.And,
    "Or": tirx.Or,
    "Xor": _xor,
    "BitwiseAnd": lambda x, y: x & y,
    "BitwiseOr": lambda x, y: x | y,
    "BitwiseXor": lambda x, y: x ^ y,
    "Where": _where,
}

_FORMULAS: Mapping[str, Formula] = {
    "Elu": lambda call, x: _elu(x, call.number("alpha", 1.0)),
    "Celu": _celu,
    "Selu": _selu,
    "LeakyRelu": _leaky,
    "ThresholdedRelu": _thresholded,
    "HardSigmoid": lambda call, x: _hard_sigmoid(x, call.number("alpha", 0.2), call.number("beta", 0.5)),
    "Swish": _swish,
    "Gelu": _gelu,
    "Mod": _modulo,
    "BitShift": _shift,
}

_READ_ONCE = frozenset(
    [
        "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Relu", "Sigmoid", "Erf", "Tanh", "Softplus", "Mish", "Floor",
        "Ceil", "Round", "Not", "BitwiseNot", "Add", "Sub", "Mul", "Div", "Min", "Max", "Equal", "Less", "LessOrEqual",
        "Greater", "GreaterOrEqual", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Where", "Pow",
    ]
)  # fmt: skip
"""Functions that write each operand down once, or see to it themselves."""

LOWERINGS: Mapping[str, Lowering] = {
    **{op: elementwise(_of(function), op in _READ_ONCE) for op, function in _FUNCTIONS.items()},
    **{op: elementwise(formula) for op, formula in _FORMULAS.items()},
    "Sum": elementwise(_sum, reads_once=True),
    "Cast": elementwise(_cast, reads_once=True),
    "Clip": _clip,
}
