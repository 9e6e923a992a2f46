"""Forks wait while a thread of eqfuse does work that must not be interrupted, such as importing modules.

A forked process has the locks of imports and libraries in their state at the fork, and no thread that would free them:
all code that needs them waits forever, here and in the user's program.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST = 10.0
"""Seconds that a fork waits at most: the thread might itself wait for a lock of the forking one."""

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
