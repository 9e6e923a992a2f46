"""Deadlines: moments on the clock of `time.monotonic` by which work that can be cut short ends.

They only decide when to stop, so that results depend on no clock if there is time enough.
"""

from __future__ import annotations

import time
from contextvars import ContextVar

_STARTED: ContextVar[float | None] = ContextVar("started", default=None)
"""When the command of this process began (time.monotonic); None once a time limit has counted from it."""


class OutOfTime(Exception):
    """The deadline came before the work was done; the caller takes the best that it has."""


def start_command() -> None:
    """Say that this process runs only one command, whose time limit begins now: importing what it needs takes long on a
    busy machine."""
    _STARTED.set(time.monotonic())


def take_start() -> float:
    """The moment at which a time limit begins: that of the command for the first one, else now."""
    started = _STARTED.get()
    _STARTED.set(None)
    return time.monotonic() if started is None else started


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
