"""Arithmetic on numbers, by numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from .arithmetic import Array, Reduction, Unsupported

# Kinds of element types as numpy writes them. V is bfloat16, an extension of numpy.
_FLOATS = "fV"
_INTEGERS = "iu"
_NUMBERS = _FLOATS + _INTEGERS
_ANY = _NUMBERS + "b"


@cache
def element_type(dtype: str) -> np.dtype[Any]:
    """numpy's type of that name; bfloat16 is an extension of numpy. Raises Unsupported for any other name."""
    result: np.dtype[Any] | None = None
    if dtype == "bfloat16":
        import ml_dtypes

        result = np.dtype(ml_dtypes.bfloat16)
    elif dtype.rstrip("0123456789") in ("float", "int", "uint", "bool", "longdouble"):
        try:
            result = np.dtype(dtype)
        except TypeError:
            result = None
    if result is None:
        raise Unsupported(f"there is no element type {dtype}")
    return result


@cache
def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    return (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def _scalar(value: float, dtype: np.dtype[Any]) -> Array:
    """Raises Unsupported if an integer type cannot hold the number."""
    if dtype.kind in "iub":
        low, high = _limits(dtype)
        if not math.isfinite(value) or value != int(value) or not low <= int(value) <= high:
            raise Unsupported(f"{value} is no {dtype}")
        return np.array(int(value), dtype)
    if -1e4 < value < 1e4:
        return np.array(value, dtype)
    with np.errstate(all="ignore"):  # a number too large for the type becomes infinity
        return np.array(value, dtype)


def _truncate(x: Array, target: np.dtype[Any]) -> Array:
    """Floats truncated towards zero. One that the type cannot hold becomes, as in ONNX Runtime's code on x86-64, the
    least signed word, of 64 bits for types of 64 bits, of which the last bits are kept.

    Raises Unsupported for floats that a uint32 cannot hold: there ONNX Runtime's results differ by the place of an
    element.
    """
    wide = x.astype(np.float64)
    if target == np.uint32:
        if not bool(np.all((wide > -1) & (wide < 2.0**32))):
            raise Unsupported("uint32 cannot hold a number of these")
        return wide.astype(np.int64).astype(target)
    bits = 64 if target.itemsize == 8 else 32
    top, least = 2.0 ** (bits - 1), -(1 << (bits - 1))
    is_high = (wide >= top) & (target == np.uint64)
    moved = np.where(is_high, wide - top, wide)
    fits = (moved >= -top) & (moved < top)
    words = np.where(fits, np.where(fits, moved, 0.0).astype(f"int{bits}"), np.array(least, f"int{bits}"))
    return np.asarray(np.where(is_high, words ^ np.array(least, f"int{bits}"), words).astype(target))


# --- functions that numpy has under no name, or with another meaning


def _erf(x: Array) -> Array:
    from scipy import special  # a tenth of a second, for this alone

    return np.asarray(special.erf(x if x.dtype in (np.float32, np.float64) else x.astype(np.float64))).astype(x.dtype)


def _softplus(x: Array) -> Array:
    return np.asarray(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, np.zeros((), x.dtype)))


def _sigmoid(x: Array) -> Array:
    small, one = np.exp(-np.abs(x)), np.ones((), x.dtype)
    return np.asarray(np.where(x >= 0, one, small) / (one + small))


def _reciprocal(x: Array) -> Array:
    return np.asarray(np.divide(np.ones((), x.dtype), x))


def _divide(x: Array, y: Array) -> Array:
    """Integers are truncated towards zero."""
    if x.dtype.kind not in _INTEGERS:
        return np.asarray(np.divide(x, y))
    _divisible(x, y)
    quotient = np.floor_divide(x, y)
    remainder = x - quotient * y
    return np.asarray(quotient + ((remainder != 0) & ((x < 0) != (y < 0))))


def _divisible(x: Array, y: Array) -> None:
    """Raises Unsupported if processors stop: at a division by zero, or if the type cannot hold the quotient."""
    if not y.all() and np.broadcast(x, y).size:
        raise Unsupported("an integer is divided by zero")
    if x.dtype.kind == "i" and bool(np.any((x == np.iinfo(x.dtype).min) & (y == -1))):
        raise Unsupported("the least integer is divided by -1")


def shares_exponents(base: Sequence[int], exponent: Sequence[int]) -> bool:
    """Whether whole rows of integers have one exponent, by the two shapes: for an exponent of 2 or 3 ONNX Runtime then
    multiplies instead of computing the power as a float64."""
    axes = zip(reversed(base), reversed(exponent or (1,)), strict=False)
    return next((own == 1 for whole, own in axes if (whole, own) != (1, 1)), False)


def _power_of_c(x: float, y: float) -> float:
    """The power by the C library, which is right for whole numbers; infinity if there is none."""
    try:
        return math.pow(x, y)
    except (OverflowError, ValueError):
        return math.inf


_OF_C = np.frompyfunc(_power_of_c, 2, 1)


def _power(x: Array, y: Array) -> Array:
    """In the type of the base, whatever that of the exponent; of integers as a float64, which is truncated."""
    if x.dtype.kind not in _INTEGERS:
        shape = np.broadcast_shapes(x.shape, y.shape)
        exponents = np.ascontiguousarray(np.broadcast_to(y, shape))  # of one that it repeats, a half, numpy takes roots
        return np.asarray(np.power(x, exponents)).reshape(shape).astype(x.dtype)
    power = _truncate(np.asarray(_OF_C(x, y), np.float64), x.dtype)
    if not shares_exponents(x.shape, y.shape):
        return power
    return np.asarray(np.where(y == 2, x * x, np.where(y == 3, x * x * x, power)))


def _remainder(function: Callable[..., Any]) -> Callable[..., Array]:
    def apply(x: Array, y: Array) -> Array:
        if x.dtype.kind in _INTEGERS:
            _divisible(x, y)
        return np.asarray(function(x, y))

    return apply


def _shift(function: Callable[..., Any]) -> Callable[..., Array]:
    def apply(x: Array, y: Array) -> Array:
        if (y >= 8 * x.dtype.itemsize).any() and np.broadcast(x, y).size:
            raise Unsupported("more bits are shifted out than there are")
        return np.asarray(function(x, y))

    return apply


_OF_FLOATS: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "reciprocal": _reciprocal,
    "erf": _erf,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "isnan": np.isnan,
}

_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "absolute": np.abs,
    "sign": np.sign,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _divide,
    "power": _power,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "less": np.less,
    "less_equal": np.less_equal,
    "remainder": _remainder(np.remainder),
    "fmod": _remainder(np.fmod),
}

_OF_INTEGERS: dict[str, Callable[..., Any]] = {
    "bitwise_not": np.invert,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}

_OF_TRUTH_VALUES: dict[str, Callable[..., Any]] = {
    "logical_not": np.logical_not,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "where": np.where,
}

_FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    **{name: (function, _FLOATS) for name, function in _OF_FLOATS.items()},
    **{name: (function, _NUMBERS) for name, function in _OF_NUMBERS.items()},
    **{name: (function, _INTEGERS) for name, function in _OF_INTEGERS.items()},
    **{name: (function, "b") for name, function in _OF_TRUTH_VALUES.items()},
    "negative": (np.negative, _FLOATS + "i"),
    "equal": (np.equal, _ANY),
    "shift_left": (_shift(np.left_shift), "u"),
    "shift_right": (_shift(np.right_shift), "u"),
}
"""For each name the function, and the kinds of the first operand for which ONNX defines it."""


class Numbers:
    """`Arithmetic` on numpy's numbers, in the precision of the operands; integers wrap.

    Sums, products and matrix products of two-byte floats are computed in float32 and rounded once. numpy warns of
    numbers that round to zero, if it is told to, and of nothing else.
    """

    def apply(self, function: str, *operands: Array) -> Array:
        """An element-wise function. Raises Unsupported if it has no meaning for these operands."""
        if function not in _FUNCTIONS:
            raise Unsupported(f"there is no function {function}")
        compute, kinds = _FUNCTIONS[function]
        if operands[0].dtype.kind not in kinds:
            raise Unsupported(f"{function} of {operands[0].dtype}")
        if len(operands) > 1 and operands[-1].dtype != operands[-2].dtype and function != "power":
            raise Unsupported(f"{function} of {operands[-2].dtype} and {operands[-1].dtype}")
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return np.asarray(compute(*operands))

    def reduce(self, function: Reduction, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        """All elements along `axes` combined, in their own type. The largest of none has no meaning."""
        ufunc: np.ufunc = getattr(np, function)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            if function in ("add", "multiply"):
                wide = _widen(x)
                return np.asarray(ufunc.reduce(wide, axis=axes, dtype=wide.dtype, keepdims=keepdims)).astype(x.dtype)
            if any(x.shape[a] == 0 for a in axes):
                raise Unsupported("the largest of no elements")
            return np.asarray(ufunc.reduce(x, axis=axes, keepdims=keepdims))

    def matmul(self, a: Array, b: Array) -> Array:
        """The matrix product."""
        if a.dtype != b.dtype or a.dtype.kind not in _NUMBERS:
            raise Unsupported(f"a matrix product of {a.dtype} and {b.dtype}")
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return np.asarray(np.matmul(_widen(a), _widen(b))).astype(a.dtype, copy=False)

    def constant(self, value: float, like: Array) -> Array:
        """A scalar. Raises Unsupported if an integer type cannot hold it."""
        return _scalar(value, like.dtype)

    def cast(self, x: Array, dtype: str) -> Array:
        """The elements as another type. Raises Unsupported for floats that a uint32 cannot hold."""
        target = element_type(dtype)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            if x.dtype.kind in _FLOATS and target.kind in _INTEGERS:
                return _truncate(x, target)
            return x.astype(target)


def _widen(x: Array) -> Array:
    kind = x.dtype.kind
    if kind == "b":
        raise Unsupported("a sum or product of truth values")
    return x.astype(np.float32) if kind in _FLOATS and x.dtype.itemsize == 2 else x


def full(shape: tuple[int, ...], number: float, dtype: str) -> Array:
    """A constant of one number. Raises Unsupported for an unknown element type, or one that cannot hold it."""
    target = element_type(dtype)
    return np.full(shape, _scalar(number, target), target)


NUMBERS = Numbers()


class FirstZero(Numbers):
    """`Numbers` that return the first of a positive and a negative zero as the smaller or larger one, as some
    implementations do; IEEE 754 allows either."""

    def apply(self, function: str, *operands: Array) -> Array:
        """An element-wise function. Raises Unsupported if it has no meaning for these operands."""
        result = super().apply(function, *operands)
        if function not in ("maximum", "minimum") or result.dtype.kind != "f":
            return result
        zeros = (operands[0] == 0) & (operands[1] == 0)
        return np.asarray(np.where(zeros, operands[0], result))

    def reduce(self, function: Reduction, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        """All elements along `axes` combined, in their own type. The largest of none has no meaning."""
        result = super().reduce(function, x, axes, keepdims)
        if function not in ("maximum", "minimum") or x.dtype.kind != "f" or not axes or not x.size:
            return result
        rest = tuple(a for a in range(x.ndim) if a not in axes)
        rows = x.transpose(*rest, *axes).reshape((*(x.shape[a] for a in rest), -1))
        first = np.take_along_axis(rows, np.argmax(rows == 0, axis=-1)[..., None], -1).reshape(result.shape)
        return np.asarray(np.where(result == 0, first, result))


FIRST_ZERO = FirstZero()
