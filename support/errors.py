"""Errors meant for the user: one line each, with the exit code of the command line."""

from __future__ import annotations

BUDGET_HIT = 5
"""Exit code of a command whose time or node limit ended the search; its output is valid."""


_SHOWN = 300
"""Characters of another library's message that are shown, from its end: TVM says there what was wrong."""


def describe_error(error: BaseException) -> str:
    """An exception of another library as one line: its kind and its message, of a long one the end."""
    text = " ".join(str(error).split())
    shown = text if len(text) <= _SHOWN else f"...{text[-_SHOWN:]}"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


class EqfuseError(Exception):
    """An error that the user can act on. The message is one line: what, where, what to do."""

    exit_code = 1


class ModelError(EqfuseError):
    """A model that cannot be read, used or written."""


class UsageError(EqfuseError):
    """Options that do not fit together or do not fit the model."""

    exit_code = 2


class VerificationError(EqfuseError):
    """The result computes something else than the original; nothing was written.

    Its message is the fact, and advice for the command that failed.
    """

    exit_code = 3

    def __init__(self, fact: str, advice: str = "") -> None:
        super().__init__(f"{fact}; {advice}" if advice else fact)
        self.fact = fact


class ProcessError(EqfuseError):
    """A process that eqfuse needs cannot be started, was killed or lacks memory, which says nothing about model and
    rules."""


class VerificationProcessError(VerificationError, ProcessError):
    """There is no verdict, since the process that verifies cannot be started, was killed or lacks memory."""


class RuleError(EqfuseError):
    """A rule file that cannot be used; the message starts with file:line:column."""

    exit_code = 4
