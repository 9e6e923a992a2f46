"""Sizes in floating-point arithmetic, as models compute them that scale sizes or divide them with a remainder.

An element is a Size, or a Ratio that stands for the exact quotient. For dimensions below 2^18 these are, bit by bit,
the results of a runtime in float32 and float64; if it would round, an element is unknown (None). Nothing here is -0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from ...ir.sizes import Size, exact_quotient, floor_divide, number
from .bounds import Bounds

FLOATS = frozenset({"float32", "float64"})
_MOST_STEPS = 64
"""The largest denominator and sum of coefficients: 64 dimensions below 2^18 add up to a number that float32 holds."""
_LARGEST = 2**18


@dataclass(frozen=True)
class Ratio:
    """A size divided by a number above 1."""

    numerator: Size
    denominator: int

    @property
    def number(self) -> float | None:
        """The value of a constant that floating-point numbers hold exactly."""
        value = self.numerator.number
        return value / self.denominator if value is not None and _is_power_of_two(self.denominator) else None


Real = Size | Ratio


def real(value: float) -> Real | None:
    """A number of a floating-point tensor; None for -0 and if the denominator is too large."""
    if value != value or value in (float("inf"), -float("inf")) or str(value) == "-0.0":
        return None
    numerator, denominator = float(value).as_integer_ratio()
    return ratio(number(numerator), denominator)


def ratio(numerator: Size, denominator: int) -> Real | None:
    """The quotient in lowest terms; None if a runtime may round it in another way."""
    common = gcd(denominator, *(coefficient for _, coefficient in numerator.terms))
    if common > 1:
        numerator = Size(tuple((factors, coefficient // common) for factors, coefficient in numerator.terms))
        denominator //= common
    steps = sum(abs(coefficient) for factors, coefficient in numerator.terms if factors)
    is_small = steps <= _MOST_STEPS and denominator <= _MOST_STEPS and abs(numerator.constant) < _LARGEST
    if not is_small or any(len(factors) > 1 for factors, _ in numerator.terms):
        return None
    return numerator if denominator == 1 else Ratio(numerator, denominator)


def floor(bounds: Bounds, x: Real) -> Size:
    """The integer at or below an element: a rounded quotient of integers below 2^24 never reaches the next one."""
    return x if isinstance(x, Size) else floor_divide(x.numerator, number(x.denominator))


def truncate(bounds: Bounds, x: Real) -> Size | None:
    """The integer that a conversion leaves of an element; None if it may be negative."""
    return floor(bounds, x) if isinstance(x, Size) or bounds.is_at_least(x.numerator, 0) else None


def _ceil(bounds: Bounds, x: Real) -> Size | None:
    if isinstance(x, Size):
        return x
    if not bounds.is_at_least(x.numerator, 0):
        return None  # it may be -0
    return floor_divide(x.numerator + number(x.denominator - 1), number(x.denominator))


def _round(bounds: Bounds, x: Real) -> Size | None:
    return x if isinstance(x, Size) else None


def _parts(x: Real) -> tuple[Size, int] | None:
    """Numerator and denominator of an element that is exact; None for one that a runtime has rounded."""
    if isinstance(x, Size):
        return x, 1
    return (x.numerator, x.denominator) if _is_power_of_two(x.denominator) else None


def _add(bounds: Bounds, a: Real, b: Real, sign: int = 1) -> Real | None:
    one, other = _parts(a), _parts(b)
    if one is None or other is None:
        return None
    return ratio(one[0].scale(other[1]) + other[0].scale(sign * one[1]), one[1] * other[1])


def _subtract(bounds: Bounds, a: Real, b: Real) -> Real | None:
    return _add(bounds, a, b, -1)


def _multiply(bounds: Bounds, a: Real, b: Real) -> Real | None:
    one, other = _parts(a), _parts(b)
    if one is None or other is None or not (bounds.is_at_least(one[0], 0) and bounds.is_at_least(other[0], 0)):
        return None
    return ratio(one[0] * other[0], one[1] * other[1])


def _divide(bounds: Bounds, a: Real, b: Real) -> Real | None:
    one, other = _parts(a), _parts(b)
    if one is None or other is None or not bounds.is_at_least(other[0], 1):
        return None
    numerator, divisor = one[0].scale(other[1]), other[0].scale(one[1])
    if (steps := divisor.number) is not None:
        return ratio(numerator, steps)
    return exact_quotient(numerator, divisor)


def _is_power_of_two(value: int) -> bool:
    return value & (value - 1) == 0


ARITHMETIC: dict[str, Callable[..., Real | None]] = {
    "Add": _add,
    "Sub": _subtract,
    "Mul": _multiply,
    "Div": _divide,
    "Floor": floor,
    "Ceil": _ceil,
    "Round": _round,
}
"""The results of operators on elements. Each takes the bounds of sizes, and the elements."""
