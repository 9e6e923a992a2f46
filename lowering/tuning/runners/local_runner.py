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
from typing import Any

from ....ir.types import TensorType
from ....support.scratch import scratch_folder, scratch_root
from ...linking import Linker
from ...tvm_runtime import USE_THREADS
from ..sampling import Run
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

LOCAL = "local"
_MOST_COPIES = 512
"""Sets of arguments at most: those of the smallest kernels would be too many to make."""


class LocalRunner:
    """Runs kernels one after the other on `threads` threads; each may take `timeout` seconds.

    With one thread the clock is the CPU time of the process, which other processes do not stretch, and with more the
    wall clock. Raises UsageError where this machine has no linker.
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
    pool = linker.thread_pool(scratch_root())
    clock = time.process_time if threads == 1 else time.perf_counter

    def measure(kernels: Sequence[KernelObject]) -> Rounds:
        return Rounds.of([_run(kernel, pool, threads, clock) for kernel in kernels])

    return partial(attempt, measure)


def stay(threads: int) -> None:
    """Run on the first processors only, as many as threads: a thread that wanders finds its caches cold."""
    allowed = sorted(os.sched_getaffinity(0))
    if threads < len(allowed):
        os.sched_setaffinity(0, allowed[:threads])


def _run(kernel: KernelObject, pool: Path, threads: int, clock: Callable[[], float]) -> Run:
    import tvm

    with scratch_folder("measure") as folder:  # the function keeps its library loaded, whose file is gone by then
        library = Path(folder) / "kernel.so"
        Linker.of(platform.machine()).link((kernel.object_file, pool), library)
        module = tvm.runtime.load_module(str(library))
    module[USE_THREADS](threads)
    function: Callable[..., None] = module[kernel.symbol]
    sets = cycle(_arguments(kernel.parameters, kernel.constants, kernel.between))

    def run(number: int) -> float:
        turns = list(islice(sets, number))
        started = clock()
        for arguments in turns:
            function(*arguments)
        return clock() - started

    return run


@lru_cache(maxsize=2)
def _arguments(parameters: tuple[TensorType, ...], constants: tuple[int, ...], between: int) -> tuple[list[Any], ...]:
    """The same memory for all candidates of a kernel, whose times then differ by their code alone.

    There are enough sets that the constants of one are used again after `between` bytes of others', but not after more
    than MOST_BETWEEN. The other tensors are the same in all, for the kernel before has just made them.
    """
    import tvm

    arrays = example_tensors(parameters)
    size = sum(arrays[place].nbytes for place in constants)
    copies = 1 + ceil(min(between, MOST_BETWEEN) / size) if size else 1
    first = [tvm.runtime.tensor(array) for array in arrays]
    sets = [first]
    for _ in range(min(copies, _MOST_COPIES) - 1):
        fresh = {place: tvm.runtime.tensor(arrays[place]) for place in constants}
        sets.append([fresh.get(place, tensor) for place, tensor in enumerate(first)])
    return tuple(sets)
