"""Resize in the modes nearest, linear and cubic, each axis by itself, all of them in one stage; and GridSample.

The coordinates are computed as rules/semantics/resize.py does; an index that is a fraction of the result's index, as
that of most settings, is computed in integers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from itertools import product
from operator import add
from typing import Any

from tvm import te, tirx

from ...ir.operators.resize import CROP, CUBIC_COEFFICIENT, ROUNDINGS, SETTINGS
from .call import Expr, Lowering, NotLowered, TensorCall, sizes
from .extents import Extent, as_number, may_differ
from .layout import keep_inside

_Number = Any
"""A number (``float``), or an expression of float64 if it is dynamic."""
_LONGEST = 1 << 14
"""Elements of the longest axis for which a fraction is checked if the size is dynamic."""


@dataclass(frozen=True)
class _Axis:
    """An axis of `size` elements that gets `result`: position i shows the place i * factor + offset.

    With a `region`, the shares of the axis at which it starts and ends, places beyond the axis show nothing of it.
    """

    size: Extent
    result: Extent
    factor: _Number
    offset: _Number
    region: tuple[float, float] | None = None

    def place(self, index: Expr) -> Expr:
        """The place that a position shows, in float64."""
        position = index.astype("float64")
        if self.region is None:
            return position * _as_expression(self.factor) + _as_expression(self.offset)
        start, end = self.region
        share = _as_expression(start) + _as_expression(end - start) * position / _as_expression(self.factor)
        return share * as_number(self.size - 1, "float64")

    def is_inside(self, index: Expr) -> Expr:
        """Whether the place that a position shows is on the axis."""
        place = self.place(index)
        return tirx.all(place >= tirx.const(0.0, "float64"), place <= as_number(self.size - 1, "float64"))


def _resize(call: TensorCall) -> te.Tensor:
    settings = json.loads(call.text("config"))
    mode = call.text("mode")
    unusual = {k: v for k, v in settings.items() if k not in SETTINGS and v not in (0, None, "stretch")}
    if mode not in ("nearest", "linear", "cubic") or unusual:
        raise NotLowered(f"mode {mode} {unusual or ''}".strip())
    axes = _axes(call, settings)
    if mode == "nearest":
        return _nearest(call, axes, settings.get("nearest_mode", "round_prefer_floor"))
    if not call.dtype.startswith("float"):
        raise NotLowered(f"{mode} interpolation of {call.dtype}")
    return _interpolate(call, axes, _linear_taps if mode == "linear" else partial(_cubic_taps, settings))


def _axes(call: TensorCall, settings: Mapping[str, Any]) -> list[_Axis | None]:
    """For each axis how it is resized; None: it is not."""
    shape = sizes(call.source(0))
    scales: list[_Number] = [1.0] * len(shape)
    if "scales" not in settings:
        scales = [_as_float(result) / _as_float(size) for size, result in zip(shape, call.shape, strict=True)]
    else:
        listed = settings.get("axes", range(len(shape)))
        if len(settings["scales"]) != len(listed):
            raise NotLowered("no scale for each axis")
        for axis, scale in zip(listed, settings["scales"], strict=True):
            scales[axis] = scale
    mode = settings.get("coordinate_transformation_mode", "half_pixel")
    if mode == CROP:
        return _regions(call, settings)
    return [
        None if not may_differ(size, result) and (scale == 1.0 or "scales" not in settings) else
        _axis(mode, size, result, scale)
        for size, result, scale in zip(shape, call.shape, scales, strict=True)
    ]


def _regions(call: TensorCall, settings: Mapping[str, Any]) -> list[_Axis | None]:
    """For each axis the region that is looked at; None: all of it, as it is."""
    shape = sizes(call.source(0))
    listed, region = settings.get("axes", range(len(shape))), settings.get("roi", ())
    if call.text("mode") == "nearest" or len(region) != 2 * len(listed):
        raise NotLowered("a region of nearest elements, or one that is no constant")
    if tuple(shape) == tuple(call.shape):
        raise NotLowered("a region that is as large as its operand, which ONNX Runtime takes for the operand")
    axes: list[_Axis | None] = [None] * len(shape)
    for place, axis in enumerate(listed):
        size, result, ends = shape[axis], call.shape[axis], (region[place], region[place + len(listed)])
        if not isinstance(size, int) or not isinstance(result, int):
            raise NotLowered("a region of dynamic sizes")
        if size != result or ends != (0.0, 1.0):
            middle = sum(ends) / 2
            axes[axis] = _Axis(size, result, result - 1.0 or 1.0, 0.0, ends if result > 1 else (middle, middle))
    return axes


def _as_float(extent: Extent) -> _Number:
    return extent if isinstance(extent, int) else as_number(extent, "float64")


def _axis(mode: str, size: Extent, result: Extent, scale: _Number) -> _Axis:
    if not isinstance(result, int) and mode in ("align_corners", "pytorch_half_pixel"):
        factor, offset = (_as_float(size) - 1) / (_as_float(result) - 1), 0.0
        if mode == "pytorch_half_pixel":
            factor, offset = 1 / scale, 0.5 / scale - 0.5
        nothing = _as_expression(0.0)
        only = [tirx.Select(result > 1, _as_expression(number), nothing) for number in (factor, offset)]
        return _Axis(size, result, *only)
    if mode == "asymmetric":
        return _Axis(size, result, 1 / scale, 0.0)
    if mode == "align_corners":
        return _Axis(size, result, (_as_float(size) - 1) / (result - 1) if result > 1 else 0.0, 0.0)
    if mode == "pytorch_half_pixel" and result == 1:
        return _Axis(size, result, 0.0, 0.0)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return _Axis(size, result, 1 / scale, 0.5 / scale - 0.5)
    if mode == "half_pixel_symmetric":
        whole = _as_float(size)
        return _Axis(size, result, 1 / scale, whole / 2 * (1 - _as_float(result) / (scale * whole)) + 0.5 / scale - 0.5)
    raise NotLowered(f"coordinates by {mode}")


def _nearest(call: TensorCall, axes: list[_Axis | None], rounding: str) -> te.Tensor:
    x, round_ = call.source(0), ROUNDINGS.get(rounding)
    if round_ is None:
        raise NotLowered(f"rounding by {rounding}")
    settings = json.loads(call.text("config"))
    mode = settings.get("coordinate_transformation_mode", "half_pixel")
    places = [
        None if axis is None else _find_fraction(axis, round_) if isinstance(axis.factor, float) else
        partial(_nearest_place, mode, rounding, axis)
        for axis in axes
    ]  # fmt: skip

    def element(*indices: Expr) -> Expr:
        return x(*(i if p is None else p(i) for i, p in zip(indices, places, strict=True)))

    return call.stage(call.shape, element)


def _find_fraction(axis: _Axis, round_: Callable[[Any], Any]) -> Callable[[Expr], Expr]:
    """The index of the nearest element: (i * a + b) // c, kept inside.

    Raises NotLowered if no small a, b and c give the same as floats.
    """

    last = axis.size - 1 if isinstance(axis.size, int) else int(_LONGEST * max(1.0, axis.factor))

    def clip(place: int) -> int:
        return min(max(place, 0), last)

    positions = range(axis.result if isinstance(axis.result, int) else _LONGEST)
    factor, offset = _restore_fraction(axis.factor), _restore_fraction(axis.offset)
    wanted = [clip(round_(_restore_fraction(i * axis.factor + axis.offset))) for i in positions]
    for shift in (offset, offset + Fraction(1, 2), Fraction(0)):
        c = factor.denominator * shift.denominator
        a, b = int(factor * c), int(shift * c)
        for bias in (b, b - 1, b + 1, b + c - 1):
            if [clip((i * a + bias) // c) for i in positions] == wanted:
                return partial(_quotient, a, bias, c, axis.size)
    raise NotLowered("a scale that is no small fraction")


def _nearest_place(mode: str, rounding: str, axis: _Axis, index: Expr) -> Expr:
    """The index of the nearest element if the scale follows from dynamic sizes, in float32 as ONNX Runtime."""
    x, size, result = index.astype("float32"), as_number(axis.size, "float32"), as_number(axis.result, "float32")
    half, one = tirx.const(0.5, "float32"), tirx.const(1.0, "float32")
    scale = result / size
    if mode == "asymmetric":
        place = x / scale
    elif mode == "align_corners":
        place = x * (size - one) / te.max(result - one, one)
    elif mode in ("half_pixel", "pytorch_half_pixel"):
        place = (x + half) / scale - half
        place = place if mode == "half_pixel" else tirx.Select(result > one, place, tirx.const(0.0, "float32"))
    else:
        raise NotLowered(f"coordinates by {mode} with a scale that follows from dynamic sizes")
    rounded = {
        "floor": lambda: te.floor(place),
        "ceil": lambda: te.ceil(place),
        "round_prefer_ceil": lambda: te.floor(place + half),
        "round_prefer_floor": lambda: te.ceil(place - half),
    }[rounding]()
    return keep_inside(rounded.astype("int32"), axis.size)


def _quotient(a: int, b: int, c: int, size: Extent, index: Expr) -> Expr:
    return keep_inside(tirx.floordiv(index * a + b, c), size)


def _restore_fraction(value: float) -> Fraction:
    """The fraction that was meant by a float."""
    near = Fraction(value).limit_denominator(4096)
    return near if abs(near - Fraction(value)) < 1e-6 else Fraction(value)


_Taps = list[tuple[Expr, Expr]]
"""Indices along an axis, and the weights of the elements there."""


def _interpolate(call: TensorCall, axes: list[_Axis | None], taps_of: Callable[[_Axis, Expr, str], _Taps]) -> te.Tensor:
    """Weighted sums of the neighbours along each axis that is resized."""
    x, settings = call.source(0), json.loads(call.text("config"))
    outside = call.constant(settings.get("extrapolation_value", 0.0))

    def sum_up(places: list[Expr], rest: list[tuple[_Axis | None, _Taps]]) -> Expr:
        if not rest:
            return x(*places)
        (axis, taps), *others = rest
        terms = [(sum_up([*places, index], others), weight) for index, weight in taps]
        return terms[0][0] if axis is None else _sum([value * weight for value, weight in terms])

    def element(*indices: Expr) -> Expr:
        taps = [
            [(index, call.constant(1))] if axis is None else taps_of(axis, index, call.dtype)
            for axis, index in zip(axes, indices, strict=True)
        ]
        found = sum_up([], list(zip(axes, taps, strict=True)))
        inside = [a.is_inside(i) for a, i in zip(axes, indices, strict=True) if a is not None and a.region is not None]
        return tirx.Select(tirx.all(*inside), found, outside) if inside else found

    return call.stage(call.shape, element)


def _linear_taps(axis: _Axis, index: Expr, dtype: str) -> _Taps:
    """The two neighbours of a place, which is kept inside."""
    place = te.max(te.min(axis.place(index), as_number(axis.size - 1, "float64")), tirx.const(0.0, "float64"))
    below = place.astype("int32")
    weight = (place - below.astype("float64")).astype(dtype)
    above = te.min(below + 1, as_number(axis.size - 1, "int32"))
    return [(below, tirx.const(1, dtype) - weight), (above, weight)]


def _cubic_taps(settings: Mapping[str, Any], axis: _Axis, index: Expr, dtype: str) -> _Taps:
    """Four neighbours (Keys, IEEE TASSP 1981, equation 4); the last elements repeat, or count for nothing."""
    place, a = axis.place(index), float(settings.get("cubic_coeff_a", CUBIC_COEFFICIENT))
    below = te.floor(place).astype("int32")
    after = (place - below.astype("float64")).astype(dtype)
    number = partial(tirx.const, dtype=dtype)

    def near(distance: Expr) -> Expr:
        return ((number(a + 2) * distance - number(a + 3)) * distance) * distance + number(1)

    def far(distance: Expr) -> Expr:
        return ((number(a) * distance - number(5 * a)) * distance + number(8 * a)) * distance - number(4 * a)

    before = number(1) - after
    weights = [far(after + number(1)), near(after), near(before), far(before + number(1))]
    places = [below + (tap - 1) for tap in range(len(weights))]
    if settings.get("exclude_outside"):
        is_inside = [tirx.all(each >= 0, each < axis.size) for each in places]
        weights = [tirx.Select(inside, weight, number(0)) for inside, weight in zip(is_inside, weights, strict=True)]
        whole = _sum(weights)
        weights = [weight / whole for weight in weights]
    return [(keep_inside(each, axis.size), weight) for each, weight in zip(places, weights, strict=True)]


def _sum(terms: list[Expr]) -> Expr:
    """The sum from left to right."""
    return reduce(add, terms)


def _as_expression(number: _Number) -> Expr:
    return tirx.const(number, "float64") if isinstance(number, int | float) else number


# GridSample: each pixel of the result is read where the grid says, between the pixels around that place.
#
# All channels of a pixel have the same place and weights, so vectors run along the channels.

_MODES = {"bilinear": "linear", "linear": "linear", "nearest": "nearest"}
"""Opset 20 calls the mode of opset 16 by another name."""


_NO_SIZE = 2.0**61
"""The place in pixels from which on it is too large for 64 bits."""


def _grid_sample(call: TensorCall) -> te.Tensor:
    x, grid = call.source(0), call.source(1)
    mode, padding = call.text("mode", "linear"), call.text("padding_mode", "zeros")
    if mode not in _MODES or padding not in ("zeros", "border") or not call.dtype.startswith("float"):
        raise NotLowered(f"mode {mode}, padding_mode {padding}, of {call.dtype}")
    extents, is_aligned = sizes(x)[2:], bool(call.integer("align_corners", 0))

    def element(batch: Expr, channel: Expr, *plane: Expr) -> Expr:
        names = [tirx.Var(f"place{axis}", "float64") for axis in range(len(extents))]
        taps = [_taps(_MODES[mode], padding, name, extent) for name, extent in zip(names, extents, strict=True)]
        value = call.constant(0)
        for corner in product(*taps):
            read = x(batch, channel, *(index for index, _, _ in corner))
            inside = [condition for _, condition, _ in corner if condition is not None]
            weight: Expr = None
            for _, _, own in corner:
                weight = own if weight is None else own if own is None else weight * own
            read = tirx.Select(tirx.all(*inside), read, call.constant(0)) if inside else read
            value = value + (read if weight is None else read * weight.astype(call.dtype))
        for axis, (name, extent) in enumerate(zip(names, extents, strict=True)):
            said = grid(batch, *plane, len(extents) - 1 - axis).astype("float64")
            value = tirx.Let(name, _place(said, as_number(extent, "float64"), is_aligned, padding), value)
        return value

    return call.stage(call.shape, element)


def _place(said: Expr, extent: Expr, is_aligned: bool, padding: str) -> Expr:
    """The coordinate in pixels of one from -1 to 1; nowhere far outside, which no integer can hold.

    As in ONNX Runtime, what is no number (the middle of a grid of one pixel) or no size is the first border.
    """
    one, half = tirx.const(1.0, "float64"), tirx.const(0.5, "float64")
    said = tirx.Select(tirx.abs(said) < _NO_SIZE, said, -one)
    place = (said + one) * half * (extent - one) if is_aligned else ((said + one) * extent - one) * half
    first, last = (0.0, extent - one) if padding == "border" else (-2.0, extent + one)
    return te.max(te.min(place, last), tirx.const(first, "float64"))


def _taps(
    mode: str, padding: str, place: Expr, extent: Extent
) -> Sequence[tuple[Expr, Expr | None, Expr | None]]:
    """The pixels read along one axis: an index, whether it is inside if it may not be, and the weight (None: 1)."""
    if mode == "nearest":
        index = tirx.nearbyint(place).astype("int32")
        return [_tap(padding, index, extent, None)]
    below = te.floor(place)
    part, index = place - below, below.astype("int32")
    return [
        _tap(padding, index, extent, tirx.const(1.0, "float64") - part),
        _tap(padding, index + 1, extent, part),
    ]


def _tap(padding: str, index: Expr, extent: Extent, weight: Expr | None) -> tuple[Expr, Expr | None, Expr | None]:
    is_inside = tirx.all(tirx.GE(index, 0), tirx.LT(index, extent)) if padding == "zeros" else None
    return keep_inside(index, extent), is_inside, weight


LOWERINGS: Mapping[str, Lowering] = {"Resize": _resize, "GridSample": _grid_sample}
