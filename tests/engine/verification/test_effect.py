"""Bits, units in the last place, and errors against float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from eqfuse.engine.verification.effect import (
    Effect,
    Errors,
    identical_elements,
    measure_effect,
    measure_errors,
    ulp_distances,
)

DTYPES = [np.dtype(t) for t in (np.float16, np.float32, np.float64)]


@st.composite
def floats(draw: st.DrawFn, count: int, finite: bool = True) -> list[NDArray[Any]]:
    """Floats of one type, by their bits: every exponent is as likely, subnormal numbers and zeros are among them."""
    dtype = draw(st.sampled_from(DTYPES))
    bits = st.integers(0, 2 ** (8 * dtype.itemsize) - 1).map(lambda b: np.array([b], f"u{dtype.itemsize}").view(dtype))
    return [draw(bits.filter(lambda a: not finite or bool(np.isfinite(a).all()))) for _ in range(count)]


def steps(one: NDArray[Any], other: NDArray[Any]) -> float:
    distances = ulp_distances(one, other)
    assert distances is not None
    return float(distances.max())


@given(floats(2, finite=False))
def test_the_distance_is_symmetric(pair: list[NDArray[Any]]) -> None:
    assert steps(pair[0], pair[1]) == steps(pair[1], pair[0])


@given(floats(2, finite=False))
def test_the_distance_is_zero_for_equal_numbers_only(pair: list[NDArray[Any]]) -> None:
    assert (steps(pair[0], pair[1]) == 0) == np.array_equal(pair[0], pair[1], equal_nan=True)


@given(floats(1), st.sampled_from([-np.inf, np.inf]))
def test_the_next_float_is_one_away(single: list[NDArray[Any]], direction: float) -> None:
    with np.errstate(over="ignore"):
        following = np.nextafter(single[0], single[0].dtype.type(direction))
    assert steps(single[0], following) == (1 if np.isfinite(following[0]) else np.inf)


@given(floats(3))
def test_distances_in_one_direction_add_up(triple: list[NDArray[Any]]) -> None:
    low, middle, high = sorted(triple, key=lambda a: float(a[0]))
    assert steps(low, high) == pytest.approx(steps(low, middle) + steps(middle, high), rel=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_distance_counts_across_zero(dtype: np.dtype[Any]) -> None:
    tiny = np.array([np.finfo(dtype).smallest_subnormal])
    assert (steps(-tiny, tiny), steps(-np.zeros_like(tiny), tiny)) == (2, 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_longest_distance_does_not_overflow(dtype: np.dtype[Any]) -> None:
    largest = np.array([np.finfo(dtype).max])
    magnitude = int(largest.view(f"u{dtype.itemsize}")[0])
    assert steps(-largest, largest) == float(2 * magnitude)


def test_bfloat16_has_its_own_steps() -> None:
    assert steps(np.array([1.0], ml_dtypes.bfloat16), np.array([1 + 2**-7], ml_dtypes.bfloat16)) == 1


def test_complex_numbers_have_steps_in_each_part() -> None:
    one = np.array([1 + 1j], np.complex64)
    assert steps(one, one + np.complex64(2**-22 * 1j)) == 2


def test_integers_have_no_steps() -> None:
    assert ulp_distances(np.arange(3), np.arange(3)) is None


@pytest.mark.parametrize(
    ("one", "other", "same"), [(0.0, -0.0, False), (np.nan, -np.nan, True), (np.inf, np.inf, True), (1, 2, False)]
)
def test_identity_is_of_bits_except_for_nan(one: float, other: float, same: bool) -> None:
    assert bool(identical_elements(np.float32([one]), np.float32([other]))[0]) is same


@pytest.mark.parametrize(
    ("expected", "found", "result"),
    [
        (np.arange(4), np.array([0, 1, 2, 9]), Effect(4, 3)),
        (np.array([True, False]), np.array([True, True]), Effect(2, 1)),
        (np.array(["a", "b"], object), np.array(["a", "b"]), Effect(2, 2)),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), Effect(0, 0, 0.0)),
        (np.float32(1), np.float32(1), Effect(1, 1, 0.0)),
        (np.float32([1, np.nan]), np.float32([1, 1]), Effect(2, 1, np.inf)),
        ([np.float32([1]), np.arange(2)], [np.float32([1]), np.arange(2)], Effect(3, 3, 0.0)),
        (None, None, Effect(0, 0)),
        (np.ones(2), np.ones((2, 1)), Effect(2, 0)),
        (np.ones(2), np.ones(2, np.float32), Effect(2, 0)),
        (np.zeros(0), np.ones(2), Effect(1, 0)),
    ],
)
def test_effect_on_every_kind_of_value(expected: Any, found: Any, result: Effect) -> None:
    assert measure_effect(expected, found) == result


def test_effects_add_up() -> None:
    one = Effect(4, 2, 7, Errors(1, 0.5), None)
    other = Effect(6, 5, None, Errors(0.5, 0.6), Errors(2, 2))
    assert one.plus(other) == Effect(10, 7, 7, Errors(1, 0.6), Errors(2, 2))


def test_no_elements_have_no_share() -> None:
    assert (Effect().share, Effect(4, 1).share) == (None, 0.25)


def test_errors_against_float64() -> None:
    assert measure_errors(np.array([0.0, 2.0]), np.float32([3, 6])) == Errors(4, np.sqrt(12.5))
    assert measure_errors(np.zeros(2), np.zeros(3, np.float32)) is None
