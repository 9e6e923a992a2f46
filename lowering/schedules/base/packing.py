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
class Word:
    """`length` neighbours on an axis, or iterator, that one instruction multiplies and adds up in each lane."""

    axis: int
    length: int


@dataclass(frozen=True)
class Repack:
    """Cut `axis` of parameter `parameter` in tiles of `factor`, then order the axes (the tile's own axis comes last).

    With W of shape [N, K], axis 0, factor 16 and order (0, 1): W'[n // 16, k, n % 16]. If there is a `word` on an
    axis, neighbours on it, which a processor multiplies and adds up at once, are the innermost: with 4 on axis 1,
    W'[n // 16, k // 4, n % 16, k % 4]. Calling it with the array returns the packed one. If `factor` does not divide
    the axis, the last tile is the last `factor` elements, some of which are in the tile before too; `factor` is at most
    the axis.
    """

    parameter: int
    axis: int
    factor: int
    order: tuple[int, ...]
    word: Word | None = None

    @property
    def _cuts(self) -> dict[int, int]:
        """The sizes of the parts that axes are cut in, the innermost last."""
        return {self.axis: self.factor} | ({} if self.word is None else {self.word.axis: self.word.length})

    def __call__(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array in the layout that the scheduled function reads."""
        axis, extent = self.axis, array.shape[self.axis]
        starts = np.minimum(np.arange(0, extent, self.factor), extent - self.factor)
        cut = np.take(array, starts[:, None] + np.arange(self.factor), axis)
        where = [a if a <= axis else a + 1 for a in self.order]
        packed = cut.transpose(*where, axis + 1)
        if self.word is not None:
            place, length = self.order.index(self.word.axis), self.word.length
            shape = packed.shape
            words = packed.reshape(*shape[:place], shape[place] // length, length, *shape[place + 1 :])
            packed = np.moveaxis(words, place + 1, -1)
        return np.ascontiguousarray(packed)

    def index_map(self, *indices: Expression) -> list[Expression]:
        """The same as indices of TensorIR, for `transform_layout`."""
        sizes = self._cuts
        cut = [i // sizes[n] if n in sizes else i for n, i in enumerate(indices)]
        return [*(cut[a] for a in self.order), *(indices[n] % size for n, size in sizes.items())]

    def packed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape after packing."""
        sizes = self._cuts
        cut = [-(-extent // sizes[n]) if n in sizes else extent for n, extent in enumerate(shape)]
        return (*(cut[a] for a in self.order), *sizes.values())


Packing = Repack | WinogradWeights | RecurrentWeights
"""How a constant is packed: a value that compares and hashes."""
