"""A rule tested near the ends of float types: an intermediate result of its right side may overflow, or round to zero,
although the left side stays an ordinary number.

The numbers of extended precision stand for the reals. Both sides are computed in it twice, the second time with every
result of an operator held to a range: the left side to magnitudes that are harmless for the type, the right side to the
full range of the type. So only range can make a difference, and rounding never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ....ir.operators import Array, Unsupported
from ..sampling.conditions import Value
from ..sampling.elements import SIGNS, draw, pick, satisfy_facts
from ..sampling.evaluation import Elements, Evaluation, is_float
from ..sampling.hits import Hit
from ..sampling.near_ties import computes_more
from ..sampling.samples import Sample
from ..sampling.scratch import Fired
from .numeric import Counterexample, blank_counterexample
from .onnx_oracle import Oracle

LEAVES_RANGE = "the right side leaves the range of"
"""The beginning of the reason for which this test refutes a rule."""
_EXACT = 1e-6
"""Relative error up to which results of extended precision are the same number."""
_NEAR = 0.05
"""Relative error up to which a result of a float type has not lost its number to the range."""
_DRAWS = 40
"""Choices of elements for a sample and a type."""
_FEW = 2
"""How many small samples are tried, and how many large ones."""
_ORDINARY_EXPONENTS = (-4.0, 7.0)
"""Exponents of two of the numbers that most functions are written for."""
_END = 1 / 12
"""Share of the exponents, at either end of their range, that count as those of small and of large numbers."""
_SHARE_OF_ORDINARY = 0.2
"""Share of operands that have numbers with ordinary exponents, whatever the other operands have."""


@dataclass(frozen=True)
class FloatRange:
    """Magnitudes of a float type at which a rule is tried, as exponents of two.

    `inputs` are the magnitudes of inputs, `results` those of all results of the left side, and `weights` says how far
    the weights of a model are from 1. A number that becomes zero is lost if it is at least `least_loss`. At most
    `operands` operands at a time have any magnitude, the others an ordinary one.
    """

    dtype: str
    inputs: tuple[int, int]
    results: tuple[int, int]
    least_loss: int
    weights: int
    operands: int

    @property
    def least(self) -> float:
        """The least positive number of the type."""
        return float(np.finfo(self.dtype).smallest_subnormal)

    @property
    def end(self) -> float:
        """The first power of two that is too large for the type."""
        return 2.0 * float(2.0 ** np.floor(np.log2(float(np.finfo(self.dtype).max))))


ORDINARY = (
    FloatRange("float32", inputs=(-80, 54), results=(-116, 100), least_loss=-36, weights=5, operands=2),
    FloatRange("float16", inputs=(-9, 7), results=(-9, 11), least_loss=-9, weights=2, operands=2),
)
"""From shares of a softmax to products of long sums, as operators make them from inputs of any size. The product of two
such inputs is finite, so that factors may change places. bfloat16 has the range of float32; no model comes near the
ends of float64."""
NEARLY_ALL = (
    FloatRange("float32", inputs=(-116, 118), results=(-116, 118), least_loss=-116, weights=5, operands=99),
    FloatRange("float16", inputs=(-9, 11), results=(-9, 11), least_loss=-9, weights=2, operands=99),
)
"""All numbers that are a factor of 2^10, for float16 of 2^5, away from the smallest number of full precision and from
the largest."""


class HeldEvaluation(Evaluation):
    """An evaluation whose results are infinite from `high` on, and zero below `low`."""

    low: float = 0.0
    high: float = np.inf
    in_every_order: bool = False

    def hold(self, low: float, high: float, in_every_order: bool = False) -> None:
        """Hold all further results to a range; with `in_every_order`, also partial products of a long product in any
        order."""
        self.low, self.high, self.in_every_order = low, high, in_every_order
        self._computed.clear()

    def _compute(self, head: str, arguments: list[Elements | Value]) -> Elements:
        value = super()._compute(head, arguments)
        if head == "ReduceProd" and self.in_every_order and is_float(value):  # type: ignore[arg-type]
            return self._held_product(value, arguments)
        return tuple(map(self._held, value)) if isinstance(value, tuple) else self._held(value)

    def _held_product(self, product: Any, arguments: list[Any]) -> Array:
        """The product if no order of multiplication leaves the range, since ONNX prescribes no order; else zero or
        infinity."""
        size, ones = np.abs(arguments[0]), np.ones_like(arguments[0])
        largest, least = (
            super(HeldEvaluation, self)._compute("ReduceProd", [part(size, ones), *arguments[1:]])
            for part in (np.maximum, np.minimum)
        )
        held = np.where(least < self.low, 0, product)  # type: ignore[operator]
        return np.where(largest >= self.high, np.inf, held)  # type: ignore[operator]

    def _held(self, array: Any) -> Any:
        if array is None or not is_float(array):
            return array
        size = np.abs(array)
        return np.where(size >= self.high, np.copysign(np.inf, array), np.where(size < self.low, 0 * array, array))


def find_lost_number(
    hits: Sequence[Hit], random: np.random.Generator, ranges: Sequence[FloatRange] = ORDINARY
) -> Counterexample | None:
    """Elements in `ranges` for which the right side of a rule loses a number that the left side keeps.

    ONNX Runtime has to lose it, too; if that has no kernel, numpy alone decides.
    """
    fired = ((hit.sample, hit.outcome) for hit in smallest_and_largest(hits) if isinstance(hit.outcome, Fired))
    chosen = [(sample, outcome) for sample, outcome in fired if computes_more(sample, outcome)]
    for bounds in ranges:
        for sample, outcome in chosen:
            if not _has_constants_within(sample, bounds):
                continue
            for number in range(_DRAWS):
                elements = _elements(sample, bounds, random, apart=number % 2 == 0)
                with np.errstate(all="ignore"):
                    found = _compare(sample, outcome, elements, bounds)
                if found is not None:
                    return found
    return None


def smallest_and_largest(hits: Sequence[Hit]) -> list[Hit]:
    """The smallest samples, which show best why a rule is wrong, and the largest, which try many numbers at a time,
    among those with the most inputs."""

    def size(hit: Hit) -> int:
        return sum(prod(leaf.type.shape) for leaf in hit.sample.named_leaves)

    def has_floats(hit: Hit) -> bool:
        usual = not hit.sample.is_empty and not hit.sample.outgrows
        return usual and any(leaf.type.dtype == "float32" for leaf in hit.sample.named_leaves)

    def count_inputs(hit: Hit) -> int:
        return len({leaf.name for leaf in hit.sample.leaves if leaf.kind == "Var"})

    candidates = list(filter(has_floats, hits))
    most = max(map(count_inputs, candidates), default=0)
    ordered = sorted((hit for hit in candidates if count_inputs(hit) == most), key=size)
    return [*ordered[:_FEW], *ordered[max(_FEW, len(ordered) - _FEW) :]]


def _has_constants_within(sample: Sample, bounds: FloatRange) -> bool:
    """Whether the constants of one number are not much farther from 1 than weights, or zero."""
    numbers = [abs(leaf.type.value or 0.0) for leaf in sample.leaves if leaf.kind == "Full"]
    farthest = 4.0**bounds.weights
    return all(n == 0 or 1 / farthest <= n <= farthest for n in numbers)


def _elements(sample: Sample, bounds: FloatRange, random: np.random.Generator, apart: bool) -> dict[str, Array]:
    """Numbers of one magnitude for each operand, or `apart` for each element. Those of a draw are all small, all large,
    some of either, or anything between."""
    low, high = bounds.inputs
    small, large = (low, low + (high - low) * _END), (high - (high - low) * _END, high)
    sides = ((small,), (large,), (small, large), ((low, high),))[random.integers(4)]
    extremes = 0
    floats = [leaf for leaf in sample.named_leaves if leaf.type.dtype == "float32"]
    elements = draw(sample, "ordinary", {}, random) if len(floats) < len(sample.named_leaves) else {}
    for place in random.permutation(len(floats)):
        leaf = floats[place]
        if leaf.kind == "Weight":
            side: tuple[float, float] = (-bounds.weights, bounds.weights)
        elif extremes >= bounds.operands or random.random() < _SHARE_OF_ORDINARY:
            side = _ORDINARY_EXPONENTS
        else:
            extremes += 1
            side = sides[random.integers(len(sides))]
        exponents = random.uniform(*side, leaf.type.shape if apart else ())
        signs = pick(SIGNS, leaf.type.shape, random)
        numbers = (signs * 2.0**exponents * random.uniform(0.75, 1.25, leaf.type.shape)).astype(bounds.dtype)
        elements[leaf.name] = satisfy_facts(numbers.astype(np.longdouble), leaf)
    return elements


def _compare(sample: Sample, fired: Fired, elements: dict[str, Array], bounds: FloatRange) -> Counterexample | None:
    wide = {"float32": "longdouble"}
    held = HeldEvaluation(sample, fired, elements, wide)
    held.hold(2.0 ** bounds.results[0], 2.0 ** bounds.results[1], in_every_order=True)
    try:
        held.left_sides()
        held.hold(bounds.least, bounds.end)
        seen = list(held.comparisons())
        losses = [_losses(pair.left, pair.right, bounds) for pair in seen]
        if not any(lost.any() for lost in losses):
            return None
        real = list(Evaluation(sample, fired, elements, wide).comparisons())
    except Unsupported:
        return None
    for index, (pair, truth, lost) in enumerate(zip(seen, real, losses, strict=True)):
        if truth.root < 0 or not lost.any():
            continue
        kept = np.abs(truth.left - pair.left) <= _EXACT * np.abs(truth.left)
        equal = np.abs(truth.left - truth.right) <= _NEAR * np.abs(truth.left)
        places = lost & kept & equal
        found = _confirm(sample, fired, elements, bounds, index, truth.left, places) if places.any() else None
        if found is not None:
            return found
    return None


def _losses(left: Array, right: Array, bounds: FloatRange) -> Array:
    """For each element whether the left side is a number, and the right side another one, or none."""
    if not is_float(left) or left.shape != right.shape:
        return np.zeros(left.shape, bool)
    counts = ~np.isfinite(right) | (np.abs(left) >= 2.0**bounds.least_loss)
    return np.asarray(np.isfinite(left) & counts & ~(np.abs(left - right) <= _NEAR * np.abs(left)))


def _confirm(
    sample: Sample,
    fired: Fired,
    elements: dict[str, Array],
    bounds: FloatRange,
    index: int,
    real: Array,
    lost: Array,
) -> Counterexample | None:
    """The counterexample, if ONNX Runtime computes the left side in the float type, and loses the right side."""
    narrow = {n: a.astype(bounds.dtype) if is_float(a) else a for n, a in elements.items()}
    evaluation = Evaluation(sample, fired, narrow, {"float32": bounds.dtype})
    try:
        pair = list(evaluation.comparisons())[index]
    except Unsupported:
        return None
    oracle = Oracle(sample, fired)
    theirs = oracle.sides(evaluation, pair)
    sides = [mine if its is None else its for mine, its in zip((pair.left, pair.right), theirs, strict=True)]
    near = [np.abs(side.astype(np.longdouble) - real) <= _NEAR * np.abs(real) for side in sides]
    places = np.argwhere(lost & near[0] & ~near[1])
    if not len(places):
        return None
    at = tuple(map(int, places[0]))
    reason = f"{LEAVES_RANGE} {bounds.dtype} although the left side stays far inside it: the rule is approx"
    blank = blank_counterexample(evaluation, reason)
    where = f"[{', '.join(map(str, at))}]"
    return replace(blank, where=where, left=str(sides[0][at]), right=str(sides[1][at]))
