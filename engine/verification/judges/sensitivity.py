"""Which differences rounding explains, element by element.

A model runs in float64 several times, its numbers rounded at random (`rounding.py`). An element that moves by a large
part of its range is silent: no value of a candidate can be judged at these inputs. It is the sine of a large number,
the index of one of two equal scores, or a value that was gathered by such an index. Any other element may be off by a
few times as much as it moves. If even the number of elements changes, like that of boxes whose overlap is at the limit,
the whole output is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runs.compare import Tolerance, distances, to_double
from ..runs.values import RunError, Value, layout, leaves
from .quantization import Steps, measure_distance
from .rounding import Extent

Array = NDArray[Any]

MARGIN = 4.0
"""An element may be off by this many times the farthest that it moved: few draws seldom find the farthest."""
SILENT_SHARE = 0.1
"""An element that moves by this part of the range of an output, and by more than the tolerance, is silent."""
_FEWEST_DRAWS = 4
_MOST_DRAWS = 16
"""More draws than the fewest are made while that explains more elements, or few are left."""
_FEW_LEFT = 16
"""As few unexplained elements may belong to ties whose order no draw has changed yet."""


@dataclass
class Sensitivity:
    """How far the outputs of one run of a model move. `draw` runs it by a seed, the numbers of `extent` rounded, and
    `exact` are its outputs without rounding."""

    exact: Mapping[str, Value]
    draw: Callable[[int], Mapping[str, Value]]
    extent: Extent

    def __post_init__(self) -> None:
        self._draws = 0
        self._moves: dict[str, list[Array]] = {}
        self._effects: dict[str, Steps] = {}
        self._changes_layout: set[str] = set()

    def explains(self, name: str, far: Sequence[Array], silent_at: Sequence[Array]) -> bool:
        """Whether rounding explains how `far` an output is off; 0 stands for elements with nothing to explain.

        Both have an array for each of the output's. Elements that move by more than `silent_at` are silent.
        """
        left: list[int] = []
        for draws in range(1, _MOST_DRAWS + 1):
            self._draw(draws)
            moves, silent = self._moves_of(name), self.silent(name, silent_at)
            unexplained = (
                (distance > MARGIN * move) & ~quiet for distance, move, quiet in zip(far, moves, silent, strict=True)
            )
            left.append(sum(map(np.count_nonzero, unexplained)))
            if not left[-1]:
                return True
            if draws > _FEWEST_DRAWS and left[-1] == left[-_FEWEST_DRAWS] and left[-1] > _FEW_LEFT:
                break
        return False

    def explains_overall(self, name: str, expected: Value, actual: Value) -> bool:
        """Whether two floats are no farther apart than rounding moves the output, at the worst element and in the root
        mean square."""
        self._draw(_FEWEST_DRAWS)
        effect = self._effects.get(name)
        is_float = all(leaf.dtype.kind not in "OUSbiu" for leaf in leaves(expected))
        return effect is not None and is_float and effect.allow(expected, actual)

    def effect(self, name: str) -> Steps:
        """How far an output moves at its worst element, and in the root mean square."""
        self._draw(_FEWEST_DRAWS)
        return self._effects.get(name, Steps(0.0, 0.0))

    def silent(self, name: str, silent_at: Sequence[Array]) -> list[Array]:
        """The silent elements of each array of an output."""
        if name in self._changes_layout:
            return [np.ones(leaf.shape, bool) for leaf in leaves(self.exact[name])]
        return [np.asarray(move > limit) for move, limit in zip(self._moves_of(name), silent_at, strict=True)]

    def _moves_of(self, name: str) -> list[Array]:
        return self._moves.get(name) or [np.zeros(leaf.shape) for leaf in leaves(self.exact[name])]

    def explains_layout(self, name: str) -> bool:
        """Whether rounding changes the number or the shapes of an output's arrays."""
        for draws in range(1, _FEWEST_DRAWS + 1):
            self._draw(draws)
            if name in self._changes_layout:
                return True
        return False

    def _draw(self, count: int) -> None:
        """Make sure that there are this many draws. One on which the original does not run does not count."""
        while self._draws < count:
            try:
                outputs = self.draw(self._draws)
            except RunError:
                outputs = {}
            self._draws += 1
            for name, value in outputs.items():
                if name in self.exact:
                    self._note(name, value)

    def _note(self, name: str, value: Value) -> None:
        exact = self.exact[name]
        if not has_shapes_of(value, exact):
            self._changes_layout.add(name)
            return
        moved = [distances_of(one, other) for one, other in zip(leaves(exact), leaves(value), strict=True)]
        self._moves[name] = [np.maximum(*pair) for pair in zip(self._moves_of(name), moved, strict=True)]
        effect = measure_distance(exact, value)
        if effect is not None:
            self._effects[name] = effect.worst(self._effects.get(name, effect))


def silence_of(expected: Value, tolerance: Tolerance, spread: float | None, *, chooses: bool = False) -> list[Array]:
    """The moves at which an element of an output is silent, for each of its arrays.

    The range of an output is how far it moves between inputs, or the root mean square of its elements. If the model
    `chooses` by values, an element that moves by more than the tolerance may be another one, however near that is.
    """
    share = 0.0 if chooses else SILENT_SHARE
    return [_silence_of(leaf, tolerance, spread, share) for leaf in leaves(expected)]


def _silence_of(array: Array, tolerance: Tolerance, spread: float | None, share: float) -> Array:
    limit = tolerance.limit(array, spread)
    if array.dtype.kind in "OUSbiu":
        return limit
    numbers = np.abs(to_double(array))
    finite = numbers[np.isfinite(numbers)]
    extent = spread if spread is not None else float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    return np.asarray(np.maximum(limit, share * extent))


def distances_of(one: Array, other: Array) -> Array:
    """The distance of each pair of elements; for text 1 if it differs."""
    if "O" in (one.dtype.kind, other.dtype.kind) or one.dtype.kind in "US":
        return np.asarray(one != other, np.float64)
    return distances(to_double(one), to_double(other))


def has_shapes_of(one: Value, other: Value) -> bool:
    """Whether two values are arrays of the same shapes."""
    return [shape for shape, _ in layout(one)] == [shape for shape, _ in layout(other)]
