"""How rewriting changed the numbers of an output: in bits, in units in the last place, and against float64.

Elements count as identical when their bits are, so -0 is not +0; but any NaN is identical to any other, since no
operator says which NaN it gives. A unit in the last place (ulp) is the step from one float to the next, as in Goldberg,
"What every computer scientist should know about floating-point arithmetic" (1991); -0 and +0 are 0 ulp apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .runs.compare import distances, to_double
from .runs.structure import Structure, rounds_result
from .runs.values import Value, leaves

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
Figure = TypeVar("Figure")
_PARTS = {"complex64": np.float32, "complex128": np.float64}


@dataclass(frozen=True)
class Errors:
    """Distance of an output from its float64 counterpart: the largest, and the root mean square."""

    largest: float = 0.0
    rms: float = 0.0

    def worst(self, other: Errors) -> Errors:
        """Both taken together."""
        return Errors(max(self.largest, other.largest), max(self.rms, other.rms))


@dataclass(frozen=True)
class StepCount:
    """The steps of its scale by which an output that was quantised differs: the most of any element, and how many of
    its `elements` differ by a step or more, over every run."""

    most: float = 0.0
    moved: int = 0
    elements: int = 0

    @staticmethod
    def of(steps: np.ndarray[Any, Any]) -> StepCount:
        """The count of whole steps, one for each element."""
        return StepCount(float(steps.max(initial=0.0)), int(np.count_nonzero(steps)), int(steps.size))

    def plus(self, other: StepCount) -> StepCount:
        """Both taken together."""
        return StepCount(max(self.most, other.most), self.moved + other.moved, self.elements + other.elements)

    def __str__(self) -> str:
        if not self.moved:
            return "0 steps"
        unit = "step" if self.most == 1 else "steps"
        return f"max {self.most:g} {unit} in {self.moved:,} of {self.elements:,}"


def count_steps(structure: Structure, name: str, expected: Value, actual: Value) -> StepCount | None:
    """The steps of its own scale by which an output differs; None if it has none, or if they cannot be counted."""
    origin = structure.origin(name)
    if origin is None or not (origin.op_type == "DequantizeLinear" or rounds_result(origin)):
        return None
    scale = structure.constant(origin.input[1]) if origin.op_type == "DequantizeLinear" else np.ones(())
    if scale is None or not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        return None
    if expected.shape != actual.shape:
        return None
    if scale.size > 1:
        axis = next((a.i for a in origin.attribute if a.name == "axis"), 1)
        if structure.producers.get(name) is not origin or scale.ndim != 1:
            return None
        scale = scale.reshape(-1, *(1,) * (expected.ndim - 1 - axis % expected.ndim))
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.rint(distances(to_double(expected), to_double(actual)) / np.abs(to_double(scale)))
    return StepCount.of(np.where(np.isnan(steps), 0.0, steps))


@dataclass(frozen=True)
class Effect:
    """How the numbers of an output changed: ``identical`` of its ``elements``, over every run, are the same bits.

    ``max_ulp`` is the largest distance in units in the last place of the output's own type. Elements near zero, below a
    thousandth of the largest, do not count: their units are so small that any rounding is millions of them. None for
    types without such units, infinite if only one side is infinite or not a number. ``original_error`` and
    ``result_error`` are None without a float64 run: nothing differs, the output is no float of 32 bits or less,
    or none is possible. Since float64 is slow, they need not cover every run.
    """

    elements: int = 0
    identical: int = 0
    max_ulp: float | None = None
    original_error: Errors | None = None
    result_error: Errors | None = None

    @property
    def share(self) -> float | None:
        """The part of the elements that is identical; None without elements."""
        return self.identical / self.elements if self.elements else None

    @property
    def is_identical(self) -> bool:
        """Whether nothing differs."""
        return self.identical == self.elements

    def plus(self, other: Effect) -> Effect:
        """Both taken together."""
        return Effect(
            self.elements + other.elements,
            self.identical + other.identical,
            _combine(max, self.max_ulp, other.max_ulp),
            _combine(Errors.worst, self.original_error, other.original_error),
            _combine(Errors.worst, self.result_error, other.result_error),
        )


def _combine(worse: Callable[[Figure, Figure], Figure], one: Figure | None, other: Figure | None) -> Figure | None:
    """The worse of two figures, or the one that is there."""
    return worse(one, other) if one is not None and other is not None else one if other is None else other


def measure_effect(expected: Value, actual: Value) -> Effect:
    """Compare two values of any kind. If their structure, shapes or types differ, nothing is identical."""
    wanted, results = leaves(expected), leaves(actual)
    if len(wanted) != len(results) or not all(_alike(a, b) for a, b in zip(wanted, results, strict=True)):
        return Effect(max(1, sum(leaf.size for leaf in wanted)))
    total = Effect()
    for one, other in zip(wanted, results, strict=True):
        units = ulp_distances(one, other)
        largest = None if units is None else float(np.where(_is_near_zero(one, other), 0.0, units).max(initial=0.0))
        total = total.plus(Effect(one.size, int(np.count_nonzero(identical_elements(one, other))), largest))
    return total


def _is_near_zero(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Which elements are below a thousandth of the largest finite one, on both sides."""
    if one.dtype.name in _PARTS:
        return _is_near_zero(_parts(one), _parts(other))
    sizes = np.maximum(np.abs(one.astype(np.float64)), np.abs(other.astype(np.float64)))
    largest = sizes.max(initial=0.0, where=np.isfinite(sizes))
    return np.asarray(sizes < largest / 1000)


def _alike(one: NDArray[Any], other: NDArray[Any]) -> bool:
    text = one.dtype.kind in "OUS" and other.dtype.kind in "OUS"
    return one.shape == other.shape and (text or one.dtype == other.dtype)


def identical_elements(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """A mask of the elements with the same bits, or that are both NaN, for two arrays of one shape and type."""
    if one.dtype.kind in "OUSbiu":
        return np.asarray(one == other)
    if one.dtype.name in _PARTS:
        return np.asarray(identical_elements(_parts(one), _parts(other)).all(axis=-1))
    nan = np.isnan(one.astype(np.float64)) & np.isnan(other.astype(np.float64))
    return np.asarray((_bits(one) == _bits(other)) | nan)


def ulp_distances(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float64] | None:
    """The number of steps from float to float between the elements of two arrays of one shape and type.

    0 for equal numbers and for two NaNs, infinite if only one side is infinite or NaN or if infinities have opposite
    signs. Complex numbers give one distance for each part. None for all but IEEE-like floats of 16 bits or more.
    """
    if one.dtype.name in _PARTS:
        return ulp_distances(_parts(one), _parts(other))
    if one.dtype.name not in _FLOATS:
        return None
    left, right = _ordinals(one), _ordinals(other)
    # The distance of two 64-bit ordinals needs all 64 bits: unsigned subtraction wraps around to just that.
    steps = np.maximum(left, right).astype(np.uint64) - np.minimum(left, right).astype(np.uint64)
    wide = one.astype(np.float64), other.astype(np.float64)
    unequal = (wide[0] != wide[1]) & ~(np.isnan(wide[0]) & np.isnan(wide[1]))
    strange = ~(np.isfinite(wide[0]) & np.isfinite(wide[1]))
    return np.asarray(np.where(unequal, np.where(strange, np.inf, steps.astype(np.float64)), 0.0))


def _ordinals(array: NDArray[Any]) -> NDArray[np.int64]:
    """Integers in the order of the floats, with a step of 1 from each float to the next; both zeros are 0."""
    bits = _bits(array)
    magnitude = (bits & bits.dtype.type(np.iinfo(bits.dtype).max >> 1)).astype(np.int64)
    negative = bits > bits.dtype.type(np.iinfo(bits.dtype).max >> 1)
    return np.asarray(np.where(negative, -magnitude, magnitude))


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    # A copy: views need contiguous memory, and scalars have none of their own.
    return np.array(array, order="C").view(f"u{array.dtype.itemsize}")


def _parts(array: NDArray[Any]) -> NDArray[Any]:
    """Real and imaginary parts along a new last axis."""
    return np.stack([array.real, array.imag], axis=-1)


def measure_errors(exact: Value, actual: Value) -> Errors | None:
    """Distance of a value from its float64 counterpart; None if they cannot be subtracted."""
    truths, values = leaves(exact), leaves(actual)
    if [leaf.shape for leaf in truths] != [leaf.shape for leaf in values]:
        return None
    total = Errors()
    for truth, value in zip(truths, values, strict=True):
        if truth.dtype.kind in "OUS" or value.dtype.kind in "OUS":
            return None
        distance = distances(to_double(truth), to_double(value))
        if distance.size:
            total = total.worst(Errors(float(distance.max()), math.sqrt(float(np.mean(np.square(distance))))))
    return total
