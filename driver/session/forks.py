"""Forks wait for what a thread of ours does in one piece, such as importing modules.

A copy of the process has the locks of imports and libraries as they were, and no thread that would free them: whatever
needs them waits forever, here and in the user's own code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST = 10.0
"""Seconds that a fork waits: the thread might itself wait for what the forking one holds."""

_lock = threading.Lock()
_fork = threading.local()


@contextmanager
def hold_forks() -> Iterator[None]:
    """Let no other thread fork meanwhile."""
    with _lock:
        yield


def _before_fork() -> None:
    _fork.has_lock = _lock.acquire(timeout=_LONGEST)


def _in_parent() -> None:
    if _fork.has_lock:
        _lock.release()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
