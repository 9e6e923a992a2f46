"""The judgement of outputs on bold inputs, which may lie outside the domain of the original's operators.

The promise of a rewrite there depends on its precision. ``exact``: the same bits on all inputs. ``real``: wherever the
original gives a finite number that a float64 run confirms, the candidate gives that number, at least in a float64 run
of its own (then only its rounding or overflow differs). Elements for which the original gives NaN or an infinity, or
which depend on its rounding, are not compared. ``fast``: like ``real``, but the candidate may also give NaN or an
infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compare import Difference, Tolerance, compare, distances, to_double
from ..values import Feeds, RunError, Value, layout, leaves

Array = NDArray[Any]
Truth = Callable[[], Value]
"""Gives the value of a float64 run. Raises RunError if there is none."""

ROUNDING = 32 * 2.0**-23
"""Relative change of inputs whose effect is that of a whole network's rounding in float32. On a text detector with
inputs of 10 to 10,000, compiled code was off by 0.25 to 1 times the effect of it, ONNX Runtime by 0.1 to 0.3 times."""
WEIGHT_ROUNDING = 4 * 2.0**-23
"""Relative change of weights whose effect is that of rounding in sums of products. A mean over an image cancels what
moved in the inputs; what layers behind it round, it does not."""
ROUNDINGS = 4
"""Draws of such changes: where one direction dominates, the effect of one draw may be a tenth of another's."""


def move_values(values: Feeds, by: float, seed: int) -> Feeds:
    """The same values with every float32 and float64 number larger or smaller by this part of it."""
    generator = np.random.default_rng(seed)
    moved = dict(values)
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.dtype in (np.float32, np.float64):
            moved[name] = value * (1 + by * generator.choice((-1.0, 1.0), value.shape))
    return moved


def judge_bold(
    expected: Value, actual: Value, tolerance: Tolerance, truths: tuple[Truth, Truth], *, may_overflow: bool
) -> Difference | None:
    """The difference that makes a candidate wrong; None if it is right. `truths`: of the original, of the candidate.

    Without a float64 run of the original only NaN and infinities in the place of finite numbers are wrong.
    """
    difference = compare(expected, actual, tolerance)
    if difference.equal or layout(expected) != layout(actual):
        return None if difference.equal else difference
    wrong = _wrong(expected, actual, tolerance, may_overflow)
    if not any(map(np.any, wrong)):
        return None
    try:
        exact = leaves(truths[0]())
    except RunError:
        strange = [bad & ~np.isfinite(to_double(leaf)) for bad, leaf in zip(wrong, leaves(actual), strict=True)]
        return difference if any(map(np.any, strange)) else None
    try:
        other = leaves(truths[1]())
    except RunError:
        other = leaves(actual)
    values = [leaves(expected), exact, other]
    if len({len(each) for each in values}) > 1:
        return difference
    for bad, *each in zip(wrong, *values, strict=True):
        if len({leaf.shape for leaf in each}) > 1:
            return difference
        number, truth, own = each
        allowed = _allowance(number, tolerance)
        confirmed = _near(number, truth, allowed)
        if np.any(bad & confirmed & ~_near(truth, own, allowed)):
            return difference
    return None


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
    precision = None if number.dtype.kind in "OUS" else tolerance.precision(number.dtype)
    return np.zeros(()) if precision is None else tolerance.allowed(to_double(number), precision, None)
