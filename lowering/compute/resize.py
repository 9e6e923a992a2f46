"""Resize in the modes nearest and linear: each axis by itself, all of them in one stage.

The coordinates are computed as rules/semantics/resize.py does; an index that is a fraction of the result's index, as
that of most settings, is computed in integers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tvm import te, tirx

from ...ir.operators.resize import ROUNDINGS, SETTINGS
from .call import Call, Expr, Lowering, NotLowered, sizes


@dataclass(frozen=True)
class _Axis:
    """An axis of `size` elements that gets `result`: position i shows the place i * factor + offset."""

    size: int
    result: int
    factor: float
    offset: float

    def place(self, position: int) -> float:
        """A place in the input, not kept inside."""
        return position * self.factor + self.offset


def _resize(call: Call) -> te.Tensor:
    settings = json.loads(call.text("config"))
    mode = call.text("mode")
    unusual = {k: v for k, v in settings.items() if k not in SETTINGS and v not in (0, None, "stretch")}
    if mode not in ("nearest", "linear") or unusual:
        raise NotLowered(f"mode {mode} {unusual or ''}".strip())
    axes = _axes(call, settings)
    if mode == "nearest":
        return _nearest(call, axes, settings.get("nearest_mode", "round_prefer_floor"))
    if not call.dtype.startswith("float"):
        raise NotLowered(f"linear interpolation of {call.dtype}")
    return _linear(call, axes)


def _axes(call: Call, settings: Mapping[str, Any]) -> list[_Axis | None]:
    """For each axis how it is resized; None: it is not."""
    shape = sizes(call.source(0))
    listed = settings.get("axes", range(len(shape)))
    values = settings.get("scales", settings.get("sizes", ()))
    if len(values) != len(listed):
        raise NotLowered("no scale or size for each axis")
    scales = [1.0] * len(shape)
    for axis, value in zip(listed, values, strict=True):
        scales[axis] = value if "scales" in settings else value / shape[axis]
    mode = settings.get("coordinate_transformation_mode", "half_pixel")
    return [
        None if (size, scale) == (result, 1.0) else _axis(mode, size, result, scale)
        for size, result, scale in zip(shape, call.shape, scales, strict=True)
    ]


def _axis(mode: str, size: int, result: int, scale: float) -> _Axis:
    if mode == "asymmetric":
        return _Axis(size, result, 1 / scale, 0.0)
    if mode == "align_corners":
        return _Axis(size, result, (size - 1) / (result - 1) if result > 1 else 0.0, 0.0)
    if mode == "pytorch_half_pixel" and result == 1:
        return _Axis(size, result, 0.0, 0.0)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return _Axis(size, result, 1 / scale, 0.5 / scale - 0.5)
    if mode == "half_pixel_symmetric":
        return _Axis(size, result, 1 / scale, size / 2 * (1 - result / (scale * size)) + 0.5 / scale - 0.5)
    raise NotLowered(f"coordinates by {mode}")


def _nearest(call: Call, axes: list[_Axis | None], rounding: str) -> te.Tensor:
    x, round_ = call.source(0), ROUNDINGS.get(rounding)
    if round_ is None:
        raise NotLowered(f"rounding by {rounding}")
    places = [None if a is None else _fraction(a, round_) for a in axes]

    def element(*indices: Expr) -> Expr:
        return x(*(i if p is None else p(i) for i, p in zip(indices, places, strict=True)))

    return call.stage(call.shape, element)


def _fraction(axis: _Axis, round_: Callable[[Any], Any]) -> Callable[[Expr], Expr]:
    """The index of the nearest element: (i * a + b) // c, kept inside.

    Raises NotLowered where no small a, b and c give what floats do.
    """
    wanted = [_kept(round_(_exact(axis.place(i))), axis.size) for i in range(axis.result)]
    factor = _exact(axis.factor)
    for offset in (_exact(axis.offset), _exact(axis.offset) + Fraction(1, 2), Fraction(0)):
        c = factor.denominator * offset.denominator
        a, b = int(factor * c), int(offset * c)
        for bias in (b, b - 1, b + 1, b + c - 1):
            if [_kept((i * a + bias) // c, axis.size) for i in range(axis.result)] == wanted:
                return _quotient(a, bias, c, axis.size)
    raise NotLowered("a scale that is no small fraction")


def _quotient(a: int, b: int, c: int, size: int) -> Callable[[Expr], Expr]:
    return lambda i: _between(tirx.floordiv(i * a + b, c), size)


def _exact(value: float) -> Fraction:
    """The fraction that was meant by a float."""
    near = Fraction(value).limit_denominator(4096)
    return near if abs(near - Fraction(value)) < 1e-6 else Fraction(value)


def _kept(place: int, size: int) -> int:
    return min(max(place, 0), size - 1)


def _between(place: Expr, size: int) -> Expr:
    return te.max(te.min(place, tirx.const(size - 1, "int32")), tirx.const(0, "int32"))


def _linear(call: Call, axes: list[_Axis | None]) -> te.Tensor:
    x = call.source(0)

    def element(*indices: Expr) -> Expr:
        return _interpolated(call, [], list(zip(indices, axes, strict=True)), x)

    return call.stage(call.shape, element)


def _interpolated(call: Call, done: list[Expr], rest: list[tuple[Expr, _Axis | None]], x: Any) -> Expr:
    """Weighted sums of the two neighbours along each axis that is resized."""
    if not rest:
        return x(*done)
    (index, axis), *others = rest
    if axis is None:
        return _interpolated(call, [*done, index], others, x)
    place = index.astype("float64") * tirx.const(axis.factor, "float64") + tirx.const(axis.offset, "float64")
    place = te.max(te.min(place, tirx.const(axis.size - 1.0, "float64")), tirx.const(0.0, "float64"))
    below = place.astype("int32")
    weight = (place - below.astype("float64")).astype(call.dtype)
    low = _interpolated(call, [*done, below], others, x)
    high = _interpolated(call, [*done, te.min(below + 1, tirx.const(axis.size - 1, "int32"))], others, x)
    return low * (call.constant(1) - weight) + high * weight


LOWERINGS: Mapping[str, Lowering] = {"Resize": _resize}
