"""Sliding windows over the spatial axes of a tensor, for convolutions and poolings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .arithmetic import Array, Unsupported

WINDOWED_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
"""The pools whose windows slide."""


def reach_in_padding(op: str, kernel: int, dilation: int) -> int:
    """How far a window reaches where SAME padding is counted: ONNX Runtime leaves the dilations of pools out, which
    ONNX counts. It runs no convolution with both."""
    return kernel if op in WINDOWED_POOLS else (kernel - 1) * dilation + 1


def padded(x: Array, pads: Sequence[int], fill: Array) -> Array:
    """The tensor with `pads` (all begins, then all ends, of the spatial axes) of a scalar around it."""
    spatial = x.ndim - 2
    if any(p < 0 for p in pads):
        raise Unsupported("negative padding")
    around = [(0, 0), (0, 0), *((pads[i], pads[spatial + i]) for i in range(spatial))]
    if not any(any(pair) for pair in around):
        return x
    result = np.empty([n + a + b for n, (a, b) in zip(x.shape, around, strict=True)], x.dtype)
    result[...] = fill
    result[tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, around, strict=True))] = x
    return result


def windows(x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """Every window: (batch, channels, positions..., kernel...). Raises Unsupported if none fits."""
    if min((*kernel, *strides, *dilations)) < 1:
        raise Unsupported("kernels, strides and dilations are positive")
    counts = [
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)
    ]
    if min(counts) < 1:
        raise Unsupported("the window is larger than the tensor")
    shape = (*x.shape[:2], *counts, *kernel)
    steps = x.strides[2:]
    outer = (n * s for n, s in zip(steps, strides, strict=True))
    inner = (n * d for n, d in zip(steps, dilations, strict=True))
    return np.lib.stride_tricks.as_strided(x, shape, (*x.strides[:2], *outer, *inner), writeable=False)


def positions(
    size: int, kernel: int, before: int, after: int, stride: int, dilation: int, ceil: bool
) -> tuple[int, int]:
    """How many windows there are along an axis, and how much padding the last one needs at the end."""
    room = size + before + after - (dilation * (kernel - 1) + 1)
    count = (-(-room // stride) if ceil else room // stride) + 1
    if ceil and (count - 1) * stride >= size + before:
        count -= 1
    return count, max(after, (count - 1) * stride + dilation * (kernel - 1) + 1 - size - before)
