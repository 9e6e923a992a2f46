"""The requests of a session to its process."""

from __future__ import annotations

from dataclasses import dataclass

from ...support.errors import EqfuseError


class Refused(EqfuseError):
    """egglog refused a program; a check that fails counts as one."""


Cell = int | float | str | bool | tuple[int, ...]
"""A literal, or the number of a class if the column's sort is no sort of literals."""


@dataclass(frozen=True)
class Load:
    """Execute a program."""

    program: str


@dataclass(frozen=True)
class Run:
    """Run a schedule, and say whether it changed anything."""

    schedule: str


@dataclass(frozen=True)
class Read:
    """Read the rows of some tables, and with `terms` those of all constructors."""

    tables: tuple[str, ...]
    terms: bool


Request = Load | Run | Read


@dataclass(frozen=True)
class Contents:
    """Rows by table; the last cell of a constructor's or function's row is its value.

    A class keeps its number until it is united with another one.
    """

    tables: dict[str, list[tuple[Cell, ...]]]
    constructors: dict[str, list[tuple[Cell, ...]]]


def class_number(cell: Cell) -> int:
    """The number of a class in a cell that holds one."""
    assert isinstance(cell, int)
    return cell
