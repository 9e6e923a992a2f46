"""Symbolic arithmetic: the operators' meaning over all real numbers, or all numbers of some bits, at once.

`Reals` computes with `Real`: a polynomial over atoms (`symbolic_polynomial`) and the conditions under which it is
defined. Most identities of tensor algebra hold because both sides have the same normal form; `proof` decides the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from ....ir.operators.arithmetic import Array, Reduction, Unsupported
from .symbolic_arrays import mapped, matrix_product, reduced
from .symbolic_bits import Bits, Word
from .symbolic_polynomial import TooLarge
from .symbolic_scalars import Real, add_all, exact, functions, leaf, maximum_all, minimum_all, multiply_all

__all__ = ["Bits", "Real", "Reals", "Word", "exact", "leaf"]

_REDUCTIONS = {"add": add_all, "multiply": multiply_all, "maximum": maximum_all, "minimum": minimum_all}


class Reals:
    """`Arithmetic` over arrays (dtype object) of `Real`."""

    def apply(self, function: str, *operands: Array) -> Array:
        """An element-wise function. Raises Unsupported for those of bits, and where an expression gets too large."""
        scalar = functions().get(function)
        if scalar is None:
            raise Unsupported(f"{function} has no meaning over the real numbers")
        lifted = [_lifted(x) for x in operands]
        return _guarded(lambda: mapped(scalar, *lifted))

    def reduce(self, function: Reduction, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        """All elements along `axes` put together."""
        return _guarded(lambda: reduced(_REDUCTIONS[function], _lifted(x), axes, keepdims))

    def matmul(self, a: Array, b: Array) -> Array:
        """The matrix product."""
        return _guarded(lambda: matrix_product(self, _lifted(a), _lifted(b)))

    def constant(self, value: float, like: Array) -> Array:
        """A scalar. Raises Unsupported for what is no real number."""
        del like
        if not isfinite(value):
            raise Unsupported(f"{value} is no real number")
        return np.asarray(Real(exact(value), truth=isinstance(value, (bool, np.bool_))), dtype=object)

    def cast(self, x: Array, dtype: str) -> Array:
        """Between floats nothing; to integers towards zero; to truth values whether it is zero."""
        if dtype == "bool":
            return self.apply("nonzero", x)
        if dtype.startswith(("int", "uint")):
            return self.apply("trunc", x)
        return self.apply("number", x)


def _lifted(x: Array) -> Array:
    """Numbers among the operands become symbolic."""
    if x.dtype == object:
        return x
    return mapped(_constant, x)


def _constant(value: Any) -> Real:
    return value if isinstance(value, Real) else Real(exact(float(value)), truth=isinstance(value, (bool, np.bool_)))


def _guarded(compute: Callable[[], Array]) -> Array:
    try:
        return compute()
    except TooLarge:
        raise Unsupported("the symbolic expression gets too large") from None
