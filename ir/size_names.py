"""Names of dimensions as sizes: expressions such as `32*k + 16` or `floor(H/2)`, read from their text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from .sizes import Size, TooComplex, extremum, floor_divide, number, symbol
from .types import Dimension, TensorType

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][\w.]*)|`((?:[^`]|``)*)`(?!`)|(//|[-+*/(),]))")
_LONGEST_TEXT = 2000
"""Characters of the longest text that is parsed."""


@lru_cache(maxsize=1 << 12)
def parse_size(text: str) -> Size | None:
    """The polynomial of a text, such as the text of a polynomial, `32k` or `past + 1`; None for any other text."""
    try:
        return _Parser(text).parse() if len(text) <= _LONGEST_TEXT else None
    except (ValueError, ZeroDivisionError, RecursionError, TooComplex):
        return None


def dimension_as_size(dimension: Dimension) -> Size | None:
    """The size that a dimension of an operator graph stands for; None if it is not known before the run."""
    return number(dimension) if isinstance(dimension, int) else parse_size(dimension)


def elements(type_: TensorType) -> Size | None:
    """The number of elements of a tensor; None if it is not known before the run, or too complex."""
    total = number(1)
    for size in map(dimension_as_size, type_.shape if type_.shape is not None else ("?",)):
        if size is None:
            return None
        try:
            total = total * size
        except TooComplex:
            return None
    return total


class _Parser:
    """Recursive descent; raises ValueError if the text does not continue as it should."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError
            digits, name, quoted, sign = match.groups()
            text_of_name = quoted.replace("``", "`") if quoted else name
            self.tokens.append(digits or (f"`{text_of_name}" if text_of_name else sign))
            position = match.end()
        self.tokens.reverse()

    def parse(self) -> Size:
        size = self.sum()
        if self.tokens:
            raise ValueError
        return size

    def accept(self, *signs: str) -> str:
        return self.tokens.pop() if self.tokens and self.tokens[-1] in signs else ""

    def require(self, sign: str) -> None:
        if not self.accept(sign):
            raise ValueError

    def sum(self) -> Size:
        total = self.product().scale(-1) if self.accept("-") else self.product()
        while sign := self.accept("+", "-"):
            term = self.product()
            total = total + term if sign == "+" else total - term
        return total

    def product(self) -> Size:
        size = self.factor()
        while self.tokens:
            if self.accept("*"):
                size = size * self.factor()
            elif self.accept("//", "/"):
                size = floor_divide(size, self.factor())
            elif self.tokens[-1].startswith("`") and size.number is not None:  # 32k
                size = size * self.factor()
            else:
                break
        return size

    def factor(self) -> Size:
        token = self.tokens.pop() if self.tokens else ""
        if token.isdigit():
            return number(int(token))
        if token == "(":
            size = self.sum()
            self.require(")")
            return size
        if not token.startswith("`"):
            raise ValueError
        if token == "`floor" and self.accept("("):  # of a quotient, which is rounded down anyway
            size = self.sum()
            self.require(")")
            return size
        if token in ("`min", "`max") and self.accept("("):
            sizes = [self.sum()]
            while self.accept(","):
                sizes.append(self.sum())
            self.require(")")
            return extremum(token[1:], sizes)
        return symbol(token[1:])


def declared_sizes(names: Iterable[str]) -> dict[str, Size]:
    """The sizes that names of dimensions stand for: an expression of other names, or of one more as in `32*k + 16`, is
    a polynomial; every other name is a symbol."""
    declared = frozenset(names)
    return {name: _declared_size(name, declared) for name in sorted(declared)}


def _declared_size(name: str, declared: frozenset[str]) -> Size:
    size = parse_size(name)
    if size is None or size.number is not None or size.names() == {name} or size == symbol(name.strip("`")):
        return symbol(name)
    if size.names() <= declared - {name}:
        return size
    *variable, rest = size.terms if size.constant else (*size.terms, ((), 0))
    is_line = len(variable) == 1 and len(variable[0][0]) == 1 and variable[0][0][0].kind == "symbol"
    return size if is_line and variable[0][1] > 0 and rest[1] >= 0 and variable[0][1] + rest[1] > 1 else symbol(name)
