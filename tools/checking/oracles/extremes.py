"""A rule tested near the ends of float types: what its right side computes on the way may overflow, or round to zero,
where the left side stays an ordinary number.

The numbers of extended precision stand for the reals. Both sides are computed in it, once as they are and once with
every result of an operator held to the range of a type: the left side to the range without a margin at each end, the
right side to all of it. So nothing but range can make a difference, and rounding never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ....ir.operators import Array, Unsupported
from ..drawing.elements import draw, named_leaves, satisfy_facts
from ..drawing.evaluation import Elements, Evaluation, is_float
from ..drawing.hits import Hit
from ..drawing.left_side import Value
from ..drawing.samples import Sample
from ..drawing.scratch import Fired
from .numeric import Counterexample, blank_counterexample
from .onnx_oracle import Oracle

LEAVES_RANGE = "the right side leaves the range of"
"""How the reason begins why a rule is refuted here."""
_EXACT = 1e-6
"""Relative: results of extended precision this near are the same number."""
_NEAR = 0.05
"""Relative: a result of a float type this near to the real one has not lost its number to the range."""
_DRAWS = 40
"""Choices of elements for a sample and a type."""
_FEW = 2
"""Small samples that are tried, and large ones."""
_ORDINARY = (-4.0, 7.0)
"""Exponents of two of the numbers that most functions are written for."""


@dataclass(frozen=True)
class FloatRange:
    """The positive numbers of a float type: the least, the least of full precision, and the first that is too large.

    `margin` is the power of two by which the left side has to stay away from either end; weights of a model are drawn
    within its root around 1.
    """

    dtype: str
    margin: int

    @property
    def least(self) -> float:
        """The least positive number."""
        return float(np.finfo(self.dtype).smallest_subnormal)

    @property
    def low(self) -> float:
        """The least number that the left side may compute."""
        return float(np.finfo(self.dtype).tiny) * 2.0**self.margin

    @property
    def high(self) -> float:
        """The first number that is too large for the left side."""
        return self.end / 2.0**self.margin

    @property
    def end(self) -> float:
        """The first power of two that is too large for the type."""
        return 2.0 * float(2.0 ** np.floor(np.log2(float(np.finfo(self.dtype).max))))


RANGES = (FloatRange("float32", 10), FloatRange("float16", 5))
"""bfloat16 has the range of float32; that of float64 is as much wider as nothing computes."""


class _HeldEvaluation(Evaluation):
    """An evaluation whose results are infinite from `high` on, and zero below `low`."""

    low: float = 0.0
    high: float = np.inf

    def hold(self, low: float, high: float) -> None:
        """Hold what is computed from now on to a range."""
        self.low, self.high = low, high

    def _apply(self, head: str, arguments: list[Elements | Value]) -> Elements:
        value = super()._apply(head, arguments)
        return tuple(map(self._held, value)) if isinstance(value, tuple) else self._held(value)

    def _held(self, array: Any) -> Any:
        if array is None or not is_float(array):
            return array
        size = np.abs(array)
        return np.where(size >= self.high, np.copysign(np.inf, array), np.where(size < self.low, 0 * array, array))


def find_lost_number(hits: Sequence[Hit], random: np.random.Generator) -> Counterexample | None:
    """Elements for which the right side of a rule loses a number to the range of a float type that the left side keeps.

    It has to be lost in ONNX Runtime, too, or in numpy where that has no kernel.
    """
    chosen = _smallest_and_largest(hits)
    for bounds in RANGES:
        for hit in chosen:
            if not (isinstance(hit.outcome, Fired) and _has_constants_within(hit.sample, bounds)):
                continue
            for number in range(_DRAWS):
                elements = _elements(hit.sample, bounds, random, apart=number % 2 == 0)
                with np.errstate(all="ignore"):
                    found = _compare(hit.sample, hit.outcome, elements, bounds)
                if found is not None:
                    return found
    return None


def _smallest_and_largest(hits: Sequence[Hit]) -> list[Hit]:
    """Small samples, which say most where a rule is wrong, and large ones, which try many numbers at a time, of those
    in which the most leaves may have any magnitude."""

    def size(hit: Hit) -> int:
        return sum(prod(leaf.type.shape) for leaf in named_leaves(hit.sample))

    def has_floats(hit: Hit) -> bool:
        return not hit.sample.is_empty and any(leaf.type.dtype == "float32" for leaf in named_leaves(hit.sample))

    def count_inputs(hit: Hit) -> int:
        return len({leaf.name for leaf in hit.sample.leaves() if leaf.kind == "Var"})

    candidates = list(filter(has_floats, hits))
    most = max(map(count_inputs, candidates), default=0)
    ordered = sorted((hit for hit in candidates if count_inputs(hit) == most), key=size)
    return [*ordered[:_FEW], *ordered[max(_FEW, len(ordered) - _FEW) :]]


def _has_constants_within(sample: Sample, bounds: FloatRange) -> bool:
    """Whether the constants of one number are as near to 1 as the type's margin, or zero."""
    numbers = [abs(leaf.type.value or 0.0) for leaf in sample.leaves() if leaf.kind == "Full"]
    return all(n == 0 or 2.0**-bounds.margin <= n <= 2.0**bounds.margin for n in numbers)


def _elements(sample: Sample, bounds: FloatRange, random: np.random.Generator, apart: bool) -> dict[str, Array]:
    """Numbers of any magnitude within the margin, for each operand its own, or `apart` for each element; weights of a
    model are nearer to 1."""
    low, high = np.log2(bounds.low), np.log2(bounds.high)
    elements = draw(sample, "ordinary", {}, random)
    for leaf in named_leaves(sample):
        if leaf.type.dtype != "float32":
            continue
        size = leaf.type.shape if apart else ()
        exponents = random.uniform(low, high, size)
        if leaf.kind == "Weight":
            exponents = random.uniform(-bounds.margin / 2, bounds.margin / 2, size)
        elif random.random() < 0.2:
            exponents = random.uniform(*_ORDINARY, size)
        signs = random.choice((-1.0, 1.0), leaf.type.shape)
        numbers = (signs * 2.0**exponents * random.uniform(0.75, 1.25, leaf.type.shape)).astype(bounds.dtype)
        elements[leaf.name] = satisfy_facts(numbers.astype(np.longdouble), leaf)
    return elements


def _compare(sample: Sample, fired: Fired, elements: dict[str, Array], bounds: FloatRange) -> Counterexample | None:
    wide = {"float32": "longdouble"}
    real = Evaluation(sample, fired, elements, wide)
    held = _HeldEvaluation(sample, fired, elements, wide)
    held.hold(bounds.low, bounds.high)
    try:
        held.left_sides()
        held.hold(bounds.least, bounds.end)
        pairs = list(zip(real.comparisons(), held.comparisons(), strict=True))
    except Unsupported:
        return None
    for index, (truth, seen) in enumerate(pairs):
        left, right = truth.left, seen.right
        if truth.root < 0 or not is_float(left) or left.shape != right.shape:
            continue
        kept = np.isfinite(left) & (np.abs(left - seen.left) <= _EXACT * np.abs(left))
        equal = np.abs(left - truth.right) <= _NEAR * np.abs(left)
        lost = kept & equal & ~(np.abs(left - right) <= _NEAR * np.abs(left))
        if lost.any() and (found := _confirm(sample, fired, elements, bounds, index, left, lost)) is not None:
            return found
    return None


def _confirm(
    sample: Sample,
    fired: Fired,
    elements: dict[str, Array],
    bounds: FloatRange,
    index: int,
    real: Array,
    lost: Array,
) -> Counterexample | None:
    """The counterexample where ONNX Runtime computes the left side in the float type, and loses the right side."""
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
    reason = f"{LEAVES_RANGE} {bounds.dtype}, the left side stays far inside: it may be approx"
    blank = blank_counterexample(evaluation, reason)
    where = f"[{', '.join(map(str, at))}]"
    return replace(blank, where=where, left=str(sides[0][at]), right=str(sides[1][at]))
