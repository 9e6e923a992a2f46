"""Products of matrices and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ..index_maps import (
    Index,
    IndexMaps,
    OperandMap,
    OperatorCall,
    Quotient,
    Reduction,
    Remainder,
    aligned_map,
    mixing_maps,
    sum_of,
)
from ..operation import Operation
from .arithmetic import Arithmetic, Array, Unsupported, floats_only
from .schema import Family
from .windows import padded, windows

Ints = tuple[int, ...]


def matmul(arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    """ONNX's MatMul: (..., m, k) and (..., k, n) to (..., m, n). Raises Unsupported if the shapes do not fit."""
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise Unsupported("the matrices do not fit")
    return arithmetic.matmul(a, b)


def gemm(
    arithmetic: Arithmetic, a: Array, b: Array, c: Array | None, alpha: float, beta: float, ta: int, tb: int
) -> Array:
    """alpha * a b + beta * c of matrices, a and b transposed if `ta` and `tb` say so.

    Raises Unsupported if the shapes do not fit.
    """
    if a.ndim != 2 or b.ndim != 2:
        raise Unsupported("Gemm takes matrices")
    product = matmul(arithmetic, a.T if ta else a, b.T if tb else b)
    result = scaled(arithmetic, product, alpha)
    if c is None:
        return result
    total = arithmetic.apply("add", result, scaled(arithmetic, c, beta))
    if total.shape != result.shape:
        raise Unsupported("the third operand of Gemm widens the product")
    return total


def scaled(arithmetic: Arithmetic, x: Array, factor: float) -> Array:
    """The elements times a number."""
    return x if factor == 1.0 else arithmetic.apply("multiply", x, arithmetic.constant(factor, x))


def _add_bias(arithmetic: Arithmetic, x: Array, bias: Array | None) -> Array:
    if bias is None:
        return x
    if bias.shape != (x.shape[1],):
        raise Unsupported("the bias has one value for each channel")
    return arithmetic.apply("add", x, bias.reshape((-1, *(1,) * (x.ndim - 2))))


def conv(
    arithmetic: Arithmetic,
    x: Array,
    w: Array,
    b: Array | None,
    kernel: Ints,
    pads: Ints,
    strides: Ints,
    dilations: Ints,
    group: int,
) -> Array:
    """ONNX's Conv: x (n, c, ...), w (o, c / group, *kernel) and a bias (o,) to (n, o, ...).

    Raises Unsupported if the shapes do not fit.
    """
    floats_only(x)
    return _add_bias(arithmetic, convolve(arithmetic, x, w, kernel, pads, strides, dilations, group), b)


def convolve(
    arithmetic: Arithmetic, x: Array, w: Array, kernel: Ints, pads: Ints, strides: Ints, dilations: Ints, group: int
) -> Array:
    """A convolution of elements of any type, without a bias. Raises Unsupported if the shapes do not fit."""
    spatial = x.ndim - 2
    fits = w.ndim == x.ndim and spatial > 0 and w.shape[2:] == tuple(kernel) and len(pads) == 2 * spatial
    if not fits or x.shape[1] != group * w.shape[1] or w.shape[0] % group:
        raise Unsupported("the weights do not fit")
    seen = windows(padded(x, pads, arithmetic.constant(0, x)), kernel, strides, dilations)
    return _convolve(arithmetic, seen, w, group)


def _convolve(arithmetic: Arithmetic, seen: Array, w: Array, group: int) -> Array:
    spatial = w.ndim - 2
    batch, channels, size = seen.shape[0], seen.shape[1] // group, seen.shape[2 : 2 + spatial]
    # (batch, group, positions, channels of a group x kernel) @ (group, channels x kernel, outputs of a group)
    split = seen.reshape((batch, group, channels, *seen.shape[2:]))
    order = (0, 1, *range(3, 3 + spatial), 2, *range(3 + spatial, 3 + 2 * spatial))
    depth = channels * prod(w.shape[2:])
    rows = split.transpose(order).reshape((batch, group, prod(size), depth))
    columns = w.reshape((group, w.shape[0] // group, depth)).transpose(0, 2, 1)
    product = arithmetic.matmul(rows, columns)
    return product.transpose(0, 1, 3, 2).reshape((batch, w.shape[0], *size))


def _conv_transpose(
    arithmetic: Arithmetic,
    x: Array,
    w: Array,
    b: Array | None,
    kernel: Ints,
    pads: Ints,
    strides: Ints,
    dilations: Ints,
    extra: Ints,
    group: int,
) -> Array:
    """The convolution of the input, spread out by the strides, with the mirrored weights."""
    spatial = x.ndim - 2
    floats_only(x)
    fits = w.ndim == x.ndim and spatial > 0 and w.shape[2:] == tuple(kernel) and len(pads) == 2 * spatial
    if not fits or x.shape[1] != w.shape[0] or w.shape[0] % group:
        raise Unsupported("the weights do not fit")
    if min((*x.shape[2:], *strides, *dilations)) < 1 or min((*pads, *extra)) < 0:
        raise Unsupported("an empty tensor, or negative settings")
    if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        raise Unsupported("the output padding is as large as the stride")
    spread = np.empty((*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], strides, strict=True))), x.dtype)
    spread[...] = arithmetic.constant(0.0, x)
    spread[(slice(None), slice(None), *(slice(None, None, s) for s in strides))] = x
    reach = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
    before = [r - pads[i] for i, r in enumerate(reach)]
    after = [r - pads[spatial + i] + extra[i] for i, r in enumerate(reach)]
    around = _widen(spread, before, after, arithmetic.constant(0.0, x))
    mirrored = w[(slice(None), slice(None), *(slice(None, None, -1),) * spatial)]
    ins, outs = w.shape[0] // group, w.shape[1]
    swapped = mirrored.reshape((group, ins, outs, *kernel)).swapaxes(1, 2).reshape((group * outs, ins, *kernel))
    seen = windows(around, kernel, (1,) * spatial, dilations)
    return _add_bias(arithmetic, _convolve(arithmetic, seen, swapped, group), b)


def _widen(x: Array, before: Sequence[int], after: Sequence[int], fill: Array) -> Array:
    """Padding of which some may be negative: then elements are removed."""
    whole = padded(x, [*(max(0, p) for p in before), *(max(0, p) for p in after)], fill)
    cuts = [slice(max(0, -a), n - max(0, -b)) for n, a, b in zip(whole.shape[2:], before, after, strict=True)]
    if any(c.stop <= c.start for c in cuts):
        raise Unsupported("nothing is left of the tensor")
    return whole[(slice(None), slice(None), *cuts)]


def is_convolution(op: str) -> bool:
    """Whether an operator is a convolution, and not a transposed one."""
    return op in ("Conv", "ConvInteger")


def depth(operation: Operation) -> int:
    """The number of terms in the sum for one element of the result of a product of matrices or a convolution."""
    if is_convolution(operation.op):
        weight = operation.operand(1)
        return max(1, weight.elements // max(1, weight.dimensions[0])) if weight.dimensions else 1
    dimensions = operation.operand(0).dimensions
    if not dimensions:
        return 1
    return max(1, dimensions[0] if operation.integer("transA", 0) else dimensions[-1])


def _product_flops(operation: Operation) -> float:
    bias = 1 if operation.operand(2).elements else 0
    scaled = 1 if operation.attributes.get("alpha", 1.0) != 1.0 else 0
    return float(operation.output.elements * (2 * depth(operation) + bias + scaled))


def _transposed_convolution_flops(operation: Operation) -> float:
    weight = operation.operand(1)
    taps = weight.elements // max(1, weight.dimensions[0]) if weight.dimensions else 1
    bias = operation.output.elements if operation.operand(2).elements else 0
    return float(2 * operation.operand(0).elements * taps + bias)


def matmul_maps(call: OperatorCall) -> IndexMaps:
    """An operand of one axis has no rows, or no columns, and neither has the result."""
    left, right, axes = call.data, call.operand(1) or (), call.axes
    rows, columns = int(len(left) > 1), int(len(right) > 1)
    batch, summed = axes[: len(axes) - rows - columns], Reduction(len(axes), left[-1])
    first = (*aligned_map(left[:-2], batch), *axes[len(batch) : len(batch) + rows], summed)
    return IndexMaps(axes, (first, (*aligned_map(right[:-2], batch), summed, *axes[len(axes) - columns :])))


def _gemm_maps(call: OperatorCall) -> IndexMaps | None:
    axes = call.axes
    if len(call.data) != 2 or len(axes) != 2:
        return None
    summed = Reduction(2, call.data[0 if call.integer("transA", 0) else 1])
    left: OperandMap = (summed, axes[0]) if call.integer("transA", 0) else (axes[0], summed)
    right: OperandMap = (axes[1], summed) if call.integer("transB", 0) else (summed, axes[1])
    addend = call.operand(2)
    return IndexMaps(axes, (left, right, None if addend is None else aligned_map(addend, axes)))


def convolution_maps(call: OperatorCall) -> IndexMaps:
    """The channels of a group are summed, and the places under the window."""
    weight, axes = call.operand(1) or (), call.axes
    group, rank = max(1, call.integer("group", 1)), len(axes)
    channel = Reduction(rank, weight[1])
    window = tuple(Reduction(rank + 1 + place, extent) for place, extent in enumerate(weight[2:]))
    channels: Index = channel
    if group > 1:
        channels = sum_of(0, (weight[1], Quotient(axes[1], weight[0] // group)), (1, channel))
        if weight[1] == 1 and weight[0] == group:
            channels = axes[1]
    data = (axes[0], channels, *window_positions(call, window))
    return IndexMaps(axes, (data, (axes[1], channel, *window), *((axes[1:2],) if call.operand(2) is not None else ())))


def window_positions(call: OperatorCall, window: Sequence[Reduction]) -> tuple[Index, ...]:
    """``stride * place + dilation * tap - pad`` along each spatial axis, for the taps of a window."""
    ones, spatial = (1,) * len(window), len(window)
    strides, dilations = call.integers("strides") or ones, call.integers("dilations") or ones
    pads = call.integers("pads") or (0,) * 2 * spatial
    return tuple(
        sum_of(-pads[place], (strides[place], axis), (dilations[place], tap))
        for place, (axis, tap) in enumerate(zip(call.axes[2:], window, strict=True))
    )


def _transposed_convolution_maps(call: OperatorCall) -> IndexMaps:
    """``(place + pad - dilation * tap) / stride``: only places without a remainder are read."""
    weight, axes, rank = call.operand(1) or (), call.axes, len(call.axes)
    ones, spatial = (1,) * (rank - 2), rank - 2
    strides, dilations = call.integers("strides") or ones, call.integers("dilations") or ones
    pads = call.integers("pads") or (0,) * 2 * spatial
    group = max(1, call.integer("group", 1))
    channel = Reduction(rank, weight[0] // group)
    window = tuple(Reduction(rank + 1 + place, extent) for place, extent in enumerate(weight[2:]))
    channels: Index = channel
    filters: Index = axes[1]
    if group > 1:
        channels = sum_of(0, (channel.extent, Quotient(axes[1], weight[1])), (1, channel))
        filters = Remainder(axes[1], weight[1])
    places = tuple(
        Quotient(sum_of(pads[n], (1, axis), (-dilations[n], tap)), strides[n])
        for n, (axis, tap) in enumerate(zip(axes[2:], window, strict=True))
    )
    operands: tuple[OperandMap, ...] = ((axes[0], channels, *places), (channels, filters, *window))
    return IndexMaps(axes, (*operands, *((axes[1:2],) if call.operand(2) is not None else ())))


_linear = Family("linear", mixing_maps)

OPERATORS = (
    _linear("MatMul", "A B", matmul, index_maps=matmul_maps, flops=_product_flops, is_total=True, takes_stacks=True),
    _linear(
        "Gemm",
        "A B C? | alpha:f64=1.0 beta:f64=1.0 transA:i64=0 transB:i64=0",
        gemm,
        index_maps=_gemm_maps,
        flops=_product_flops,
    ),
    _linear(
        "Conv",
        "X W B? | kernel_shape:Ints pads:Ints strides:Ints dilations:Ints group:i64=1",
        conv,
        index_maps=convolution_maps,
        flops=_product_flops,
        weights_at=1,
        is_total=True,
    ),
    _linear(
        "ConvTranspose",
        "X W B? | kernel_shape:Ints pads:Ints strides:Ints dilations:Ints output_padding:Ints group:i64=1",
        _conv_transpose,
        index_maps=_transposed_convolution_maps,
        flops=_transposed_convolution_flops,
    ),
    *_linear.hidden("QLinearConv", weights_at=3),
    *_linear.hidden("Einsum QLinearMatMul"),
)
