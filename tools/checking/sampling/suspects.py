"""Samples on which two sides differ at a glance: of the many that are not kept, these are tested, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ....ir.operators import Unsupported
from .elements import Range, draw
from .evaluation import Evaluation, is_float
from .samples import Sample
from .scratch import Conflict, Fired

_MOST = 2
"""Suspects among the samples of a rule, at most: one is enough to refute it."""
_GLANCES: tuple[Range, ...] = ("ordinary", "special")
_APART = 0.01
"""How far two results lie apart, as a share of the largest number: far beyond rounding."""
_Hit = TypeVar("_Hit")


def suspects(
    hits: Sequence[_Hit], sample_of: Callable[[_Hit], tuple[Sample, Fired | Conflict]], random: np.random.Generator
) -> list[_Hit]:
    """A few of the hits whose two sides differ for a draw of usual numbers, as numpy computes them."""
    found: list[_Hit] = []
    for hit in hits:
        sample, outcome = sample_of(hit)
        if isinstance(outcome, Fired) and not (sample.is_empty or sample.outgrows) and _differ(sample, outcome, random):
            found.append(hit)
            if len(found) == _MOST:
                break
    return found


def _differ(sample: Sample, fired: Fired, random: np.random.Generator) -> bool:
    for kind in _GLANCES:
        evaluation = Evaluation(sample, fired, draw(sample, kind, {}, random), {})
        try:
            with np.errstate(all="ignore"):
                pairs = [pair for pair in evaluation.comparisons() if not pair.is_of_one]
        except Unsupported:
            return False
        if any(_are_apart(pair.left, pair.right) for pair in pairs):
            return True
    return False


def _are_apart(left: Any, right: Any) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return True
    if not is_float(left):
        return bool(np.any(left != right))
    with np.errstate(all="ignore"):
        apart = np.abs(left - right) > _APART * np.max(np.abs(left), initial=0.0)
    return bool(np.any(apart & np.isfinite(left)))
