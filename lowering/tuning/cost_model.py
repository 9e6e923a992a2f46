"""How good a candidate may be, before it is built: by its estimates, or by what was learned from measured ones.

A candidate is a row of named features; what a kernel does not have is missing. Scores are logarithms of how much of
the best known speed of its task it reaches: 0 is as good as the best, -1 is slower by a factor of e. So they compare
candidates of different tasks, and one model for each device and runner learns from all of them, as in Ansor (OSDI 2020,
section 5.2): better with every batch (`Learner`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...support.store import Store
from ..base.decisions import DecisionSite, Option
from .records import Record, RecordDatabase

FEWEST_ROWS = 8
"""Rows below which nothing is learned."""
MOST_ROWS = 6000
"""Rows that are learned from at most, the newest: learning from all would take longer with every batch."""
WORST_SCORE = -3.0
"""Whatever is slower than the best by more than a factor of 20 is as bad as what failed."""
_FAILED_WEIGHT = 0.2
"""The weight of a candidate that failed; the best of a task has 1."""
_LEAST_WEIGHT = 0.1
"""The weight of the slowest candidates; others have their share of the best one's speed."""
_FORMAT = "eqfuse cost model 1"
Row = Mapping[str, float]
"""Features by name."""
Matrix = NDArray[np.float32]

COST_RATIO = "cost_ratio"
TOTAL = "estimate.total"
_ROUNDS = 50
"""Trees that are learned, one after another."""
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
    """The option's estimate, as a multiple (at least 1) of that of the site's cheapest one; 1 if there is none."""
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



_Group = tuple[str, str]


@dataclass
class Learner:
    """Keeps the rows that were measured and the `model` learned from them. Make one by `open`.

    A candidate's score is log(best latency of its task / its latency), under the same versions; tasks with a single
    candidate teach nothing. The good ones have more weight: it matters less how bad a bad one is.
    """

    store: Store | None = None
    key: str = ""
    model: CostModel = field(default_factory=AnalyticModel)
    _vocabulary: dict[str, int] = field(default_factory=dict)
    _rows: dict[tuple[_Group, str], _Row] = field(default_factory=dict)

    @classmethod
    def open(cls, database: RecordDatabase, device: str, runner: str) -> Learner:
        """The learner with the database's records of a device and a runner, and the model that was learned from them.

        That is kept beside the database; if it cannot be read, it is learned anew. Raises DatabaseError if the
        database cannot be read.
        """
        name = sha256(f"{device}\n{runner}".encode()).hexdigest()[:16]
        store, key = Store(database.path.with_suffix(".models")), f"{name}.model"
        learner = cls(store, key)
        learner._take(reversed(database.all(device, runner, MOST_ROWS)))
        kept = _load(store.path(key)) if learner._rows and can_learn() else None
        if kept is None:
            learner._learn()
        else:
            learner.model = kept
        return learner

    def learn(self, records: Iterable[Record]) -> CostModel:
        """Add what was measured, and learn again from all; the model is also kept in its file, if possible."""
        self._take(records)
        self._learn()
        return self.model

    def _take(self, records: Iterable[Record]) -> None:
        for record in records:
            group = (record.task, record.versions)
            columns = [self._vocabulary.setdefault(name, len(self._vocabulary)) for name in record.features]
            values = np.fromiter(record.features.values(), np.float32, len(columns))
            key = (group, json.dumps(record.decisions, sort_keys=True))
            self._rows.pop(key, None)
            self._rows[key] = _Row(group, np.array(columns, np.intp), values, record.latency)
        for key in list(self._rows)[: max(0, len(self._rows) - MOST_ROWS)]:
            del self._rows[key]

    def _learn(self) -> None:
        rows = _usable(list(self._rows.values()))
        if len(rows) < FEWEST_ROWS or not can_learn():
            return
        matrix = np.full((len(rows), len(self._vocabulary)), np.nan, dtype=np.float32)
        for line, row in zip(matrix, rows, strict=True):
            line[row.columns] = row.values
        scores, weights = _targets(rows)
        self.model = train(self._vocabulary, matrix, scores, weights)
        if self.store is not None:
            _keep(self.store, self.key, self.model)


@dataclass(frozen=True, eq=False)
class _Row:
    """A record, its features as values of columns; no latency if it failed."""

    group: _Group
    columns: np.ndarray[tuple[int], np.dtype[np.intp]]
    values: Matrix
    latency: float | None


def _best(rows: Iterable[_Row]) -> dict[_Group, float]:
    best: dict[_Group, float] = {}
    for row in rows:
        if row.latency is not None:
            best[row.group] = min(row.latency, best.get(row.group, math.inf))
    return best


def _usable(rows: Sequence[_Row]) -> list[_Row]:
    """The records with features, of groups in which at least one ran and another can be compared with it."""
    featured = [row for row in rows if len(row.columns)]
    best = _best(featured)
    counts: dict[_Group, int] = {}
    for row in featured:
        counts[row.group] = counts.get(row.group, 0) + 1
    return [row for row in featured if counts[row.group] > 1 and row.group in best]


def _targets(rows: Sequence[_Row]) -> tuple[Matrix, Matrix]:
    """Scores and weights of rows whose groups have a best one."""
    best = _best(rows)
    latencies = [row.latency for row in rows]
    ratios = [0.0 if own is None else best[row.group] / own for row, own in zip(rows, latencies, strict=True)]
    scores = np.log(np.maximum(np.array(ratios, np.float32), math.exp(WORST_SCORE)))
    weights = np.maximum(np.array(ratios, np.float32), _LEAST_WEIGHT)
    weights[[own is None for own in latencies]] = _FAILED_WEIGHT
    return scores.astype(np.float32), weights.astype(np.float32)


# --- the file: a line of JSON, and the trees that it has the digest of


class _Head(msgspec.Struct):
    format: str
    digest: str
    vocabulary: list[str]


def _keep(store: Store, key: str, model: LearnedModel) -> None:
    trees = pack_trees(model)
    names = sorted(model.vocabulary, key=lambda name: model.vocabulary[name])
    head = msgspec.json.encode(_Head(_FORMAT, sha256(trees).hexdigest(), names))
    store.keep(key, lambda place: place.write_bytes(head + b"\n" + trees))


def _load(path: Path) -> LearnedModel | None:
    """The model in the file; None if there is none, or if it was changed since it was written."""
    try:
        line, _, trees = path.read_bytes().partition(b"\n")
        head = msgspec.json.decode(line, type=_Head)
        if head.format != _FORMAT or head.digest != sha256(trees).hexdigest():
            return None
        return unpack_trees({name: index for index, name in enumerate(head.vocabulary)}, trees)
    except (OSError, ValueError, msgspec.MsgspecError):  # xgboost's own error is a ValueError
        return None
