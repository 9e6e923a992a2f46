"""Resize: along one axis after the other, each result a weighted sum of the nearest elements."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Any

import numpy as np

from .arithmetic import Arithmetic, Array, Unsupported, constants, floats_only

SETTINGS = frozenset(
    [
        "coordinate_transformation_mode", "nearest_mode", "roi", "scales", "sizes", "axes", "cubic_coeff_a",
        "exclude_outside", "extrapolation_value",
    ]
)  # fmt: skip
"""Settings that are supported, or that do nothing in the supported modes."""
CUBIC_COEFFICIENT = -0.75
"""The parameter of the cubic kernel (`cubic_coeff_a`) if a node leaves it out."""
DEFAULTS: dict[str, object] = {
    "antialias": 0, "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": CUBIC_COEFFICIENT,
    "exclude_outside": 0, "extrapolation_value": 0.0, "keep_aspect_ratio_policy": "stretch",
    "nearest_mode": "round_prefer_floor",
}  # fmt: skip
"""ONNX's values for attributes that a node leaves out."""
POLICIES = ("stretch", "not_larger", "not_smaller")
"""How sizes are used: as they are, or for one scale for all axes, the smallest or the largest."""
CROP = "tf_crop_and_resize"
"""The transformation that looks at a region (`roi`), and takes `extrapolation_value` outside of the tensor."""

TRANSFORMATIONS = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric", CROP)
"""The formulas from the place of an element in the result to one in the operand."""

ROUNDINGS: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda x: ceil(x - 0.5),
    "round_prefer_ceil": lambda x: floor(x + 0.5),
    "floor": floor,
    "ceil": ceil,
}


@dataclass(frozen=True)
class _Extent:
    """The size of the result along an axis, its scale, and the region of the operand in shares of its length."""

    result: int
    scale: float
    region: tuple[float, float] = (0.0, 1.0)


def _extents(shape: Sequence[int], config: Mapping[str, Any]) -> list[_Extent]:
    """The extent of each axis."""
    extents = [_Extent(n, 1.0) for n in shape]
    axes = config.get("axes", list(range(len(shape))))
    values = config["scales"] if "scales" in config else config.get("sizes")
    if values is None or len(values) != len(axes):
        raise Unsupported("Resize without scales or sizes")
    for axis, value in zip(axes, values, strict=True):
        size = shape[axis]
        if "scales" in config:
            extents[axis] = _Extent(int(np.floor(np.float32(size) * np.float32(value))), value)  # as ONNX rounds it
        else:
            extents[axis] = _Extent(int(value), value / size if size else 1.0)
    policy = config.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" and "scales" not in config:
        scale = (min if policy == "not_larger" else max)(extents[axis].scale for axis in axes)
        for axis in axes:
            extents[axis] = _Extent(floor(scale * shape[axis] + 0.5), scale)
    if config.get("coordinate_transformation_mode") == CROP:
        roi = config.get("roi", ())
        if len(roi) != 2 * len(axes):
            raise Unsupported("a region without a start and an end for each axis")
        for place, axis in enumerate(axes):
            extents[axis] = replace(extents[axis], region=(roi[place], roi[place + len(axes)]))
    return extents


def _coordinate(mode: str, i: int, extent: _Extent, size: int) -> float:
    scale, result = extent.scale, extent.result
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        return i * (size - 1) / (result - 1) if result > 1 else 0.0
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and result > 1):
        return (i + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return 0.0
    if mode == "half_pixel_symmetric":
        centre, reach = size / 2, result / (scale * size)
        return centre * (1 - reach) + (i + 0.5) / scale - 0.5
    if mode == CROP:
        start, end = extent.region
        share = start + (end - start) * i / (result - 1) if result > 1 else (start + end) / 2
        return share * (size - 1)
    raise Unsupported(f"Resize with coordinates by {mode}")


def coordinates(shape: Sequence[int], settings: Mapping[str, Any]) -> list[list[float] | None]:
    """Per axis of an operand, the place in it that each element of the result shows, which may lie outside; None for an
    axis that stays as it is. Raises Unsupported for settings that are not known, and for axes without elements."""
    transformation = settings.get("coordinate_transformation_mode", "half_pixel")
    places: list[list[float] | None] = []
    for size, extent in zip(shape, _extents(shape, settings), strict=True):
        is_kept = extent == _Extent(size, 1.0)
        if not is_kept and not size:
            raise Unsupported("Resize of nothing")
        made = range(extent.result)
        places.append(None if is_kept else [_coordinate(transformation, i, extent, size) for i in made])
    return places


def nearest_places(places: Sequence[float], size: int, settings: Mapping[str, Any]) -> list[int]:
    """The elements of an axis that are nearest to places."""
    rounded = ROUNDINGS[settings.get("nearest_mode", "round_prefer_floor")]
    return [min(max(rounded(place), 0), size - 1) for place in places]


def neighbours(places: Sequence[float], size: int) -> tuple[list[int], list[float]]:
    """For each place the element of an axis at or below it, and how far it lies towards the next one, from 0 to 1."""
    clamped = [min(max(p, 0.0), size - 1.0) for p in places]
    below = [floor(p) for p in clamped]
    return below, [p - b for p, b in zip(clamped, below, strict=True)]


def resize(arithmetic: Arithmetic, x: Array, mode: str, config: str) -> Array:
    """In the modes nearest, linear and cubic. Raises Unsupported for antialiasing."""
    settings = json.loads(config)
    known = {*SETTINGS, "keep_aspect_ratio_policy"}
    unusual = {k: v for k, v in settings.items() if k not in known and v not in (0, None)}
    unusual |= {k: v for k, v in settings.items() if k == "keep_aspect_ratio_policy" and v not in POLICIES}
    if mode not in ("nearest", "linear", "cubic") or unusual:
        raise Unsupported(f"Resize by {mode} {unusual or ''}".strip())
    outside: list[tuple[int, list[bool]]] = []
    for axis, places in enumerate(coordinates(x.shape, settings)):
        if places is None:
            continue
        size = x.shape[axis]
        if settings.get("coordinate_transformation_mode") == CROP:
            outside.append((axis, [not 0 <= place <= size - 1 for place in places]))
            places = [min(max(place, 0.0), size - 1.0) for place in places]
        x = _along(arithmetic, x, axis, places, mode, settings)
    fill = arithmetic.constant(settings.get("extrapolation_value", 0.0), x)
    for axis, is_outside in outside:
        x = x.copy()
        np.moveaxis(x, axis, 0)[np.array(is_outside, bool)] = fill
    return x


def _along(
    arithmetic: Arithmetic, x: Array, axis: int, places: list[float], mode: str, settings: Mapping[str, Any]
) -> Array:
    size = x.shape[axis]
    if mode == "nearest":
        return np.take(x, nearest_places(places, size, settings), axis)
    floats_only(x)
    if mode == "cubic":
        return _cubic(arithmetic, x, axis, places, settings)
    below, parts = neighbours(places, size)
    low = np.take(x, below, axis)
    high = np.take(x, [min(b + 1, size - 1) for b in below], axis)
    weight = constants(arithmetic, np.reshape(parts, [-1 if a == axis else 1 for a in range(x.ndim)]), x)
    rest = arithmetic.apply("subtract", arithmetic.constant(1, x), weight)
    return arithmetic.apply("add", arithmetic.apply("multiply", low, rest), arithmetic.apply("multiply", high, weight))


def _cubic(arithmetic: Arithmetic, x: Array, axis: int, places: list[float], settings: Mapping[str, Any]) -> Array:
    """A weighted sum of the four nearest elements (Keys, IEEE TASSP 1981, equation 4); the last ones repeat."""
    size = x.shape[axis]
    a = settings.get("cubic_coeff_a", CUBIC_COEFFICIENT)
    first = [floor(p) - 1 for p in places]
    weights = np.array([[_kernel(a, p - i) for i in range(f, f + 4)] for p, f in zip(places, first, strict=True)])
    if settings.get("exclude_outside"):
        weights *= [[0 <= i < size for i in range(f, f + 4)] for f in first]
        weights /= weights.sum(axis=1, keepdims=True)
    weights = np.round(weights, _DIGITS)
    heaviest = np.arange(len(places)), np.argmax(weights, axis=1)
    weights[heaviest] = np.round(weights[heaviest] + 1 - weights.sum(axis=1), _DIGITS)
    result = None
    for k in range(4):
        taken = np.take(x, [min(max(f + k, 0), size - 1) for f in first], axis)
        along = np.reshape(weights[:, k], [-1 if i == axis else 1 for i in range(x.ndim)])
        part = arithmetic.apply("multiply", taken, constants(arithmetic, along, x))
        result = part if result is None else arithmetic.apply("add", result, part)
    assert result is not None
    return result


_DIGITS = 12
"""Weights are rounded to this many decimals, so that their sum is one in exact arithmetic, too."""


def _kernel(a: float, distance: float) -> float:
    d = abs(distance)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0
