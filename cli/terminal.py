"""Standard streams: control characters in names are shown, never obeyed."""

from __future__ import annotations

import io
import os
import shutil
import sys
from typing import TextIO

from ..support.text import printable

_ALIASES: dict[str, str] = {}
"""Texts that are printed in the place of others: the user knows nothing of the files that stand for streams."""


def print_as(text: str, alias: str) -> None:
    """Print an alias wherever a text would be printed, for the rest of the process."""
    _ALIASES[text] = alias


def write(text: object = "", *, error: bool = False, end: str = "\n") -> None:
    """Print to standard output, or to standard error: nothing in the command line prints otherwise."""
    stream: TextIO = sys.stderr if error else sys.stdout
    stream.write(shown(text) + end)


def shown(text: object) -> str:
    """A text as it is printed."""
    printed = printable(str(text))
    for name, alias in _ALIASES.items():
        printed = printed.replace(name, alias)
    return printed


def write_heading(text: str) -> None:
    """Print a line, in bold on a terminal."""
    bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    sys.stdout.write(f"{bold}{shown(text)}{plain}\n")


def output_width() -> int | None:
    """The columns of standard output: those of COLUMNS if it gives any, else of the terminal; None if it is none."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def write_error(message: object) -> str:
    """Write one line that says what went wrong, whatever else was printed. Returns the message as it stands there."""
    line = " ".join(str(message).split())
    write(f"eqfuse: error: {line}", error=True)
    return line


def prepare_streams() -> bool:
    """Make the standard streams take every text. Returns whether there is a standard output.

    Characters that their encoding lacks are spelled out. A closed stream is replaced by /dev/null under the same file
    number: else a file that is opened later would get the number, and with it the output.
    """
    is_open = sys.stdout is not None
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, os.fdopen(handle, "w" if number else "r", encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return is_open
