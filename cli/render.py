"""Tables and figures for people."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..support.text import printable
from ..support.version import JSON_SCHEMA, __version__
from .layout import lay_out
from .terminal import output_width, write, write_heading


def trusted_lines(files: Sequence[str]) -> list[str]:
    """A line that names the files whose rules were used without a check."""
    return [f"rules: {', '.join(files)} used unchecked (--trust-rules)"] if files else []


def table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]], *, left: int = 1) -> None:
    """Print a table; the first `left` columns are aligned to the left, the others to the right.

    It fits the terminal, or the columns that COLUMNS gives; elsewhere a row stays on one line, for `grep` and the like.
    """
    cells = [[printable(cell).replace("\n", "\\n").replace("\t", "\\t") for cell in row] for row in (columns, *rows)]
    write_heading(title)
    for line in lay_out(cells, left, output_width()):
        write(line)
    write()


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
