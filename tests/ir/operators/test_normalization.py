"""Normalisations and softmaxes compute what ONNX says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqfuse.ir.operators import Unsupported, evaluate

from .onnx_answers import assert_as_onnx, random_array

SHAPES = [(2, 4, 3), (1, 4, 2, 3), (2, 4, 1, 2, 2)]


@pytest.mark.parametrize("shape", [*SHAPES, (3, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_batch_normalization(shape: tuple[int, ...], dtype: str) -> None:
    channels = [random_array((4,), dtype, i) for i in range(1, 5)]
    channels[3] = np.abs(channels[3])
    assert_as_onnx("BatchNormalization", random_array(shape, dtype), *channels, 0.125)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("epsilon", [9.999999747378752e-06, 0.5])
def test_instance_normalization(shape: tuple[int, ...], epsilon: float) -> None:
    assert_as_onnx(
        "InstanceNormalization", random_array(shape), random_array((4,), seed=1), random_array((4,), seed=2), epsilon
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_group_normalization(shape: tuple[int, ...], groups: int, dtype: str) -> None:
    scale, shift = random_array((4,), dtype, 1), random_array((4,), dtype, 2)
    assert_as_onnx("GroupNormalization", random_array(shape, dtype), scale, shift, 0.125, groups, 1)


def test_groups_of_an_empty_batch() -> None:
    value = evaluate(
        "GroupNormalization", (random_array((0, 4, 2)), random_array((4,)), random_array((4,)), 0.125, 2, 1)
    )
    assert np.shape(value) == (0, 4, 2)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("biased", [True, False])
def test_layer_normalization(axis: int, dtype: str, biased: bool) -> None:
    x = random_array((2, 3, 4), dtype)
    shift = random_array(x.shape[axis:], dtype, 2) if biased else None
    assert_as_onnx("LayerNormalization", x, random_array(x.shape[axis:], dtype, 1), shift, axis, 0.125, 1)


def test_layer_normalization_broadcasts_its_scale() -> None:
    assert_as_onnx("LayerNormalization", random_array((2, 3, 4)), random_array((1,), seed=1), None, 2, 0.125, 1)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_root_mean_square_normalization(axis: int, dtype: str) -> None:
    x = random_array((2, 3, 4), dtype)
    assert_as_onnx("RMSNormalization", x, random_array(x.shape[axis:], dtype, 1), axis, 0.125, 1)


@pytest.mark.parametrize("head", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (5,), (2, 1), (0, 3)])
def test_softmaxes(head: str, dtype: str, shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        assert_as_onnx(head, random_array(shape, dtype), axis)


@pytest.mark.parametrize("head", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmaxes_of_large_and_equal_numbers(head: str) -> None:
    assert_as_onnx(head, np.array([[1000.0, 1000.0, -1000.0], [-1e30, 0.0, 88.0]], np.float32), 1)


def test_two_byte_floats_are_normalized_in_float32() -> None:
    """The sum of squares overflows float16."""
    assert_as_onnx(
        "LayerNormalization", np.array([[300, -300, 200, 0]], np.float16), np.ones(4, np.float16), None, 1, 0.125, 1
    )


X = np.ones((2, 4, 3), np.float32)
FOUR = np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("head", "arguments"),
    [
        ("BatchNormalization", (X, FOUR[:3], FOUR, FOUR, FOUR, 0.1)),
        ("InstanceNormalization", (X[0], FOUR, FOUR, 0.1)),
        ("GroupNormalization", (X, FOUR, FOUR, 0.1, 3, 1)),
        ("LayerNormalization", (X, FOUR, None, 2, 0.1, 1)),
        ("LayerNormalization", (X, np.ones((5, 1, 1, 1), np.float32), None, 2, 0.1, 1)),
        ("LayerNormalization", (X, FOUR[:3], None, 3, 0.1, 1)),
        ("LayerNormalization", (X[:, :0], np.ones((0, 3), np.float32), None, 1, 0.1, 1)),
        ("Softmax", (X, 3)),
        ("Softmax", (X, -1)),
        ("Softmax", (X.astype(np.int32), 1)),
        ("Hardmax", (X, 3)),
    ],
    ids=str,
)
def test_operands_that_do_not_fit_are_unsupported(head: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(Unsupported):
        evaluate(head, arguments)
