"""How often a kernel is run to know what it takes: samples of many calls each, so that the clock does not matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

Run = Callable[[int], float]
"""The seconds that a number of calls, one after the other, take together."""

SAMPLE = 1e-3
"""Seconds of one sample, at least."""
SAMPLES = 10
"""Samples of a kernel at least, unless it takes longer than `MOST`."""
ENOUGH = 40e-3
"""Seconds of all samples: one kernel gets `SAMPLES` at least, and goes on until `ENOUGH`."""
MOST = 0.3
"""Seconds of samples after which a slow kernel gets no more of them."""
PAIRS = 15
"""Rounds of a comparison, at least; it goes on until `ENOUGH` for each kernel."""
FEWEST, LONG = 4, 2.0
"""Rounds of a comparison at least, and the seconds of each kernel after which it ends all the same."""

_GROWTH = 16
"""A first guess from one call may be far too high, never by more than this."""


def time_calls(run: Run) -> list[float]:
    """The seconds of a call, in several samples. The first call warms up."""
    first = run(1)
    if first >= MOST:
        return [first]
    number = calls_per_sample(run)
    samples: list[float] = []
    while sum(samples) * number < MOST and (len(samples) < SAMPLES or sum(samples) * number < ENOUGH):
        samples.append(run(number) / number)
    return samples


def compare_calls(runs: Sequence[Run]) -> list[list[float]]:
    """The seconds of a call of each, in rounds; every other round goes in the opposite order.

    Slow ones need fewer rounds than `PAIRS`: a call of theirs is longer than what disturbs it.
    """
    for run in runs:
        run(1)
    numbers = [calls_per_sample(run) for run in runs]
    order = list(range(len(runs)))
    rounds: list[list[float]] = []
    spent = 0.0
    while len(rounds) < FEWEST or (spent < LONG * len(runs) and (len(rounds) < PAIRS or spent < ENOUGH * len(runs))):
        taken = {place: runs[place](numbers[place]) for place in order}
        rounds.append([taken[place] / numbers[place] for place in range(len(runs))])
        spent += sum(taken.values())
        order.reverse()
    return rounds


def calls_per_sample(run: Run) -> int:
    """How many calls take the time of a sample."""
    number = 1
    while (taken := run(number)) < SAMPLE:
        likely = ceil(1.1 * number * SAMPLE / max(taken, SAMPLE / 1e6))
        number = min(max(likely, number + 1), number * _GROWTH)
    return number
