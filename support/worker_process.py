"""Python processes that answer requests, as pickles over pipes. One may crash or hang, and is started again."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from .scratch import scratch_root

_PARENT_CHECK = 1.0
"""Seconds between two looks of a worker at its parent: so long may it outlive a parent that was killed."""


class WorkerDiedError(Exception):
    """The process ended before it answered, or could not be started; the text says why.

    `timed_out`: it took too long; `signal` is what killed it, 0 where it exited by itself; `started` is false where
    there never was a process.
    """

    def __init__(self, text: str, *, timed_out: bool = False, signal: int = 0, started: bool = True) -> None:
        super().__init__(text)
        self.timed_out = timed_out
        self.signal = signal
        self.started = started


def worker_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module as a worker; `-P` keeps the working folder off its import path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def worker_environment() -> dict[str, str]:
    """The environment of a worker: it imports what this process can import by name, not what lies where it stands.

    Its temporary files go below this process's own folder, so nothing of it stays behind when it is killed.
    """
    path = os.pathsep.join(folder for folder in sys.path if folder)
    return {**os.environ, "PYTHONPATH": path, "TMPDIR": str(scratch_root())}


class WorkerProcess:
    """Runs a module as a worker from the first request on, and anew after it died.

    The module calls `serve`, or reads pickles from its standard input and writes one answer to each. `environment`
    adds variables to the worker's own.
    """

    def __init__(self, module: str, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self._command = worker_command(module, *arguments)
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a process waits for requests: then the next one need not wait for its start."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process now, so that the first request need not wait. Raises WorkerDiedError."""
        self._started()

    def ask(self, request: object, seconds: float) -> Any:
        """The answer to a request. Raises WorkerDiedError where there is none within `seconds`.

        An exception that comes from elsewhere meanwhile, such as KeyboardInterrupt, ends the process.
        """
        process = self._started()
        assert process.stdin
        assert process.stdout
        alarm = _Alarm(process, seconds)
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            code = self._exit_code() or 0
            text = "took too long" if alarm.rang else f"crashed ({_cause(code)})"
            raise WorkerDiedError(text, timed_out=alarm.rang, signal=max(0, -code)) from None
        except BaseException:
            self.end()
            raise
        finally:
            alarm.cancel()

    def _exit_code(self) -> int | None:
        """How the process ended; one that only closed its pipe is given a moment, then killed."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PARENT_CHECK)
        return self.end()

    def end(self) -> int | None:
        """Kill the process, from any thread; its exit code, None where there was none."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what the process did not read any more
                    pipe.close()
        return code

    def _started(self) -> subprocess.Popen[bytes]:
        """The process that waits; a new one where there is none, or it was killed while it waited."""
        if not self.is_running:
            self.end()
            try:
                self._process = self._start()
            except OSError as error:
                raise WorkerDiedError(f"cannot be started: {error.strerror or error}", started=False) from None
        assert self._process is not None
        return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**worker_environment(), **self._environment}
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )


def _cause(code: int) -> str:
    """``exit code 3`` or ``SIGILL``."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"


class _Alarm:
    """Kills a process after so many seconds, unless it is cancelled before."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self.rang = False
        self._process = process
        self._timer = threading.Timer(seconds, self._ring)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def _ring(self) -> None:
        self.rang = True
        self._process.kill()


def serve(answer: Callable[[Any], Any]) -> None:
    """The worker's side: answer what comes in on standard input until there is no more, or the parent is gone."""
    end_with_parent()
    requests: BinaryIO = sys.stdin.buffer
    answers: BinaryIO = sys.stdout.buffer
    sys.stdout = sys.stderr  # what libraries print is no answer
    with suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            pickle.dump(answer(pickle.load(requests)), answers, protocol=pickle.HIGHEST_PROTOCOL)
            answers.flush()


def end_with_parent() -> None:
    """End this process soon after the one that started it, whatever it is doing then."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
