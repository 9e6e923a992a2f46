"""Poolings compute what ONNX says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqfuse.ir.operators import Unsupported, evaluate

from ..onnx_cases import window
from .onnx_answers import assert_as_onnx, random_array

quick = settings(
    max_examples=120, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@st.composite
def poolings(draw: Any) -> tuple[Any, ...]:
    rank = draw(st.integers(1, 3))
    literals = draw(window(rank))
    x = (1, 2, *(draw(st.integers(7, 10)) for _ in range(rank)))
    return x, *(literals[n] for n in ("kernel_shape", "pads", "strides", "dilations")), draw(st.integers(0, 1))


@quick
@given(poolings(), st.integers(0, 1))
def test_average(case: tuple[Any, ...], count_include_pad: int) -> None:
    assert_as_onnx("AveragePool", random_array(case[0]), *case[1:], count_include_pad)


@quick
@given(poolings())
def test_maximum(case: tuple[Any, ...]) -> None:
    assert_as_onnx("MaxPool", random_array(case[0]) - np.float32(3), *case[1:], 0)


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint8"])
def test_maximum_in_other_types(dtype: str) -> None:
    assert_as_onnx("MaxPool", random_array((1, 2, 4, 5), dtype), (2, 3), (1, 1, 1, 1), (1, 2), (1, 1), 0, 0)


@pytest.mark.parametrize("head", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 2, 3, 4), (2, 1, 2, 2, 3), (2, 3, 1, 1)])
def test_global(head: str, shape: tuple[int, ...]) -> None:
    assert_as_onnx(head, random_array(shape))


def test_the_same_window_twice_gives_the_same() -> None:
    """The cached windows do not change when they are used."""
    x, setting = random_array((1, 1, 4)), ((3,), (1, 1), (1,), (1,), 0, 0)
    first = evaluate("AveragePool", (x, *setting))
    np.testing.assert_array_equal(first, evaluate("AveragePool", (x, *setting)))


X = np.ones((1, 2, 3), np.float32)


@pytest.mark.parametrize(
    ("head", "arguments"),
    [
        ("AveragePool", (X, (4,), (0, 0), (1,), (1,), 0, 0)),
        ("AveragePool", (X, (1,), (1, 0), (1,), (1,), 0, 0)),
        ("AveragePool", (X, (2, 2), (0, 0, 0, 0), (1, 1), (1, 1), 0, 0)),
        ("AveragePool", (X, (2,), (0, 0), (0,), (1,), 0, 0)),
        ("AveragePool", (X, (2,), (-1, 0), (1,), (1,), 0, 0)),
        ("AveragePool", (X.astype(np.int32), (2,), (0, 0), (1,), (1,), 0, 0)),
        ("MaxPool", (X, (1,), (0, 1), (1,), (1,), 0, 0)),
        ("MaxPool", (X[0], (), (), (), (), 0, 0)),
        ("GlobalMaxPool", (X[0],)),
        ("GlobalAveragePool", (X[:, :, :0],)),
    ],
    ids=str,
)
def test_windows_that_do_not_fit_are_unsupported(head: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(Unsupported):
        evaluate(head, arguments)
