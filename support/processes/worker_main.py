"""The process behind a `WorkerProcess`: ``python -m eqfuse.support.processes.worker_main``.

The first pickle on its standard input names the function, each later one is a request. Its answers on standard output
are pairs of a kind and a content: "ready" once the function is there, "message" for what a generator function yields,
"answer" for a result, "error" for an exception.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import suppress
from importlib import import_module
from math import inf, isfinite
from typing import IO, Any

from ..custom_operators import set_libraries
from ..errors import EqfuseError
from .worker_process import Order, WorkerFailedError

_ORPHAN_SECONDS = 10.0
"""A process that hangs in native code cannot look at its parent. It dies this long after the limit of its request."""


def main() -> None:
    """Answer the requests on standard input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints of libraries are no answers
    serve(sys.stdin.buffer, answers)


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more, or the parent is gone."""
    _end_with_parent()

    def send(kind: str, content: object = None) -> None:
        pickle.dump((kind, content), answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()

    with suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        name, setup, idle_seconds = pickle.load(requests)
        function, problem = _function(name, setup)
        send("ready")
        while True:
            _end_after(signal.ITIMER_PROF, inf)
            _end_after(signal.ITIMER_REAL, idle_seconds)
            order: Order = pickle.load(requests)
            _end_after(signal.ITIMER_REAL, order.by_clock + _ORPHAN_SECONDS)
            _end_after(signal.ITIMER_PROF, order.computing)
            if order.memory is not None:
                _limit_memory(order.memory)
            set_libraries(order.libraries)
            if problem is not None:
                send("error", problem)
                continue
            try:
                result = function(order.request)
                if isinstance(result, Generator):
                    for message in result:
                        send("message", message)
                    result = None
            except Exception as error:
                send("error", _portable(error))
            else:
                send("answer", result)


def _function(name: str, setup: tuple[Any, ...] | None) -> tuple[Callable[[Any], Any], Exception | None]:
    """The function of that name, and the exception of its setup, which the requests are answered with."""
    module, _, attribute = name.partition(":")
    function = getattr(import_module(module), attribute)
    if setup is None:
        return function, None
    try:
        return function(*setup), None
    except Exception as error:
        return function, _portable(error)


def _portable(error: Exception) -> Exception:
    """The exception as the parent can unpickle it; of our own kind, at least with its one line."""
    if isinstance(error, EqfuseError):
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # its constructor takes more than a text
            return EqfuseError(str(error))
        return error
    failure = WorkerFailedError(type(error).__name__, str(error))
    failure.add_note("".join(traceback.format_exception(error)))
    return failure


def _end_after(timer: int, seconds: float) -> None:
    """Have that timer's signal end this process after `seconds`, which may be infinite."""
    signal.setitimer(timer, seconds if isfinite(seconds) else 0.0)


def _limit_memory(limit: int) -> None:
    """Make allocations fail that would take the memory of other processes."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _end_with_parent() -> None:
    """End this process and those that it started soon after its parent, at any point of its work."""
    parent = os.getppid()
    try:
        handle = os.pidfd_open(parent)
    except ProcessLookupError:
        os.killpg(0, signal.SIGKILL)

    def watch() -> None:
        if os.getppid() == parent:  # otherwise the handle may be that of another process
            select.select([handle], [], [])
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
