"""Where the time of a compiled model goes: each call of a kernel timed where it stands, beside the roofline.

The model runs once under the virtual machine's instrument, which keeps what every kernel is called with. Then the calls
are made again and again in their order, on the same memory: caches hold what they hold in the model, and no
instrument is between the clock and the kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ...errors import UsageError
from ..kernels.fallback import FUNCTION
from ..kernels.table import KernelFacts, read_table
from .runner import CompiledModel
from .turns import wait_until_idle

_WARM_UP = 3


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


def kernel_times(path: Path, inputs: Mapping[str, Any], threads: int | None = None, repeat: int = 30) -> Breakdown:
    """Time each kernel of the bundle in place: by CPU time with one thread, by the wall clock with more.

    Raises BundleError where the bundle cannot be used, UsageError where the inputs do not fit.
    """
    if repeat < 1:
        raise UsageError(f"kernels are timed at least once, not {repeat} times")
    model = CompiledModel(path, threads)
    facts = read_table(path)
    run = model.bind_inputs(inputs)
    calls, functions = _record_calls(model, inputs, {row.symbol for row in facts})
    clock = time.process_time if model.threads == 1 else time.perf_counter
    spent: dict[str, list[float]] = {symbol: [] for symbol in functions}
    whole: list[float] = []
    wait_until_idle()
    for number in range(repeat + _WARM_UP):
        started = clock()
        run()
        taken = clock() - started
        seconds_of = _replay(calls, functions, clock)
        if number >= _WARM_UP:
            whole.append(taken)
            for symbol, seconds in seconds_of.items():
                spent[symbol].append(seconds)
    kernels = tuple(KernelTime(row, median(spent[row.symbol])) for row in facts)
    fallbacks = sum(median(seconds) for symbol, seconds in spent.items() if symbol.startswith(FUNCTION))
    return Breakdown(median(whole), kernels, fallbacks)


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
