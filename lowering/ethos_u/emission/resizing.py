"""Resize by whole factors: copies of the nearest neighbour, and sums of two neighbours along each axis."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor, prod
from typing import Any

import numpy as np

from ..tosa.graph import Builder, Tensor
from .requantize import Target, add_rescale, as_map, clamp, zero_of
from .values import Integers, Number, Value, refuse

_LARGEST = 127
_MODE, _ROUNDING = "half_pixel", "round_prefer_floor"
"""What ONNX takes for attributes that are not there."""


def repeat(builder: Builder, value: Number, x: Integers, operands: Sequence[Value | None]) -> Integers:
    """Nearest neighbours, of which each comes a whole number of times: copies beside each other, for all devices.

    A row (W, C) beside itself is (W, 2 C), and in other words (2 W, C).
    """
    config = json.loads(value.attributes["config"])
    factors = [after // before for before, after in zip(x.shape, value.shape, strict=True)]
    is_whole = [n * factor for n, factor in zip(x.shape, factors, strict=True)] == [*value.shape]
    if value.attributes["mode"] != "nearest" or not is_whole or not _repeats(config, x.shape, factors):
        raise refuse(value, "is not by whole factors to the nearest neighbour")
    sizes = list(x.tensor.shape)
    tensor = x.tensor
    for place in reversed(range(len(sizes))):
        factor = factors[x.order[place]]
        if factor == 1:
            continue
        if place == len(sizes) - 1:
            raise refuse(value, "enlarges channels")
        # Along the next axis, of which the elements of one position are one row.
        inner = prod(sizes[place + 1 :])
        flat = (1, prod(sizes[:place]), sizes[place], inner)
        joined = (*flat[:3], factor * inner)
        tensor = builder.add("RESHAPE", [tensor, builder.sizes(*flat)], "int8", flat)
        tensor = builder.add("CONCAT", [tensor] * factor, "int8", joined, axis=3)
        sizes[place] *= factor
        tensor = builder.add("RESHAPE", [tensor, builder.sizes(*sizes)], "int8", sizes)
    return replace(x, tensor=tensor, shape=value.shape)


def _repeats(config: Mapping[str, Any], shape: Sequence[int], factors: Sequence[int]) -> bool:
    """Whether the nearest neighbour of position i is i // factor on every axis, for this way to read positions."""
    mode, rounding = config.get("coordinate_transformation_mode", _MODE), config.get("nearest_mode", _ROUNDING)
    for size, factor in zip(shape, factors, strict=True):
        if factor == 1:
            continue
        places = np.arange(size * factor)
        if mode == "asymmetric":
            read = places / factor
        elif mode in ("half_pixel", "pytorch_half_pixel") and size * factor > 1:
            read = (places + 0.5) / factor - 0.5
        else:
            return False
        rounded = {
            "floor": np.floor(read), "ceil": np.ceil(read), "round_prefer_floor": np.ceil(read - 0.5),
            "round_prefer_ceil": np.floor(read + 0.5),
        }.get(str(rounding))  # fmt: skip
        if rounded is None or not np.array_equal(np.clip(rounded, 0, size - 1), places // factor):
            return False
    return True


def interpolate(builder: Builder, value: Number, x: Integers, target: Target) -> Integers:
    """Linear interpolation by whole factors, rounded once: each place between two old ones is a convolution.

    Places are multiples of 1 / (2 * factor), so that weights are integers. Raises LoweringError for other forms.
    """
    config = json.loads(value.attributes["config"])
    mode = str(config.get("coordinate_transformation_mode", _MODE))
    factors = [after // before for before, after in zip(x.shape, value.shape, strict=True)]
    if (
        value.attributes["mode"] != "linear" or len(x.shape) != 4 or factors[:2] != [1, 1] or config.get("antialias")
        or [n * factor for n, factor in zip(x.shape, factors, strict=True)] != [*value.shape]
        or mode not in ("half_pixel", "pytorch_half_pixel", "asymmetric") or 4 * prod(factors) > _LARGEST
        or (mode == "pytorch_half_pixel" and 1 in value.shape[2:])
    ):  # fmt: skip
        raise refuse(value, "is not linear by small whole factors along height and width")
    x = as_map(x, builder)
    padded = x.tensor
    for axis in (1, 2):
        padded = _with_edges(builder, padded, axis)
    batch, height, width, channels = x.tensor.shape
    rows, columns = ([_weights(part, factor, mode) for part in range(factor)] for factor in factors[2:])
    scale = x.scale / target.scale / (4 * prod(factors))
    whole: list[Tensor] = []
    for vertical in rows:
        parts = []
        for horizontal in columns:
            kernel = np.multiply.outer(vertical, horizontal)[..., None, None].repeat(channels, axis=2)
            weights, bias = builder.constant(kernel, "int8", "weights"), builder.constant([0], "int32", "bias")
            operands = [padded, weights, bias, zero_of(builder, x.zero), zero_of(builder, 0)]
            sums = builder.add(
                "DEPTHWISE_CONV2D", operands, "int32", (batch, height, width, channels), value.node, pad=(0, 0, 0, 0),
                stride=(1, 1), dilation=(1, 1), local_bound=False, acc_type="int32",
            )  # fmt: skip
            parts.append(clamp(builder, add_rescale(builder, sums, scale, 0, target.zero, "int8"), target))
        whole.append(_beside(builder, parts, 2))
    shape = tuple(value.shape[axis] for axis in x.order)
    result = _beside(builder, whole, 1)
    assert result.shape == shape, "parts of all places make the whole map"
    return Integers(result, value.shape, x.order, target.scale, target.zero)


def _weights(part: int, factor: int, mode: str) -> list[int]:
    """Weights of the neighbours at -1, 0 and 1 of an old place for one of the new places at it; their sum is
    2 * factor."""
    steps = 2 * part + (1 - factor if mode != "asymmetric" else 0)
    below = floor(steps / (2 * factor))
    share = steps - 2 * factor * below
    weights = [0, 0, 0, 0]
    weights[below + 1], weights[below + 2] = 2 * factor - share, share
    return weights[:3]


def _with_edges(builder: Builder, x: Tensor, axis: int) -> Tensor:
    """The map with its first and last row, or column, twice."""
    size = list(x.shape)
    size[axis] = 1
    ends = []
    for place in (0, x.shape[axis] - 1):
        start = [0] * 4
        start[axis] = place
        ends.append(builder.add("SLICE", [x, builder.sizes(*start), builder.sizes(*size)], "int8", size))
    size[axis] = x.shape[axis] + 2
    return builder.add("CONCAT", [ends[0], x, ends[1]], "int8", size, axis=axis)


def _beside(builder: Builder, parts: Sequence[Tensor], axis: int) -> Tensor:
    """Elements of several maps in turn along an axis."""
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].shape)
    flat = (1, prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
    joined = (*flat[:3], flat[3] * len(parts))
    rows = [builder.add("RESHAPE", [part, builder.sizes(*flat)], "int8", flat) for part in parts]
    tensor = builder.add("CONCAT", rows, "int8", joined, axis=3)
    shape[axis] *= len(parts)
    return builder.add("RESHAPE", [tensor, builder.sizes(*shape)], "int8", shape)
