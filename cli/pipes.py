"""`-` in the place of a file: commands read standard input and write to standard output."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..support.errors import EqfuseError, UsageError
from .terminal import print_as

_STREAM = Path("-")


@contextmanager
def files_for_streams(arguments: argparse.Namespace) -> Iterator[None]:
    """Put files in the place of `-` while a command runs: standard input for one that it reads, and for one that it
    writes standard output, to which it then prints nothing else.

    `arguments.reads` and `arguments.writes` have the arguments that may be streams, with the end of such a file's name.
    Raises UsageError for any other argument, and for two that are one stream.
    """
    given = vars(arguments)
    streams = [name for name, value in given.items() if _STREAM in (value if isinstance(value, list) else [value])]
    if not streams:
        yield
        return
    read, written = ([name for name in streams if name in each] for each in (arguments.reads, arguments.writes))
    if others := set(streams) - {*read, *written}:
        raise UsageError(f"{min(others)}: - is a stream, which cannot be used here; name a file or a folder")
    if len(read) > 1 or any(isinstance(given[name], list) and given[name].count(_STREAM) > 1 for name in read):
        raise UsageError("- is standard input, which has one model; name a file for the other")
    if len(written) > 1:
        raise UsageError("- is standard output, which takes one file; name another for the second")
    if written and arguments.json:
        raise UsageError("--json and the file would both go to standard output; name a file")
    from ..support.scratch import scratch_folder  # few commands need a folder

    with scratch_folder("pipes") as folder:
        for name in read:
            path = Path(folder) / f"standard-input{arguments.reads[name]}"
            _keep_input(path)
            _replace(given, name, path)
        output = None
        for name in written:
            output = Path(folder) / f"standard-output{arguments.writes[name]}"
            _replace(given, name, output)
            arguments.quiet = True
        yield
        if output is not None and output.exists():
            if set(Path(folder).glob("standard-output*")) - {output}:
                raise EqfuseError("the model has weights in files of their own, so it fits no pipe; name a file for it")
            with output.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)


def _keep_input(path: Path) -> None:
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    if not path.stat().st_size:
        raise EqfuseError("standard input is empty; pipe a file into it, or name one")
    print_as(str(path), "standard input")


def _replace(given: dict[str, Any], name: str, path: Path) -> None:
    value = given[name]
    given[name] = [path if each == _STREAM else each for each in value] if isinstance(value, list) else path
