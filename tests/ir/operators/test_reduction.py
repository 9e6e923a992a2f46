"""Reductions and running sums compute what ONNX says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqfuse.ir.operators import OPERATORS, Unsupported, evaluate

from .onnx_answers import assert_as_onnx, random_array

REDUCTIONS = [name for name in OPERATORS if name.startswith("Reduce")]
POSITIVE = {"ReduceLogSum"}
AXES = [((2, 3, 4), (1,)), ((2, 3, 4), (0, 2)), ((2, 3, 4), (0, 1, 2)), ((5,), (0,)), ((2, 1), (1,))]


@pytest.mark.parametrize("head", REDUCTIONS)
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions_of_floats(head: str, keepdims: int, dtype: str) -> None:
    for shape, axes in AXES:
        x = random_array(shape, dtype)
        assert_as_onnx(head, np.abs(x) if head in POSITIVE else x, axes, keepdims)


@pytest.mark.parametrize("head", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_reductions_of_integers(head: str, dtype: str) -> None:
    for shape, axes in AXES:
        assert_as_onnx(head, random_array(shape, dtype), axes, 1)


@pytest.mark.parametrize("head", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool"])
def test_extremes_of_small_types(head: str, dtype: str) -> None:
    assert_as_onnx(head, random_array((2, 3, 4), dtype), (1,), 0)


@pytest.mark.parametrize("head", ["ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"])
def test_nothing_is_summed_to_the_neutral_element(head: str) -> None:
    assert_as_onnx(head, random_array((2, 0, 3)), (1,), 1)


@pytest.mark.parametrize("head", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int64", "uint8"])
def test_the_extreme_of_nothing_is_the_end_of_the_type(head: str, dtype: str) -> None:
    for keepdims in (0, 1):
        assert_as_onnx(head, random_array((2, 0, 3), dtype), (1,), keepdims)


@pytest.mark.parametrize("head", ["ReduceL2", "ReduceLogSum"])
def test_integers_lose_their_fraction(head: str) -> None:
    assert_as_onnx(head, np.asarray([[1, 2, 3], [7, 8, 9]], np.int32), (1,), 1)


@pytest.mark.parametrize("head", REDUCTIONS)
def test_no_rows_stay_no_rows(head: str) -> None:
    assert_as_onnx(head, random_array((0, 3)), (1,), 0)


def test_large_exponents_do_not_overflow() -> None:
    assert_as_onnx("ReduceLogSumExp", np.array([[1000.0, 999.0], [-1000.0, -1001.0]], np.float32), (1,), 0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sums(dtype: str, exclusive: int, reverse: int) -> None:
    for shape, axis in (((5,), 0), ((2, 3, 4), 1), ((2, 3, 4), 2), ((1, 2), 0)):
        assert_as_onnx("CumSum", random_array(shape, dtype), (axis,), exclusive, reverse)


@pytest.mark.parametrize(
    ("head", "arguments"),
    [
        ("ReduceSum", (np.ones((2, 3)), (2,), 1)),
        ("ReduceSum", (np.ones((2, 3)), (-1,), 1)),
        ("ReduceSum", (np.ones((2, 3)), (1, 1), 1)),
        ("ReduceSum", (np.ones((2, 3), bool), (1,), 1)),
        ("ReduceMax", (np.ones((2, 0), bool), (1,), 1)),
        ("ReduceMean", (np.ones((2, 0)), (1,), 1)),
        ("CumSum", (np.ones((2, 3)), (2,), 0, 0)),
        ("CumSum", (np.ones((2, 3)), (0, 1), 0, 0)),
    ],
    ids=str,
)
def test_what_has_no_meaning_is_unsupported(head: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(Unsupported):
        evaluate(head, arguments)
