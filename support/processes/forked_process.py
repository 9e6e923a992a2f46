"""Forks of this process: they start with everything imported that this one has imported.

A fork has a single thread, and locks that other threads held stay locked in it. So only a process of a single thread
is forked, and only if its program has said that it holds nothing that a fork must not share: open connections,
devices, secrets. The command line says so; a program that imports this package does not.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import IO, NoReturn

_THREADS = "/proc/self/task"

_is_allowed = False


def allow_forks() -> None:
    """Say that this process is a command of this package, and may be forked."""
    global _is_allowed
    _is_allowed = True


def may_fork() -> bool:
    """Whether this process may be forked now."""
    try:
        return _is_allowed and len(os.listdir(_THREADS)) == 1
    except OSError:  # another system
        return False


class ForkedProcess:
    """A fork of this process that leads a process group and runs a function on pipes, with the methods of `Popen`.

    `run` gets the pipes of requests and answers; its end is that of the process. `environment` replaces that of the
    fork, and `output` takes what it prints.
    """

    def __init__(
        self, run: Callable[[IO[bytes], IO[bytes]], object], environment: Mapping[str, str], output: IO[bytes]
    ) -> None:
        request_end, request = os.pipe()
        answer, answer_end = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # or both processes would write its buffer
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _run_copy(run, environment, request_end, answer_end, output.fileno())
        with suppress(OSError):  # the fork does it, too: the first one succeeds
            os.setpgid(self.pid, self.pid)
        os.close(request_end)
        os.close(answer_end)
        self.stdin: IO[bytes] = os.fdopen(request, "wb")
        self.stdout: IO[bytes] = os.fdopen(answer, "rb")

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        while self.poll() is None:
            handle = os.pidfd_open(self.pid)
            try:
                if not select.select([handle], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("a copy of this process", timeout or 0.0)
            finally:
                os.close(handle)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """Kill the process; harmless if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _run_copy(
    run: Callable[[IO[bytes], IO[bytes]], object],
    environment: Mapping[str, str],
    requests: int,
    answers: int,
    output: int,
) -> NoReturn:
    """Run as the fork: with its own pipes as the only open files, and without the exit handlers of the original."""
    code = 1
    try:
        gc.freeze()  # collections would copy the pages of all objects
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        for place, descriptor in enumerate((null, output, output)):
            os.dup2(descriptor, place)
        kept = [2, *sorted((requests, answers)), os.sysconf("SC_OPEN_MAX")]
        for low, high in pairwise(kept):
            os.closerange(low + 1, high)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None
        run(os.fdopen(requests, "rb"), os.fdopen(answers, "wb"))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
