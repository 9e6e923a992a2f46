"""Tables and figures for people."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..support.text import printable
from ..support.version import JSON_SCHEMA, __version__
from .terminal import write

_UNLIMITED = 10_000
"""Columns of a table whose output is no terminal: a row stays on one line."""


def trusted_lines(files: Sequence[str]) -> list[str]:
    """A line that names the files whose rules were used without a check."""
    return [f"rules: {', '.join(files)} used unchecked (--trust-rules)"] if files else []


def table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]], *, left: int = 1) -> None:
    """Print a table; the first `left` columns are aligned to the left, the others to the right.

    On a terminal it folds to its width; elsewhere a row stays on one line, for `grep` and the like.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=any(columns))
    for index, column in enumerate(columns):
        grid.add_column(column, justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(printable(cell).replace("\n", "\\n") for cell in row))
    console = Console(
        width=None if sys.stdout.isatty() else _UNLIMITED, highlight=False, markup=False, emoji=False, soft_wrap=True
    )
    console.print(Text(printable(title), style="bold"))
    console.print(grid, soft_wrap=False)
    console.print()


def report(arguments: argparse.Namespace, content: Mapping[str, Any], line: str) -> None:
    """Print the content as JSON or the line as text, as the options ask for."""
    if arguments.json:
        print_json(content)
    elif not arguments.quiet:
        write(line)


def print_json(content: Mapping[str, Any]) -> None:
    """Print an object as JSON of the standard, in ASCII: figures that are not finite become text.

    It begins with the version of eqfuse, and that of its fields, which `driver/json_output` lists.
    """
    versions = {"eqfuse_version": __version__, "schema": JSON_SCHEMA}
    write(json.dumps(_plain({**versions, **content}), indent=2, allow_nan=False))


def _plain(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(name): _plain(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content if content is None or isinstance(content, (str, int, float, bool)) else str(content)
