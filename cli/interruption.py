"""SIGINT and SIGTERM as exceptions, after which temporary files and processes go. Light to import."""

from __future__ import annotations

import os
import signal
import threading
from typing import NoReturn

_AGAIN = 3.0
"""Seconds after which a signal is taken for lost: an exception in a finalizer, or in a library that is just being
imported, may get nowhere. What has to be removed is removed sooner."""


class Interruption:
    """The first signal that tells this process to end, from when it is made; a context, after which none counts."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._again: threading.Timer | None = None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._leave)
            if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # as it is for what a script runs in the background
                signal.signal(signal.SIGINT, self._leave)

    def _leave(self, number: int, _: object) -> NoReturn:
        self.number = self.number or number
        self._cancel()
        self._again = threading.Timer(_AGAIN, os.kill, (os.getpid(), number))
        self._again.daemon = True
        self._again.start()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def _cancel(self) -> None:
        if self._again is not None:
            self._again.cancel()

    def __enter__(self) -> Interruption:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel()
