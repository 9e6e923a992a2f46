"""How the loops of a recurrent network are cut, and how they want the recurrent weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.operators.recurrent import RecurrentCell


@dataclass(frozen=True)
class Pass:
    """One pass over the units of a step: the first of its gates and how many, and the vectors of a tile."""

    first: int
    gates: int
    vectors: int = 1


@dataclass(frozen=True)
class StateWords:
    """How units of a state that is rounded to bytes are multiplied: `length` neighbours at once, of the type `dtype`.

    Their integers are those of bytes without a sign less `shift`.
    """

    length: int = 1
    dtype: str = "uint8"
    shift: int = 0

    def padded(self, hidden: int) -> int:
        """The units of whole words."""
        return -(-hidden // self.length) * self.length


@dataclass(frozen=True)
class RecurrenceTiling:
    """Register tiles of `rows` of the batch by vectors of `lanes` units, in each of the `passes`.

    `shared`: threads share the "directions", or the "units" of each step, or nothing. `words`: how rounded states are
    multiplied; None if states are not rounded.
    """

    passes: tuple[Pass, ...]
    rows: int = 1
    lanes: int = 1
    shared: str = ""
    words: StateWords | None = None

    @property
    def word(self) -> int:
        """Units of a state that are multiplied at once."""
        return 1 if self.words is None else self.words.length

    def columns(self, number: int) -> int:
        """Units of a tile of a pass."""
        return self.passes[number].vectors * self.lanes


def list_passes(cell: RecurrentCell) -> tuple[Pass, ...]:
    """The passes of a step, with one vector to a tile."""
    if cell.kind == "GRU" and not cell.linear_before_reset:
        return (Pass(0, 2), Pass(2, 1))
    return (Pass(0, cell.gates),)


@dataclass(frozen=True)
class RecurrentWeights:
    """How a schedule wants recurrent weights [directions, gates * hidden, hidden], which are parameter `parameter`.

    Pass by pass, tile by tile, the weights of a tile's gates and units stand together for each word of the state:
    [directions, (pass, tile, word, gate, unit, unit of the word)]. A word is one unit but for rounded states, whose
    weights are [directions, hidden, gates * hidden]. The last tile overlaps the one before.
    """

    parameter: int
    hidden: int
    tiling: RecurrenceTiling

    def __call__(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array in the layout that the scheduled function reads."""
        word = self.tiling.word
        if self.tiling.words is not None:
            array = array.transpose(0, 2, 1)
        by_gate = array.reshape(len(array), -1, self.hidden, self.hidden)
        by_gate = np.pad(by_gate, ((0, 0),) * 3 + ((0, self.depth - self.hidden),))
        parts = []
        for number, each in enumerate(self.tiling.passes):
            columns = self.tiling.columns(number)
            starts = np.minimum(np.arange(0, self.hidden, columns), self.hidden - columns)
            units = starts[:, None] + np.arange(columns)
            tiles = by_gate[:, each.first : each.first + each.gates][:, :, units]  # d, gate, tile, unit, k
            words = tiles.reshape(*tiles.shape[:-1], -1, word)
            parts.append(words.transpose(0, 2, 4, 1, 3, 5).reshape(len(array), -1))
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    @property
    def depth(self) -> int:
        """Units of the state in whole words."""
        return self.hidden if self.tiling.words is None else self.tiling.words.padded(self.hidden)

    def offset(self, number: int) -> int:
        """Elements of a direction in front of a pass."""
        passes = enumerate(self.tiling.passes[:number])
        return sum(self.tiles(n) * self.depth * each.gates * self.tiling.columns(n) for n, each in passes)

    def tiles(self, number: int) -> int:
        """Tiles of a pass."""
        return -(-self.hidden // self.tiling.columns(number))

    def packed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape after packing."""
        return (shape[0], self.offset(len(self.tiling.passes)))
