"""Errors meant for the user: one line each, with the exit code of the command line."""

from __future__ import annotations

BUDGET_HIT = 5
"""Exit code of a command whose time or node limit ended the search; its output is valid."""


class EqfuseError(Exception):
    """Something the user can act on. The message is one line: what, where, what to do."""

    exit_code = 1


class ModelError(EqfuseError):
    """A model that cannot be read, used or written."""


class UsageError(EqfuseError):
    """Options that do not fit together or do not fit the model."""

    exit_code = 2


class VerificationError(EqfuseError):
    """The result computes something else than the original; nothing was written."""

    exit_code = 3


class ProcessError(EqfuseError):
    """A process that eqfuse needs cannot be started, was killed or lacks memory, which says nothing about model and
    rules."""


class VerificationProcessError(VerificationError, ProcessError):
    """There is no verdict, since the process that verifies cannot be started, was killed or lacks memory."""


class RuleError(EqfuseError):
    """A rule file that cannot be used; the message starts with file:line:column."""

    exit_code = 4
