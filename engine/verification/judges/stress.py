"""The judgement of outputs on stress inputs, which may lie outside the domain of the original's operators.

The promise of a rewrite there depends on its precision. ``exact``: the same bits on all inputs. ``real``: wherever the
original gives a finite number that a float64 run confirms, the candidate gives that number, at least in a float64 run
of its own (then only its rounding or overflow differs). Elements for which the original gives NaN or an infinity, or
which depend on the rounding of the original or of its weights (`sensitivity.py`), are not compared. ``fast``: like
``real``, but the candidate may also give NaN or an infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runs.compare import Difference, Tolerance, compare, distances, to_double
from ..runs.values import RunError, Value, layout, leaves
from .sensitivity import Sensitivity, distances_of, has_shapes_of, silence_of

Array = NDArray[Any]
Truth = Callable[[], Value]
"""Gives the value of a float64 run. Raises RunError if there is none."""


@dataclass(frozen=True)
class Truths:
    """Float64 runs of the original and of the candidate, and how far rounding moves an output."""

    original: Truth
    candidate: Truth
    sensitivity: Callable[[], Sensitivity]
    name: str
    chooses: bool = False


def judge_stress(
    expected: Value, actual: Value, tolerance: Tolerance, truths: Truths, *, may_overflow: bool
) -> Difference | None:
    """The difference that makes a candidate wrong; None if it is right.

    Without a float64 run of the original only NaN and infinities in the place of finite numbers are wrong.
    """
    difference = compare(expected, actual, tolerance)
    if difference.equal:
        return None
    if layout(expected) != layout(actual):
        return difference if _is_shape_wrong(expected, actual, truths) else None
    wrong = _wrong(expected, actual, tolerance, may_overflow)
    if not any(map(np.any, wrong)):
        return None
    try:
        exact = truths.original()
    except RunError:
        strange = [bad & ~np.isfinite(to_double(leaf)) for bad, leaf in zip(wrong, leaves(actual), strict=True)]
        return difference if any(map(np.any, strange)) else None
    if not has_shapes_of(expected, exact):
        return None  # rounding decided about the shape of the original's result
    try:
        own = truths.candidate()
    except RunError:
        own = actual
    if not has_shapes_of(exact, own):
        return None if truths.sensitivity().explains_layout(truths.name) else difference
    far = []
    for bad, number, truth, other in zip(wrong, *map(leaves, (expected, exact, own)), strict=True):
        allowed = _allowance(number, tolerance)
        confirmed = _near(number, truth, allowed)
        far.append(np.where(bad & confirmed & ~_near(truth, other, allowed), distances_of(truth, other), 0.0))
    if not any(map(np.any, far)):
        return None
    silence = silence_of(expected, tolerance, None, chooses=truths.chooses)
    return None if truths.sensitivity().explains(truths.name, far, silence) else difference


def _is_shape_wrong(expected: Value, actual: Value, truths: Truths) -> bool:
    """Whether a result of another shape or type than the original's is wrong: rounding may decide how many elements a
    detector finds."""
    if [dtype for _, dtype in layout(expected)] != [dtype for _, dtype in layout(actual)]:
        return True
    try:
        is_confirmed = has_shapes_of(expected, truths.original())
        return is_confirmed and not truths.sensitivity().explains_layout(truths.name)
    except RunError:
        return True


def _wrong(expected: Value, actual: Value, tolerance: Tolerance, may_overflow: bool) -> list[Array]:
    """Masks of the elements that are out of tolerance although the original is finite, one for each array."""
    wrong = []
    for number, other in zip(leaves(expected), leaves(actual), strict=True):
        if number.dtype.kind in "OUS":
            wrong.append(np.asarray(number != other))
            continue
        bad = np.isfinite(to_double(number)) & ~_near(number, other, _allowance(number, tolerance))
        wrong.append(bad & np.isfinite(to_double(other)) if may_overflow else bad)
    return wrong


def _near(one: Array, other: Array, allowed: Array) -> Array:
    if one.dtype.kind in "OUS":
        return np.asarray(one == other)
    return np.asarray(distances(to_double(one), to_double(other)) <= allowed)


def _allowance(number: Array, tolerance: Tolerance) -> Array:
    """The largest difference per element; 0 for types other than floats."""
    return tolerance.limit(number, None)
