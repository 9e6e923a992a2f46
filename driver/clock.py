"""The time of each phase, and the observer that is told of progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Literal

from ..support.deadlines import take_start

OptimizeStage = Literal[
    "read", "infer", "rules", "encode", "saturate", "check", "extract", "decode", "measure", "profile", "partition",
    "confirm", "explain", "certify", "summarize", "verify", "write",
]  # fmt: skip
"""The stages of `optimize`, in the order in which they begin; joint partitions extract in turns with their own."""
CompileStage = Literal["schedule", "compile", "write", "kernels", "verify", "measure", "tune", "combine", "confirm"]
"""The stages of `compile` that follow once the model is read and optimised."""
Observer = Callable[[str, str], None]
"""Called with the phase and a line of detail."""


class Clock:
    """Wall-clock seconds of each phase, and the observer that is told of them.

    `deadline` (time.monotonic) is the end of the user's `time_limit` for all phases, which begins with the command, or
    else now; infinite without a limit.
    """

    def __init__(self, observer: Observer | None, time_limit: float | None = None) -> None:
        self.phases: dict[str, float] = {}
        self.observer = observer
        self.deadline = take_start() + (inf if time_limit is None else time_limit)
        self._inner = 0.0

    @contextmanager
    def phase(self, name: OptimizeStage | CompileStage) -> Iterator[None]:
        """Time the context without the phases inside of it; times of a phase that comes again add up."""
        self.tell(name, "")
        started, outer, self._inner = time.perf_counter(), self._inner, 0.0
        yield
        taken = time.perf_counter() - started
        self.phases[name] = self.phases.get(name, 0.0) + taken - self._inner
        self._inner = outer + taken

    def tell(self, phase: str, detail: str) -> None:
        """Tell the observer how a phase is going."""
        if self.observer:
            self.observer(phase, detail)
