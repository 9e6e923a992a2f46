"""Products of matrices, and convolutions. The stage that multiplies is the anchor.

Its axes in a product: batch axes, row, column, and one reduced axis. In a convolution: batch, output channel,
positions; reduced: channel of a group (none if a group has one), kernel. Padding is a stage `..._pad` before it,
the bias one after it, each only if there is any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tvm import te, tirx

from . import floats
from .call import Expr, Lowering, NotLowered, Operand, TensorCall, broadcast, read, sizes
from .elementary import scale
from .extents import are_unequal, simplify
from .windows import Windows, pad_around

Multiply = Callable[[Expr, Expr], Expr]
"""The product of an element of each operand."""


def _matmul(call: TensorCall) -> te.Tensor:
    return multiply_matrices(call, call.source(0), call.source(1), floats.multiply)


def multiply_matrices(call: TensorCall, a: Operand, b: Operand, multiply: Multiply) -> te.Tensor:
    """The product of matrices, or of stacks of them; `multiply` takes an element of each operand."""
    depth, rows, columns = sizes(a)[-1], len(a.shape) > 1, len(b.shape) > 1
    if are_unequal(sizes(b)[-2 if columns else 0], depth):
        raise NotLowered("the matrices do not fit")
    (k,) = call.reduce_axes([depth])

    def element(*indices: Expr) -> Expr:
        batch = indices[: len(indices) - rows - columns]
        row, column = indices[len(batch) : len(batch) + rows], indices[len(indices) - columns :] if columns else ()
        stack = call.shape[: len(batch)]
        left = a(*broadcast(sizes(a)[: -len((*row, k))], batch, stack), *row, k.var)
        right = b(*broadcast(sizes(b)[: -len((k, *column))], batch, stack), k.var, *column)
        return te.sum(multiply(left, right), axis=k)

    return call.stage(call.shape, element, anchor=True)


def _gemm(call: TensorCall) -> te.Tensor:
    a, b, bias = call.source(0), call.source(1), call.optional(2)
    flip_a, flip_b = call.integer("transA", 0), call.integer("transB", 0)
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    (k,) = call.reduce_axes([sizes(a)[0 if flip_a else 1]])

    def product(i: Expr, j: Expr) -> Expr:
        left, right = a(k, i) if flip_a else a(i, k), b(j, k) if flip_b else b(k, j)
        return te.sum(floats.multiply(left, right), axis=k)

    def epilogue(i: Expr, j: Expr) -> Expr:
        value = scale(result(i, j), alpha)
        return value if bias is None else value + scale(read(bias, (i, j), call.shape), beta)

    is_plain = bias is None and alpha == 1.0
    result = call.stage(call.shape, product, "" if is_plain else "product", anchor=True)
    return result if is_plain else call.stage(call.shape, epilogue)


def _conv(call: TensorCall) -> te.Tensor:
    windows = Windows.of(call)
    shape = windows.padded_shape(sizes(call.source(0)), call.shape)
    x = pad_around(call, call.source(0), windows.begins(call), windows.after, call.constant(0), shape)
    return convolve(call, x, windows, floats.multiply, bias=call.optional(2))


def _conv_transpose(call: TensorCall) -> te.Tensor:
    """The result by phases of the strides, if there are any and the kernel has as many elements; else the convolution
    of the input, spread out by the strides, with the mirrored weights."""
    windows = Windows.of(call)
    fits = all(k >= s for k, s in zip(windows.kernel, windows.strides, strict=True))
    if max(windows.strides) > 1 and max(windows.dilations) == 1 and fits:
        return _convolve_phases(call, windows)
    single = replace(windows, strides=(1,) * len(windows.strides))
    return convolve(call, _spread(call, windows), single, floats.multiply, bias=call.optional(2), transposed=True)


def convolve(
    call: TensorCall,
    x: Operand,
    windows: Windows,
    multiply: Multiply,
    *,
    bias: Operand | None = None,
    transposed: bool = False,
) -> te.Tensor:
    """The anchor, and the bias added to it; `multiply` takes an element of the map, and one of the weights.
    If the operator is `transposed`, its weights are, too, and mirrored."""
    weights, group = call.source(1), call.integer("group", 1)
    first, second, *_ = call.numbers(1)
    channels, outputs = (first // group, second) if transposed else (second, first // group)
    if are_unequal(sizes(x)[1], group * channels):
        raise NotLowered("weights that do not fit the tensor")
    inner = call.reduce_axes([channels] if channels > 1 or group == 1 else [], "c")
    kernel = call.reduce_axes(windows.kernel)

    def element(n: Expr, o: Expr, *positions: Expr) -> Expr:
        own = inner[0].var if inner else 0
        number = o if outputs == 1 else o // outputs
        channel = own if group == 1 else number if channels == 1 else number * channels + own
        value = x(n, channel, *windows.places(positions, [k.var for k in kernel]))
        if transposed:
            mirrored = [size - 1 - k.var for k, size in zip(kernel, windows.kernel, strict=True)]
            weight = weights(channel, o if group == 1 else o % outputs, *mirrored)
        else:
            weight = weights(o, own, *kernel)
        return te.sum(multiply(value, weight), axis=[*inner, *kernel])

    result = call.stage(call.shape, element, "" if bias is None else "product", anchor=True)
    if bias is None:
        return result
    return call.stage(call.shape, lambda n, c, *rest: result(n, c, *rest) + bias(c))


def _convolve_phases(call: TensorCall, windows: Windows) -> te.Tensor:
    """For each phase r of the strides a convolution with every s-th element of the kernel; then one pixel of each.

        Z[n, r, q, o] += X[n, c, q + j + (r + m) // s] * W[c, o, (r + m) % s + s * (k/s - 1 - j)]
        Y[n, o, p] = Z[n, p % s, p // s, o]                                    (m is what the padding leaves of s)

    Both are written for one axis; there is a phase, and a place q, for each. If strides do not divide the kernel,
    zeros are behind it: sums over channels leave them out, others are short and read weights that are filled up.
    """
    x, weights, bias, group = call.source(0), call.source(1), call.optional(2), call.integer("group", 1)
    rank, strides = len(windows.strides), windows.strides
    shape = call.numbers(1)
    channels, outputs = shape[0] // group, shape[1]
    taps = [-(-k // s) for k, s in zip(windows.kernel, strides, strict=True)]
    left = [b % s for b, s in zip(windows.before, strides, strict=True)]
    places = [simplify((p + s - 1) // s) for p, s in zip(call.shape[2:], strides, strict=True)]
    before = [t - 1 - b // s for t, b, s in zip(taps, windows.before, strides, strict=True)]
    reach = [q + t - 1 + (m > 0) for q, t, m in zip(places, taps, left, strict=True)]
    after = [simplify(r - n - b) for r, n, b in zip(reach, sizes(x)[2:], before, strict=True)]
    padded = pad_around(call, x, before, after, call.constant(0))
    inner = call.reduce_axes([channels] if channels > 1 or group == 1 else [], "c")
    kernel = call.reduce_axes(taps)

    def filled(*indices: Expr) -> Expr:
        own, c, o = indices[:-2], *indices[-2:]
        inside = [tirx.LT(place, k) for place, k, s in zip(own, windows.kernel, strides, strict=True) if k % s]
        weight = weights(c, o, *own)
        return te.if_then_else(te.all(*inside), weight, call.constant(0)) if inside else weight

    lengths = [t * s for t, s in zip(taps, strides, strict=True)]
    is_short = channels == 1 and lengths != list(windows.kernel)
    long = call.stage((*lengths, *shape[:2]), filled, "weights") if is_short else filled

    def element(n: Expr, *indices: Expr) -> Expr:
        phases, places, o = indices[:rank], indices[rank:-1], indices[-1]
        within = inner[0].var if inner else 0
        number = o if outputs == 1 else o // outputs
        channel = within if group == 1 else number if channels == 1 else number * channels + within
        shifts = [0 if m == 0 else r if s == 2 else (r + m) // s for r, m, s in zip(phases, left, strides, strict=True)]
        # no `%`: TVM takes (x // 90 + 1) % 3 * 3 + (x % 90 // 30 + 1) % 3 of a fused loop for (x + 90) % 270 // 30
        starts = [
            r if m == 0 else 1 - r if s == 2 else tirx.truncmod(r + m, s)
            for r, m, s in zip(phases, left, strides, strict=True)
        ]
        taken = [b + s * (t - 1 - k.var) for b, s, t, k in zip(starts, strides, taps, kernel, strict=True)]
        read_at = [q + k.var + shift for q, k, shift in zip(places, kernel, shifts, strict=True)]
        weight = long(*taken, channel, o if group == 1 else o % outputs)
        return te.sum(padded(n, channel, *read_at) * weight, axis=[*inner, *kernel])

    result = call.stage((call.shape[0], *strides, *places, call.shape[1]), element, "phases", anchor=True)

    def pixel(n: Expr, c: Expr, *positions: Expr) -> Expr:
        phases = [p % s if s > 1 else 0 for p, s in zip(positions, strides, strict=True)]
        value = result(n, *phases, *(p // s for p, s in zip(positions, strides, strict=True)), c)
        return value if bias is None else value + bias(c)

    return call.stage(call.shape, pixel)


def _spread(call: TensorCall, windows: Windows) -> Operand:
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

    result: Operand = call.stage((*shape[:2], *extents), element, "spread")
    return result


LOWERINGS: Mapping[str, Lowering] = {
    "MatMul": _matmul, "Gemm": _gemm, "Conv": _conv, "ConvTranspose": _conv_transpose,
}  # fmt: skip
