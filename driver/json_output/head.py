"""How every object that `--json` prints begins, and errors."""

from __future__ import annotations

from typing import TypedDict


class Printed(TypedDict):
    """How every object begins: the version of eqfuse, and the version of the fields."""

    eqfuse_version: str
    schema: int


class ErrorOutput(Printed):
    """An error of any command: the line on standard error, and the exit code."""

    error: str
    exit_code: int
