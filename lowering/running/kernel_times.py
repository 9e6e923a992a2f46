"""Where the time of a compiled model goes: each call of a kernel, timed inside the running model, beside its roofline.

A stopwatch in the library looks at the clock between two steps of a run, so memory and caches hold what they hold in
any run of the model.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...support.errors import UsageError
from ..plan.kernel_facts import KernelFacts, read_table
from ..plan.plan import CALLBACK, LOOP
from .context import Context
from .runner import CompiledModel
from .turns import Middle, wait_until_idle

_WARM_UP = 3
"""Runs before those that count: they bring code and weights into the caches."""
_LEAST_CORRELATED = 3
"""Kernels that a correlation takes at least: of two, every order is a perfect one or its opposite."""
_LEAST_ROUNDS = 5
"""Runs of each of several bundles that are timed in turns: a median of fewer is not worth much."""


@dataclass(frozen=True)
class KernelTime:
    """A distinct kernel and the seconds of all its calls in one run of the model: the median over the runs."""

    facts: KernelFacts
    seconds: float

    @property
    def per_call(self) -> float:
        """Seconds of one call."""
        return self.seconds / self.facts.calls

    @property
    def distance(self) -> float:
        """How many times as long as the roofline allows; 0 for what neither computes nor moves anything."""
        return self.per_call / self.facts.roofline if self.facts.roofline else 0.0


@dataclass(frozen=True)
class Breakdown:
    """Where the seconds of one run go. `whole` is the run as callers see it; `kernels` are in the order they first run.

    `loops` are plain C loops, by symbol in the order they first run, `fallbacks` is what ONNX Runtime runs. The rest of
    `whole` is what happens between these. `steps` are the medians of each step of the plan.
    """

    whole: float
    kernels: tuple[KernelTime, ...]
    loops: Mapping[str, float]
    fallbacks: float
    steps: tuple[float, ...] = ()

    @property
    def between(self) -> float:
        """Seconds spent in no kernel and no loop."""
        inside = sum(kernel.seconds for kernel in self.kernels) + sum(self.loops.values())
        return self.whole - self.fallbacks - inside

    @property
    def correlation(self) -> float | None:
        """Spearman's, of the predicted and the measured seconds of a call; None of fewer than three kernels."""
        pairs = [(k.facts.predicted, k.per_call) for k in self.kernels if k.facts.predicted is not None]
        if len(pairs) < _LEAST_CORRELATED:
            return None
        predicted, measured = (_ranks(np.array(column)) for column in zip(*pairs, strict=True))
        if not np.ptp(predicted) or not np.ptp(measured):
            return None
        return float(np.corrcoef(predicted, measured)[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The place of each in their order, counted from 0; equal ones share the mean of theirs."""
    _, own, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts + 1) / 2)[own])


@dataclass(frozen=True)
class CallTime:
    """The seconds of a call of a kernel, or of a part in ONNX Runtime: the median of `runs` runs of the model, and
    their interquartile range. If the model calls it several times, these are the means over the calls."""

    seconds: float
    spread: float
    runs: int


def kernel_times(path: Path, inputs: Mapping[str, Any], threads: int | None = None, repeat: int = 30) -> Breakdown:
    """Time each kernel of the bundle in place: by CPU time with one thread, by the wall clock with more.

    Raises BundleError if the bundle cannot be used, UsageError if the inputs do not fit.
    """
    if repeat < 1:
        raise UsageError(f"kernels are timed at least once, not {repeat} times")
    model = CompiledModel(path, threads)
    facts = read_table(path)
    stopwatch = _Stopwatch.of(model, inputs)
    run = model.bind_inputs(inputs)
    whole: list[float] = []
    steps: list[NDArray[np.int64]] = []
    wait_until_idle()
    for _ in range(repeat + _WARM_UP):
        started = time.clock_gettime(stopwatch.clock)
        run()
        whole.append(time.clock_gettime(stopwatch.clock) - started)
        steps.append(stopwatch.run())
    spent = {symbol: seconds[_WARM_UP:] for symbol, seconds in stopwatch.spent.items()}
    kernels = tuple(KernelTime(row, median(spent[row.symbol])) for row in facts)
    loops = {symbol: median(seconds) for symbol, seconds in spent.items() if symbol.startswith(LOOP)}
    fallbacks = sum(median(seconds) for symbol, seconds in spent.items() if symbol.startswith(CALLBACK))
    middles = np.median(steps[_WARM_UP:], axis=0) * 1e-9
    return Breakdown(median(whole[_WARM_UP:]), kernels, loops, fallbacks, tuple(middles.tolist()))


def call_times(
    paths: Sequence[Path], inputs: Mapping[str, Any], threads: int, budget: float, most: int
) -> tuple[Mapping[str, CallTime], ...]:
    """For each bundle the time of a call of each of its kernels by symbol, and of each model that ONNX Runtime runs.

    The bundles run in turns, for about `budget` seconds and at most `most` times, so that all meet what else happens.
    Clocks are those of `kernel_times`. Raises BundleError and UsageError as that does.
    """
    watches = [_Stopwatch.of(CompiledModel(path, threads), inputs) for path in paths]
    wait_until_idle()
    started = time.perf_counter()
    for watch in watches:
        watch.run()
    rounds = budget / max(time.perf_counter() - started, 1e-6)
    for watch in watches:
        watch.forget()
    for number in range(min(most, max(_LEAST_ROUNDS, int(rounds)))):
        for watch in watches if number % 2 else reversed(watches):
            watch.run()
    return tuple(watch.times() for watch in watches)


@dataclass(frozen=True)
class _Stopwatch:
    """A model with its inputs, and the seconds that all calls of a kernel, or of a part in ONNX Runtime, `spent` in
    each run, by its symbol. The clock is CPU time for one thread, and the wall's for more."""

    context: Context
    symbols: tuple[str, ...]
    clock: int
    spent: dict[str, list[float]]

    @staticmethod
    def of(model: CompiledModel, inputs: Mapping[str, Any]) -> _Stopwatch:
        context = model.create_context()
        context.bind(inputs)
        clock = time.CLOCK_PROCESS_CPUTIME_ID if model.threads == 1 else time.CLOCK_MONOTONIC
        return _Stopwatch(context, model.plan.step_names, clock, {symbol: [] for symbol in model.plan.step_names})

    def run(self) -> NDArray[np.int64]:
        """Run the model once. Returns the nanoseconds of each step."""
        nanoseconds = np.zeros(len(self.symbols), np.int64)
        self.context.time_steps(self.clock, nanoseconds)
        totals = dict.fromkeys(self.symbols, 0.0)
        for symbol, taken in zip(self.symbols, nanoseconds.tolist(), strict=True):
            totals[symbol] += taken * 1e-9
        for symbol, seconds in totals.items():
            self.spent[symbol].append(seconds)
        return nanoseconds

    def forget(self) -> None:
        """Forget the runs so far: they were the first."""
        for seconds in self.spent.values():
            seconds.clear()

    def times(self) -> Mapping[str, CallTime]:
        """The time of a call of each."""
        count = Counter(self.symbols)
        middles = {symbol: Middle.of(seconds) for symbol, seconds in self.spent.items()}
        return {
            symbol: CallTime(m.median / count[symbol], (m.upper - m.lower) / count[symbol], len(self.spent[symbol]))
            for symbol, m in middles.items()
        }
