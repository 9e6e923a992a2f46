"""How long each phase takes, and whoever wants to hear how it is going."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Observer = Callable[[str, str], None]
"""Called with the phase and a line of detail."""


class Clock:
    """Wall-clock seconds of each phase, and whoever wants to hear of them."""

    def __init__(self, observer: Observer | None) -> None:
        self.phases: dict[str, float] = {}
        self.observer = observer
        self._inner = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside, without the phases inside of it; of a phase that comes again, in all."""
        self.tell(name, "")
        started, outer, self._inner = time.perf_counter(), self._inner, 0.0
        yield
        taken = time.perf_counter() - started
        self.phases[name] = self.phases.get(name, 0.0) + taken - self._inner
        self._inner = outer + taken

    def tell(self, phase: str, detail: str) -> None:
        """Say how a phase is going."""
        if self.observer:
            self.observer(phase, detail)
