"""The process that runs commands on mutants, and compares what they wrote: many per process, for imports take seconds.

What a command prints is taken at the level of the operating system, so that what libraries print counts, too.
"""

from __future__ import annotations

import io
import os
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from eqfuse.cli import main
from eqfuse.tests.conformance.fuzzing.comparison import compare
from eqfuse.tests.conformance.fuzzing.messages import Command, Comparison, Outcome, Verdict

MOST_DATA = 4 << 30
"""Bytes that each process may have: more than any mutant is allowed, less than would hurt the machine."""


@contextmanager
def _captured(number: int) -> Iterator[int]:
    """A file in memory in place of standard output (1) or standard error (2)."""
    file, saved = os.memfd_create("captured"), os.dup(number)
    os.dup2(file, number)
    try:
        yield file
    finally:
        os.dup2(saved, number)
        os.close(saved)
        os.close(file)


def _content(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)


def _stream(number: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(open(number, "wb", closefd=False), encoding="utf-8")


def _run(command: Command) -> Outcome:
    os.chdir(command.folder)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that of this command
    code, escaped = -1, ""
    with _captured(1) as out, _captured(2) as err:
        streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = _stream(1), _stream(2)
        try:
            code = main(command.arguments)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else -1
        except BaseException:
            escaped = traceback.format_exc()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = streams
        return Outcome(code, _content(out), _content(err), escaped, _peak(), tuple(_temporary_files()))


def _peak() -> int:
    """Bytes in memory of the largest process so far, of this one and those that it started."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return max(ended, *map(_high_water, _descendants(os.getpid())))


def _descendants(process: int) -> Iterator[int]:
    yield process
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in path.read_text().split():
                yield from _descendants(int(child))


def _high_water(process: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _temporary_files() -> Iterator[str]:
    """All but the folder of this process, and in there those of the processes that it started: they go with it."""
    root = Path(tempfile.gettempdir())
    for path in (*root.glob("*"), *root.glob("eqfuse-scratch-*/*")):
        if not (path.is_dir() and path.name.startswith("eqfuse-scratch-")):
            yield str(path.relative_to(root))


def commands_and_comparisons() -> Callable[[Command | Comparison], Outcome | Verdict]:
    """Prepare the process to run them."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_DATA, MOST_DATA))
    return lambda request: _run(request) if isinstance(request, Command) else compare(request)
