"""What benchmarks/tuning.py found, and how its curves are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from eqfuse.benchmarks.latency import Record

PLAIN, TUNED, NO_INTENSIVE, NO_REFORMER = "eqfuse", "tuned", "AGO-NI", "AGO-NR"
PEER, LONG_PEER, REFERENCE = "MetaSchedule", "MetaSchedule, long", "ONNX Runtime"


@dataclass(frozen=True)
class Point:
    """The best seconds of a run of the model, the sum of its kernels, after some trials and seconds of a search."""

    trials: int
    seconds: float
    latency: float


@dataclass(frozen=True)
class Search:
    """One search: its curve, what it measured (`failed` of the trials did not build or run), and a note."""

    curve: tuple[Point, ...]
    trials: int
    failed: int
    tasks: int
    seconds: float
    note: str = ""

    @property
    def measured(self) -> tuple[Point, ...]:
        """The curve from where all of it was measured: before, eqfuse counts kernels that did not run by a bound.

        What was measured never rises, so it begins behind the last rise; and each task takes a trial.
        """
        if self.trials < self.tasks:
            return ()
        rises = (i for i in range(len(self.curve) - 1, 0, -1) if self.curve[i].latency > self.curve[i - 1].latency)
        return self.curve[next(rises, 0) :]

    def at_trials(self, trials: int) -> float | None:
        """The seconds of a run after a number of trials."""
        return next((point.latency for point in reversed(self.measured) if point.trials <= trials), None)

    def at_seconds(self, seconds: float) -> float | None:
        """The seconds of a run after a number of seconds of the search."""
        return next((point.latency for point in reversed(self.measured) if point.seconds <= seconds), None)


def search_of(content: Mapping[str, Any]) -> Search:
    """What `asdict` gave."""
    return Search(**{**content, "curve": tuple(Point(**point) for point in content["curve"])})


def same_seconds(searches: Sequence[Search]) -> float | None:
    """The seconds after which the first of them was done; None if one has no curve."""
    curves = [search.measured for search in searches]
    return min(curve[-1].seconds for curve in curves) if curves and all(curves) else None


@dataclass
class Comparison:
    """One model: end-to-end turns of all contestants, the searches behind them by contestant, and what they execute.

    `instructions` are those of one inference on an emulated board, by contestant.
    """

    record: Record
    searches: dict[str, Search] = field(default_factory=dict)
    instructions: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data; times in seconds."""
        searches = {name: asdict(search) for name, search in self.searches.items()}
        return {**self.record.as_dict(), "searches": searches, "instructions": self.instructions}


def comparison_of(content: Mapping[str, Any]) -> Comparison:
    """What `as_dict` gave."""
    searches = {name: search_of(each) for name, each in content["searches"].items()}
    return Comparison(Record.of(content), searches, dict(content["instructions"]))


@dataclass(frozen=True)
class Results:
    """One part of the benchmark: trials of each search, those of the long one, threads, and all models."""

    part: str
    trials: int
    long_trials: int | None
    threads: int
    comparisons: tuple[Comparison, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**self.__dict__, "comparisons": [each.as_dict() for each in self.comparisons]}


def results_of(content: Mapping[str, Any]) -> Results:
    """What `as_dict` gave."""
    return Results(**{**content, "comparisons": tuple(map(comparison_of, content["comparisons"]))})
