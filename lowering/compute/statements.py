"""Loops of TVM's tensor IR from functions of their variables, for what no expression computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from .elementary import dtype_of


def loop(name: str, extent: Any, body: Callable[[Any], Any], kind: Any = tirx.ForKind.SERIAL) -> Any:
    """A loop from 0 to `extent`, whose body is made from its variable."""
    variable = tirx.Var(name, "int32")
    return tirx.For(variable, tirx.const(0, "int32"), extent, kind, body(variable))


def nest(names: Sequence[str], extents: Sequence[Any], body: Callable[..., Any]) -> Any:
    """Loops within each other, whose body is made from their variables."""
    if not names:
        return body()
    return loop(names[0], extents[0], lambda i: nest(names[1:], extents[1:], lambda *rest: body(i, *rest)))


def unrolled(name: str, extent: int, body: Callable[[Any], Any]) -> Any:
    """A loop that is unrolled."""
    return loop(name, extent, body, tirx.ForKind.UNROLLED)


def vector(lanes: int, body: Callable[[Any], Any]) -> Any:
    """A loop over the lanes of a vector."""
    return loop("lane", lanes, body, tirx.ForKind.VECTORIZED if lanes > 1 else tirx.ForKind.SERIAL)


def sequence(statements: Sequence[Any]) -> Any:
    """Statements one after another, at least one."""
    return tirx.SeqStmt(list(statements)) if len(statements) > 1 else statements[0]


@dataclass
class StatementList:
    """A sequence of statements to which others are added."""

    statements: list[Any] = field(default_factory=list)

    def keep(self, value: Any) -> Any:
        """A name for a value, which is computed here."""
        variable = tirx.Var("t", dtype_of(value))
        self.statements.append(tirx.Bind(variable, value))
        return variable

    def store(self, buffer: Any, value: Any, *indices: Any) -> None:
        """Write an element."""
        self.statements.append(tirx.BufferStore(buffer, value, list(indices)))

    def finish(self) -> Any:
        """The whole sequence as one statement."""
        return sequence(self.statements)
