"""Measures kernels on this machine."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from ....support.worker_process import WorkerProcess
from .linking import Linker
from .measure_protocol import COMPARISON, ask
from .measuring import KernelObject, Timing

LOCAL = "local"


class LocalRunner:
    """Runs kernels one after the other in a process of its own, on so many threads; each may take `timeout` seconds.

    With one thread the clock is the CPU time of the process, which what else runs here does not stretch, and with more
    the wall clock. Raises UsageError where this machine has no linker.
    """

    def __init__(self, threads: int, timeout: float = 10.0) -> None:
        Linker.of(platform.machine())
        self._timeout = timeout
        self._process = WorkerProcess(f"{__package__}.measure_worker", str(threads), str(COMPARISON * timeout))

    @property
    def name(self) -> str:
        """What tells its times from others'."""
        return LOCAL

    def measure(self, kernels: Sequence[KernelObject]) -> list[Timing]:
        """A timing of each, in their order. A kernel that crashes or hangs costs itself alone."""
        return [ask(self._process, (kernel,), self._timeout).timing for kernel in kernels]

    def compare(self, incumbent: KernelObject, challengers: Sequence[KernelObject]) -> list[list[tuple[float, float]]]:
        """For each challenger, seconds of (incumbent, challenger) in interleaved pairs; none where one fails."""
        limit = COMPARISON * self._timeout
        return [ask(self._process, (incumbent, challenger), limit).pairs for challenger in challengers]

    def close(self) -> None:
        """End the process."""
        self._process.end()
