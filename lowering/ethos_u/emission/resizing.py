"""Resize: copies of the nearest neighbour, and sums of two neighbours along each axis."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor, lcm, prod
from typing import Any

import numpy as np

from ....ir.operators.arithmetic import Unsupported
from ....ir.operators.resize import CROP, DEFAULTS, coordinates, nearest_places, neighbours
from ..tosa.graph import Array, Builder, Tensor
from .places import take_places
from .requantize import Target, add_rescale, as_map, clamp, zero_of
from .values import Integers, Number, Value, refuse

_LARGEST = 127
_FINEST, _SAME = 1 << 12, 1e-9
"""The largest denominator of a place, and how far a place may be from a fraction to count as one: places are numbers of
float64."""
_LARGEST_DISTANCE, _LARGEST_SUM = 255, 1 << 31
"""Between an integer of 8 bits and its zero point, and above what 32 bits hold."""


def repeat(builder: Builder, value: Number, x: Integers, operands: Sequence[Value | None]) -> Integers:
    """Nearest neighbours. Those of which each comes a whole number of times are copies beside each other.

    A row (W, C) beside itself is (W, 2 C), and in other words (2 W, C).
    """
    settings = json.loads(value.attributes["config"])
    factors = [1] * len(x.shape)
    for axis, places in enumerate(_places(value, x.shape, settings)):
        if places is None:
            continue
        nearest = np.array(nearest_places(places, x.shape[axis], settings))
        factors[axis] = max(1, len(nearest) // x.shape[axis])
        if axis == x.order[-1] or not np.array_equal(nearest, np.arange(len(nearest)) // factors[axis]):
            x = take_places(builder, value, x, axis, nearest)
            factors[axis] = 1
    sizes = list(x.tensor.shape)
    tensor = x.tensor
    for place in reversed(range(len(sizes))):
        factor = factors[x.order[place]]
        if factor == 1:
            continue
        # Along the next axis, of which the elements of one position are one row.
        inner = prod(sizes[place + 1 :])
        flat = (1, prod(sizes[:place]), sizes[place], inner)
        joined = (*flat[:3], factor * inner)
        tensor = builder.add("RESHAPE", [tensor, builder.sizes(*flat)], "int8", flat)
        tensor = builder.add("CONCAT", [tensor] * factor, "int8", joined, axis=3)
        sizes[place] *= factor
        tensor = builder.add("RESHAPE", [tensor, builder.sizes(*sizes)], "int8", sizes)
    return replace(x, tensor=tensor, shape=value.shape)


def _places(value: Number, shape: Sequence[int], settings: Mapping[str, Any]) -> list[list[float] | None]:
    """What `coordinates` finds, or the node is refused."""
    if settings.get("antialias") or settings.get("coordinate_transformation_mode") == CROP:
        raise refuse(value, "blurs, or looks at a region")
    try:
        return coordinates(shape, settings)
    except Unsupported as problem:
        raise refuse(value, str(problem)) from None


def interpolate(builder: Builder, value: Number, x: Integers, target: Target) -> Integers:
    """Linear interpolation, rounded once. Raises LoweringError for other forms."""
    settings = json.loads(value.attributes["config"])
    if value.attributes["mode"] != "linear":
        raise refuse(value, "is neither of the nearest neighbour nor linear")
    places = _places(value, x.shape, settings)
    mode = str(({**DEFAULTS, **settings})["coordinate_transformation_mode"])
    if _is_by_small_factors(value, x.shape, mode):
        return _interpolate_by_factors(builder, value, x, target, mode)
    return _interpolate_anywhere(builder, value, x, target, places)


def _interpolate_anywhere(
    builder: Builder, value: Number, x: Integers, target: Target, places: Sequence[Sequence[float] | None]
) -> Integers:
    """The maps of neighbours below and above, each with its integer weights, summed up in 32 bits.

    Places are fractions of sizes: along an axis, weights are multiples of one over a common denominator.
    """
    maps: list[tuple[Integers, Array]] = [(x, np.ones((1,) * len(x.shape), np.int64))]
    whole = 1
    for axis, along in enumerate(places):
        if along is None:
            continue
        size = x.shape[axis]
        below, parts = neighbours(along, size)
        shares = [Fraction(part).limit_denominator(_FINEST) for part in parts]
        denominator = lcm(*(share.denominator for share in shares))
        if max(abs(float(share) - part) for share, part in zip(shares, parts, strict=True)) > _SAME:
            raise refuse(value, f"shows places between elements that are no multiples of 1 / {_FINEST} or more")
        above = np.array([int(share * denominator) for share in shares])
        whole *= denominator
        aside = [-1 if each == axis else 1 for each in range(len(x.shape))]
        ends = ((np.array(below), denominator - above), (np.minimum(np.array(below) + 1, size - 1), above))
        maps = [
            (take_places(builder, value, part, axis, taken), weights * share.reshape(aside))
            for part, weights in maps for taken, share in ends if share.any()
        ]  # fmt: skip
    if whole * _LARGEST_DISTANCE > _LARGEST_SUM:
        raise refuse(value, f"has weights of 1 / {whole}, whose sums do not fit 32 bits")
    total: Tensor | None = None
    for part, weights in maps:
        wide = add_rescale(builder, part.tensor, 1.0, part.zero, 0, "int32")
        factors = builder.constant(weights.transpose(part.order), "int32", "weights")
        scaled = builder.add("MUL", [wide, factors, builder.constant([0], "int8", "shift")], "int32", wide.shape)
        total = scaled if total is None else builder.add("ADD", [total, scaled], "int32", scaled.shape)
    assert total is not None, "some neighbour has a weight"
    rounded = add_rescale(builder, total, x.scale / target.scale / whole, 0, target.zero, "int8", value.node)
    return Integers(clamp(builder, rounded, target), value.shape, maps[0][0].order, target.scale, target.zero)


def _is_by_small_factors(value: Number, shape: Sequence[int], mode: str) -> bool:
    """Whether each place between two old ones can be a convolution, with weights of 8 bits."""
    factors = [after // before for before, after in zip(shape, value.shape, strict=True)]
    return (
        len(shape) == 4 and factors[:2] == [1, 1] and 4 * prod(factors) <= _LARGEST
        and [n * factor for n, factor in zip(shape, factors, strict=True)] == [*value.shape]
        and mode in ("half_pixel", "pytorch_half_pixel", "asymmetric")
        and not (mode == "pytorch_half_pixel" and 1 in value.shape[2:])
    )  # fmt: skip


def _interpolate_by_factors(builder: Builder, value: Number, x: Integers, target: Target, mode: str) -> Integers:
    """By whole factors: each place between two old ones is a convolution.

    Places are multiples of 1 / (2 * factor), so that weights are integers.
    """
    factors = [after // before for before, after in zip(x.shape, value.shape, strict=True)]
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
