"""Matrix products and convolutions compute what ONNX says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from eqfuse.ir.operators import Unsupported, evaluate

from ..onnx_cases import Case, convolution, transposed_convolution
from .onnx_answers import assert_as_onnx, random_array

quick = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)

MATRICES = [
    ((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
    ((2, 1, 2, 3), (4, 3, 1)), ((3,), (2, 3, 4)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((1, 1), (1, 1)),
]  # fmt: skip


@pytest.mark.representatives(17)
@pytest.mark.parametrize(("a", "b"), MATRICES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_matrix_product(a: tuple[int, ...], b: tuple[int, ...], dtype: str) -> None:
    assert_as_onnx("MatMul", random_array(a, dtype), random_array(b, dtype, 1))


@pytest.mark.representatives(17)
@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("bias", [None, (), (4,), (1, 4), (2, 1), (2, 4)])
@pytest.mark.parametrize(("dtype", "alpha", "beta"), [("float32", 0.5, 2.0), ("float64", 1.0, 1.0)])
def test_gemm(transposed: tuple[int, int], bias: tuple[int, ...] | None, dtype: str, alpha: float, beta: float) -> None:
    a = random_array((3, 2) if transposed[0] else (2, 3), dtype)
    b = random_array((4, 3) if transposed[1] else (3, 4), dtype, 1)
    assert_as_onnx("Gemm", a, b, None if bias is None else random_array(bias, dtype, 2), alpha, beta, *transposed)


def window(case: Case) -> tuple[Any, ...]:
    return tuple(case.literals[n] for n in ("kernel_shape", "pads", "strides", "dilations"))


@quick
@given(convolution())
def test_convolution(case: Case) -> None:
    operands = [None if s is None else random_array(s, seed=i) for i, s in enumerate(case.shapes)]
    assert_as_onnx("Conv", *operands, *window(case), case.literals["group"])


@quick
@given(transposed_convolution())
def test_transposed_convolution(case: Case) -> None:
    operands = [None if s is None else random_array(s, seed=i) for i, s in enumerate(case.shapes)]
    assert_as_onnx("ConvTranspose", *operands, *window(case), case.literals["output_padding"], case.literals["group"])


@pytest.mark.parametrize("head", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_convolutions_with_a_bias(head: str, dtype: str) -> None:
    operands = random_array((1, 2, 5, 4), dtype), random_array((2, 2, 3, 2), dtype, 1), random_array((2,), dtype, 2)
    extra = ((0, 0),) if head == "ConvTranspose" else ()
    assert_as_onnx(head, *operands, (3, 2), (1, 0, 1, 1), (2, 1), (1, 1), *extra, 1)


def test_a_transposed_convolution_may_cut_off_more_than_it_spreads() -> None:
    x, w = random_array((1, 1, 4)), random_array((1, 1, 2), seed=1)
    assert_as_onnx("ConvTranspose", x, w, None, (2,), (2, 1), (2,), (1,), (0,), 1)


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


ONE = ((1,), (0, 0), (1,), (1,))


@pytest.mark.parametrize(
    ("head", "arguments"),
    [
        ("MatMul", (ones(2, 3), ones(2, 3))),
        ("MatMul", (ones(), ones(2, 3))),
        ("MatMul", (ones(2, 2, 3), ones(3, 3, 2))),
        ("MatMul", (ones(2, 3), np.ones((3, 2)))),
        ("Gemm", (ones(2, 3), ones(3, 4), ones(3, 1, 4), 1.0, 1.0, 0, 0)),
        ("Gemm", (ones(1, 3), ones(3, 4), ones(2, 4), 1.0, 1.0, 0, 0)),
        ("Gemm", (ones(2, 2, 3), ones(3, 4), None, 1.0, 1.0, 0, 0)),
        ("Gemm", (np.ones((2, 3), np.int32), np.ones((3, 4), np.int32), None, 0.5, 1.0, 0, 0)),
        ("Conv", (ones(1, 2, 3), ones(1, 3, 1), None, *ONE, 1)),
        ("Conv", (ones(1, 4, 3), ones(3, 2, 1), None, *ONE, 2)),
        ("Conv", (ones(1, 2, 3), ones(1, 2, 1), ones(2), *ONE, 1)),
        ("Conv", (ones(1, 2, 3), ones(1, 2, 4), None, (4,), (0, 0), (1,), (1,), 1)),
        ("Conv", (ones(1, 2, 3), ones(1, 2, 1), None, (2,), (0, 0), (1,), (1,), 1)),
        ("Conv", (ones(1, 2, 3), ones(1, 2, 1), None, (1,), (-1, 0), (1,), (1,), 1)),
        ("Conv", (ones(1, 2, 3), ones(1, 2, 1), None, (1,), (0, 0), (0,), (1,), 1)),
        ("Conv", (np.ones((1, 2, 3), np.int32), np.ones((1, 2, 1), np.int32), None, *ONE, 1)),
        ("ConvTranspose", (ones(1, 2, 3), ones(2, 1, 1), None, *ONE, (1,), 1)),
        ("ConvTranspose", (ones(1, 2, 3), ones(3, 1, 1), None, *ONE, (0,), 1)),
        ("ConvTranspose", (ones(1, 1, 2), ones(1, 1, 1), None, (1,), (1, 1), (1,), (1,), (0,), 1)),
    ],
    ids=str,
)
def test_operands_that_do_not_fit_are_unsupported(head: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(Unsupported):
        evaluate(head, arguments)
