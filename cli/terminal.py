"""Output to the terminal: control characters in names out of models and files are shown, never obeyed."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from ..support.text import printable


def write(text: object = "", *, error: bool = False, end: str = "\n") -> None:
    """Print to standard output, or to standard error: nothing in the command line prints otherwise."""
    stream: TextIO = sys.stderr if error else sys.stdout
    stream.write(printable(str(text)) + end)


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
