"""Constants that a schedule wants in another layout, packed once when the module is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compute.recurrent_tiling import RecurrentWeights
from .nodes import Expression
from .winograd_filters import WinogradWeights


@dataclass(frozen=True)
class Repack:
    """Cut `axis` of parameter `parameter` in tiles of `factor`, then order the axes (the tile's own axis comes last).

    With W of shape [N, K], axis 0, factor 16 and order (0, 1): W'[n // 16, k, n % 16].
    Calling it with the array returns the packed one. If `factor` does not divide the axis, the last tile is the
    last `factor` elements, some of which are in the tile before too; `factor` is at most the axis.
    """

    parameter: int
    axis: int
    factor: int
    order: tuple[int, ...]

    def __call__(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array in the layout that the scheduled function reads."""
        axis, extent = self.axis, array.shape[self.axis]
        starts = np.minimum(np.arange(0, extent, self.factor), extent - self.factor)
        cut = np.take(array, starts[:, None] + np.arange(self.factor), axis)
        where = [a if a <= axis else a + 1 for a in self.order]
        return np.ascontiguousarray(cut.transpose(*where, axis + 1))

    def index_map(self, *indices: Expression) -> list[Expression]:
        """The same as indices of TensorIR, for `transform_layout`."""
        cut = [i // self.factor if n == self.axis else i for n, i in enumerate(indices)]
        return [*(cut[a] for a in self.order), indices[self.axis] % self.factor]

    def packed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape after packing."""
        cut = [-(-extent // self.factor) if n == self.axis else extent for n, extent in enumerate(shape)]
        return (*(cut[a] for a in self.order), self.factor)


Packing = Repack | WinogradWeights | RecurrentWeights
"""How a constant is packed: a value that compares and hashes."""
