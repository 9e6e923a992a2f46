"""Costs as integers, for solvers that compute with those alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def integral(costs: Sequence[float]) -> tuple[list[int], Fraction]:
    """Integers and a unit such that cost = integer * unit exactly (floats are binary fractions)."""
    ratios = [cost.as_integer_ratio() for cost in costs]
    denominator = max((ratio[1] for ratio in ratios), default=1)
    numerators = [numerator * (denominator // own) for numerator, own in ratios]
    divisor = math.gcd(*numerators) or 1
    return [numerator // divisor for numerator in numerators], Fraction(divisor, denominator)
