"""What runners of candidates are given and answer, and how they ask the processes that run kernels. Light to import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ....ir.types import TensorType
from ....support.errors import describe_error
from ....support.processes.worker_process import WorkerDiedError, WorkerProcess
from ...base.errors import LoweringError
from .sampling import Run, compare_calls, time_calls

MOST_BETWEEN = 96 << 20
"""Bytes of constants that are enough to push others out of the caches of one processor."""
COMPARISON = 4.0
"""A comparison may take this many times as long as a measurement."""
_START_SECONDS = 60.0
"""Seconds that a process may take to start; it imports TVM."""
_SEED = 0
"""All candidates of a kernel run on the same numbers."""


@dataclass(frozen=True)
class KernelObject:
    """A compiled kernel: `symbol` in `object_file`, called with tensors of these types.

    First come the inputs and then `outputs` outputs. Those inputs that are `constants`, by their places, have the types
    that they have after packing. In a run of its model the kernel finds them as far away as `between` other bytes of
    constants have moved them, so a runner should not measure it with all of them in the nearest cache.
    """

    symbol: str
    object_file: Path
    parameters: tuple[TensorType, ...]
    outputs: int = 1
    constants: tuple[int, ...] = ()
    between: int = 0

    @property
    def digest(self) -> str:
        """A digest of the code without its name. Raises OSError if the file cannot be read."""
        return sha256(self.object_file.read_bytes().replace(self.symbol.encode(), b"")).hexdigest()


@dataclass(frozen=True)
class Timing:
    """The seconds of each run of a kernel, or why there are none: the `problem`, in one line.

    `lost`: the problem may be the device's, or on the way to it.
    """

    seconds: tuple[float, ...] = ()
    problem: str | None = None
    lost: bool = False

    @property
    def latency(self) -> float:
        """The median of the runs. Raises statistics.StatisticsError if there are none."""
        return median(self.seconds)


class Runner(Protocol):
    """Runs kernels, or says what they would take, on one kind of device."""

    @property
    def name(self) -> str:
        """The name of the kind of device, which tells its times from others'."""
        ...

    def measure(self, kernels: Sequence[KernelObject]) -> list[Timing]:
        """A timing of each, in their order. A kernel that crashes or hangs costs itself alone."""
        ...

    def compare(self, incumbent: KernelObject, challengers: Sequence[KernelObject]) -> list[list[tuple[float, float]]]:
        """For each challenger, seconds of (incumbent, challenger) in interleaved pairs: noise meets both alike."""
        ...

    def close(self) -> None:
        """End the processes and sessions that it holds."""
        ...


def example_tensors(types: Sequence[TensorType]) -> list[NDArray[Any]]:
    """Arrays to run a kernel on: floats between 0.5 and 1.5, the same every time, and zeros of other types.

    With these floats nothing overflows or is denormal. Zeros are indices that exist everywhere. Raises ValueError
    if a shape is not known.
    """
    random = np.random.default_rng(_SEED)
    arrays: list[NDArray[Any]] = []
    for type_ in types:
        if not type_.is_static:
            raise ValueError(f"a shape that is not known: {type_.shape}")
        shape = tuple(int(extent) for extent in type_.shape or ())
        if "float" in type_.dtype:
            values = np.asarray(random.random(shape, np.float32) + np.float32(0.5))
            arrays.append(values.astype(type_.dtype, copy=False))
        else:
            arrays.append(np.zeros(shape, type_.dtype))
    return arrays


# --- processes that run kernels


@dataclass(frozen=True)
class Rounds:
    """The seconds of a call of each kernel, round after round, or why there are none: the `problem`, in one line.

    `lost`: it may be the fault of the device or of the way to it.
    """

    seconds: tuple[tuple[float, ...], ...] = ()
    problem: str | None = None
    lost: bool = False

    @property
    def timing(self) -> Timing:
        """The rounds of one kernel."""
        return Timing(tuple(seconds for (seconds,) in self.seconds), self.problem, self.lost)

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """The rounds of two kernels; none if there was a problem."""
        return [(first, second) for first, second in self.seconds]

    @staticmethod
    def of(runs: Sequence[Run]) -> Rounds:
        """Measure one kernel, or compare several."""
        if len(runs) == 1:
            return Rounds(tuple((seconds,) for seconds in time_calls(runs[0])))
        return Rounds(tuple(tuple(round_) for round_ in compare_calls(runs)))


RunKernels = Callable[[Sequence[KernelObject]], Rounds]
"""Measures one kernel, or compares several."""


def measuring_process(factory: Callable[..., RunKernels], *setup: object) -> WorkerProcess:
    """A process in which the factory makes, of `setup`, what runs kernels."""
    return WorkerProcess(f"{factory.__module__}:{factory.__name__}", setup=setup, start_seconds=_START_SECONDS)


def ask(process: WorkerProcess, kernels: Sequence[KernelObject], seconds: float) -> Rounds:
    """What such a process says of the kernels, or why it says nothing: it crashed, or took longer than that."""
    try:
        rounds: Rounds = process.ask(kernels, seconds)
    except WorkerDiedError as error:
        if not error.started:
            return Rounds(problem=f"the process that runs kernels {error}", lost=True)
        return Rounds(problem=f"took longer than {seconds:g} s" if error.timed_out else str(error))
    return rounds


def attempt(run: RunKernels, kernels: Sequence[KernelObject]) -> Rounds:
    """Run kernels in such a process. An exception is the problem of its request."""
    try:
        return run(kernels)
    except (OSError, LoweringError) as error:  # a disk that is full, a linker that is gone
        return Rounds(problem=describe_error(error), lost=True)
    except Exception as error:  # TVM raises many kinds; each of them is about these kernels alone
        return Rounds(problem=describe_error(error))
