"""The process that runs kernels on this machine. One may crash or hang and take its process with it."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from itertools import cycle, islice
from math import ceil
from pathlib import Path
from typing import Any

from ....ir.types import TensorType
from ....support.scratch import scratch_folder
from ...tvm_runtime import runtime, use_threads
from ..sampling import Run
from .linking import Linker
from .measure_protocol import Kernels, Rounds, serve
from .measuring import MOST_BETWEEN, KernelObject
from .tensors import example_tensors

MOST_COPIES = 512


def main() -> None:
    """Answer until there are no more requests. Arguments: threads, and how many seconds a request may take."""
    threads, seconds = int(sys.argv[1]), float(sys.argv[2])
    stay(threads)
    runtime(threads)
    use_threads(threads)
    linker = Linker.of(platform.machine())
    clock = time.process_time if threads == 1 else time.perf_counter

    def answer(kernels: Kernels) -> Rounds:
        return Rounds.of([_run(kernel, linker, clock) for kernel in kernels])

    serve(answer, seconds)


def stay(threads: int) -> None:
    """Run on so many processors only, the first ones: a thread that wanders finds its caches cold."""
    allowed = sorted(os.sched_getaffinity(0))
    if threads < len(allowed):
        os.sched_setaffinity(0, allowed[:threads])


def _run(kernel: KernelObject, linker: Linker, clock: Callable[[], float]) -> Run:
    function = _loaded(kernel, linker)
    sets = cycle(_arguments(kernel.parameters, kernel.constants, kernel.between))

    def run(number: int) -> float:
        turns = list(islice(sets, number))
        started = clock()
        for arguments in turns:
            function(*arguments)
        return clock() - started

    return run


def _loaded(kernel: KernelObject, linker: Linker) -> Callable[..., None]:
    """The function; it keeps its library loaded, whose file is gone by then."""
    import tvm

    with scratch_folder("measure") as folder:
        library = Path(folder) / "kernel.so"
        linker.link((kernel.object_file,), library)
        function: Callable[..., None] = tvm.runtime.load_module(str(library))[kernel.symbol]
    return function


@lru_cache(maxsize=2)
def _arguments(parameters: tuple[TensorType, ...], constants: tuple[int, ...], between: int) -> tuple[list[Any], ...]:
    """The same memory for all candidates of a kernel, whose times then differ by their code alone.

    So many sets that the constants of one are used again after those of the others, `between` bytes if that is not more
    than MOST_BETWEEN; the rest is the same in all, for it is what the kernel before has just made.
    """
    import tvm

    arrays = example_tensors(parameters)
    size = sum(arrays[place].nbytes for place in constants)
    copies = 1 + ceil(min(between, MOST_BETWEEN) / size) if size else 1
    first = [tvm.runtime.tensor(array) for array in arrays]
    sets = [first]
    for _ in range(min(copies, MOST_COPIES) - 1):
        fresh = {place: tvm.runtime.tensor(arrays[place]) for place in constants}
        sets.append([fresh.get(place, tensor) for place, tensor in enumerate(first)])
    return tuple(sets)


if __name__ == "__main__":
    main()
