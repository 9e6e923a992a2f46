"""Resize computes in TVM what it computes in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from eqfuse.lowering.compute import lowerable

from ...ir.operators.onnx_answers import random_array
from ...ir.operators.test_resize import COORDINATES, SIZES
from ..in_tvm import Call, assert_as_onnx_runtime, single

REGION = [0.0, 0.0, 0.25, 0.25, 1.0, 1.0, 0.75, 1.0]
EVERY = 11
"""One call in eleven is in `make test`; eleven divides none of the numbers of coordinates, sizes and roundings."""
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resize(mode: str, shape: tuple[int, ...] = (1, 2, 4, 5), dtype: str = "float32", **settings: Any) -> Call:
    scales, sizes = settings.pop("scales", None), settings.pop("sizes", None)
    roi = settings.pop("roi", None)
    operands = {
        "x": random_array(shape, dtype),
        "roi": None if roi is None else np.array(roi, np.float32),
        "scales": None if scales is None else np.array(scales, np.float32),
        **({} if sizes is None else {"sizes": np.array(sizes, np.int64)}),
    }
    constants = [*(["roi"] if roi else []), "scales" if sizes is None else "sizes"]
    return single("Resize", operands, constants, mode=mode, **settings)


def linear() -> Iterator[Call]:
    for coordinates in COORDINATES:
        yield from (resize("linear", coordinate_transformation_mode=coordinates, **size) for size in SIZES)
    yield resize("linear", axes=[2, 3], scales=[2.0, 2.0])
    yield resize("linear", (1, 1, 2, 3, 2), scales=[1.0, 1.0, 2.0, 2.0, 1.5])


def cubic() -> Iterator[Call]:
    for coordinates in COORDINATES:
        yield from (resize("cubic", coordinate_transformation_mode=coordinates, **size) for size in SIZES)
    for setting in ({"cubic_coeff_a": -0.5}, {"exclude_outside": 1}):
        yield resize("cubic", (1, 2, 6, 7), scales=[1.0, 1.0, 2.0, 0.7], **setting)


def regions() -> Iterator[Call]:
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0}
    for mode in ("linear", "cubic"):
        for size in ({"scales": [1.0, 1.0, 2.0, 1.5]}, {"sizes": [1, 2, 1, 9]}):
            yield resize(mode, roi=REGION, **crop, **size)
            yield resize(mode, roi=[0.0, 0.0, -0.5, 0.0, 1.0, 1.0, 0.5, 1.5], **crop, **size)


def nearest() -> Iterator[Call]:
    for coordinates in COORDINATES:
        for rounding in ROUNDINGS:
            settings = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
            yield from (resize("nearest", **settings, **size) for size in SIZES)
    for dtype in ("int32", "uint8"):
        yield resize("nearest", dtype=dtype, scales=[1.0, 1.0, 2.0, 3.0])
    for shape, sizes in (((1, 1, 7, 5), (1, 1, 224, 113)), ((1, 1, 112, 64), (1, 1, 13, 17))):
        yield resize("nearest", shape, sizes=sizes, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        yield resize("nearest", shape, sizes=sizes)


@pytest.mark.parametrize("mode", [linear, cubic, regions, nearest], ids=lambda m: m.__name__)
@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.conformance) for n in range(1, EVERY))])
def test_as_onnx_runtime(mode: Any, first: int) -> None:
    assert_as_onnx_runtime(list(mode())[first::EVERY], absolute=4e-6)


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("linear", {"antialias": 1}),
        ("cubic", {"antialias": 1}),
        ("linear", {"dtype": "uint8"}),
        ("linear", {"coordinate_transformation_mode": "tf_crop_and_resize"}),
        ("nearest", {"coordinate_transformation_mode": "tf_crop_and_resize", "roi": REGION}),
        ("linear", {"coordinate_transformation_mode": "tf_crop_and_resize", "roi": REGION, "sizes": [1, 2, 4, 5]}),
    ],
    ids=str,
)
def test_other_settings_are_not_lowered(mode: str, settings: dict[str, Any]) -> None:
    size = {} if "sizes" in settings else {"scales": [1.0, 1.0, 2.0, 2.0]}
    call = resize(mode, **size, **settings)
    (operator,) = call.graph.operators
    assert lowerable(operator, call.graph) is not None
