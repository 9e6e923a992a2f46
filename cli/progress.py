"""The progress of a command, on standard error."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType

from ..support.text import printable

_ERASE = "\r\x1b[K"
_REDRAWN = 1.0
"""Seconds after which the live line is written again, so that its clock goes on."""
_REPEATED = 5.0
"""Seconds between two lines on an output that is no terminal: the log stays short, and shows that the command lives."""


class Progress:
    """Shows the current phase and the seconds so far: one live line on a terminal, elsewhere a line every few seconds.

    With `-v` each phase gets a plain line at once; with `-q` there are none. A context: it clears its live line.
    """

    def __init__(self, arguments: argparse.Namespace, phase: str = "begin") -> None:
        terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.live = terminal and not arguments.quiet
        self.eager = not arguments.quiet and (terminal or arguments.verbose > 0)
        self.started = self._shown = time.monotonic()
        self._text = phase
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._timer = None if arguments.quiet else threading.Thread(target=self._repeat, daemon=True)

    def __call__(self, phase: str, detail: str = "") -> None:
        """Show the phase that begins or goes on."""
        self._text = f"{phase}{': ' if detail else ''}{detail}"
        if self.eager:
            self._show()

    def _show(self) -> None:
        with self._lock:
            self._shown = time.monotonic()
            text = printable(f"{self._shown - self.started:5.1f} s  {self._text}".replace("\n", " "))
            if self.live:
                width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
                sys.stderr.write(_ERASE + text[: width - 1])
            else:
                sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def _repeat(self) -> None:
        """Show the time again while a phase says nothing."""
        seconds = _REDRAWN if self.live else _REPEATED
        with suppress(OSError, ValueError):  # nobody reads standard error any more
            while not self._ended.wait(self._shown + seconds - time.monotonic()):
                if time.monotonic() >= self._shown + seconds:
                    self._show()

    def __enter__(self) -> Progress:
        if self._timer is not None:
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        if self._timer is not None:
            self._timer.join()
        if self.live:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
