"""Operators for the float64 oracle that read images between their pixels, all places at once: GridSample and
DeformConv. onnx's own loop over elements in Python, a millisecond for each, and round places to float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun

from ....ir.operators.resize import CUBIC_COEFFICIENT

Array = NDArray[Any]

_NO_PLACE = 2.0**61
"""Pixels from which on a place is nowhere, as a NaN is; ONNX Runtime takes the first border there."""


@dataclass(frozen=True)
class _Axis:
    """How places along one axis of an image of `size` pixels are read."""

    size: int
    mode: str
    padding: str
    is_aligned: bool

    def place(self, said: Array) -> Array:
        """The places in pixels of coordinates from -1 to 1: of the middles of the outer pixels if that `is_aligned`,
        else of their borders."""
        said = np.where(np.abs(said) < _NO_PLACE, said, -1.0)
        return (said + 1) / 2 * (self.size - 1) if self.is_aligned else ((said + 1) * self.size - 1) / 2

    def taps(self, place: Array) -> list[tuple[Array, Array]]:
        """The pixels that are read, and the weight of each, which is 0 for one outside of the image."""
        place = np.rint(place) if self.mode == "nearest" else place
        place = self._reflect(place) if self.padding == "reflection" else place
        below = np.clip(np.floor(place), -_NO_PLACE, _NO_PLACE).astype(np.int64)
        part = place - below
        if self.mode == "nearest":
            return [self._tap(below, np.ones_like(part))]
        if self.mode == "cubic":
            return [self._tap(below + n, _cubic_weight(np.abs(part - n))) for n in (-1, 0, 1, 2)]
        return [self._tap(below, 1 - part), self._tap(below + 1, part)]

    def _tap(self, index: Array, weight: Array) -> tuple[Array, Array]:
        if self.padding == "reflection":
            index = np.trunc(self._reflect(index.astype(np.float64))).astype(np.int64)
        is_inside = (index >= 0) & (index < self.size) if self.padding == "zeros" else True
        return np.clip(index, 0, self.size - 1), np.where(is_inside, weight, 0.0)

    def _reflect(self, place: Array) -> Array:
        """Places mirrored at the borders until they are within."""
        first, last = (0.0, self.size - 1.0) if self.is_aligned else (-0.5, self.size - 0.5)
        if first == last:
            return np.zeros_like(place)
        turned = np.mod(place - first, 2 * (last - first))
        mirrored = first + np.minimum(turned, 2 * (last - first) - turned)
        return np.where((place < first) | (place > last), mirrored, place)


def _cubic_weight(distance: Array) -> Array:
    """The weight of a pixel at that distance, with the coefficient of a Resize (Keys, IEEE TASSP 1981, equation 4)."""
    a = CUBIC_COEFFICIENT
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, far)


def _read(images: Array, taps: Sequence[Sequence[tuple[Array, Array]]]) -> Array:
    """The [N, C, ...] values of images [N, C, axes] at places [N, ...], which have taps for each axis."""
    shape = taps[0][0][0].shape
    batch = np.arange(len(images)).reshape(-1, *[1] * (len(shape) - 1))
    total = np.zeros((*shape, images.shape[1]))
    for corner in product(*taps):
        place: tuple[Any, ...] = (batch, slice(None), *(index for index, _ in corner))
        values = images[place]
        total += values * prod(weight for _, weight in corner)[..., np.newaxis]  # type: ignore[index]
    return np.moveaxis(total, -1, 1)


class GridSample(OpRun):
    """GridSample in every mode, over any number of axes."""

    op_domain = ""

    def _run(
        self, x: Array, grid: Array, mode: str | None = None, padding_mode: str | None = None, align_corners: int = 0
    ) -> tuple[Array]:
        if 0 in x.shape or 0 in grid.shape:
            return (np.zeros((*x.shape[:2], *grid.shape[1:-1])),)
        own = (mode or "linear").removeprefix("bi")  # opset 16 calls them bilinear and bicubic
        axes = [_Axis(size, own, padding_mode or "zeros", bool(align_corners)) for size in x.shape[2:]]
        said = np.moveaxis(grid[..., ::-1], -1, 0)
        return (_read(x, [axis.taps(axis.place(each)) for axis, each in zip(axes, said, strict=True)]),)


class DeformConv(OpRun):
    """DeformConv of images with two axes."""

    op_domain = ""

    def _run(
        self, x: Array, weights: Array, offset: Array, bias: Array | None = None, mask: Array | None = None,
        dilations: Sequence[int] | None = None, group: int | None = None, kernel_shape: Sequence[int] | None = None,
        offset_group: int | None = None, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
    ) -> tuple[Array]:  # fmt: skip
        if x.ndim != 4:
            raise NotImplementedError(f"DeformConv of {x.ndim - 2} axes")
        groups, shares = group or 1, offset_group or 1
        kernel, sizes = tuple(kernel_shape or weights.shape[2:]), offset.shape[2:]
        offsets = offset.reshape(len(x), shares, *kernel, 2, *sizes)
        masks = np.ones((1, 1, *kernel, 1, 1)) if mask is None else mask.reshape(len(x), shares, *kernel, *sizes)
        axes = [_Axis(size, "linear", "zeros", is_aligned=True) for size in x.shape[2:]]
        starts = [
            np.arange(count) * step - before
            for count, step, before in zip(sizes, strides or (1, 1), (pads or (0, 0))[:2], strict=True)
        ]
        columns = np.empty((len(x), x.shape[1], *kernel, *sizes))
        channels = x.shape[1] // shares
        for share, row, column in product(range(shares), *map(range, kernel)):
            places = [
                start.reshape(-1, *[1] * (1 - axis)) + at * by + offsets[:, share, row, column, axis]
                for axis, (start, at, by) in enumerate(zip(starts, (row, column), dilations or (1, 1), strict=True))
            ]
            own = slice(share * channels, (share + 1) * channels)
            read = _read(x[:, own], [axis.taps(place) for axis, place in zip(axes, places, strict=True)])
            columns[:, own, row, column] = read * masks[:, share % masks.shape[1], row, column][:, np.newaxis]
        parts = zip(np.split(columns, groups, 1), np.split(weights, groups), strict=True)
        result = np.concatenate([np.einsum("nckl...,ockl->no...", part, own) for part, own in parts], 1)
        return (result if bias is None else result + bias[:, np.newaxis, np.newaxis],)
