"""Comparing two results: tolerances by element type, NaN equal to NaN, an infinity equal to itself.

The tolerance of a float tensor is ``atol + rtol * |expected|`` per element, with ``atol`` in proportion to the largest
magnitude of the tensor (rounding errors of sums are relative to the terms, not to a result that happens to cancel).
It never exceeds 1 % of how far the output moved between two sets of inputs (its ``spread``), but stays above eight
units in the last place of the largest element: an output that hardly reacts to its inputs, such as a nearly uniform
softmax, is thus compared on the part that does react. Integers, booleans, strings and types below 16 bits compare
exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .values import Value, leaves


@dataclass(frozen=True)
class Precision:
    """Tolerances for the rounding of a type: ``atol_scale`` is a fraction of the largest magnitude of a tensor.

    Results below ``least`` have few bits or are taken for 0, and so differ by as much.
    """

    rtol: float
    atol_scale: float
    epsilon: float
    least: float

    def noise(self, magnitude: float) -> float:
        """The change that another order of operations may make in a tensor with this largest magnitude."""
        return max(_NOISE_UNITS * self.epsilon * magnitude, self.least)

    def floor(self, magnitude: float) -> float:
        """The difference that is accepted of any element of a tensor with this largest magnitude."""
        return max(self.atol_scale * magnitude, self.least)


_PRECISIONS = {
    "float64": Precision(1e-9, 1e-12, 2.0**-52, 2.0**-1022),
    "float32": Precision(1e-3, 1e-5, 2.0**-23, 2.0**-126),
    "float16": Precision(1e-2, 2e-3, 2.0**-10, 2.0**-21),  # a few of its steps: what is below 2^-14 counts
    "bfloat16": Precision(5e-2, 1.6e-2, 2.0**-7, 2.0**-126),
}
_COMPLEX_PARTS = {"complex64": "float32", "complex128": "float64"}
_SPREAD_FRACTION = 1e-2
_NOISE_UNITS = 8
_SMALL_ELEMENT = 1e-3
"""Elements below this fraction of the largest count as that fraction in the reported relative difference."""


@dataclass(frozen=True)
class Tolerance:
    """The rule of a comparison. A given ``atol`` (absolute) or ``rtol`` replaces the default and lifts the spread cap.

    ``coarsest`` names the coarsest float type in which the model computes, for any type of its outputs. A ``share`` of
    what the rule accepts is accepted.
    """

    atol: float | None = None
    rtol: float | None = None
    coarsest: str | None = None
    share: float = 1.0

    def precision(self, dtype: np.dtype[Any]) -> Precision | None:
        """The default figures for a type; None if it compares exactly."""
        own = _PRECISIONS.get(_COMPLEX_PARTS.get(dtype.name, dtype.name))
        model = _PRECISIONS.get(self.coarsest or "")
        if own is None or model is None:
            return own
        return max(own, model, key=lambda precision: precision.epsilon)

    def limit(self, expected: NDArray[Any], spread: float | None) -> NDArray[Any]:
        """The same for an array of any type, by its own; 0 for types that compare exactly."""
        precision = None if expected.dtype.kind in "OUS" else self.precision(expected.dtype)
        return np.zeros(()) if precision is None else self.allowed(to_double(expected), precision, spread)

    def noise(self, expected: NDArray[Any]) -> float:
        """A few units in the last place of the largest element of an array; 0 for types that compare exactly."""
        precision = None if expected.dtype.kind in "OUS" else self.precision(expected.dtype)
        return 0.0 if precision is None else precision.noise(_magnitude(to_double(expected)))

    @property
    def epsilon(self) -> float:
        """The distance of 1 and the next number of the coarsest type."""
        return _PRECISIONS[self.coarsest or "float32"].epsilon

    def allowed(self, expected: NDArray[Any], precision: Precision, spread: float | None) -> NDArray[Any]:
        """The largest difference accepted per element of ``expected`` (wide floats)."""
        magnitude = _magnitude(expected)
        atol = precision.floor(magnitude) if self.atol is None else self.atol
        rtol = precision.rtol if self.rtol is None else self.rtol
        with np.errstate(all="ignore"):
            allowed = self.share * (atol + rtol * np.abs(expected))
        if spread is None or self.atol is not None or self.rtol is not None:
            return np.asarray(allowed)
        return np.asarray(np.minimum(allowed, max(_SPREAD_FRACTION * spread, precision.noise(magnitude))))


@dataclass(frozen=True)
class Difference:
    """How far a value is from the expected one.

    ``equal``: within tolerance. ``negligible``: within a few units in the last place of the largest element besides.
    ``mismatch`` says why the values cannot be subtracted, if so.
    """

    equal: bool
    negligible: bool
    max_abs: float = 0.0
    max_rel: float = 0.0
    mismatch: str = ""

    def __str__(self) -> str:
        return self.mismatch or f"max abs {self.max_abs:.3g}, max rel {self.max_rel:.3g}"

    def worst(self, other: Difference) -> Difference:
        """Both taken together."""
        return Difference(
            self.equal and other.equal,
            self.negligible and other.negligible,
            max(self.max_abs, other.max_abs),
            max(self.max_rel, other.max_rel),
            self.mismatch or other.mismatch,
        )


EQUAL = Difference(True, True)


def compare(
    expected: Value,
    actual: Value,
    tolerance: Tolerance,
    spread: float | None = None,
    *,
    is_saturated: bool = False,
    may_lack_shape: bool = False,
) -> Difference:
    """Compare two values of any kind; ``spread`` is the root mean square move of the expected one between inputs.

    ``is_saturated``: they are the ends of the range of a Sigmoid. ONNX Runtime computes it with the absolute error of
    numbers near 1, also if it is nearly 0, so smaller differences prove nothing. ``may_lack_shape``: they come from
    rows that a Loop collects. If that never ran, ONNX Runtime gives them the shape that its body declares, with 0 for
    unknown dimensions, or [0] if it declares none; their sum is then a number.
    """
    wanted, results = leaves(expected), leaves(actual)
    if len(wanted) != len(results):
        return _mismatch(f"{len(results)} item(s) instead of {len(wanted)}")
    total = EQUAL
    for left, right in zip(wanted, results, strict=True):
        if may_lack_shape and _lacks_shape(left, right):
            left = np.empty(right.shape, left.dtype)
        total = total.worst(_compare_arrays(left, right, tolerance, spread, 1.0 if is_saturated else 0.0))
    return total


def _lacks_shape(expected: NDArray[Any], actual: NDArray[Any]) -> bool:
    """Whether both are the rows of a loop that never ran, or their sum."""
    if actual.size:
        return False
    if expected.ndim == actual.ndim:
        return all(size in (0, known) for size, known in zip(expected.shape, actual.shape, strict=True))
    return expected.ndim == 0 or (expected.shape == (0,) and actual.shape[0] == 0)


def _mismatch(reason: str) -> Difference:
    return Difference(False, False, math.inf, math.inf, reason)


def _compare_arrays(
    expected: NDArray[Any], actual: NDArray[Any], tolerance: Tolerance, spread: float | None, range_: float
) -> Difference:
    text = expected.dtype.kind in "OUS" and actual.dtype.kind in "OUS"
    if expected.dtype != actual.dtype and not text:
        return _mismatch(f"type {actual.dtype} instead of {expected.dtype}")
    if expected.shape != actual.shape:
        return _mismatch(f"shape {list(actual.shape)} instead of {list(expected.shape)}")
    if text:
        return EQUAL if bool(np.array_equal(expected.ravel(), actual.ravel())) else _mismatch("other text")
    if expected.tobytes() == actual.tobytes():
        return EQUAL  # such as two that are empty
    return _compare_numbers(expected, actual, tolerance, spread, range_)


def _compare_numbers(
    expected: NDArray[Any], actual: NDArray[Any], tolerance: Tolerance, spread: float | None, range_: float
) -> Difference:
    precision = tolerance.precision(expected.dtype)
    wanted, result = to_double(expected), to_double(actual)
    distance = distances(wanted, result)
    scale = np.maximum(np.abs(wanted), _SMALL_ELEMENT * _magnitude(wanted))
    comparable = np.isfinite(distance) & (distance > 0) & (scale > 0)
    relative = np.divide(distance, scale, out=np.where(distance > 0, np.inf, 0.0), where=comparable)
    floor = precision.noise(max(range_, _magnitude(wanted))) if precision else 0.0
    allowed = tolerance.allowed(wanted, precision, spread) if precision else np.zeros(())
    if range_ and tolerance.atol is None and tolerance.rtol is None:
        allowed = np.maximum(allowed, floor)
    finite = np.isfinite(distance)
    # Large integers may coincide once widened, so exact types are compared as they are.
    equal = bool(np.all(finite & (distance <= allowed))) if precision else bool(np.array_equal(expected, actual))
    negligible = equal and bool(np.all(distance <= floor))
    reason = ""
    if not finite.all():
        are_opposite = np.all(np.isinf(wanted[~finite]) & np.isinf(result[~finite]))
        reason = "infinities of opposite signs" if are_opposite else "NaN or infinity on one side only"
    return Difference(equal, negligible, float(distance.max(initial=0.0)), float(relative.max(initial=0.0)), reason)


def to_double(array: NDArray[Any]) -> NDArray[Any]:
    """The numbers as float64 or complex128, to subtract them."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64)


def distances(expected: NDArray[Any], actual: NDArray[Any]) -> NDArray[Any]:
    """Elementwise |expected - actual|; 0 for the same NaN or infinity, infinite if only one side is NaN or infinite."""
    with np.errstate(all="ignore"):
        distance = np.abs(expected - actual)
    same = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
    return np.asarray(np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance)))


def _magnitude(array: NDArray[Any]) -> float:
    """The largest finite magnitude."""
    sizes = np.abs(array)
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))


def spread_of(first: Value, second: Value) -> float | None:
    """Root mean square distance of two float results; None for other shapes and for types that are no floats."""
    total, count = 0.0, 0
    ones, others = leaves(first), leaves(second)
    if len(ones) != len(others):
        return None
    for one, other in zip(ones, others, strict=True):
        if one.shape != other.shape or not _is_float(one.dtype) or not _is_float(other.dtype):
            return None
        distance = distances(to_double(one), to_double(other))
        distance = distance[np.isfinite(distance)]
        total, count = total + float(np.sum(distance**2)), count + distance.size
    return math.sqrt(total / count) if count else None


def size_of(value: Value) -> float:
    """Root mean square of the finite elements of a float result; 0 without any."""
    sizes = [abs(to_double(leaf)[np.isfinite(leaf)]) for leaf in leaves(value)]
    count = sum(each.size for each in sizes)
    return math.sqrt(sum(float(np.sum(each**2)) for each in sizes) / count) if count else 0.0


def differs(first: Value, second: Value, tolerance: Tolerance) -> bool:
    """Whether two results differ by more than rounding, as results that depend on different inputs do."""
    ones, others = leaves(first), leaves(second)
    if [leaf.shape for leaf in ones] != [leaf.shape for leaf in others]:
        return True
    for one, other in zip(ones, others, strict=True):
        if not _is_float(one.dtype):
            if not np.array_equal(one, other):
                return True
            continue
        precision = tolerance.precision(one.dtype)
        floor = precision.floor(_magnitude(to_double(one))) if precision else 0.0
        if np.any(distances(to_double(one), to_double(other)) > floor):
            return True
    return False


def _is_float(dtype: np.dtype[Any]) -> bool:
    if dtype.kind in "fc":
        return True
    return dtype.name in _PRECISIONS
