"""Concrete terms: samples of a rule's left side, with leaves whose types and signs are known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from .conditions import Type
from .left_side import Value

_SCALAR = Type((), "float32")


@dataclass(frozen=True)
class Leaf:
    """An input (``Var``), a stored constant (``Weight``), a constant of one number (``Full``), or nothing (``Absent``).

    `nonneg`, `nonzero` and `finite` are what the e-graph is told, and what the sampled elements keep to.
    """

    kind: str
    name: str = ""
    type: Type = _SCALAR
    nonneg: bool = False
    nonzero: bool = False
    finite: bool = False


@dataclass(frozen=True)
class Term:
    """A constructor of tensors and its arguments in order."""

    head: str
    arguments: tuple[Argument, ...]


Argument = Union["Term", Leaf, Value]


def leaves(term: Argument) -> Iterator[Leaf]:
    """Every leaf, from left to right, with repetitions."""
    if isinstance(term, Leaf):
        yield term
    elif isinstance(term, Term):
        for argument in term.arguments:
            yield from leaves(argument)


def literal_text(value: Value) -> str:
    """A literal as egglog reads it."""
    if isinstance(value, tuple):
        return f"(vec-of {' '.join(map(str, value))})" if value else "(vec-empty)"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)


def text(term: Argument, prefix: str = "") -> str:
    """A term as egglog reads it; `prefix` is put before the names of its leaves."""
    if isinstance(term, Term):
        return f"({' '.join((term.head, *(text(a, prefix) for a in term.arguments)))})"
    if isinstance(term, Leaf):
        return _leaf(term, prefix)
    return literal_text(term)


def _leaf(leaf: Leaf, prefix: str) -> str:
    if leaf.kind == "Absent":
        return "(Absent)"
    if leaf.kind == "Full":
        value = float(leaf.type.value or 0.0)
        return f'(Full {literal_text(leaf.type.shape)} {value!r} "{leaf.type.dtype}")'
    return f'({leaf.kind} "{prefix}{leaf.name}")'


def facts(leaf: Leaf, prefix: str) -> list[str]:
    """What egglog has to be told about a leaf."""
    if leaf.kind not in ("Var", "Weight"):
        return []
    name = text(leaf, prefix)
    told = [f"(set (shape {name}) {literal_text(leaf.type.shape)})", f'(set (dtype {name}) "{leaf.type.dtype}")']
    told += [f"(nonneg {name})"] if leaf.nonneg else []
    told += [f"(nonzero {name})"] if leaf.nonzero else []
    told += [f"(finite {name})"] if leaf.finite else []
    return told + (_tokens(name) if leaf.kind == "Weight" else [])


def _tokens(name: str) -> list[str]:
    """Random numbers that stand for a stored constant in analysis/tokens.egg."""
    digest = hashlib.sha256(name.encode()).digest()
    pair = (int.from_bytes(digest[8 * i : 8 * i + 8], "little") % p for i, p in enumerate((2147483647, 2147483629)))
    return [f"(set (token {name}) (vec-of {' '.join(map(str, pair))}))"]


def readable(term: Argument) -> str:
    """A term for people: leaves by name, with their shapes."""
    if isinstance(term, Term):
        return f"({' '.join((term.head, *(readable(a) for a in term.arguments)))})"
    if isinstance(term, Leaf):
        if term.kind == "Full":
            return f"{term.type.value:g}" if term.type.value is not None else "?"
        shape = ",".join(map(str, term.type.shape))
        return "absent" if term.kind == "Absent" else f"{term.name}:{term.type.dtype}[{shape}]"
    return literal_text(term)
