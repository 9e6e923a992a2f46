"""A reader of s-expressions that keeps positions and comments."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

TOKEN = re.compile(r';[^\n]*|"(?:[^"\\]|\\.)*"|[()]|[^\s()";]+|"', re.DOTALL)

_DEEPEST = 100
"""Levels of parentheses: rules have ten or so, and egglog's reader and ours end with the stack."""


class SexprError(ValueError):
    """Text that is no sequence of s-expressions; `offset` says where."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Atom:
    """A symbol, number or string literal (with its quotes) that begins at `start`."""

    text: str
    start: int = -1

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Form:
    """A parenthesized list; `end` is the offset behind its closing parenthesis."""

    items: tuple[Atom | Form, ...]
    start: int = -1
    end: int = -1

    @property
    def head(self) -> str:
        """The first symbol, "" if there is none."""
        return self.items[0].text if self.items and isinstance(self.items[0], Atom) else ""

    def __str__(self) -> str:
        return f"({' '.join(map(str, self.items))})"


Node = Atom | Form


@dataclass(frozen=True)
class Document:
    """A text, its top-level forms in order, and the text of the comment that starts at each offset."""

    text: str
    forms: tuple[Form, ...]
    comments: dict[int, str]

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset of the first character of each line."""
        return [0, *(m.end() for m in re.finditer("\n", self.text))]

    def position(self, offset: int) -> tuple[int, int]:
        """The line and column of an offset, both counted from 1."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def comment_block(self, form: Form) -> list[Atom]:
        """The comment lines directly above a form, without their semicolons; a heading, `; --- products`, ends them."""
        line = self.position(form.start)[0] - 1
        block: list[Atom] = []
        while line > 0 and (comment := self._comment_line(line)) is not None and not comment.text.startswith("---"):
            block.append(comment)
            line -= 1
        return block[::-1]

    @cached_property
    def head(self) -> list[Atom]:
        """The comment lines that the text begins with, without their semicolons; none if a form follows them."""
        lines: list[Atom] = []
        while len(lines) < len(self.line_starts) and (comment := self._comment_line(len(lines) + 1)) is not None:
            lines.append(comment)
        above_a_form = self.forms and self.position(self.forms[0].start)[0] == len(lines) + 1
        return [] if above_a_form else lines

    def _comment_line(self, line: int) -> Atom | None:
        begin = self.line_starts[line - 1]
        written = self.text[begin : self.line_starts[line] if line < len(self.line_starts) else None]
        if not written.lstrip().startswith(";"):
            return None
        start = begin + written.index(";")
        comment = self.comments.get(start)
        if comment is None:
            return None
        text = comment.lstrip(";").lstrip()
        return Atom(text.rstrip(), start + len(comment) - len(text))


def _forms(text: str, comments: dict[int, str]) -> Iterator[Form]:
    opened: list[int] = []
    pending: list[list[Node]] = []
    for match in TOKEN.finditer(text):
        token, start = match.group(), match.start()
        if token[0] == ";":
            comments[start] = token
        elif token == "(":
            if len(opened) == _DEEPEST:
                raise SexprError(start, f"parentheses are nested deeper than {_DEEPEST} levels")
            opened.append(start)
            pending.append([])
        elif token == '"':
            raise SexprError(start, "this string is not closed")
        elif not pending:
            message = "no parenthesis is open here" if token == ")" else f"{token} stands outside a command"
            raise SexprError(start, message)
        elif token == ")":
            form = Form(tuple(pending.pop()), opened.pop(), match.end())
            if not pending:
                yield form
            else:
                pending[-1].append(form)
        else:
            pending[-1].append(Atom(token, start))
    if opened:
        raise SexprError(opened[0], "this parenthesis is not closed")


def read(text: str) -> Document:
    """Read a whole text. Raises SexprError at what has no partner, or is nested too deep."""
    comments: dict[int, str] = {}
    return Document(text, tuple(_forms(text, comments)), comments)


def substitute(node: Node, values: Mapping[str, Node]) -> Node:
    """The expression with other expressions in place of some variables; heads of forms stay."""
    if isinstance(node, Atom):
        return values.get(node.text, node)
    return Form((*node.items[:1], *(substitute(item, values) for item in node.items[1:])), node.start, node.end)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything inside it, outer before inner, left before right."""
    yield node
    if isinstance(node, Form):
        for item in node.items:
            yield from walk(item)
