"""GridSample: each pixel of the result is read where the grid says, between the pixels around that place.

All channels of a pixel have the same place and weights, so vectors run along the channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from tvm import te, tirx

from .call import Expr, Lowering, NotLowered, TensorCall, sizes
from .extents import Extent, as_number
from .layout import keep_inside

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


LOWERINGS: Mapping[str, Lowering] = {"GridSample": _grid_sample}
