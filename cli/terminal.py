"""Standard streams: control characters in names are shown, never obeyed; models go through pipes."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ..support.errors import EqfuseError, UsageError
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


_STREAM = Path("-")
_READ, _WRITTEN = ("model", "candidate"), ("output", "out")


@contextmanager
def models_in_pipes(arguments: argparse.Namespace) -> Iterator[None]:
    """Put files in the place of `-` while a command runs: what it reads comes from standard input, and what it has
    written goes to standard output, to which it then writes nothing else."""
    given = vars(arguments)
    read = [name for name in _READ if given.get(name) == _STREAM]
    written = [name for name in _WRITTEN if given.get(name) == _STREAM]
    if not read and not written:
        yield
        return
    from ..support.scratch import scratch_folder  # few commands need a folder

    if len(read) > 1:
        raise UsageError("- is standard input, which has one model; name a file for the other")
    if written and arguments.json:
        raise UsageError("--json and the model would both go to standard output; name a file for the model")
    with scratch_folder("pipes") as folder:
        for name in read:
            given[name] = Path(folder) / "standard-input.onnx"
            with given[name].open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            if not given[name].stat().st_size:
                raise EqfuseError("standard input is empty; pipe a model into it, or name a file")
        output = Path(folder) / "standard-output.onnx"
        for name in written:
            given[name], arguments.quiet = output, True
        yield
        if written and output.exists():
            others = {path.name for path in Path(folder).iterdir()} - {"standard-input.onnx", output.name}
            if others:
                raise EqfuseError("the model has weights in files of their own, so it fits no pipe; name a file for it")
            with output.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
