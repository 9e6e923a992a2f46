"""Timing functions in turns, so that what else the machine does meets all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

_WARM_UP = 3
_LOOK, _LOOKS = 0.02, 50
"""Seconds between two looks at whether the process is idle, and how many there are at most."""
_IDLE = 0.1
"""Of a processor, what an idle process uses at most."""


@dataclass(frozen=True)
class Runs:
    """Seconds of each run: wall-clock, and CPU time of all threads."""

    wall: tuple[float, ...]
    cpu: tuple[float, ...]


@dataclass(frozen=True)
class Middle:
    """The median and the borders of the middle half."""

    median: float
    lower: float
    upper: float

    @staticmethod
    def of(numbers: Sequence[float]) -> Middle:
        """Of any numbers, at least one."""
        if len(numbers) == 1:
            return Middle(numbers[0], numbers[0], numbers[0])
        lower, _, upper = quantiles(numbers, method="inclusive")
        return Middle(median(numbers), lower, upper)

    def as_dict(self) -> dict[str, float]:
        """Plain data for JSON."""
        return {"median": self.median, "lower": self.lower, "upper": self.upper}


def wait_until_idle() -> None:
    """Wait until the process is idle: threads of a new pool, TVM's among them, spin before they sleep, and CPU time
    counts that."""
    for _ in range(_LOOKS):
        before = time.process_time()
        time.sleep(_LOOK)
        if time.process_time() - before < _IDLE * _LOOK:
            return


def time_in_turns(contestants: Mapping[str, Callable[[], Any]], repeat: int) -> dict[str, Runs]:
    """Let them take turns, in the opposite order every other time, so that what else the machine does hits all."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for _ in range(_WARM_UP):
        for call in contestants.values():
            call()
    wait_until_idle()
    for turn in range(repeat):
        order = list(contestants.items())
        for name, call in order if turn % 2 == 0 else reversed(order):
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: Runs(tuple(w for w, _ in pairs), tuple(c for _, c in pairs)) for name, pairs in times.items()}


def ratios(runs: Mapping[str, Runs], reference: str, other: str, threads: int) -> Middle:
    """How many times as long the other takes, pair by pair: by CPU time on one thread, by the wall clock on several."""
    first, second = runs[reference], runs[other]
    pairs = zip(first.cpu, second.cpu, strict=True) if threads == 1 else zip(first.wall, second.wall, strict=True)
    return Middle.of([b / max(a, 1e-9) for a, b in pairs])
