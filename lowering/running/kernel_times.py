"""Where the time of a compiled model goes: each call of a kernel timed where it stands, beside the roofline.

The model runs once under the virtual machine's instrument, which keeps what every kernel is called with. Then the calls
are made again and again in their order, on the same memory: caches hold what they hold in the model, and no
instrument is between the clock and the kernel.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ...errors import UsageError
from ..kernels.fallback import FUNCTION
from ..kernels.table import KernelFacts, read_table
from .runner import CompiledModel
from .turns import Middle, wait_until_idle

_WARM_UP = 3
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 25
"""Runs of each of several bundles that are timed in turns: a median of fewer is not worth much, more tell no more."""


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

    `fallbacks` is what ONNX Runtime runs. The rest of `whole` is what the virtual machine does between kernels.
    """

    whole: float
    kernels: tuple[KernelTime, ...]
    fallbacks: float

    @property
    def between(self) -> float:
        """Seconds spent in no kernel."""
        return self.whole - self.fallbacks - sum(kernel.seconds for kernel in self.kernels)


@dataclass(frozen=True)
class _Recorded:
    """A call of a kernel, and what it was called with."""

    symbol: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class CallTime:
    """The seconds of a call of a kernel, or of what ONNX Runtime runs: the median of `runs` runs of the model, and
    their interquartile range. Where the model has several calls of it, the mean of these."""

    seconds: float
    spread: float
    runs: int


def kernel_times(path: Path, inputs: Mapping[str, Any], threads: int | None = None, repeat: int = 30) -> Breakdown:
    """Time each kernel of the bundle in place: by CPU time with one thread, by the wall clock with more.

    Raises BundleError where the bundle cannot be used, UsageError where the inputs do not fit.
    """
    if repeat < 1:
        raise UsageError(f"kernels are timed at least once, not {repeat} times")
    model = CompiledModel(path, threads)
    facts = read_table(path)
    replay = _Replay.of(model, inputs)
    run = model.bind_inputs(inputs)
    whole: list[float] = []
    wait_until_idle()
    for _ in range(repeat + _WARM_UP):
        started = replay.clock()
        run()
        whole.append(replay.clock() - started)
        replay.run()
    spent = {symbol: seconds[_WARM_UP:] for symbol, seconds in replay.spent.items()}
    kernels = tuple(KernelTime(row, median(spent[row.symbol])) for row in facts)
    fallbacks = sum(median(seconds) for symbol, seconds in spent.items() if symbol.startswith(FUNCTION))
    return Breakdown(median(whole[_WARM_UP:]), kernels, fallbacks)


def call_times(
    paths: Sequence[Path], inputs: Mapping[str, Any], threads: int, budget: float
) -> tuple[Mapping[str, CallTime], ...]:
    """For each bundle the time of a call of each of its kernels by symbol, and of each model that ONNX Runtime runs.

    The bundles' calls are made in turns, for about `budget` seconds, so that all meet what else the machine does.
    Clocks are those of `kernel_times`. Raises BundleError and UsageError as that does.
    """
    replays = [_Replay.of(CompiledModel(path, threads), inputs) for path in paths]
    wait_until_idle()
    started = time.perf_counter()
    for replay in replays:
        replay.run()
    rounds = budget / max(time.perf_counter() - started, 1e-6)
    for replay in replays:
        replay.forget()
    for number in range(min(_MOST_ROUNDS, max(_LEAST_ROUNDS, int(rounds)))):
        for replay in replays if number % 2 else reversed(replays):
            replay.run()
    return tuple(replay.times() for replay in replays)


@dataclass(frozen=True)
class _Replay:
    """The calls of one run of a model, to be made again; the seconds that all calls of a function `spent` in each."""

    calls: Sequence[_Recorded]
    functions: Mapping[str, Callable[..., Any]]
    clock: Callable[[], float]
    spent: dict[str, list[float]]

    @staticmethod
    def of(model: CompiledModel, inputs: Mapping[str, Any]) -> _Replay:
        calls, functions = _record_calls(model, inputs, {row.symbol for row in read_table(model.path)})
        clock = time.process_time if model.threads == 1 else time.perf_counter
        return _Replay(calls, functions, clock, {symbol: [] for symbol in functions})

    def run(self) -> None:
        """Make all calls once, in their order, on the same memory."""
        for symbol, seconds in _replay(self.calls, self.functions, self.clock).items():
            self.spent[symbol].append(seconds)

    def forget(self) -> None:
        """Forget the runs so far: they were the first."""
        for seconds in self.spent.values():
            seconds.clear()

    def times(self) -> Mapping[str, CallTime]:
        """The time of a call of each function."""
        count = Counter(call.symbol for call in self.calls)
        middles = {symbol: Middle.of(seconds) for symbol, seconds in self.spent.items()}
        return {
            symbol: CallTime(m.median / count[symbol], (m.upper - m.lower) / count[symbol], len(self.spent[symbol]))
            for symbol, m in middles.items()
        }


def _record_calls(
    model: CompiledModel, inputs: Mapping[str, Any], symbols: set[str]
) -> tuple[list[_Recorded], dict[str, Callable[..., Any]]]:
    """The calls of one run, and the functions they call by name."""
    machine = model.machine()
    calls: list[_Recorded] = []

    def note(_: Any, symbol: str, before: bool, __: Any, *arguments: Any) -> int:
        if before and (symbol in symbols or symbol.startswith(FUNCTION)):
            calls.append(_Recorded(str(symbol), arguments))
        return 0

    machine.set_instrument(note)
    model.run_on(machine, inputs)
    names = dict.fromkeys(call.symbol for call in calls)
    return calls, {n: model.fallbacks[n] if n in model.fallbacks else model.kernels[n] for n in names}


def _replay(
    calls: Sequence[_Recorded], functions: Mapping[str, Callable[..., Any]], clock: Callable[[], float]
) -> dict[str, float]:
    """Seconds of each function, over all its calls of a run."""
    spent = dict.fromkeys(functions, 0.0)
    for call in calls:
        function = functions[call.symbol]
        started = clock()
        function(*call.arguments)
        spent[call.symbol] += clock() - started
    return spent
