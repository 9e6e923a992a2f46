"""Functions called in separate Python processes, which may crash, hang or run out of memory.

A process imports one function by its name and calls it with each request. Requests and answers are pickles over pipes;
`worker_main` is the process's side.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from math import inf, isfinite
from typing import IO, Any, TypeVar

from ..custom_operators import list_libraries
from ..scratch import scratch_root
from .forked_process import ForkedProcess, may_fork

_Process = subprocess.Popen[bytes] | ForkedProcess
_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")

_MAIN = f"{__package__}.worker_main"
"""The module of the process's side; by name, since it imports this one."""
_POLL = 1.0
"""Seconds between two calls of `meanwhile` while answers are awaited."""
_EXIT_SECONDS = 1.0
"""Seconds that a process that closed its pipe may take to end, before it is killed and its exit code is lost."""
_CLOCK_OF_PROCESSOR_TIME = 10
"""The factor between clock and processor time that a request may take, as when ten processes share a processor."""
_OUTPUT_BYTES = 1 << 16
"""Bytes that are kept of the output of a process that died: the end, which has the reason."""


class WorkerDiedError(Exception):
    """The process ended before it answered, or could not be started. The text says why, as in ``crashed (SIGILL)``.

    `timed_out` says that it was killed at its time limit. `signal` killed it, 0 if it exited by itself. `started` is
    false if it died before it was ready for a request. `output` is the end of its output.
    """

    def __init__(
        self, text: str, *, timed_out: bool = False, signal: int = 0, started: bool = True, output: str = ""
    ) -> None:
        super().__init__(text)
        self.timed_out = timed_out
        self.signal = signal
        self.started = started
        self.output = output

    @property
    def is_blameless(self) -> bool:
        """Whether the request cannot have caused it: the process did not start, or another one killed it, as the system
        does when memory ends."""
        return not self.started or (self.signal == signal.SIGKILL and not self.timed_out)


class WorkerFailedError(Exception):
    """The function raised an exception of another `kind` than EqfuseError. Its traceback is a note."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind = kind

    def __str__(self) -> str:
        return ": ".join(self.args)


@dataclass(frozen=True)
class Order:
    """A request, the seconds that it may take by the clock and `computing`, and the bytes of data that the process may
    have from then on. `libraries` of custom operators are those of the process that asks."""

    request: object
    by_clock: float
    computing: float
    memory: int | None = None
    libraries: tuple[str, ...] = field(default_factory=list_libraries)


class WorkerProcess:
    """Calls `function`, given as ``package.module:name``, in a process that starts with the first request.

    With `setup`, the name stands for a factory, which the process calls once with these arguments; the result is called
    with each request. A process that died is started again for the next request. With `start_seconds` the start has
    this limit of its own, otherwise it is part of the first request's. `environment` adds variables. A process that
    waited `idle_seconds` for a request ends itself, so that its memory is free again. With `forks` it is a fork of this
    process if that is safe, which has imported much already (`forked_process`). With `in_processor_time` the limits
    of requests count the time that the process computes, so that a busy machine does not end it; by the clock it may
    take ten times as long.
    """

    def __init__(
        self,
        function: str,
        *,
        setup: tuple[Any, ...] | None = None,
        start_seconds: float | None = None,
        idle_seconds: float = inf,
        environment: Mapping[str, str] | None = None,
        forks: bool = False,
        in_processor_time: bool = False,
    ) -> None:
        # -P keeps the working folder off the import path
        self._command = [sys.executable, "-P", "-m", _MAIN]
        self._task = (function, setup, idle_seconds)
        self._start_seconds = start_seconds
        self._idle_seconds = idle_seconds
        self._environment = dict(environment or {})
        self._forks = forks
        self._in_processor_time = in_processor_time
        self._process: _Process | None = None
        self._owner = os.getpid()
        self._output: IO[bytes] | None = None
        self._is_ready = self._is_closed = False
        self._starting = threading.Lock()

    @property
    def is_running(self) -> bool:
        """Whether there is a process: then the next request need not wait for its start."""
        return self._process is not None and self._owner == os.getpid() and self._process.poll() is None

    @property
    def is_closed(self) -> bool:
        """Whether it was closed: then every request is refused."""
        return self._is_closed

    def start(self) -> None:
        """Start the process now, without waiting until it is ready. Raises WorkerDiedError."""
        with self._starting:
            if self._is_closed:
                raise WorkerDiedError("was stopped", started=False)
            if not self.is_running:
                self.end()
                try:
                    self._launch()
                except OSError as error:
                    raise WorkerDiedError(f"cannot be started: {error.strerror or error}", started=False) from None

    def ask(self, request: object, seconds: float = inf) -> Any:
        """Return what the function returns for a request.

        Raises WorkerDiedError if there is no answer within `seconds`, the EqfuseError that the function raises, and
        WorkerFailedError for any other exception of it. An exception that interrupts the waiting ends the process.
        """
        by_clock, computing = seconds, inf
        if self._in_processor_time:
            by_clock, computing = seconds * _CLOCK_OF_PROCESSOR_TIME, seconds
        try:
            self.start()
            if self._start_seconds is not None and not self._is_ready:
                with self._limit(self._start_seconds) as process:
                    self._read(process, "ready")
            with self._limit(by_clock) as process:
                self._forget_output()
                _write(process, Order(request, by_clock, computing))
                frame = self._read(process, "answer")
        except WorkerDiedError as error:
            if isfinite(self._idle_seconds) and error.signal == signal.SIGALRM:
                return self.ask(request, seconds)  # it had been idle for too long just then
            raise
        return _content(*frame)

    def send(self, request: object, *, memory: int | None = None) -> None:
        """Hand in a request without waiting for its answer, which `receive` returns.

        From then on the process may have `memory` bytes of data. Raises WorkerDiedError if there is no process.
        """
        self.start()
        with suppress(WorkerDiedError), self._limit(inf) as process:
            _write(process, Order(request, inf, inf, memory))

    def receive(self, seconds: float = inf) -> Any:
        """Return the next message that a generator function yields; its result, None, comes behind its last one.

        Raises what `ask` raises.
        """
        with self._limit(seconds) as process:
            frame = self._read(process, "message", "answer")
        return _content(*frame)

    def close(self) -> None:
        """End the process for good: later requests raise WorkerDiedError. Any thread may call it."""
        self._is_closed = True
        with self._starting:
            self.end()

    def __del__(self) -> None:
        self.end()

    def end(self) -> int | None:
        """Kill the process and those that it started; return its exit code, None if there was no process."""
        process, self._process = self._process, None
        if process is None:
            return None
        code = None
        if self._owner == os.getpid():  # a forked process leaves its parent's processes alone
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # requests that the process did not read any more
                    pipe.close()
        if self._output is not None:
            self._output.close()
        return code

    def _launch(self) -> None:
        self._owner, self._is_ready = os.getpid(), False
        self._output = open(os.memfd_create("worker-output"), "rb", buffering=0)  # noqa: SIM115
        # its temporary files go below this process's own folder, so nothing of it stays behind when it is killed
        environment = {**python_environment(), "TMPDIR": str(scratch_root()), **self._environment}
        _started.add(self)
        _end_all_at_exit(self._owner)
        must_stay_alone = may_fork()
        if must_stay_alone:
            for other in _started:
                _ = other.is_running  # which collects one that has ended
        if self._forks and must_stay_alone:
            self._process = ForkedProcess(import_module(_MAIN).serve, environment, self._output)
        else:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._output, process_group=0,
                env=environment,
            )  # fmt: skip
            if not must_stay_alone:  # a thread collects the process as soon as it ends, so that no zombie is left
                threading.Thread(target=self._process.wait, daemon=True).start()
        with suppress(OSError):  # it died already, which the first request finds out
            _write(self._process, self._task)

    @contextmanager
    def _limit(self, seconds: float) -> Iterator[_Process]:
        """Talk to the process within the context, which ends it after `seconds`. Raises WorkerDiedError."""
        process = self._process
        if process is None or process.stdin is None or process.stdin.closed:
            raise WorkerDiedError("was stopped", started=False)
        alarm = _Alarm(process, seconds)
        try:
            yield process
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            raise self._death(process, alarm.rang) from None
        except BaseException:
            self.end()
            raise
        finally:
            alarm.cancel()

    def _read(self, process: _Process, *kinds: str) -> tuple[str, Any]:
        """The next frame of these kinds, or an error."""
        assert process.stdout
        while True:
            kind, content = pickle.load(process.stdout)
            self._is_ready = True
            if kind in (*kinds, "error"):
                return kind, content

    def _death(self, process: _Process, timed_out: bool) -> WorkerDiedError:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_EXIT_SECONDS)
        started, output = self._is_ready or self._start_seconds is None, ""
        with suppress(OSError, ValueError):  # another thread ended it meanwhile
            assert self._output is not None
            start = max(0, os.fstat(self._output.fileno()).st_size - _OUTPUT_BYTES)
            output = os.pread(self._output.fileno(), _OUTPUT_BYTES, start).decode(errors="replace")
        self.end()
        if self._is_closed:
            return WorkerDiedError("was stopped", started=False, output=output)
        code = process.returncode or 0
        timed_out = timed_out or code == -signal.SIGPROF
        cause = "took too long" if timed_out else f"crashed ({name_exit(code)})"
        return WorkerDiedError(cause, timed_out=timed_out, signal=max(0, -code), started=started, output=output)

    def _forget_output(self) -> None:
        """Drop the output of earlier requests; the process has the same file at the same position."""
        assert self._output is not None
        os.ftruncate(self._output.fileno(), 0)
        self._output.seek(0)


_started: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()


@cache
def _end_all_at_exit(owner: int) -> None:
    """Make the processes that this one, the `owner`, started end before it does and before its temporary files go."""
    del owner
    atexit.register(lambda: [process.end() for process in list(_started)])


class WorkerPool:
    """Worker processes of one kind, kept from one request to the next. A thread that asks has one to itself.

    `make` makes one. There are as many as threads ask at once.
    """

    def __init__(self, make: Callable[[], WorkerProcess]) -> None:
        self._make = make
        self._idle: list[WorkerProcess] = []
        self._all: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()
        self._is_closed = False

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self) -> None:
        """Start a process if none is idle, so that the next request need not wait for it."""
        with suppress(WorkerDiedError), self.borrow() as process:  # the request will say so
            process.start()

    def ask(self, request: object, seconds: float = inf) -> Any:
        """Ask a process that is idle, or a new one. Raises what `WorkerProcess.ask` raises."""
        with self.borrow() as process:
            return process.ask(request, seconds)

    @contextmanager
    def ask_meanwhile(self, request: object, seconds: float) -> Iterator[Callable[[], Any]]:
        """Hand a request to a process and go on: the function awaits the answer, for that many seconds at most.

        It raises what `WorkerProcess.ask` raises, also if no process starts. A process whose answer nobody awaited ends
        with the context.
        """
        with self.borrow() as process:
            is_answered = False

            def receive() -> Any:
                nonlocal is_answered
                answer = process.receive(seconds)
                is_answered = True
                return answer

            try:
                with suppress(WorkerDiedError):  # which `receive` finds out
                    process.send(request)
                yield receive
            finally:
                if not is_answered:
                    process.end()

    def ask_all(
        self,
        ask: Callable[[WorkerProcess, _Request], _Answer],
        requests: Sequence[_Request],
        at_once: int,
        *,
        in_order: bool = True,
        meanwhile: Callable[[], object] | None = None,
    ) -> Iterator[_Answer]:
        """The answer to each request, in the order of the requests or of the answers, as returned by `ask`, which
        hands the request to a process.

        At most `at_once` are asked at the same time. `meanwhile` is called each second until the next answer in order
        is there. An exception of either function ends the iterator. With its end, requests without an answer are given
        up and their processes end.
        """
        busy: set[WorkerProcess] = set()
        is_over = threading.Event()

        def answer(request: _Request) -> _Answer:
            with self.borrow() as process:
                busy.add(process)
                if is_over.is_set():
                    raise CancelledError
                try:
                    return ask(process, request)
                finally:
                    busy.discard(process)

        with ThreadPoolExecutor(max(1, min(at_once, len(requests)))) as threads:
            answers = [threads.submit(answer, request) for request in requests]
            try:
                for each in answers if in_order else as_completed(answers):
                    while meanwhile is not None and wait([each], _POLL).not_done:
                        meanwhile()
                    yield each.result()
            finally:
                is_over.set()
                threads.shutdown(wait=False, cancel_futures=True)
                for process in busy.copy():
                    process.close()

    @contextmanager
    def borrow(self) -> Iterator[WorkerProcess]:
        """A process that no other thread asks within the context."""
        try:
            process = self._idle.pop()
        except IndexError:
            process = self._make()
            self._all.add(process)
            if self._is_closed:
                process.close()
        try:
            yield process
        finally:
            if not process.is_closed:
                self._idle.append(process)

    def close(self) -> None:
        """End all processes, busy ones too: a thread that waits for one gets a WorkerDiedError."""
        self._is_closed = True
        for process in list(self._all):
            process.close()


def python_environment() -> dict[str, str]:
    """The environment of another interpreter that can import the same modules as this process."""
    path = os.pathsep.join(folder for folder in sys.path if folder)
    return {"OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}


def _write(process: _Process, content: object) -> None:
    assert process.stdin
    pickle.dump(content, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
    process.stdin.flush()


def _content(kind: str, content: Any) -> Any:
    if kind == "error":
        raise content
    return content


def name_exit(code: int) -> str:
    """``exit code 3``, or ``SIGILL`` for the negative code of a signal."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"


class _Alarm:
    """Kills a process after `seconds`, unless it is cancelled before."""

    def __init__(self, process: _Process, seconds: float) -> None:
        self.rang = False
        self._process = process
        self._timer = None
        if seconds <= 0:
            self._ring()
        elif isfinite(seconds):
            self._timer = threading.Timer(seconds, self._ring)
            self._timer.daemon = True
            self._timer.start()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self.rang = True
        self._process.kill()
