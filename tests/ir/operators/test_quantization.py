"""Conversions between numbers and integers, and products of integers, compute exactly what ONNX says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from eqfuse.ir.operators import Unsupported, evaluate
from eqfuse.ir.operators.quantization import CONVERSIONS

from ..onnx_cases import Case, conversion, integer_product
from .onnx_answers import assert_as_onnx

quick = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
Array = np.ndarray[Any, Any]
ONE = np.ones((), np.float32)


def operand(case: Case, position: int) -> Array | None:
    """Integers of the whole range of their type; numbers of both signs, and positive scales."""
    shape = case.shapes[position]
    if shape is None:
        return None
    random, dtype = np.random.default_rng([position, *shape]), case.dtype(position)
    if dtype == "float32":
        numbers = random.uniform(0.01, 0.1, shape) if position else random.uniform(-20, 20, shape)
        return np.asarray(numbers, np.float32)
    ends = np.iinfo(dtype)
    return random.integers(ends.min, ends.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("op", sorted(CONVERSIONS))
def test_a_conversion(op: str) -> None:
    @quick
    @given(conversion(op))
    def check(case: Case) -> None:
        assert_as_onnx(op, *(operand(case, i) for i in range(3)), case.literals["axis"])

    check()


@pytest.mark.parametrize("zero", [0, 100, 255])
def test_ties_go_to_the_even_integer_and_ends_are_kept(zero: int) -> None:
    x = np.arange(-300, 301, dtype=np.float32) / 2
    assert_as_onnx("QuantizeLinear", x, ONE, np.asarray(zero, np.uint8), 1)
    found = evaluate("QuantizeLinear", (np.array([0.5, 1.5, 2.5, 254.5, 300], np.float32), ONE, None, 1))
    assert np.asarray(found).tolist() == [0, 2, 2, 254, 255]
    large = np.array([1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)
    assert_as_onnx("QuantizeLinear", large, np.asarray(1e-3, np.float32), np.asarray(zero - 128, np.int8), 1)


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_conversions_take_integers_of_16_bits(dtype: str) -> None:
    zero = np.asarray(700, dtype)
    numbers = np.array([0.5, 1.5, -2.5, 3e4, -4e4, 7e4, 1e30, -np.inf, np.nan], np.float32)
    assert_as_onnx("QuantizeLinear", numbers, ONE, zero, 1)
    ends = np.iinfo(dtype)
    integers = np.array([ends.min, -1 % 7, 700, ends.max], dtype)
    assert_as_onnx("DequantizeLinear", integers, np.asarray(0.1, np.float32), zero, 1)


def test_wide_integers_have_no_zero_point_but_zero() -> None:
    x = np.array([-(2**31), -5, 0, 2**31 - 1], np.int32)
    assert_as_onnx("DequantizeLinear", x, np.asarray(0.1, np.float32), None, 1)


@quick
@given(integer_product("MatMulInteger"))
def test_a_product_of_matrices(case: Case) -> None:
    assert_as_onnx("MatMulInteger", *(operand(case, i) for i in range(4)))


@quick
@given(integer_product("ConvInteger"))
def test_a_convolution(case: Case) -> None:
    window = (case.literals[n] for n in ("kernel_shape", "pads", "strides", "dilations", "group"))
    assert_as_onnx("ConvInteger", *(operand(case, i) for i in range(4)), *window)


def test_each_filter_may_have_its_zero_point() -> None:
    x, w, zeros = (np.arange(n, dtype=np.uint8).reshape(s) for n, s in ((8, (1, 2, 4)), (12, (3, 2, 2)), (3, (3,))))
    settings = ((2,), (1, 1), (1,), (1,), 1)
    plain = np.concatenate(
        [np.asarray(evaluate("ConvInteger", (x, w[i : i + 1], None, zeros[i], *settings))) for i in range(3)], axis=1
    )
    assert np.array_equal(evaluate("ConvInteger", (x, w, None, zeros, *settings)), plain)


def test_sums_of_products_wrap() -> None:
    a, b = np.full((1, 40_000), 255, np.uint8), np.full((40_000, 1), 255, np.uint8)
    wide = 40_000 * 255 * 255
    assert np.asarray(evaluate("MatMulInteger", (a, b, None, None))).tolist() == [[wide - 2**32]]


POINT = ((1,), (0, 0), (1,), (1,), 1)
BYTES = np.ones((1, 2, 3), np.uint8)


@pytest.mark.parametrize(
    ("head", "arguments"),
    [
        ("QuantizeLinear", (np.ones((2, 3), np.float32), np.ones(2, np.float32), None, 1)),
        ("QuantizeLinear", (np.ones(3, np.float32), ONE, np.zeros((), np.int64), 1)),
        ("QuantizeLinear", (np.ones(3, np.int32), ONE, np.zeros((), np.int8), 1)),
        ("DequantizeLinear", (np.ones((2, 4), np.int8), np.ones((2, 2), np.float32), None, 1)),
        ("DequantizeLinear", (np.ones(3, np.int64), ONE, None, 1)),
        ("MatMulInteger", (np.ones((2, 3), np.int16), np.ones((3, 2), np.int8), None, None)),
        ("ConvInteger", (BYTES, BYTES.reshape(1, 2, 3)[..., :1], np.ones(2, np.uint8), None, *POINT)),
    ],
    ids=str,
)
def test_operands_that_do_not_fit_are_unsupported(head: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(Unsupported):
        evaluate(head, arguments)


@pytest.mark.parametrize("op", sorted(CONVERSIONS))
def test_one_scale_has_one_zero_point(op: str) -> None:
    """ONNX refuses others, so that no rule can be wrong about them."""
    x = np.ones((2, 3), np.float32 if op == "QuantizeLinear" else np.uint8)
    with pytest.raises(Unsupported):
        evaluate(op, (x, np.ones(1, np.float32), np.array([8, 6, 7], np.uint8), 1))
