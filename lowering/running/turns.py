"""Timing functions in turns, so that other work on the machine meets all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, inf, isfinite, sqrt
from statistics import median, quantiles
from typing import Any

_WARM_UP = 3
"""Runs of each before those that count: they bring code and weights into the caches."""
_WARM_CALLS = 3
"""Calls of a block that are timed, behind one that warms up."""
_LOOK, _LOOKS = 0.02, 50
"""Seconds between two looks at whether the process is idle, and how many there are at most."""
_IDLE = 0.1
"""The share of a processor that an idle process uses at most."""


_DEVIATIONS = 2.58
"""Standard deviations of a normal distribution that enclose 99 % of it."""


@dataclass(frozen=True)
class Runs:
    """Seconds of each run: wall-clock, and CPU time of all threads."""

    wall: tuple[float, ...]
    cpu: tuple[float, ...]


@dataclass(frozen=True)
class Middle:
    """The median and the quartiles."""

    median: float
    lower: float
    upper: float

    @staticmethod
    def of(numbers: Sequence[float]) -> Middle:
        """The median and quartiles of at least one number."""
        if len(numbers) == 1:
            return Middle(numbers[0], numbers[0], numbers[0])
        lower, _, upper = quantiles(numbers, method="inclusive")
        return Middle(median(numbers), lower, upper)


def quantile(numbers: Sequence[float], share: float) -> float:
    """The number that at least this share of the numbers does not exceed: one of them, not between two."""
    return sorted(numbers)[max(0, ceil(share * len(numbers)) - 1)]


@dataclass(frozen=True)
class Estimate:
    """The median of `count` numbers, and the limits between which that of endlessly many lies with 99 % confidence.

    The limits are infinite for fewer than seven numbers.
    """

    median: float
    lower: float
    upper: float
    count: int

    @staticmethod
    def of(numbers: Sequence[float]) -> Estimate:
        """The estimate from at least one number, by order statistics: nothing is assumed of their distribution."""
        ordered, count = sorted(numbers), len(numbers)
        outside = int((count - _DEVIATIONS * sqrt(count)) / 2) if count > _DEVIATIONS**2 else -1
        lower, upper = (ordered[outside], ordered[-1 - outside]) if outside >= 0 else (-inf, inf)
        return Estimate(median(ordered), lower, upper, count)

    def __str__(self) -> str:
        """The median and the limits: ``0.850 (0.840 to 0.860)``."""
        return f"{self.median:.3f}" + (f" ({self.lower:.3f} to {self.upper:.3f})" if isfinite(self.upper) else "")


def wait_until_idle() -> None:
    """Wait until the process is idle: threads of a new pool, TVM's among them, spin before they sleep, and CPU time
    counts that."""
    for _ in range(_LOOKS):
        before = time.process_time()
        time.sleep(_LOOK)
        if time.process_time() - before < _IDLE * _LOOK:
            return


def take_turns(
    contestants: Mapping[str, Callable[[], Any]], warm_up: int = _WARM_UP
) -> Iterator[dict[str, tuple[float, float]]]:
    """Wall-clock and CPU seconds of each, again and again; the order is reversed every other time, so that other work
    on the machine meets all alike."""
    for _ in range(warm_up):
        for call in contestants.values():
            call()
    wait_until_idle()
    order = list(contestants.items())
    while True:
        taken = {}
        for name, call in order:
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            taken[name] = time.perf_counter() - wall, time.process_time() - cpu
        yield taken
        order.reverse()


def time_warm_calls(
    first: Callable[[], Any],
    second: Callable[[], Any],
    *,
    clock: Callable[[], float],
    blocks: int,
    seconds: float = inf,
) -> tuple[float, float]:
    """The least seconds of each of two calls, with which other work on the machine interfered least.

    Both run in blocks, which take turns, until there were `blocks` of each or the `seconds` are over. The first call
    of a block is not timed: after many calls of the other it finds its threads asleep, its data out of the caches, and
    the other's threads still spinning.
    """
    least, end = [inf, inf], time.monotonic() + seconds
    for _ in range(blocks):
        for place, call in enumerate((first, second)):
            call()
            for _ in range(_WARM_CALLS):
                begin = clock()
                call()
                least[place] = min(least[place], clock() - begin)
        if time.monotonic() > end:
            break
    return least[0], least[1]


def time_in_turns(contestants: Mapping[str, Callable[[], Any]], repeat: int) -> dict[str, Runs]:
    """The seconds of `repeat` runs of each, in turns."""
    turns = list(islice(take_turns(contestants), repeat))
    return {name: Runs(*zip(*(turn[name] for turn in turns), strict=True)) for name in contestants}


def ratios(runs: Mapping[str, Runs], reference: str, other: str, threads: int) -> Middle:
    """How many times as long the other takes, pair by pair: by CPU time on one thread, by the wall clock on several."""
    first, second = runs[reference], runs[other]
    pairs = zip(first.cpu, second.cpu, strict=True) if threads == 1 else zip(first.wall, second.wall, strict=True)
    return Middle.of([b / max(a, 1e-9) for a, b in pairs])
