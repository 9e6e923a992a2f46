"""Judging what a candidate makes of bold inputs: those for which the original's operators may not be meant.

What a rewrite promises there depends on its precision. ``exact``: the same bits on all inputs. ``real``: wherever
the original gives a finite number that a float64 run confirms, the candidate gives that number, or does so in a float64
run of its own: then it only rounds or overflows otherwise. Where the original gives NaN or an infinity, or rounding
decides what it gives, nothing is promised over the real numbers, and nothing is compared. ``fast``: like ``real``, and
the candidate may give NaN or an infinity, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compare import Difference, Tolerance, compare, distances, to_double
from .values import RunError, Value, leaves

Array = NDArray[Any]
Truth = Callable[[], Value]
"""Gives a value as a float64 run has it. Raises RunError where there is none."""


def judge_bold(
    expected: Value, found: Value, tolerance: Tolerance, truths: tuple[Truth, Truth], *, may_overflow: bool
) -> Difference | None:
    """How a candidate is wrong; None where it is not. The `truths` are those of the original and of the candidate.

    Without a float64 run of the original only NaN and infinities in place of finite numbers are held against it.
    """
    difference = compare(expected, found, tolerance)
    if difference.equal or not _is_alike(expected, found):
        return None if difference.equal else difference
    wrong = _wrong(expected, found, tolerance, may_overflow)
    if not any(map(np.any, wrong)):
        return None
    try:
        exact = leaves(truths[0]())
    except RunError:
        strange = [bad & ~np.isfinite(to_double(leaf)) for bad, leaf in zip(wrong, leaves(found), strict=True)]
        return difference if any(map(np.any, strange)) else None
    try:
        other = leaves(truths[1]())
    except RunError:
        other = leaves(found)
    values = [leaves(expected), exact, other]
    if len({len(each) for each in values}) > 1:
        return difference
    for bad, *each in zip(wrong, *values, strict=True):
        if len({leaf.shape for leaf in each}) > 1:
            return difference
        number, truth, own = each
        allowed = _allowed(number, tolerance)
        confirmed = _near(number, truth, allowed)
        if np.any(bad & confirmed & ~_near(truth, own, allowed)):
            return difference
    return None


def _wrong(expected: Value, found: Value, tolerance: Tolerance, may_overflow: bool) -> list[Array]:
    """The elements of each array that are out of tolerance where the original is finite."""
    wrong = []
    for number, other in zip(leaves(expected), leaves(found), strict=True):
        if number.dtype.kind in "OUS":
            wrong.append(np.asarray(number != other))
            continue
        bad = np.isfinite(to_double(number)) & ~_near(number, other, _allowed(number, tolerance))
        wrong.append(bad & np.isfinite(to_double(other)) if may_overflow else bad)
    return wrong


def _near(one: Array, other: Array, allowed: Array) -> Array:
    if one.dtype.kind in "OUS":
        return np.asarray(one == other)
    return np.asarray(distances(to_double(one), to_double(other)) <= allowed)


def _allowed(number: Array, tolerance: Tolerance) -> Array:
    """What may differ: elements of other types than floats not at all."""
    precision = None if number.dtype.kind in "OUS" else tolerance.precision(number.dtype)
    return np.zeros(()) if precision is None else tolerance.allowed(to_double(number), precision, None)


def _is_alike(expected: Value, found: Value) -> bool:
    wanted, results = leaves(expected), leaves(found)
    return [(leaf.shape, leaf.dtype) for leaf in wanted] == [(leaf.shape, leaf.dtype) for leaf in results]
