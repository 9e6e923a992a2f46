"""The element-wise primitives in which the meaning of the operators is written."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
Reduction = Literal["add", "multiply", "maximum", "minimum"]


class Unsupported(Exception):
    """This arithmetic has no such function, or the operator no meaning for these operands."""


def floats_only(x: Array) -> None:
    """Raises Unsupported for integers and truth values. Symbols pass: their arithmetic knows their types."""
    if x.dtype.kind in "iub":
        raise Unsupported(f"the operator is not defined for {x.dtype}")


class Arithmetic(Protocol):
    """Functions over arrays: of numbers (`numbers.Numbers`) or of symbolic expressions (dtype ``object``).

    Both broadcast as numpy does. Everything else in an operator (moving, splitting, joining elements) is plain numpy
    and works for either kind.
    """

    def apply(self, function: str, *operands: Array) -> Array:
        """An element-wise function by its name.

        One operand: ``negative absolute exp log sqrt reciprocal erf tanh sigmoid softplus sin cos tan asin acos atan
        sinh cosh asinh acosh atanh floor ceil round sign isnan logical_not bitwise_not``; ``round`` goes to even.
        Two: ``add subtract multiply divide power minimum maximum equal less less_equal logical_and logical_or
        logical_xor bitwise_and bitwise_or bitwise_xor shift_left shift_right remainder fmod``; integer ``divide``
        truncates, ``remainder`` has the sign of the divisor. Three: ``where``.
        Raises Unsupported for a function this arithmetic does not know.
        """
        ...

    def reduce(self, function: Reduction, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        """All elements along `axes` combined by a function of two operands."""
        ...

    def matmul(self, a: Array, b: Array) -> Array:
        """The matrix product over the last two axes, the others broadcast."""
        ...

    def constant(self, value: float, like: Array) -> Array:
        """A scalar of the element type of `like`."""
        ...

    def cast(self, x: Array, dtype: str) -> Array:
        """The elements as another type, by numpy's name (and ``bfloat16``)."""
        ...


def constants(arithmetic: Arithmetic, values: Array, like: Array) -> Array:
    """Numbers in the element type of `like`."""
    if like.dtype != object:
        return values.astype(like.dtype)
    result = np.empty(values.shape, object)
    for index, value in np.ndenumerate(values):
        result[index] = arithmetic.constant(value.item(), like)[()]
    return result
