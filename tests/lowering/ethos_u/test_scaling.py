"""Factors as multipliers of 32 bits, and the numbers of the specification of TOSA."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.ethos_u.tosa.scaling import apply_scaling, reciprocal, scaling_of


@given(st.floats(1e-9, 1e3), st.integers(-(2**20), 2**20))
def test_scaled_integers_are_rounded(factor: float, value: int) -> None:
    scaling = scaling_of(factor)
    result = int(apply_scaling(np.asarray([value]), scaling.multiplier, scaling.shift)[0])
    assert abs(result - value * factor) <= 0.5 + abs(value * factor) * 2**-30


def test_the_middle_is_rounded_up() -> None:
    scaling = scaling_of(0.5)
    assert apply_scaling(np.asarray([-3, -1, 1, 3]), scaling.multiplier, scaling.shift).tolist() == [-1, 0, 1, 2]


def test_double_rounding_goes_away_from_zero() -> None:
    multiplier, shift = np.asarray([1 << 30]), np.asarray([32])
    assert apply_scaling(np.asarray([-2, 2, -6, 6]), multiplier, shift, "DOUBLE_ROUND").tolist() == [-1, 1, -2, 2]


@given(st.integers(1, 4096), st.integers(-(2**19), 2**19))
def test_averages_divide(count: int, value: int) -> None:
    multiplier, shift = reciprocal(np.asarray([count]))
    assert abs(int(apply_scaling(np.asarray([value]), multiplier, shift)[0]) - value / count) <= 0.51


def test_a_negative_factor_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        scaling_of(-1.0)
