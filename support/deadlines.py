"""Deadlines: moments on the clock of `time.monotonic` by which work that can be cut short ends.

They only decide when to stop, so that results depend on no clock if there is time enough.
"""

from __future__ import annotations

import time


class OutOfTime(Exception):
    """The deadline came before the work was done; the caller takes the best that it has."""


def seconds_left(deadline: float) -> float:
    """Seconds until a deadline; 0 once it is over."""
    return max(deadline - time.monotonic(), 0.0)


def is_over(deadline: float) -> bool:
    """Whether a deadline has come."""
    return time.monotonic() >= deadline


def require_time(deadline: float) -> None:
    """Raise OutOfTime if a deadline has come."""
    if is_over(deadline):
        raise OutOfTime
