"""Products of matrices and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from .arithmetic import Arithmetic, Array, Unsupported, floats_only
from .windows import padded, windows

Ints = tuple[int, ...]


def _matmul(arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise Unsupported("the matrices do not fit")
    return arithmetic.matmul(a, b)


def _gemm(
    arithmetic: Arithmetic, a: Array, b: Array, c: Array | None, alpha: float, beta: float, ta: int, tb: int
) -> Array:
    if a.ndim != 2 or b.ndim != 2:
        raise Unsupported("Gemm takes matrices")
    product = _matmul(arithmetic, a.T if ta else a, b.T if tb else b)
    result = _scaled(arithmetic, product, alpha)
    if c is None:
        return result
    total = arithmetic.apply("add", result, _scaled(arithmetic, c, beta))
    if total.shape != result.shape:
        raise Unsupported("the third operand of Gemm widens the product")
    return total


def _scaled(arithmetic: Arithmetic, x: Array, factor: float) -> Array:
    return x if factor == 1.0 else arithmetic.apply("multiply", x, arithmetic.constant(factor, x))


def _biased(arithmetic: Arithmetic, x: Array, bias: Array | None) -> Array:
    if bias is None:
        return x
    if bias.shape != (x.shape[1],):
        raise Unsupported("the bias has one value for each channel")
    return arithmetic.apply("add", x, bias.reshape((-1, *(1,) * (x.ndim - 2))))


def _conv(
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
    floats_only(x)
    spatial = x.ndim - 2
    fits = w.ndim == x.ndim and spatial > 0 and w.shape[2:] == tuple(kernel) and len(pads) == 2 * spatial
    if not fits or x.shape[1] != group * w.shape[1] or w.shape[0] % group:
        raise Unsupported("the weights do not fit")
    seen = windows(padded(x, pads, arithmetic.constant(0.0, x)), kernel, strides, dilations)
    return _biased(arithmetic, _convolved(arithmetic, seen, w, group), b)


def _convolved(arithmetic: Arithmetic, seen: Array, w: Array, group: int) -> Array:
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
    around = _widened(spread, before, after, arithmetic.constant(0.0, x))
    mirrored = w[(slice(None), slice(None), *(slice(None, None, -1),) * spatial)]
    ins, outs = w.shape[0] // group, w.shape[1]
    swapped = mirrored.reshape((group, ins, outs, *kernel)).swapaxes(1, 2).reshape((group * outs, ins, *kernel))
    seen = windows(around, kernel, (1,) * spatial, dilations)
    return _biased(arithmetic, _convolved(arithmetic, seen, swapped, group), b)


def _widened(x: Array, before: Sequence[int], after: Sequence[int], fill: Array) -> Array:
    """Padding of which some may be negative: then elements are cut off."""
    whole = padded(x, [*(max(0, p) for p in before), *(max(0, p) for p in after)], fill)
    cuts = [slice(max(0, -a), n - max(0, -b)) for n, a, b in zip(whole.shape[2:], before, after, strict=True)]
    if any(c.stop <= c.start for c in cuts):
        raise Unsupported("nothing is left of the tensor")
    return whole[(slice(None), slice(None), *cuts)]


MEANINGS: dict[str, Callable[..., Any]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
}
