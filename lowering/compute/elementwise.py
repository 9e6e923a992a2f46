"""The element-wise operators; ir/operators/elementwise.py says what each one computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import log, pi, sqrt
from typing import Any

from tvm import te, tirx

from ...ir.operators.numbers import shares_exponents
from . import elementary, floats, integers
from .call import Expr, Lowering, NotLowered, TensorCall, read, sizes
from .elementary import bound, dtype_of, exp, if_negative, scale, sigmoid
from .floats import is_float

Formula = Callable[..., Expr]
"""A function of the call and one element of each operand."""
_SEVERAL = 2
"""Stands for a dynamic extent: it is taken to be more than one."""


def _elementwise(formula: Formula, reads_once: bool = False) -> Lowering:
    """The lowering of a formula on broadcast operands. `reads_once`: it writes each of them down no more than once."""

    def lower(call: TensorCall) -> te.Tensor:
        def element(*indices: Expr) -> Expr:
            values = [tirx.convert(read(operand, indices, call.shape)) for operand in call.operands]
            return formula(call, *values) if reads_once else bind_all(values, ())

        def bind_all(values: Sequence[Expr], bindings: tuple[Expr, ...]) -> Expr:
            if not values:
                return formula(call, *bindings)
            return bound(values[0], lambda value: bind_all(values[1:], (*bindings, value)))

        return call.stage(call.shape, element)

    return lower


def _number(value: float, like: Expr) -> Expr:
    return tirx.const(value, dtype_of(like))


def _by_type(of_floats: Callable[[Expr, Expr], Expr], of_others: Callable[[Expr, Expr], Expr]) -> Callable[..., Expr]:
    """The function of two numbers that their type has."""
    return lambda x, y: (of_floats if is_float(x) else of_others)(x, y)


def _is_unsigned(x: Expr) -> bool:
    return dtype_of(x).startswith("uint")


def _at_least(x: Expr, bound: Expr) -> Expr:
    """The larger one; NaN if x is NaN, for of two operands that do not compare the processor takes the second."""
    return tirx.Max(bound, x) if is_float(x) else integers.larger(bound, x)


def _at_most(x: Expr, bound: Expr) -> Expr:
    """The smaller one; NaN if x is NaN."""
    return tirx.Min(bound, x) if is_float(x) else integers.smaller(bound, x)


# --- one operand


def _sign(x: Expr) -> Expr:
    zero, one = _number(0, x), _number(1, x)
    above = tirx.Select(integers.less(zero, x), one, zero)
    sign = above if _is_unsigned(x) else if_negative(x, _number(-1, x), above)
    return tirx.Select(tirx.isnan(x), x, sign) if is_float(x) else sign


def _asinh(x: Expr) -> Expr:
    """Odd, so that no digits cancel left of zero; log1p keeps those next to it. Large squares overflow."""
    size = tirx.abs(x)
    value = tirx.log1p(size + size * size / (tirx.sqrt(size * size + 1.0) + 1.0))
    value = tirx.Select(tirx.GT(size, _number(1e9, x)), tirx.log(size) + _number(log(2.0), x), value)
    return if_negative(x, -value, value)


def _celu(call: TensorCall, x: Expr) -> Expr:
    alpha = _number(call.number("alpha", 1.0), x)
    return _at_least(x, _number(0, x)) + _at_most((exp(x / alpha) - 1.0) * alpha, _number(0, x))


def _swish(call: TensorCall, x: Expr) -> Expr:
    alpha = call.number("alpha", 1.0)
    return x * sigmoid(scale(x, alpha))


def _gelu(call: TensorCall, x: Expr) -> Expr:
    if call.text("approximate", "none") == "tanh":
        # (1 + tanh(t)) / 2 is the sigmoid of 2 t
        factor = x * x * _number(0.044715 * sqrt(8 / pi), x) + _number(sqrt(8 / pi), x)
        return x * sigmoid(x * factor)
    error = elementary.erf(x * _number(1 / sqrt(2), x))
    return bound(x * _number(0.5, x), lambda half: half * error + half)


def _cast(call: TensorCall, x: Expr) -> Expr:
    """A Cast keeps the last bits of integers; `integers.truncate` says what becomes of floats that do not fit."""
    if call.dtype == "bool" and is_float(x):
        return bound(x, lambda t: tirx.Or(tirx.NE(t, _number(0, t)), tirx.isnan(t)))
    if call.dtype == "bool" and dtype_of(x) != "bool":
        return tirx.Not(integers.equal(x, _number(0, x)))
    is_cut = is_float(x) and integers.is_integer(call.dtype)
    return integers.truncate(x, call.dtype) if is_cut else x.astype(call.dtype)


def _not(x: Expr) -> Expr:
    """Not, as a comparison of numbers: to TVM, what is not less is greater or equal, which NaN is not."""
    return tirx.EQ(x.astype("int8"), tirx.const(0, "int8"))


# --- two and three operands


def _modulo(call: TensorCall, x: Expr, y: Expr) -> Expr:
    """Without fmod, which is for integers, the result has the sign of the divisor."""
    truncates = bool(call.integer("fmod", 0))
    if is_float(x):
        if not truncates:
            raise NotLowered("a remainder of floats without fmod")
        return tirx.call_pure_extern(dtype_of(x), "fmodf" if dtype_of(x) == "float32" else "fmod", x, y)
    if truncates or _is_unsigned(x):
        return integers.remainder(x, y)
    zero = _number(0, x)

    def towards_divisor(rest: Expr) -> Expr:
        differs = integers.less(rest ^ y, zero)  # by their signs
        moves = tirx.And(differs, tirx.Not(integers.equal(rest, zero)))
        return tirx.Select(moves, integers.add(rest, y), rest)

    return bound(integers.remainder(x, y), towards_divisor)


def _power(call: TensorCall, x: Expr, y: Expr) -> Expr:
    if not integers.is_integer(dtype_of(x)):
        return elementary.power(x, y)
    base, exponent = (
        tuple(size if isinstance(size, int) else _SEVERAL for size in sizes(operand)) for operand in call.operands
    )
    return elementary.integer_power(x, y, shares_exponents(base, exponent))


def _shift(call: TensorCall, x: Expr, y: Expr) -> Expr:
    """Nothing is left if all bits are shifted out."""
    if not _is_unsigned(x):
        raise NotLowered("a shift of signed integers")
    return (integers.shift_left if call.text("direction") == "LEFT" else integers.shift_right)(x, y)


def _clip(call: TensorCall) -> te.Tensor:
    """A bound is a scalar, or has one element. Without one, floats stay among the finite numbers, as ONNX says."""
    x, low, high = call.source(0), call.optional(1), call.optional(2)
    if any(sizes(bound) not in ((), (1,)) for bound in (low, high) if bound is not None):
        raise NotLowered("a bound with several elements")

    def element(*indices: Expr) -> Expr:
        value = x(*indices)
        dtype = dtype_of(value)
        is_float = dtype.startswith(("float", "bfloat"))
        if low is not None or is_float:
            value = _at_least(value, te.min_value(dtype) if low is None else low(*(0 for _ in low.shape)))
        if high is not None or is_float:
            value = _at_most(value, te.max_value(dtype) if high is None else high(*(0 for _ in high.shape)))
        return value

    return call.stage(call.shape, element)


def _equal(x: Expr, y: Expr) -> Expr:
    if dtype_of(x) == "bool":
        return tirx.EQ(x.astype("int8"), y.astype("int8"))
    return floats.equal(x, y) if is_float(x) else integers.equal(x, y)


_LESS_OR_EQUAL = _by_type(floats.less_or_equal, integers.less_or_equal)
_ADD = _by_type(floats.add, integers.add)
_MULTIPLY = _by_type(floats.multiply, integers.multiply)
_SMALLER = _by_type(floats.smaller, integers.smaller)
_LARGER = _by_type(floats.larger, integers.larger)

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Abs": integers.absolute,
    "Neg": integers.negate,
    "Exp": exp,
    "Log": elementary.log,
    "Sqrt": tirx.sqrt,
    "Reciprocal": lambda x: _number(1, x) / x,
    "Relu": lambda x: _at_least(x, _number(0, x)),
    "Sigmoid": sigmoid,
    "Tanh": elementary.tanh,
    "Erf": elementary.erf,
    "Sin": elementary.sin,
    "Cos": elementary.cos,
    "Tan": elementary.tan,
    "Asin": elementary.asin,
    "Acos": elementary.acos,
    "Atan": elementary.atan,
    "Sinh": tirx.sinh,
    "Cosh": tirx.cosh,
    "Asinh": _asinh,
    "Acosh": tirx.acosh,
    "Atanh": lambda x: (tirx.log1p(x) - tirx.log1p(-x)) * 0.5,
    "Floor": tirx.floor,
    "Ceil": tirx.ceil,
    "Round": elementary.round_even,
    "Sign": _sign,
    "Not": _not,
    "BitwiseNot": lambda x: ~x,
    "Softplus": elementary.softplus,
    "Softsign": elementary.softsign,
    "HardSwish": lambda x: x * elementary.hard_sigmoid(x, 1 / 6, 0.5),
    "Mish": elementary.mish,
    "IsNaN": tirx.isnan,
    "Add": _ADD,
    "Sub": _by_type(floats.subtract, integers.subtract),
    "Mul": _MULTIPLY,
    "Div": _by_type(floats.divide, integers.divide),
    "PRelu": lambda x, slope: if_negative(x, _MULTIPLY(x, slope), x),
    "Equal": _equal,
    "Less": integers.less,
    "LessOrEqual": _LESS_OR_EQUAL,
    "Greater": lambda x, y: tirx.GT(x, y) if is_float(x) else integers.less(y, x),
    "GreaterOrEqual": lambda x, y: _LESS_OR_EQUAL(y, x),
    "And": tirx.And,
    "Or": floats.either,
    "Xor": lambda x, y: tirx.NE(x.astype("int8"), y.astype("int8")),
    "BitwiseAnd": lambda x, y: x & y,
    "BitwiseOr": lambda x, y: x | y,
    "BitwiseXor": lambda x, y: x ^ y,
    "Where": tirx.Select,
}

_FORMULAS: Mapping[str, Formula] = {
    "Elu": lambda call, x: elementary.elu(x, call.number("alpha", 1.0)),
    "Celu": _celu,
    "Selu": lambda call, x: scale(elementary.elu(x, call.number("alpha")), call.number("gamma")),
    "LeakyRelu": lambda call, x: elementary.leaky(x, call.number("alpha", 0.01)),
    "ThresholdedRelu": lambda call, x: elementary.thresholded(x, call.number("alpha", 1.0)),
    "HardSigmoid": lambda call, x: elementary.hard_sigmoid(x, call.number("alpha", 0.2), call.number("beta", 0.5)),
    "Swish": _swish,
    "Gelu": _gelu,
    "Mod": _modulo,
    "BitShift": _shift,
    "Pow": _power,
}

_READ_ONCE = frozenset(
    [
        "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Relu", "Sigmoid", "Erf", "Tanh", "Softplus", "Mish", "Floor",
        "Sin", "Cos", "Tan", "Asin", "Acos", "Atan",
        "Ceil", "Round", "Not", "BitwiseNot", "Add", "Sub", "Mul", "Div", "Equal", "Less", "LessOrEqual",
        "Greater", "GreaterOrEqual", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Where", "Pow",
    ]
)  # fmt: skip
"""Functions that write each operand down once, or see to it themselves."""


LOWERINGS: Mapping[str, Lowering] = {
    **{
        op: _elementwise(lambda call, *operands, function=function: function(*operands), op in _READ_ONCE)
        for op, function in _FUNCTIONS.items()
    },
    **{op: _elementwise(formula, op in _READ_ONCE) for op, formula in _FORMULAS.items()},
    **{
        op: _elementwise(lambda call, *operands, function=function: reduce(function, operands), reads_once=True)
        for op, function in (("Sum", _ADD), ("Min", _SMALLER), ("Max", _LARGER))
    },
    "Cast": _elementwise(_cast, reads_once=True),
    "Clip": _clip,
}
