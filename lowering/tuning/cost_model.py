"""How good a candidate may be, before it is built: by its estimates, or by what was learned from measured ones.

A candidate is a row of named features; what a kernel does not have is missing. Scores are logarithms of how much of
the best known speed of its task it reaches: 0 is as good as the best, -1 is slower by a factor of e. So they compare
candidates of different tasks, and one model learns from all of them, as in Ansor (OSDI 2020, section 5.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..base.decisions import DecisionSite, Option

Row = Mapping[str, float]
"""Features by name."""
Matrix = NDArray[np.float32]

COST_RATIO = "cost_ratio"
TOTAL = "estimate.total"
_ROUNDS = 50
_SETTINGS = {
    "objective": "reg:squarederror",
    "tree_method": "hist",
    "max_depth": 6,
    "max_bin": 64,
    "eta": 0.15,
    "min_child_weight": 0.1,
    "base_score": 0.0,
    "seed": 0,
    "verbosity": 0,
}
THREADS = 1
"""Threads that learning uses: kernels are built and measured on the same machine."""


class CostModel(Protocol):
    """Judges candidates that were not built."""

    def score(self, rows: Sequence[Row]) -> list[float]:
        """A number for each, the higher the better; comparable across tasks."""
        ...


@dataclass(frozen=True)
class AnalyticModel:
    """Believes the estimates: the score is the logarithm of 1 / the product of the cost ratios of all sites."""

    def score(self, rows: Sequence[Row]) -> list[float]:
        return [-row.get(TOTAL, 0.0) for row in rows]


# --- features


def features_of(task_features: Row, trace: Sequence[DecisionSite]) -> dict[str, float]:
    """A candidate's row: ``task.NAME``, and for each site ``SITE.NAME`` of the chosen option and its cost ratio.

    Sizes and counts are on a logarithmic scale; all features are finite.
    """
    row = task_row(task_features)
    ratios = 1.0
    for site in trace:
        row.update(option_row(site, site.chosen))
        ratios *= cost_ratio(site, site.option)
    row[TOTAL] = math.log(ratios)
    return row


def task_row(task_features: Row) -> dict[str, float]:
    """The part of a candidate's row that is the same for all candidates of the task."""
    return {f"task.{name}": _scale(value) for name, value in task_features.items() if math.isfinite(value)}


def option_row(site: DecisionSite, index: int) -> dict[str, float]:
    """The part of a candidate's row that taking this option gives."""
    option = site.options[index]
    row = {f"{site.name}.{name}": _scale(value) for name, value in option.features.items() if math.isfinite(value)}
    row[f"{site.name}.{COST_RATIO}"] = cost_ratio(site, option)
    return row


def cost_ratio(site: DecisionSite, option: Option) -> float:
    """The option's estimate, as a multiple (at least 1) of that of the site's cheapest one; 1 where there is none."""
    ratio = option.cost / site.options[0].cost if site.options[0].cost > 0 else 1.0
    return max(ratio, 1.0) if math.isfinite(ratio) else 1.0


def _scale(value: float) -> float:
    """Logarithmic away from 0, in the order of the values: trees need no more, and 32 bits hold it."""
    return math.copysign(math.log2(1.0 + abs(value)), value)


# --- learning


@dataclass(frozen=True)
class LearnedModel:
    """Boosted trees over the features of a `vocabulary`, which gives their columns; others are unknown to it."""

    vocabulary: Mapping[str, int]
    booster: Any

    def score(self, rows: Sequence[Row]) -> list[float]:
        if not rows:
            return []
        scores: list[float] = self.booster.inplace_predict(self._matrix(rows), missing=math.nan).tolist()
        return scores

    def _matrix(self, rows: Sequence[Row]) -> Matrix:
        columns = self.vocabulary
        indices = [(i, columns[name], x) for i, row in enumerate(rows) for name, x in row.items() if name in columns]
        matrix = np.full((len(rows), len(columns)), np.nan, dtype=np.float32)
        if indices:
            lines, places, values = zip(*indices, strict=True)
            matrix[lines, places] = values
        return matrix


@cache
def can_learn() -> bool:
    """Whether xgboost is installed, and its library loads: without it, AnalyticModel is all there is."""
    try:
        import xgboost  # noqa: F401
    except (ImportError, OSError, ValueError):  # its own error is a ValueError
        return False
    return True


def train(vocabulary: Mapping[str, int], matrix: Matrix, scores: Matrix, weights: Matrix) -> LearnedModel:
    """Learn the scores of the rows of a matrix, whose columns the vocabulary names; missing features are NaN."""
    import xgboost

    settings = {**_SETTINGS, "nthread": THREADS}
    data = xgboost.QuantileDMatrix(matrix, scores, weight=weights, missing=math.nan, nthread=THREADS, max_bin=64)
    booster = xgboost.train(settings, data, num_boost_round=_ROUNDS)
    return LearnedModel(dict(vocabulary), booster)


# --- files


def pack_trees(model: LearnedModel) -> bytes:
    """The model's trees, for `unpacked`."""
    return bytes(model.booster.save_raw("ubj"))


def unpack_trees(vocabulary: Mapping[str, int], content: bytes) -> LearnedModel:
    """The model of those trees. Raises what xgboost raises; do not give it what was damaged on the way."""
    import xgboost

    booster = xgboost.Booster({"nthread": THREADS})
    booster.load_model(bytearray(content))
    return LearnedModel(dict(vocabulary), booster)
