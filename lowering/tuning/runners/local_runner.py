"""Measures kernels on this machine, in a process of its own, which a kernel may crash or have wait for ever."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import cycle, islice
from math import ceil
from pathlib import Path

from ....ir.types import TensorType
from ....support.scratch import scratch_folder, scratch_root
from ...base.linking import Linker
from ...running.native import Array, NativeLibrary, aligned, empty
from .measuring import (
    COMPARISON,
    MOST_BETWEEN,
    KernelObject,
    Rounds,
    RunKernels,
    Timing,
    ask,
    attempt,
    example_tensors,
    measuring_process,
)
from .sampling import Run

LOCAL = "local"
_MOST_COPIES = 512
"""Sets of arguments at most: those of the smallest kernels would be too many to make."""


class LocalRunner:
    """Runs kernels one after the other on `threads` threads; each may take `timeout` seconds.

    With one thread the clock is the CPU time of the process, which other processes do not stretch, and with more the
    wall clock. Raises UsageError if this machine has no linker.
    """

    def __init__(self, threads: int, timeout: float = 10.0) -> None:
        Linker.of(platform.machine())
        self._timeout = timeout
        self._process = measuring_process(run_here, threads)

    @property
    def name(self) -> str:
        return LOCAL

    def measure(self, kernels: Sequence[KernelObject]) -> list[Timing]:
        return [ask(self._process, (kernel,), self._timeout).timing for kernel in kernels]

    def compare(self, incumbent: KernelObject, challengers: Sequence[KernelObject]) -> list[list[tuple[float, float]]]:
        limit = COMPARISON * self._timeout
        return [ask(self._process, (incumbent, challenger), limit).pairs for challenger in challengers]

    def close(self) -> None:
        self._process.end()


# --- in the other process


def run_here(threads: int) -> RunKernels:
    """Prepare this process to run kernels on that many threads."""
    stay(threads)
    linker = Linker.of(platform.machine())
    runtime = linker.runtime(scratch_root())
    clock = time.process_time if threads == 1 else time.perf_counter

    def measure(kernels: Sequence[KernelObject]) -> Rounds:
        return Rounds.of([_run(kernel, runtime, threads, clock) for kernel in kernels])

    return partial(attempt, measure)


def stay(threads: int) -> None:
    """Run on the first processors only, as many as threads: a thread that wanders finds its caches cold."""
    allowed = sorted(os.sched_getaffinity(0))
    if threads < len(allowed):
        os.sched_setaffinity(0, allowed[:threads])


def _run(kernel: KernelObject, runtime: tuple[Path, ...], threads: int, clock: Callable[[], float]) -> Run:
    with scratch_folder("measure") as folder:  # the library stays loaded when its file is gone
        path = Path(folder) / "kernel.so"
        Linker.of(platform.machine()).link((kernel.object_file, *runtime), path)
        library = NativeLibrary(path)
    library.use_threads(threads)
    sets = _arguments(kernel.parameters, kernel.constants, kernel.between)
    calls = cycle([library.bind_kernel(kernel.symbol, arguments) for arguments in sets])

    def run(number: int) -> float:
        turns = list(islice(calls, number))
        started = clock()
        for call in turns:
            call()
        return clock() - started

    return run


@lru_cache(maxsize=2)
def _arguments(parameters: tuple[TensorType, ...], constants: tuple[int, ...], between: int) -> tuple[list[Array], ...]:
    """The same memory for all candidates of a kernel, whose times then differ by their code alone.

    There are enough sets that the constants of one are used again after `between` bytes of others', but not after more
    than MOST_BETWEEN. The other tensors are the same in all, for the kernel before has just made them.
    """
    arrays = example_tensors(parameters)
    size = sum(arrays[place].nbytes for place in constants)
    copies = 1 + ceil(min(between, MOST_BETWEEN) / size) if size else 1
    first = [aligned(array) for array in arrays]
    sets = [first]
    for _ in range(min(copies, _MOST_COPIES) - 1):
        fresh = {place: _copy(arrays[place]) for place in constants}
        sets.append([fresh.get(place, array) for place, array in enumerate(first)])
    return tuple(sets)


def _copy(array: Array) -> Array:
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy
