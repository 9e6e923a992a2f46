"""A process that answers requests, pickles over pipes. It may crash or hang, and is started again."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any


class WorkerDiedError(Exception):
    """The process ended before it answered, or could not be started; the text says why.

    `timed_out`: it took too long; `started` is false where there never was a process.
    """

    def __init__(self, text: str, timed_out: bool = False, started: bool = True) -> None:
        super().__init__(text)
        self.timed_out = timed_out
        self.started = started


class WorkerProcess:
    """Runs ``python -m MODULE ARGUMENTS`` from the first request on, and anew after it died.

    The module reads pickles from its standard input and writes one answer to each, until there are no more.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a process waits for requests: then the next one need not wait for its start."""
        return self._process is not None and self._process.poll() is None

    def ask(self, request: object, seconds: float) -> Any:
        """The answer to a request. Raises WorkerDiedError where there is none within so many seconds."""
        process = self._started()
        assert process.stdin
        assert process.stdout
        alarm = _Alarm(process, seconds)
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            code = self.end()
            text = "took too long" if alarm.rang else f"crashed (exit code {code})"
            raise WorkerDiedError(text, alarm.rang) from None
        finally:
            alarm.cancel()

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
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )


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
