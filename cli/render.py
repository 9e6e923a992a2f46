"""Tables and figures for people, within the width of their terminal."""

from __future__ import annotations

import argparse
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..support.text import printable
from ..support.version import JSON_SCHEMA, __version__
from .terminal import output_width, write, write_heading

_GAP, _NARROW_GAP = 3, 2
"""Columns of the terminal between two of a table; the second if the table has little room."""
_WORDS = re.compile(r"(?<=\S)(?<!\d) +(?=\S)")
"""Places at which a cell may be broken: a number stays with its unit."""
_RULE = "\u2500"
_LABEL_SHARE = 0.45
"""Share of the width that the first column may take if its words are long, such as names of nodes."""


@dataclass(frozen=True)
class _Column:
    """A column of a table. `least` is the width of its longest word, `most` that of its longest cell."""

    cells: tuple[str, ...]
    is_left: bool
    least: int
    most: int


def lay_out(rows: Sequence[Sequence[str]], left: int, width: int | None) -> list[str]:
    """The lines of a table, whose first row has the headings; the first `left` columns are aligned to the left, the
    others to the right.

    Cells that are wider than their column continue on the next line, from a whole word if one fits. Columns that do not
    fit within `width` follow below, beside the first column again. Without a width a row is one line.
    """
    table = [_column(cells, index < left) for index, cells in enumerate(zip(*rows, strict=True))]
    if width is None or _total([each.most for each in table], _GAP) <= width:
        return _lines(table, [each.most for each in table], _GAP)
    lines: list[str] = []
    for part in _parts(table, width):
        gap = _GAP if _total([each.least for each in part], _GAP) <= width else _NARROW_GAP
        lines += [*([""] if lines else []), *_lines(part, _widths(part, width, gap), gap)]
    return lines


def _column(cells: Sequence[str], is_left: bool) -> _Column:
    least = max(_cells(word) for cell in cells for word in _WORDS.split(cell))
    return _Column(tuple(cells), is_left, least, max(map(_cells, cells)))


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _parts(table: Sequence[_Column], width: int) -> list[list[_Column]]:
    """The table in parts whose longest words fit, each with the first column."""
    label = table[0]
    if len(table) > 1 and _NARROW_GAP + label.least + max(each.least for each in table[1:]) > width:
        label = _Column(label.cells, label.is_left, min(label.least, int(_LABEL_SHARE * width)), label.most)
    parts = [[label]]
    for each in table[1:]:
        if len(parts[-1]) > 1 and _total([column.least for column in (*parts[-1], each)], _NARROW_GAP) > width:
            parts.append([label])
        parts[-1].append(each)
    return parts


def _widths(part: Sequence[_Column], width: int, gap: int) -> list[int]:
    """Widths of columns that fit: what the longest words leave is shared, most of it among the narrow ones."""
    widths = [
        min(each.least, max(1, width - gap - part[0].least if index else width)) for index, each in enumerate(part)
    ]
    rest = width - _total(widths, gap)
    waiting = [index for index, each in enumerate(part) if each.most > widths[index]]
    while rest > 0 and waiting:
        share = max(1, rest // len(waiting))
        for index in waiting:
            more = min(share, rest, part[index].most - widths[index])
            widths[index] += more
            rest -= more
        waiting = [index for index in waiting if part[index].most > widths[index]]
    return widths


def _lines(table: Sequence[_Column], widths: Sequence[int], gap: int) -> list[str]:
    lines = []
    for number, row in enumerate(zip(*(each.cells for each in table), strict=True)):
        broken = [_broken(cell, width) for cell, width in zip(row, widths, strict=True)]
        height = max(map(len, broken))
        if number == 0:  # headings stand directly above the rule
            broken = [[""] * (height - len(cell)) + cell for cell in broken]
        for line in range(height):
            texts = (cell[line] if line < len(cell) else "" for cell in broken)
            padded = (_padded(*each) for each in zip(texts, widths, (c.is_left for c in table), strict=True))
            lines.append((" " * gap).join(padded).rstrip())
        if number == 0:
            lines = [*lines, _RULE * _total(widths, gap)] if any(row) else []
    return lines


def _broken(text: str, width: int) -> list[str]:
    """The text in lines that are not wider."""
    lines = [""]
    for word in _WORDS.split(text):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if _cells(longer) <= width:
            lines[-1] = longer
            continue
        if lines[-1]:
            lines.append("")
        for character in word:
            if _cells(lines[-1] + character) > width and lines[-1]:
                lines.append("")
            lines[-1] += character
    return lines


def _padded(text: str, width: int, is_left: bool) -> str:
    space = " " * (width - _cells(text))
    return text + space if is_left else space + text


def _cells(text: str) -> int:
    """The columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "FW") for each in text)


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
