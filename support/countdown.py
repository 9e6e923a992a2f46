"""The progress through a long list, and an estimate of the rest."""

from __future__ import annotations

import time
from collections.abc import Callable

_WIDTH = 20
"""Characters of the bar: a line of 80 has room for the numbers beside it."""
_FIRST = 3
"""Parts that have to be done before there is an estimate."""


class Countdown:
    """Counts the parts of a whole: ``[#####---------------] 750 of 3000 rules, about 12 min left``.

    `clock` gives seconds. The estimate is the time so far for each part that was done, times those that are left.
    """

    def __init__(self, whole: int, noun: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.whole, self.noun, self.done = whole, noun, 0
        self._clock, self._started = clock, clock()

    def advance(self) -> str:
        """One more part is done."""
        self.done += 1
        filled = _WIDTH * self.done // max(self.whole, 1)
        bar = f"[{'#' * filled}{'-' * (_WIDTH - filled)}]"
        return f"{bar} {self.done} of {self.whole} {self.noun}{self._estimate()}"

    def _estimate(self) -> str:
        if self.done < min(_FIRST, self.whole):
            return ""
        seconds = (self._clock() - self._started) / self.done * (self.whole - self.done)
        if seconds < 60:
            return f", about {seconds:.0f} s left"
        return f", about {seconds / 60:.0f} min left" if seconds < 3600 else f", about {seconds / 3600:.1f} h left"
