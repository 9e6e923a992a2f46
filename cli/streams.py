"""Models that stand in a pipe: `-` is standard input where one is read, and standard output where one is written."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..support.errors import EqfuseError, UsageError

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
