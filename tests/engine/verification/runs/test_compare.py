"""Tolerances and comparisons."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eqfuse.engine.verification.runs.compare import Tolerance, compare, differs, spread_of
from eqfuse.engine.verification.runs.structure import Structure

DEFAULT = Tolerance()
BFLOAT16 = ml_dtypes.bfloat16
FLOATS = arrays(np.float32, st.integers(1, 20), elements=st.floats(width=32))


@given(FLOATS)
def test_everything_equals_itself(array: np.ndarray) -> None:
    assert compare(array, array.copy(), DEFAULT).negligible


@given(FLOATS, FLOATS)
def test_equality_of_finite_values_does_not_depend_on_their_sign(one: np.ndarray, other: np.ndarray) -> None:
    assert compare(one, other, DEFAULT).equal == compare(-one, -other, DEFAULT).equal


@pytest.mark.parametrize(
    ("expected", "actual", "equal"),
    [
        ([np.nan, 1], [np.nan, 1], True),
        ([np.inf, 1], [np.inf, 1], True),
        ([np.inf, 1], [-np.inf, 1], False),
        ([np.nan, 1], [0, 1], False),
        ([1, 1], [np.nan, 1], False),
        ([np.inf, 1], [3e38, 1], False),
        ([0.0, 1], [-0.0, 1], True),
    ],
)
def test_special_values(expected: list[float], actual: list[float], equal: bool) -> None:
    one, other = np.array(expected, np.float32), np.array(actual, np.float32)
    assert compare(one, other, DEFAULT).equal is equal


def test_ends_of_a_sigmoid_are_as_far_off_as_numbers_near_one() -> None:
    one, other, far = (np.array([0.0, number], np.float32) for number in (0.0, 2e-7, 2e-6))
    assert not compare(one, other, DEFAULT, 1e-8).equal
    assert compare(one, other, DEFAULT, 1e-8, is_saturated=True).negligible
    assert not compare(one, far, DEFAULT, 1e-8, is_saturated=True).equal
    assert not compare(one, other, Tolerance(atol=1e-8), 1e-8, is_saturated=True).equal


@pytest.mark.parametrize(
    ("dtype", "fine", "wrong"),
    [
        (np.float64, 1e-10, 1e-6),
        (np.float32, 1e-4, 1e-2),
        (np.float16, 5e-3, 5e-2),
        (BFLOAT16, 2e-2, 2e-1),
    ],
)
def test_tolerance_follows_the_type(dtype: type, fine: float, wrong: float) -> None:
    ones = np.ones(4).astype(dtype)
    assert compare(ones, np.full(4, 1 + fine).astype(dtype), DEFAULT).equal
    assert not compare(ones, np.full(4, 1 + wrong).astype(dtype), DEFAULT).equal


@pytest.mark.parametrize(("dtype", "least"), [(np.float64, 2.0**-1022), (np.float32, 2.0**-126), (BFLOAT16, 2.0**-126)])
def test_numbers_that_lose_their_bits_are_as_good_as_none(dtype: type, least: float) -> None:
    one, other = np.full(4, least / 2).astype(dtype), np.full(4, least / 4).astype(dtype)
    assert compare(one, other, DEFAULT, spread=0.0).equal
    assert not differs(one, other, DEFAULT)
    assert not compare(one * dtype(64), other * dtype(64), DEFAULT).equal


@pytest.mark.parametrize(("one", "other"), [(2**60, 2**60 + 1), ("a", "b")], ids=["large integers", "text"])
def test_other_types_than_floats_are_exact(one: object, other: object) -> None:
    dtype = object if isinstance(one, str) else np.int64
    assert not compare(np.array([one], dtype), np.array([other], dtype), DEFAULT).equal


def test_type_and_shape_must_match() -> None:
    assert "type" in compare(np.ones(2, np.float32), np.ones(2), DEFAULT).mismatch
    assert "shape" in compare(np.ones(2), np.ones((2, 1)), DEFAULT).mismatch


def test_rows_of_a_loop_that_never_ran_may_lack_their_shape() -> None:
    """ONNX Runtime gives them the shape [0] where the body declares none, and 0 in place of unknown sizes."""
    none = np.zeros(0, np.float32)
    assert compare(none, np.zeros((0, 8), np.float32), DEFAULT, may_lack_shape=True).equal
    assert not compare(none, np.zeros((0, 8), np.float32), DEFAULT).equal
    assert not compare(none, np.zeros((8, 0), np.float32), DEFAULT, may_lack_shape=True).equal
    assert not compare(np.zeros((0, 8), np.float32), none, DEFAULT, may_lack_shape=True).equal
    assert compare(np.zeros((), np.float32), np.zeros((0, 8), np.float32), DEFAULT, may_lack_shape=True).equal
    assert not compare(np.zeros((), np.float32), np.zeros((1, 8), np.float32), DEFAULT, may_lack_shape=True).equal
    assert compare(np.zeros((0, 8, 0)), np.zeros((0, 8, 9)), DEFAULT, may_lack_shape=True).equal
    assert not compare(np.zeros((0, 8, 0)), np.zeros((0, 7, 9)), DEFAULT, may_lack_shape=True).equal


def test_only_what_depends_on_rows_of_a_loop_may_lack_its_shape() -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        g (int64 n, bool go, float[8] v) => (float[8] state, float[k, 8] y, float[8] other) {
            state, rows = Loop (n, go, v) <body = turn (int64 i, bool on, float[8] a) =>
                (bool again, float[8] b, float[8] row) { again = Identity(on) b = Abs(a) row = Neg(a) }>
            y = Relu(rows)
            other = Exp(v)
        }"""
    assert Structure(onnx.parser.parse_model(text)).collected == {"rows", "y"}


def test_scalars_have_distances() -> None:
    assert compare(np.float32(1), np.float32(2), DEFAULT).max_abs == 1


def test_coarse_computation_loosens_a_fine_output() -> None:
    one, other = np.ones(4, np.float32), np.full(4, 1.005, np.float32)
    assert not compare(one, other, DEFAULT).equal
    assert compare(one, other, Tolerance(coarsest="float16")).equal


def test_small_spread_tightens_the_tolerance_unless_that_is_given() -> None:
    one, other = np.full(4, 1, np.float32), np.full(4, 1.0001, np.float32)
    assert compare(one, other, DEFAULT).equal
    assert not compare(one, other, DEFAULT, spread=1e-4).equal
    assert compare(one, other, Tolerance(rtol=1e-3), spread=1e-4).equal


def test_rounding_is_no_dependence() -> None:
    one = np.ones(4, np.float32)
    assert not differs(one, one + np.float32(1e-6), DEFAULT)
    assert differs(one, one + np.float32(1e-3), DEFAULT)


def test_spread_needs_floats_of_one_shape() -> None:
    assert spread_of(np.arange(3), np.arange(3)) is None
    assert spread_of(np.ones(3), np.ones(4)) is None
    assert spread_of(np.zeros(4), np.full(4, 2.0)) == 2.0


def test_a_share_of_what_is_accepted() -> None:
    one = np.ones(4, np.float32)
    limit = float(DEFAULT.limit(one, None)[0])
    assert compare(one, one + np.float32(limit / 2), DEFAULT).equal
    assert not compare(one, one + np.float32(limit / 2), Tolerance(share=0.25)).equal
