"""Calls into solvers that Ctrl-C can end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def interruptible(call: Callable[[], Answer], stop: Callable[[], None] = lambda: None) -> Answer:
    """The answer of a call that does not return to Python for long.

    It runs in a thread, so that this one can receive KeyboardInterrupt; then `stop` is called and the call abandoned.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        stop()
        raise
    if errors:
        raise errors[0]
    return answers[0]
