"""A process that answers requests, pickles over pipes. It may crash or hang, and is started again."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from typing import Any


class WorkerDiedError(Exception):
    """The process ended before it answered. `timed_out`: since it took too long; `code` is its exit code."""

    def __init__(self, code: int | None, timed_out: bool) -> None:
        super().__init__("took too long" if timed_out else f"exit code {code}")
        self.code = code
        self.timed_out = timed_out


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
        return self._process is not None

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
            raise WorkerDiedError(code, alarm.rang) from None
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
                pipe.close()
        return code

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )
        return self._process


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
