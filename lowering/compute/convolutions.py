"""Convolutions. The anchor's axes: batch, output channel, positions; reduced: channel of a group (none where a group
has one), kernel. Padding is a stage `..._pad` before it, the bias one after it, each only where there is any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import te, tirx

from .call import Call, Expr, Lowering, NotLowered, Source, sizes
from .windows import Windows, padded


def _conv(call: Call) -> te.Tensor:
    windows, weights = Windows.of(call), call.source(1)
    x = padded(call, call.source(0), windows.before, windows.after, call.constant(0))
    group = call.integer("group", 1)
    channels, outputs = sizes(weights)[1], sizes(weights)[0] // group
    _check(sizes(x)[1] == group * channels)
    inner = call.reduce_axes([channels] if channels > 1 or group == 1 else [], "c")
    kernel = call.reduce_axes(windows.kernel)

    def element(n: Expr, o: Expr, *positions: Expr) -> Expr:
        channel = _channel(o, outputs, channels, group, inner[0].var if inner else 0)
        seen = x(n, channel, *windows.places(positions, [k.var for k in kernel]))
        return te.sum(seen * weights(o, inner[0].var if inner else 0, *kernel), axis=[*inner, *kernel])

    return _biased(call, element)


def _channel(output: Expr, outputs: int, channels: int, group: int, inner: Expr) -> Expr:
    """The channel that an output channel reads: number `inner` of its group."""
    if group == 1:
        return inner
    number = output if outputs == 1 else output // outputs
    return number if channels == 1 else number * channels + inner


def _check(fits: bool) -> None:
    if not fits:
        raise NotLowered("weights that do not fit the tensor")


def _biased(call: Call, element: Callable[..., Expr]) -> te.Tensor:
    """The anchor, and the bias added to it."""
    bias = call.optional(2)
    result = call.stage(call.shape, element, "" if bias is None else "product", anchor=True)
    if bias is None:
        return result
    return call.stage(call.shape, lambda n, c, *rest: result(n, c, *rest) + bias(c))


def _conv_transpose(call: Call) -> te.Tensor:
    """The convolution of the input, spread out by the strides, with the mirrored weights."""
    windows, weights = Windows.of(call), call.source(1)
    group = call.integer("group", 1)
    channels, outputs = sizes(weights)[0] // group, sizes(weights)[1]
    _check(sizes(call.source(0))[1] == group * channels)
    spread = _spread(call, windows)
    inner = call.reduce_axes([channels] if channels > 1 or group == 1 else [], "c")
    kernel = call.reduce_axes(windows.kernel)

    def element(n: Expr, o: Expr, *positions: Expr) -> Expr:
        channel = _channel(o, outputs, channels, group, inner[0].var if inner else 0)
        axes = zip(positions, kernel, windows.dilations, strict=True)
        seen = spread(n, channel, *(p + k.var * d for p, k, d in axes))
        mirrored = [size - 1 - k.var for k, size in zip(kernel, windows.kernel, strict=True)]
        return te.sum(seen * weights(channel, o if group == 1 else o % outputs, *mirrored), axis=[*inner, *kernel])

    return _biased(call, element)


def _spread(call: Call, windows: Windows) -> Source:
    """The input with zeros between its elements, and as many around it as the windows need."""
    x = call.source(0)
    shape = sizes(x)
    reach = [d * (k - 1) for k, d in zip(windows.kernel, windows.dilations, strict=True)]
    before = [r - b for r, b in zip(reach, windows.before, strict=True)]
    extents = [n + r for n, r in zip(call.shape[2:], reach, strict=True)]

    def element(n: Expr, c: Expr, *positions: Expr) -> Expr:
        places = [p - b for p, b in zip(positions, before, strict=True)]
        conditions = []
        for place, size, stride in zip(places, shape[2:], windows.strides, strict=True):
            conditions += [tirx.GE(place, 0), tirx.LT(place, (size - 1) * stride + 1)]
            conditions += [tirx.EQ(tirx.floormod(place, stride), 0)] if stride > 1 else []
        inside = [tirx.floordiv(p, s) for p, s in zip(places, windows.strides, strict=True)]
        return te.if_then_else(te.all(*conditions), x(n, c, *inside), call.constant(0))

    result: Source = call.stage((*shape[:2], *extents), element, "spread")
    return result


LOWERINGS: Mapping[str, Lowering] = {"Conv": _conv, "ConvTranspose": _conv_transpose}
