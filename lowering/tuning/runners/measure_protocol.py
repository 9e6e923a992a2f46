"""What runners ask the processes that run kernels, and what those answer. Light to import."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....support import worker_process
from ....support.worker_process import WorkerDiedError, WorkerProcess
from ...errors import LoweringError
from ..sampling import Run, compared, sampled
from .measuring import KernelObject, Timing

Kernels = tuple[KernelObject, ...]
"""One to measure, or several to compare; none: only to say that the process is ready."""

START_SECONDS = 60.0
"""How long a process may take to start; it imports TVM."""
COMPARISON = 4.0
"""A comparison may take so many times as long as a measurement."""
_ORPHAN_SECONDS = 10.0
"""A process ends itself when it is so much too late that nobody can be waiting for it any more."""


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
        """The rounds of two kernels; none where there was a problem."""
        return [(first, second) for first, second in self.seconds]

    @staticmethod
    def of(runs: Sequence[Run]) -> Rounds:
        """Measure one kernel, or compare several."""
        if len(runs) == 1:
            return Rounds(tuple((seconds,) for seconds in sampled(runs[0])))
        return Rounds(tuple(tuple(round_) for round_ in compared(runs)))


def ask(process: WorkerProcess, kernels: Kernels, seconds: float) -> Rounds:
    """What such a process says of the kernels, or why it says nothing: it crashed, or took longer than that."""
    try:
        if not process.is_running:
            process.ask((), START_SECONDS)
    except WorkerDiedError as error:
        return Rounds(problem=f"the process that runs kernels {error}", lost=True)
    try:
        rounds: Rounds = process.ask(kernels, seconds)
    except WorkerDiedError as error:
        return Rounds(problem=f"took longer than {seconds:g} s" if error.timed_out else str(error))
    return rounds


def serve(answer: Callable[[Kernels], Rounds], seconds: float) -> None:
    """Answer requests until there are no more.

    An exception is the problem of its request; one that takes much longer than `seconds` ends the process.
    """

    def timed(kernels: Kernels) -> Rounds:
        signal.setitimer(signal.ITIMER_REAL, seconds + _ORPHAN_SECONDS)
        rounds = _answered(answer, kernels)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return rounds

    worker_process.serve(timed)


def _answered(answer: Callable[[Kernels], Rounds], kernels: Kernels) -> Rounds:
    try:
        return answer(kernels) if kernels else Rounds()
    except (OSError, LoweringError) as error:  # a disk that is full, a linker that is gone
        return Rounds(problem=one_line(error), lost=True)
    except Exception as error:  # TVM raises many kinds; each of them is about these kernels alone
        return Rounds(problem=one_line(error))


def one_line(error: Exception) -> str:
    """The end of a message of TVM's, where it says what was wrong."""
    return " ".join(f"{type(error).__name__}: {error}".split())[-300:]
