"""Extents as rules see them: numbers, and dynamic sizes, which count in estimates as the size that is optimised for.

A schedule must not be valid for that size alone. So such an extent is equal to itself only, is
longer than 1, and divides by nothing but 1 and what its expression has as a factor; in an index it is its expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm_ffi import structural_equal

from .nodes import Expression, Statement, Variable
from .rewriting import rebuild

TYPICAL = "eqfuse.typical"
"""Attribute of a function: the numbers that its variables count, by their names."""
_LEAST = 2
"""The least number that a dynamic size counts as: 1 would pass for an axis that does not matter."""


class SymbolicExtent:
    """An `expression` of the variables of a function, which counts as `typical`, the size that is optimised for."""

    __slots__ = ("expression", "typical")

    def __init__(self, expression: Expression, typical: int) -> None:
        self.expression, self.typical = expression, max(typical, _LEAST)

    def __repr__(self) -> str:
        return f"{self.expression} (about {self.typical})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymbolicExtent) and bool(structural_equal(self.expression, other.expression))

    def __hash__(self) -> int:
        return hash(str(self.expression))

    def __int__(self) -> int:
        return self.typical

    def __lt__(self, other: Any) -> bool:
        return bool(self.typical < number_of(other))

    def __le__(self, other: Any) -> bool:
        return bool(self.typical <= number_of(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.typical > number_of(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self.typical >= number_of(other))

    def __add__(self, other: Any) -> int:
        return int(self.typical + number_of(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> int:
        return int(self.typical - number_of(other))

    def __neg__(self) -> int:
        return -self.typical

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int | float | SymbolicExtent):
            return self.typical * (other.typical if isinstance(other, SymbolicExtent) else other)
        return other * self.expression

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> float:
        return float(self.typical / number_of(other))

    def __rtruediv__(self, other: Any) -> float:
        return float(number_of(other) / self.typical)

    def __floordiv__(self, other: Any) -> int:
        return int(self.typical // number_of(other))

    def __rfloordiv__(self, other: Any) -> Any:
        return other // self.typical if isinstance(other, int) else other // self.expression

    def __mod__(self, other: Any) -> int:
        """Nothing divides it but what divides its expression, whatever the sizes."""
        divisor = number_of(other)
        if isinstance(self.expression, tirx.Var) or divisor == 1:
            return int(divisor != 1)
        return int(not sym.Analyzer().can_prove_equal(self.expression % divisor, 0))

    def __rmod__(self, other: Any) -> Any:
        return other % self.typical if isinstance(other, int) else other % self.expression


def number_of(extent: Any) -> Any:
    """The number that an extent counts in estimates."""
    return extent.typical if isinstance(extent, SymbolicExtent) else extent


def expression_of(extent: Any) -> Any:
    """The extent in code: a number (``int``), or its expression."""
    return extent.expression if isinstance(extent, SymbolicExtent) else extent


def is_symbolic(extent: Any) -> bool:
    """Whether the extent is dynamic: a call brings its number."""
    return isinstance(extent, SymbolicExtent)


def extent_of(expression: Expression, function: Any) -> Any:
    """The extent that an expression in a function is: a number (``int``), or a `SymbolicExtent`."""
    if isinstance(expression, int | tirx.IntImm):
        return int(expression)
    return SymbolicExtent(expression, extent_at_typical_sizes(expression, function))


def is_extent(expression: Expression, function: Any) -> bool:
    """Whether an expression in a function is a number, or has no other variables than the function's sizes."""
    if isinstance(expression, tirx.IntImm):
        return True
    if isinstance(expression, tirx.Var):
        return str(expression.name) in typical_sizes(function)
    parts = [getattr(expression, side) for side in ("a", "b") if hasattr(expression, side)]
    return bool(parts) and all(is_extent(part, function) for part in parts)


def at_typical_sizes(node: Statement, function: Any) -> Statement:
    """A statement of a function with the numbers that its loops count."""
    rebuilt = rebuild(node, lambda part: at_typical_sizes(part, function))
    if not isinstance(rebuilt, tirx.For) or isinstance(rebuilt.extent, tirx.IntImm):
        return rebuilt
    extent = estimate_extent(rebuilt.extent, function)
    return tirx.For(rebuilt.loop_var, rebuilt.min, extent, rebuilt.kind, rebuilt.body)


def typical_sizes(function: Any) -> Mapping[str, int]:
    """The numbers that the variables of a function count, by their names."""
    given = (function.attrs or {}).get(TYPICAL, {})
    return {str(name): int(number) for name, number in given.items()}


def estimate_extent(expression: Expression, function: Any) -> int:
    """The number that an extent counts in a function."""
    return int(number_of(extent_of(expression, function)))


def extent_at_typical_sizes(expression: Expression, function: Any) -> int:
    """The number that an extent of a function is when its variables have the sizes that are optimised for; it may be
    1."""
    sizes = typical_sizes(function)

    def value_of(variable: Variable) -> Any:
        return tirx.const(sizes.get(str(variable.name), _LEAST), "int32")

    number = sym.Analyzer().simplify(tvm_ffi.structural_map(expression, [(tirx.Var, value_of)]))
    return int(number) if isinstance(number, tirx.IntImm) else _LEAST
