"""Winograd's minimal filters: the transforms of F(2x2, 3x3) and F(4x4, 3x3).

A tile of `size` x `size` outputs of a 3x3 convolution takes (size + 2)^2 multiplications per channel, not 9 size^2:

    Y = A^T ((G g G^T) * (B^T d B)) A

with the inputs d, the weights g, and * element by element (Lavin and Gray, Fast Algorithms for Convolutional Neural
Networks, CVPR 2016, section 4). Here B^T and A^T are written out in one dimension; G is applied to the constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

TAPS = 3
"""Elements of the filter in one dimension."""
Keep = Callable[[Any], Any]
"""Names an intermediate result, so that it is computed once."""
Transform = Callable[[Sequence[Any], Keep], list[Any]]
"""B^T or A^T times a vector."""


@dataclass(frozen=True)
class Filter:
    """F(size, 3) in one dimension, and how many vector operations B^T and A^T take.

    `weights` is G, which multiplies the constants.
    """

    size: int
    weights: tuple[tuple[float, ...], ...]
    input: Transform
    output: Transform
    input_operations: int
    output_operations: int

    @property
    def window(self) -> int:
        """Inputs of a tile in one dimension, and products."""
        return self.size + TAPS - 1

    @property
    def products(self) -> int:
        """Products per tile, channel and output."""
        return self.window**2


def _transform_inputs_of_6(d: Sequence[Any], keep: Keep) -> list[Any]:
    even, odd = keep(d[4] - 4.0 * d[2]), keep(d[3] - 4.0 * d[1])
    wide_even, wide_odd = keep(d[4] - d[2]), keep(d[3] - d[1])
    ends = [4.0 * d[0] - 5.0 * d[2] + d[4], 4.0 * d[1] - 5.0 * d[3] + d[5]]
    inner = [even + odd, even - odd, wide_even + 2.0 * wide_odd, wide_even - 2.0 * wide_odd]
    return [ends[0], *inner, ends[1]]


def _transform_products_of_6(m: Sequence[Any], keep: Keep) -> list[Any]:
    even, odd = keep(m[1] + m[2]), keep(m[1] - m[2])
    wide_even, wide_odd = keep(m[3] + m[4]), keep(m[3] - m[4])
    return [m[0] + even + wide_even, odd + 2.0 * wide_odd, even + 4.0 * wide_even, odd + 8.0 * wide_odd + m[5]]


FILTERS = (
    Filter(
        2,
        ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        lambda d, keep: [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]],
        lambda m, keep: [m[0] + m[1] + m[2], m[1] - m[2] - m[3]],
        4, 4,
    ),
    Filter(
        4,
        (
            (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
            (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1),
        ),
        _transform_inputs_of_6, _transform_products_of_6, 12, 10,
    ),
)  # fmt: skip
"""F(2x2, 3x3) and F(4x4, 3x3). Larger ones lose more digits than float32 has to spare."""


def filter_of(size: int) -> Filter:
    """The one with tiles of that size."""
    return next(filter for filter in FILTERS if filter.size == size)


def transform_tile(matrix: Sequence[Sequence[Any]], transform: Transform, keep: Keep) -> list[list[Any]]:
    """T D T^T of a matrix D, given by its rows; every element is kept."""
    columns = [[keep(value) for value in transform(column, keep)] for column in zip(*matrix, strict=True)]
    return [[keep(value) for value in transform(row, keep)] for row in zip(*columns, strict=True)]


@dataclass(frozen=True)
class WinogradWeights:
    """Transform the weights of parameter `parameter` for tiles of `size`, `columns` outputs at a time.

    W of shape [O, C, 3, 3] becomes (G g G^T)[o // columns * places + place, c, o % columns] with (size + 2)^2 places;
    of [O, C, K, 3, 3] the C channels of each step along the depth stand one step behind the other. `columns` divides
    the outputs. `with_direct`: behind them are the weights themselves, with 9 places.
    Calling it with the array returns the transformed one.
    """

    parameter: int
    size: int
    columns: int
    with_direct: bool = False

    def __call__(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array that the scheduled function reads, rounded once."""
        transformed = self._place(np.array(filter_of(self.size).weights), array)
        return np.concatenate([transformed, self._place(np.eye(TAPS), array)]) if self.with_direct else transformed

    def _place(self, left: NDArray[Any], array: NDArray[Any]) -> NDArray[Any]:
        outputs, channels, *depth = array.shape[:-2]
        steps = prod(depth)
        weights = np.moveaxis(array.astype(np.float64).reshape(outputs, channels, steps, TAPS, TAPS), 2, 1)
        weights = weights.reshape(outputs, steps * channels, TAPS, TAPS)
        both = np.einsum("xh,ochw,yw->xyco", left, weights, left, optimize=True)
        places = both.reshape(left.shape[0] ** 2, steps * channels, -1, self.columns).transpose(2, 0, 1, 3)
        return np.ascontiguousarray(places.reshape(-1, steps * channels, self.columns).astype(array.dtype))

    def packed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape after the transformation."""
        places = filter_of(self.size).products + (TAPS**2 if self.with_direct else 0)
        return (shape[0] // self.columns * places, prod(shape[1:-2]), self.columns)
