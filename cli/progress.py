"""How far a command is, on standard error."""

from __future__ import annotations

import argparse
import os
import sys
import time
from types import TracebackType

_ERASE = "\r\x1b[K"


class Progress:
    """One live line on a terminal; elsewhere plain lines where `-v` asks for them. A context: it clears its line."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.live = terminal and not arguments.quiet
        self.plain = not terminal and not arguments.quiet and arguments.verbose > 0
        self.started = time.monotonic()

    def __call__(self, phase: str, detail: str = "") -> None:
        """Say what begins or goes on."""
        if not (self.live or self.plain):
            return
        text = f"{time.monotonic() - self.started:5.1f} s  {phase}{': ' if detail else ''}{detail}"
        if self.live:
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            print(_ERASE + text[: width - 1], end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live:
            print(_ERASE, end="", file=sys.stderr, flush=True)
