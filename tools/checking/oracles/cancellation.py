"""A rule tested for cancellation: its right side may lose all digits of a number that its left side keeps.

``2 sigmoid(2 x) - 1`` is tanh(x) over the real numbers, but zero in float32 if x is 1e-8. Inputs of any magnitude show
this, drawn for each operand apart from the others: if numbers of different operands happen to be nearly equal, they
cancel in any sum whose order changes, which is no reason to refuse a rule. The elements of one operand are nearly equal
in some draws: the mean of squares less the square of the mean is their variance, but not in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ....ir.operators import Array, Unsupported
from ..sampling.conditions import Value
from ..sampling.elements import SIGNS, draw, pick, satisfy_facts
from ..sampling.evaluation import Elements, Evaluation, is_float
from ..sampling.hits import Hit
from ..sampling.near_ties import computes_more, rounds
from ..sampling.samples import Sample
from ..sampling.scratch import Fired
from .extremes import HeldEvaluation, smallest_and_largest
from .numeric import Counterexample, blank_counterexample
from .onnx_oracle import Oracle

_CANCELS = "the right side loses all digits by cancellation although the left side keeps them"
"""The reason for which this test refutes a rule."""
_DRAWS = 36
"""Choices of elements for a sample, for each of which the elements of an operand lie otherwise."""
_DEVIATIONS = (-14.0, -7.0)
"""Exponents of two: how far the elements of an operand deviate from a common number, relative to it, in some draws."""
_EXPONENTS = (-27.0, 20.0)
"""Exponents of two of inputs: from numbers whose square vanishes beside 1 in float32, up to a million."""
_ORDINARY = (-4.0, 5.0)
"""Exponents of two of inputs of ordinary size."""
_WEIGHTS = (-5.0, 5.0)
"""Exponents of two of stored constants: weights of models are rarely smaller or larger."""
_SPREAD = 1.0
"""How far the exponents of one operand lie apart if they are of one magnitude."""
_LOST = 0.05
"""Relative error: a result this far from the real number has lost its digits."""
_KEPT = 0.002
"""Relative error: a result this near to the real number has kept its digits, however its operators round."""
_LEAST = {"real": 2.0**-36, "approx": 2.0**-6}
"""The smallest number whose digits the right side has to keep, by the rule's claim."""
_FARTHEST = 100
"""Exponent of two: numbers between its power and the reciprocal of that are far from the ends of float32's range."""
_TRIALS = 4
"""How often the left side is rounded at random."""
_ROUNDINGS = (0.25, 0.5)
"""How far an operator rounds, as a share of the distance between numbers. Errors of one size would cancel out."""


@dataclass(kw_only=True)
class _RoundedEvaluation(Evaluation):
    """An evaluation in extended precision whose operators round like float32, to either side at `random`."""

    random: np.random.Generator

    def _compute(self, head: str, arguments: list[Elements | Value]) -> Elements:
        value = super()._compute(head, arguments)
        if not rounds(head):
            return value
        return tuple(map(self._round, value)) if isinstance(value, tuple) else self._round(value)

    def _round(self, array: Any) -> Any:
        if array is None or not is_float(array):
            return array
        share = pick(SIGNS, array.shape, self.random) * self.random.uniform(*_ROUNDINGS, array.shape)
        return array * (1 + np.finfo(np.float32).eps * share)


def find_cancellation(hits: Sequence[Hit], sound: str, random: np.random.Generator) -> Counterexample | None:
    """Elements for which the right side of a rule loses a number by cancellation that the left side keeps.

    ONNX Runtime or ONNX's reference has to lose the same element, too, and to keep it on the left: ONNX Runtime's own
    Sigmoid keeps few digits of small results, and the reference's LogSoftmax is the logarithm of zeros. If neither has
    a kernel, numpy alone decides.
    """
    for hit in smallest_and_largest(hits):
        if not isinstance(hit.outcome, Fired) or not computes_more(hit.sample, hit.outcome):
            continue
        for number in range(_DRAWS):
            elements = _elements(hit.sample, random, _SPREADS[number % len(_SPREADS)])
            with np.errstate(all="ignore"):
                found = _compare(hit.sample, hit.outcome, elements, sound, random)
            if found is not None:
                return found
    return None


_Spread = Literal["of any magnitude", "of one magnitude", "of ordinary magnitude", "nearly equal"]
"""How the elements of an operand lie apart. Exponentials of some element are out of range in most draws of any
magnitude, so that only ordinary ones show what a Sigmoid loses."""
_SPREADS: tuple[_Spread, ...] = (
    "of any magnitude", "of one magnitude", "of ordinary magnitude",
    "of any magnitude", "of one magnitude", "nearly equal",
)  # fmt: skip


def _elements(sample: Sample, random: np.random.Generator, spread: _Spread) -> dict[str, Array]:
    """Numbers whose magnitudes differ between operands; those of one operand lie apart by `spread`. Weights are never
    nearly equal."""
    is_of_floats = all(leaf.type.dtype == "float32" for leaf in sample.named_leaves)
    elements = {} if is_of_floats else draw(sample, "ordinary", {}, random)
    for leaf in sample.named_leaves:
        if leaf.type.dtype == "float32":
            low, high = _WEIGHTS if leaf.kind == "Weight" else _EXPONENTS
            if spread == "nearly equal" and leaf.kind != "Weight":
                common = random.choice((-1.0, 1.0)) * 2.0 ** random.uniform(low, high)
                deviations = 2.0 ** random.uniform(*_DEVIATIONS) * random.uniform(-1.0, 1.0, leaf.type.shape)
                numbers = common * (1.0 + deviations)
            else:
                if spread == "of ordinary magnitude":
                    low, high = _ORDINARY
                elif spread == "of one magnitude":
                    low = random.uniform(low, high)
                    high = low + _SPREAD
                signs = pick(SIGNS, leaf.type.shape, random)
                numbers = signs * 2.0 ** random.uniform(low, high, leaf.type.shape)
            elements[leaf.name] = satisfy_facts(np.asarray(numbers, np.float32), leaf)
    return elements


def _compare(
    sample: Sample, fired: Fired, elements: dict[str, Array], sound: str, random: np.random.Generator
) -> Counterexample | None:
    evaluation = Evaluation(sample, fired, elements, {})
    try:
        seen = list(evaluation.comparisons())
        suspects = [index for index, pair in enumerate(seen) if pair.root >= 0 and _differ(pair.left, pair.right).any()]
        if not suspects:
            return None
        wide = {n: a.astype(np.longdouble) if a.dtype == np.float32 else a for n, a in elements.items()}
        exact = Evaluation(sample, fired, wide, {"float32": "longdouble"})
        real = list(exact.comparisons())
        if not all(map(_is_in_range, exact.left if sound == "real" else exact.intermediate)):
            return None
        names = {"float32": "longdouble"}
        held = HeldEvaluation(sample, fired, wide, names)
        held.hold(2.0**-_FARTHEST, 2.0**_FARTHEST, in_every_order=True)
        stable = [held, *(_RoundedEvaluation(sample, fired, wide, names, random=random) for _ in range(_TRIALS))]
        for each in stable:
            each.left_sides()
    except Unsupported:
        return None
    for index in suspects:
        pair, truth = seen[index], real[index]
        kept = _differ(pair.left, pair.right) & (np.abs(truth.left) >= _LEAST[sound])
        kept &= _is_near(truth.right, truth.left, _KEPT)
        for each in stable:
            kept &= _is_near(each.value(sample.roots[pair.root]), truth.left, _KEPT)
        if not kept.any():
            continue
        oracle = Oracle(sample, fired)
        for by_standard in (False, True):
            theirs = oracle.sides(evaluation, pair, by_standard=by_standard)
            left, right = (m if its is None else its for m, its in zip((pair.left, pair.right), theirs, strict=True))
            places = np.argwhere(kept & _is_near(left, truth.left, _KEPT) & ~_is_near(right, truth.left, _LOST))
            if not len(places):
                continue
            at = tuple(map(int, places[0]))
            blank = blank_counterexample(evaluation, f"{_CANCELS} (float32)")
            where = f"[{', '.join(map(str, at))}]"
            return replace(blank, where=where, left=str(left[at]), right=str(right[at]))
    return None


def _is_in_range(array: Array) -> bool:
    """Whether no element comes near the ends of the range of float32."""
    size = np.abs(array)
    return not is_float(array) or bool(np.all((size < 2.0**_FARTHEST) & ((size > 2.0**-_FARTHEST) | (size == 0))))


def _differ(left: Array, right: Array) -> Array:
    if left.dtype != np.float32 or left.shape != right.shape:
        return np.zeros(left.shape, bool)
    return np.asarray(~_is_near(right, left, _LOST / 2))


def _is_near(array: Any, real: Array, share: float) -> Array:
    return np.asarray(np.abs(array - real) <= share * np.abs(real))
