"""Symbolic whole numbers of a few bits: what integer operators do, with their wrap-around."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import Any

import numpy as np
import z3

from ....ir.operators.arithmetic import Array, Reduction, Unsupported
from .symbolic_arrays import mapped, matrix_product, reduced


@dataclass(frozen=True)
class Word:
    """A number of some bits (a z3 bit vector), or a truth value (a z3 Boolean); and where it is defined."""

    term: Any
    defined: tuple[Any, ...] = ()

    @property
    def truth(self) -> bool:
        """Whether this is a truth value."""
        return bool(z3.is_bool(self.term))


class Bits:
    """`Arithmetic` over arrays (dtype object) of `Word`. Signed numbers divide, compare and shift as such."""

    def __init__(self, bits: int = 8, signed: bool = True) -> None:
        self.bits = bits
        self.signed = signed
        self._functions = _functions(bits, signed)

    def leaf(self, name: str, dtype: str = "int32") -> Word:
        """A variable."""
        return Word(z3.Bool(name) if dtype == "bool" else z3.BitVec(name, self.bits))

    def apply(self, function: str, *operands: Array) -> Array:
        """An element-wise function. Raises Unsupported for those of fractions."""
        scalar = self._functions.get(function)
        if scalar is None:
            raise Unsupported(f"{function} has no meaning for whole numbers")
        return mapped(scalar, *map(self._lifted, operands))

    def reduce(self, function: Reduction, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        """All elements along `axes` put together."""
        scalar = self._functions[function]
        return reduced(lambda words: reduce(scalar, words), self._lifted(x), axes, keepdims)

    def matmul(self, a: Array, b: Array) -> Array:
        """The matrix product."""
        return matrix_product(self, self._lifted(a), self._lifted(b))

    def constant(self, value: float, like: Array) -> Array:
        """A scalar. Raises Unsupported where it has no such bits."""
        del like
        return np.asarray(self._word(value), dtype=object)

    def cast(self, x: Array, dtype: str) -> Array:
        """To truth values and back. Raises Unsupported for other types than the one of these bits."""
        if dtype == "bool":
            return self.apply("nonzero", x)
        if all(w.truth for w in self._lifted(x).flat):
            return self.apply("number", x)
        raise Unsupported("a cast between integers of different bits")

    def _word(self, value: Any) -> Word:
        if isinstance(value, Word):
            return value
        if isinstance(value, (bool, np.bool_)):
            return Word(z3.BoolVal(bool(value)))
        low = -(1 << self.bits - 1) if self.signed else 0
        if float(value) != int(value) or not low <= value < low + (1 << self.bits):
            raise Unsupported(f"{value} is no number of {self.bits} bits")
        return Word(z3.BitVecVal(int(value), self.bits))

    def _lifted(self, x: Array) -> Array:
        return mapped(self._word, x)


def _make(function: Callable[..., Any], *operands: Word) -> Word:
    defined = tuple(dict.fromkeys(d for w in operands for d in w.defined))
    return Word(function(*(w.term for w in operands)), defined)


def _dividing(function: Callable[[Any, Any], Any], x: Word, y: Word) -> Word:
    made = _make(function, x, y)
    return Word(made.term, (*made.defined, y.term != 0))


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


def _floored(x: Any, y: Any) -> Any:
    """The remainder with the sign of the divisor."""
    rest = z3.SRem(x, y)
    return z3.If(z3.And(rest != 0, (rest < 0) != (y < 0)), rest + y, rest)


@cache
def _functions(bits: int, signed: bool) -> dict[str, Callable[..., Word]]:
    zero, one = z3.BitVecVal(0, bits), z3.BitVecVal(1, bits)
    less: Callable[[Any, Any], Any] = (lambda x, y: x < y) if signed else z3.ULT
    least: Callable[[Any, Any], Any] = (lambda x, y: x <= y) if signed else z3.ULE
    plain: dict[str, Callable[..., Any]] = {
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
        "minimum": lambda x, y: z3.If(least(x, y), x, y),
        "maximum": lambda x, y: z3.If(least(x, y), y, x),
        "equal": lambda x, y: x == y,
        "less": less,
        "less_equal": least,
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
        "remainder": _floored if signed else z3.URem,
        "fmod": z3.SRem if signed else z3.URem,
    }
    made: dict[str, Callable[..., Word]] = {name: partial(_make, f) for name, f in plain.items()}
    made |= {name: partial(_dividing, f) for name, f in divisions.items()}
    return made | {"where": _where, "power": partial(_power, one)}
