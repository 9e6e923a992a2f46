"""Elements beside the places at which a decision flips: neighbouring numbers that rounding decides about.

Near ties of usual numbers only find flips at these numbers. Bisection finds the flips of any sample, whatever its
constants are: it starts with two draws about which an operator decides differently, and ends with two neighbouring
numbers about which it still does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from ....ir.operators import Array, Unsupported
from ..sampling.elements import Range, draw, satisfy_facts
from ..sampling.evaluation import Evaluation, is_float
from ..sampling.near_ties import jumps
from ..sampling.samples import Sample
from ..sampling.scratch import Fired

ENDS: tuple[Range, ...] = ("ordinary", "ordinary", "large", "large")
"""How elements are drawn; every two of these draws are the ends of a bisection."""
FEW_ENDS: tuple[Range, ...] = ("ordinary", "large", "large")
"""The same for a rule with many samples of a kind."""
_STEPS = 80
"""Halvings at most: enough to reach neighbouring numbers of float64, unless these are near zero."""
_NEIGHBOURS = 4
"""Choices of elements beside each flip."""
_FARTHEST = 2
"""Distance of elements from a flip at most, in units of their last bit."""


def beside_flips(
    sample: Sample, fired: Fired, dtypes: dict[str, str], random: np.random.Generator, ends: Sequence[Range] = ENDS
) -> Iterator[dict[str, Array]]:
    """Elements for every leaf beside flips of operators of the left side, between each two draws of the ranges `ends`;
    `dtypes` renames element types."""

    def decide(elements: dict[str, Array]) -> Array | None:
        """The decisions of all operators that decide; None if an operator has no meaning."""
        evaluation = Evaluation(sample, fired, elements, dtypes)
        try:
            with np.errstate(all="ignore"):
                evaluation.left_sides()
        except Unsupported:
            return None
        decided = [evaluation.terms[t] for t in evaluation.terms if jumps(t.head, t.arguments)]
        return np.concatenate([np.zeros(0), *(np.ravel(each).astype(float) for each in decided)])  # type: ignore[arg-type]

    leaves = {leaf.name: leaf for leaf in sample.named_leaves}
    drawn = [draw(sample, kind, dtypes, random) for kind in ends]
    starts = [{n: each[n] if is_float(array) else array for n, array in drawn[0].items()} for each in drawn]
    decided = [(each, decisions) for each in starts if (decisions := decide(each)) is not None]
    for (low, before), (high, after) in combinations(decided, 2):
        places = np.flatnonzero(before != after) if before.shape == after.shape else ()
        if not len(places):
            continue
        place = random.choice(places)
        for _ in range(_STEPS):
            middle = {n: satisfy_facts(_between(array, high[n]), leaves[n]) for n, array in low.items()}
            if all(np.all((array == low[n]) | (array == high[n])) for n, array in middle.items()):
                break
            now = decide(middle)
            if now is None or now.shape != before.shape:
                break
            with np.errstate(invalid="ignore"):  # decisions may be infinite
                is_low = abs(now[place] - before[place]) <= abs(now[place] - after[place])
            if is_low:
                low = middle
            else:
                high = middle
        yield from (low, high)
        for _ in range(_NEIGHBOURS):
            yield {n: satisfy_facts(_beside(array, random), leaves[n]) for n, array in low.items()}


def _between(low: Array, high: Array) -> Array:
    return np.asarray((low / 2 + high / 2).astype(low.dtype)) if is_float(low) else low


def _beside(array: Array, random: np.random.Generator) -> Array:
    if not is_float(array):
        return array
    steps = random.integers(-_FARTHEST, _FARTHEST, array.shape, endpoint=True).astype(array.dtype)
    return np.asarray(array + steps * np.spacing(array))
