"""Resize computes what ONNX says, in its three modes.

Coordinates are computed in float64, those of ONNX Runtime in float32. No case here lies so close to the middle between
two elements that the nearest one depends on it.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from eqfuse.ir.operators import Unsupported, evaluate

from .onnx_answers import assert_as_onnx, random_array

COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric")
SIZES: tuple[dict[str, Any], ...] = (
    {"scales": [1.0, 1.0, 2.0, 2.0]},
    {"scales": [1.0, 1.0, 0.5, 1.5]},
    {"scales": [1.0, 1.0, 1.0, 0.699999988079071]},
    {"sizes": [1, 2, 7, 4]},
    {"sizes": [1, 2, 1, 9]},
)
REGIONS = ([0.0, 0.0, 0.25, 0.25, 1.0, 1.0, 0.75, 1.0], [0.0, 0.0, -0.5, 0.0, 1.0, 1.0, 0.5, 1.5])


def assert_resized(mode: str, shape: tuple[int, ...] = (1, 2, 4, 5), dtype: str = "float32", **config: Any) -> None:
    assert_as_onnx("Resize", random_array(shape, dtype), mode, json.dumps(config))


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_linear(coordinates: str, size: dict[str, Any]) -> None:
    assert_resized("linear", coordinate_transformation_mode=coordinates, **size)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_cubic(coordinates: str, size: dict[str, Any]) -> None:
    assert_resized("cubic", coordinate_transformation_mode=coordinates, **size)


@pytest.mark.parametrize("config", [{"cubic_coeff_a": -0.5}, {"exclude_outside": 1}], ids=str)
def test_cubic_weights(config: dict[str, Any]) -> None:
    assert_resized("cubic", scales=[1.0, 1.0, 2.0, 1.5], **config)


@pytest.mark.representatives(37)
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_nearest(coordinates: str, rounding: str, size: dict[str, Any]) -> None:
    assert_resized("nearest", coordinate_transformation_mode=coordinates, nearest_mode=rounding, **size)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_nearest_moves_elements_of_any_type(dtype: str) -> None:
    assert_resized("nearest", dtype=dtype, scales=[1.0, 1.0, 2.0, 3.0])


def test_the_size_is_rounded_in_float32() -> None:
    config = {"coordinate_transformation_mode": "asymmetric", "scales": [1.0, 1.0, 1.0, 0.699999988079071]}
    assert_resized("nearest", (1, 1, 1, 10), **config)


def test_some_axes() -> None:
    assert_resized("linear", axes=[2, 3], scales=[2.0, 2.0])


def test_three_spatial_axes() -> None:
    assert_resized("linear", (1, 1, 2, 3, 2), scales=[1.0, 1.0, 2.0, 2.0, 1.5])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("size", [{"scales": [1.0, 1.0, 2.0, 1.5]}, {"sizes": [1, 2, 1, 9]}], ids=str)
@pytest.mark.parametrize(
    "roi", [[0.0, 0.0, 0.25, 0.25, 1.0, 1.0, 0.75, 1.0], [0.0, 0.0, -0.5, 0.0, 1.0, 1.0, 0.5, 1.5]]
)
def test_a_region(mode: str, size: dict[str, Any], roi: list[float]) -> None:
    """Outside of the tensor stands a number that the node gives."""
    assert_resized(
        mode, coordinate_transformation_mode="tf_crop_and_resize", roi=roi, extrapolation_value=7.5, **size
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_sizes_that_keep_the_ratio(policy: str) -> None:
    assert_resized("linear", axes=[2, 3], sizes=[7, 6], keep_aspect_ratio_policy=policy)


@pytest.mark.parametrize(
    ("mode", "config"),
    [
        ("linear", {"scales": [1.0, 1.0, 2.0, 2.0], "antialias": 1}),
        ("linear", {"scales": [1.0, 1.0, 2.0, 2.0], "coordinate_transformation_mode": "tf_crop_and_resize"}),
        ("nearest", {"sizes": [1, 2, 8, 8], "keep_aspect_ratio_policy": "as_it_fits"}),
        ("nearest", {"scales": [2.0, 2.0, 2.0, 2.0], "nearest_mode": "outwards"}),
        ("nearest", {"scales": [2.0]}),
        ("nearest", {}),
    ],
    ids=str,
)
def test_other_settings_are_unsupported(mode: str, config: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        evaluate("Resize", (random_array((1, 2, 4, 5)), mode, json.dumps(config)))


def test_linear_mixing_of_integers_is_unsupported() -> None:
    with pytest.raises(Unsupported):
        evaluate("Resize", (np.ones((1, 1, 2, 2), np.uint8), "linear", '{"scales": [1.0, 1.0, 2.0, 2.0]}'))
