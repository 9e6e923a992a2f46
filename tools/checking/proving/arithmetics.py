"""Symbolic arithmetic: the operators' meaning over all real numbers, or all numbers of some bits, at once.

`Reals` computes with `Real`: a polynomial over atoms (`polynomial`) and the conditions under which it is defined. Most
identities of tensor algebra hold because both sides have the same normal form; `equality` decides the rest. `Bits`
computes with `Word`, a bit vector of z3, as integer operators do, with their wrap-around.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from math import isfinite, prod
from typing import Any

import numpy as np
import z3

from ....ir.operators.arithmetic import Arithmetic, Array, Reduction, Unsupported
from .polynomial import TooLarge
from .scalars import Real, add_all, exact, functions, maximum_all, minimum_all, multiply_all

_REDUCTIONS = {"add": add_all, "multiply": multiply_all, "maximum": maximum_all, "minimum": minimum_all}


# --- arrays of symbolic scalars


def _map(function: Callable[..., Any], *operands: Array) -> Array:
    """Apply a function of scalars to broadcast arrays."""
    return np.asarray(np.frompyfunc(function, len(operands), 1)(*operands), dtype=object)


def _reduce(many: Callable[[Sequence[Any]], Any], x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Combine the elements along `axes` by a function of all of them."""
    axes = tuple(a % x.ndim for a in axes)
    others = [a for a in range(x.ndim) if a not in axes]
    rows = np.transpose(x, (*others, *axes)).reshape((prod(x.shape[a] for a in others), prod(x.shape[a] for a in axes)))
    result = np.empty(len(rows), dtype=object)
    for i, row in enumerate(rows):
        result[i] = many(list(row))
    return result.reshape([1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes])


def _matrix_product(arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    """Multiply matrices by products and sums; operands of rank 1 are a row and a column."""
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    products = arithmetic.apply("multiply", left[..., :, :, None], right[..., None, :, :])
    result = arithmetic.reduce("add", products, (products.ndim - 2,), False)
    if b.ndim == 1:
        result = result[..., 0]
    return result if a.ndim > 1 else result[..., 0] if b.ndim == 1 else result[..., 0, :]


# --- real numbers


class Reals:
    """`Arithmetic` over arrays (dtype object) of `Real`. Numbers among the operands become symbolic."""

    def apply(self, function: str, *operands: Array) -> Array:
        """Apply an element-wise function.

        Raises Unsupported for functions of bits, and if an expression gets too large.
        """
        scalar = functions().get(function)
        if scalar is None:
            raise Unsupported(f"{function} has no meaning over the real numbers")
        symbols = [_symbolic(x) for x in operands]
        return _limit_size(lambda: _map(scalar, *symbols))

    def reduce(self, function: Reduction, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        """Put all elements along `axes` together."""
        return _limit_size(lambda: _reduce(_REDUCTIONS[function], _symbolic(x), axes, keepdims))

    def matmul(self, a: Array, b: Array) -> Array:
        """The matrix product."""
        return _limit_size(lambda: _matrix_product(self, _symbolic(a), _symbolic(b)))

    def constant(self, value: float, like: Array) -> Array:
        """A scalar. Raises Unsupported for NaN and infinities."""
        del like
        if not isfinite(value):
            raise Unsupported(f"{value} is no real number")
        return np.asarray(_real(value), dtype=object)

    def cast(self, x: Array, dtype: str) -> Array:
        """Cast: between floats nothing changes, to integers rounds towards zero, to truth values asks whether it is not
        0."""
        if dtype == "bool":
            return self.apply("nonzero", x)
        return self.apply("trunc" if dtype.startswith(("int", "uint")) else "number", x)


def _symbolic(x: Array) -> Array:
    return x if x.dtype == object else _map(_real, x)


def _real(value: Any) -> Real:
    return value if isinstance(value, Real) else Real(exact(float(value)), truth=isinstance(value, (bool, np.bool_)))


def _limit_size(compute: Callable[[], Array]) -> Array:
    try:
        return compute()
    except TooLarge:
        raise Unsupported("the symbolic expression gets too large") from None


# --- whole numbers of a few bits


@dataclass(frozen=True)
class Word:
    """A number of some bits (a z3 bit vector) or a truth value (a z3 Boolean), and when it is defined."""

    term: Any
    defined: tuple[Any, ...] = ()


class Bits:
    """`Arithmetic` over arrays (dtype object) of `Word`. Division, comparison and shifts depend on `signed`."""

    def __init__(self, bits: int = 8, signed: bool = True) -> None:
        self.bits = bits
        self.signed = signed
        self._functions = _word_functions(bits, signed, z3.main_ctx())

    def leaf(self, name: str, dtype: str = "int32") -> Word:
        """A variable."""
        return Word(z3.Bool(name) if dtype == "bool" else z3.BitVec(name, self.bits))

    def apply(self, function: str, *operands: Array) -> Array:
        """Apply an element-wise function. Raises Unsupported for functions of fractions."""
        scalar = self._functions.get(function)
        if scalar is None:
            raise Unsupported(f"{function} has no meaning for whole numbers")
        return _map(scalar, *map(self._words, operands))

    def reduce(self, function: Reduction, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        """Put all elements along `axes` together."""
        scalar = self._functions[function]
        return _reduce(lambda words: reduce(scalar, words), self._words(x), axes, keepdims)

    def matmul(self, a: Array, b: Array) -> Array:
        """The matrix product."""
        return _matrix_product(self, self._words(a), self._words(b))

    def constant(self, value: float, like: Array) -> Array:
        """A scalar. Raises Unsupported if these bits cannot hold it."""
        del like
        return np.asarray(self._word(value), dtype=object)

    def cast(self, x: Array, dtype: str) -> Array:
        """Cast to truth values and back. Raises Unsupported for integers of another number of bits."""
        if dtype == "bool":
            return self.apply("nonzero", x)
        if all(z3.is_bool(w.term) for w in self._words(x).flat):
            return self.apply("number", x)
        raise Unsupported("a cast between integers of different bits")

    def _words(self, x: Array) -> Array:
        return _map(self._word, x)

    def _word(self, value: Any) -> Word:
        if isinstance(value, Word):
            return value
        if isinstance(value, (bool, np.bool_)):
            return Word(z3.BoolVal(bool(value)))
        low = -(1 << self.bits - 1) if self.signed else 0
        if float(value) != int(value) or not low <= value < low + (1 << self.bits):
            raise Unsupported(f"{value} is no number of {self.bits} bits")
        return Word(z3.BitVecVal(int(value), self.bits))


def _apply_to_words(function: Callable[..., Any], *operands: Word) -> Word:
    defined = tuple(dict.fromkeys(d for w in operands for d in w.defined))
    return Word(function(*(w.term for w in operands)), defined)


def _divide(function: Callable[[Any, Any], Any], x: Word, y: Word) -> Word:
    quotient = _apply_to_words(function, x, y)
    return Word(quotient.term, (*quotient.defined, y.term != 0))


def _where(condition: Word, then: Word, otherwise: Word) -> Word:
    one = [z3.Implies(condition.term, d) for d in then.defined]
    other = [z3.Or(condition.term, d) for d in otherwise.defined]
    return Word(z3.If(condition.term, then.term, otherwise.term), (*condition.defined, *one, *other))


def _power(one: Any, x: Word, y: Word) -> Word:
    exponent = z3.simplify(y.term)
    if not z3.is_bv_value(exponent) or exponent.as_signed_long() < 0:
        raise Unsupported("a power of whole numbers with an exponent that is no constant")
    result = one
    for _ in range(exponent.as_signed_long()):
        result = result * x.term
    return Word(result, (*x.defined, *y.defined))


def _floor_remainder(x: Any, y: Any) -> Any:
    """The remainder with the sign of the divisor."""
    rest = z3.SRem(x, y)
    return z3.If(z3.And(rest != 0, (rest < 0) != (y < 0)), rest + y, rest)


@lru_cache(maxsize=4)
def _word_functions(bits: int, signed: bool, context: z3.Context) -> dict[str, Callable[..., Word]]:
    """The functions of `Arithmetic.apply` by name, and those that casts need, for the terms of a context."""
    zero, one = z3.BitVecVal(0, bits), z3.BitVecVal(1, bits)
    less: Callable[[Any, Any], Any] = (lambda x, y: x < y) if signed else z3.ULT
    at_most: Callable[[Any, Any], Any] = (lambda x, y: x <= y) if signed else z3.ULE
    total: dict[str, Callable[..., Any]] = {
        "negative": lambda x: -x,
        "absolute": (lambda x: z3.If(x < 0, -x, x)) if signed else (lambda x: x),
        "sign": lambda x: z3.If(x == 0, zero, z3.If(less(x, zero), -one, one)),
        "logical_not": z3.Not,
        "bitwise_not": lambda x: ~x,
        "isnan": lambda x: z3.BoolVal(False),
        "nonzero": lambda x: x if z3.is_bool(x) else x != 0,
        "number": lambda x: z3.If(x, one, zero) if z3.is_bool(x) else x,
        "floor": lambda x: x,
        "ceil": lambda x: x,
        "round": lambda x: x,
        "trunc": lambda x: x,
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "minimum": lambda x, y: z3.If(at_most(x, y), x, y),
        "maximum": lambda x, y: z3.If(at_most(x, y), y, x),
        "equal": lambda x, y: x == y,
        "less": less,
        "less_equal": at_most,
        "logical_and": z3.And,
        "logical_or": z3.Or,
        "logical_xor": z3.Xor,
        "bitwise_and": lambda x, y: x & y,
        "bitwise_or": lambda x, y: x | y,
        "bitwise_xor": lambda x, y: x ^ y,
        "shift_left": lambda x, y: x << y,
        "shift_right": (lambda x, y: x >> y) if signed else z3.LShR,
    }
    divisions: dict[str, Callable[[Any, Any], Any]] = {
        "divide": (lambda x, y: x / y) if signed else z3.UDiv,
        "remainder": _floor_remainder if signed else z3.URem,
        "fmod": z3.SRem if signed else z3.URem,
    }
    table: dict[str, Callable[..., Word]] = {name: partial(_apply_to_words, f) for name, f in total.items()}
    table |= {name: partial(_divide, f) for name, f in divisions.items()}
    return table | {"where": _where, "power": partial(_power, one)}
