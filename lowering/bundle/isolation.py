"""Functions in a process of their own, for code that was just compiled: it may crash or hang.

The process is kept for the next call. It ends with its parent, or after a while without calls.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, ParamSpec, TypeVar

from ...support.processes.worker_process import WorkerDiedError, WorkerFailedError, WorkerPool, WorkerProcess
from ..base.errors import CrashError, LoweringError

NO_LIMIT = inf
"""Seconds, for a call that the user can interrupt."""
_START_SECONDS = 120.0
"""Seconds that the process may take to start, on a machine that is busy."""
_IDLE_SECONDS = 60.0
"""Seconds that the process waits for another call before it frees its memory."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

number = itertools.count().__next__
"""Numbers the bundles that are opened: the process that runs one knows by its number whether it has loaded it."""


@dataclass(frozen=True)
class FunctionCall:
    """A function to call, and the folder where relative paths begin."""

    folder: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]


_POOL = WorkerPool(
    lambda: WorkerProcess(f"{__name__}:answer_call", start_seconds=_START_SECONDS, idle_seconds=_IDLE_SECONDS)
)


def prepare() -> None:
    """Start a process now unless one waits, so that the next call need not wait for it."""
    _POOL.prepare()


def call_isolated(
    seconds: float,
    function: Callable[Parameters, Result],
    *arguments: Parameters.args,
    **named: Parameters.kwargs,
) -> Result:
    """Return what a function of some module returns, called in another process with arguments that can be pickled.

    Raises the EqfuseError that it raises, LoweringError with the text of any other exception or if no process can be
    started, and CrashError if the process died or the function took longer than `seconds`.
    """
    try:
        result: Result = _POOL.ask(FunctionCall(os.getcwd(), function, arguments, named), seconds)
    except WorkerFailedError as error:
        raise LoweringError(" ".join(str(error).split())[-300:]) from None
    except WorkerDiedError as error:
        if not error.started:
            raise LoweringError(f"the process that runs compiled code {error}") from None
        text = f"took longer than {seconds:g} s" if error.timed_out else str(error)
        raise CrashError(text, error.timed_out) from None
    return result


def answer_call(call: FunctionCall) -> Any:
    """In the other process: call the function."""
    os.chdir(call.folder)
    return call.function(*call.arguments, **call.named)
