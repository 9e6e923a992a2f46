"""Functions in a process of their own, for code that was just compiled: it may crash or hang.

The process imports TVM once and is kept for the next call. It ends with the one that called, or after a while of
idleness.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from ...errors import EqfuseError
from ...support.worker_process import WorkerDiedError, WorkerProcess
from ..errors import CrashError, LoweringError

NO_LIMIT = threading.TIMEOUT_MAX
"""Seconds, for what whoever waits can interrupt."""
_START_SECONDS = 120.0
"""How long the process may take to import TVM, on a machine that is busy."""
_WORKER = f"{__package__}.isolation_worker"

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

number = itertools.count().__next__
"""Gives every bundle that is opened another one: the process that runs it knows by that whether it has loaded it."""

_waiting: list[WorkerProcess] = []
"""Those that work for nobody now."""
os.register_at_fork(after_in_child=_waiting.clear)


@dataclass(frozen=True)
class Request:
    """A function to call, and where relative paths begin."""

    folder: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What a function returned or, where there is one, the `problem` that it raised."""

    result: Any = None
    problem: EqfuseError | None = None


def prepare() -> None:
    """Start a process now where none waits, so that the next call need not wait while it imports TVM."""
    process = _taken()
    with suppress(WorkerDiedError):  # the call will say so
        process.start()
    _waiting.append(process)


def isolated(
    seconds: float,
    function: Callable[Parameters, Result],
    *arguments: Parameters.args,
    **named: Parameters.kwargs,
) -> Result:
    """What a function of some module returns, called in another process with arguments that can be pickled.

    Raises the EqfuseError that it raises, LoweringError with the text of any other exception or where there is no
    process to be had, and CrashError where the process died or the function took longer than that.
    """
    request = Request(os.getcwd(), function, arguments, named)
    process = _taken()
    try:
        answer = _ask(process, request, seconds)
    finally:
        _waiting.append(process)
    if answer.problem is not None:
        raise answer.problem
    result: Result = answer.result
    return result


def _taken() -> WorkerProcess:
    try:
        return _waiting.pop()
    except IndexError:
        return WorkerProcess(_WORKER)


def _ask(process: WorkerProcess, request: Request, seconds: float) -> Answer:
    try:
        if not process.is_running:
            process.ask(Request(request.folder, _nothing), _START_SECONDS)
    except WorkerDiedError as error:
        raise LoweringError(f"the process that runs compiled code {error}") from None
    try:
        answer: Answer = process.ask(request, seconds)
    except WorkerDiedError as error:
        if error.signal == signal.SIGALRM:  # it was idle for too long just then
            return _ask(process, request, seconds)
        text = f"took longer than {seconds:g} s" if error.timed_out else str(error)
        raise CrashError(text, error.timed_out) from None
    return answer


def _nothing() -> None:
    """What a process is asked to see that it has started."""
