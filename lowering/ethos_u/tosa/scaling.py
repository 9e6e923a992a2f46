"""RESCALE: a real factor as a multiplier of 32 bits and a shift, and integers multiplied by it.

    round(value * multiplier / 2**shift), of the middle between two integers the upper one (SINGLE_ROUND)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .graph import Array

_BITS = 31
_LEAST_SHIFT, _LARGEST_SHIFT = 2, 62
"""Shifts that the specification allows."""
_ONE_HALF = 1 << 30


@dataclass(frozen=True, eq=False)
class Scaling:
    """Factors as integers: `multiplier` of int32, `shift` of int8, both of one element or one for each channel."""

    multiplier: Array
    shift: Array

    @property
    def is_per_channel(self) -> bool:
        """Whether channels have factors of their own."""
        return self.multiplier.size > 1


def scaling_of(factors: Any) -> Scaling:
    """The nearest multipliers and shifts. Raises ValueError for a factor that none can express."""
    factors = np.atleast_1d(np.asarray(factors, np.float64))
    if not np.isfinite(factors).all() or (factors < 0).any():
        raise ValueError("a factor that is negative or not finite")
    fraction, exponent = np.frexp(factors)
    multiplier = np.rint(np.ldexp(fraction, _BITS)).astype(np.int64)
    exponent = np.where(multiplier == 1 << _BITS, exponent + 1, exponent)
    multiplier = np.where(multiplier == 1 << _BITS, multiplier >> 1, multiplier)
    shift = np.where(factors == 0, _BITS, _BITS - exponent)
    if (shift < _LEAST_SHIFT).any():
        raise ValueError(f"a factor of {factors.max():g} or more")
    excess = np.clip(shift - _LARGEST_SHIFT, 0, _BITS)
    multiplier, shift = multiplier >> excess, np.minimum(shift, _LARGEST_SHIFT)
    if (multiplier == multiplier[0]).all() and (shift == shift[0]).all():
        multiplier, shift = multiplier[:1], shift[:1]
    return Scaling(multiplier.astype(np.int32), shift.astype(np.int8))


def apply_scaling(values: Array, multiplier: Array, shift: Array, rounding: str = "SINGLE_ROUND") -> Array:
    """Integers times factors, which broadcast along the last axis; the result has 64 bits."""
    shift = shift.astype(np.int64)
    addend = np.int64(1) << (shift - 1)
    if rounding == "DOUBLE_ROUND":
        addend = addend + np.where(shift > _BITS, np.where(values >= 0, _ONE_HALF, -_ONE_HALF), 0)
    product = values.astype(np.int64) * multiplier.astype(np.int64)
    result: Array = (product + addend) >> shift
    return result


def reciprocal(count: Array) -> tuple[Array, Array]:
    """Multiplier and shift by which an average pooling divides its sums by the number of their addends."""
    count = np.asarray(count, np.int64)
    bits = np.ceil(np.log2(count)).astype(np.int64)
    return (((1 << 30) + 1) << bits) // count, 30 + bits
