"""Concrete terms: samples of a rule's left side, whose leaves have types and signs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Union

from .conditions import Type, Value

_SCALAR = Type((), "float32")


@dataclass(frozen=True)
class Leaf:
    """An input (``Var``), a stored constant (``Weight``), a constant of one number (``Full``), or nothing (``Absent``).

    `nonneg`, `nonzero` and `finite` are facts that the e-graph gets, and that hold for the sampled elements.
    """

    kind: str
    name: str = ""
    type: Type = _SCALAR
    nonneg: bool = False
    nonzero: bool = False
    finite: bool = False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.name, self.type))


@dataclass(frozen=True)
class Term:
    """A constructor of tensors and its arguments in order."""

    head: str
    arguments: tuple[Argument, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once: a term is deep, and looked up often."""
        return hash((self.head, self.arguments))


Argument = Union["Term", Leaf, Value]


def subterms(term: Argument) -> Iterator[Term | Leaf]:
    """Every term and leaf inside a term, itself first, then from left to right, with repetitions."""
    if isinstance(term, (Term, Leaf)):
        yield term
    if isinstance(term, Term):
        for argument in term.arguments:
            yield from subterms(argument)


def leaves(term: Argument) -> Iterator[Leaf]:
    """Every leaf, from left to right, with repetitions."""
    return (part for part in subterms(term) if isinstance(part, Leaf))


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
    if not isinstance(term, Leaf):
        return literal_text(term)
    if term.kind == "Absent":
        return "(Absent)"
    if term.kind == "Full":
        return f'(Full {literal_text(term.type.shape)} {float(term.type.value or 0.0)!r} "{term.type.dtype}")'
    return f'({term.kind} "{prefix}{term.name}")'


def facts(leaf: Leaf, prefix: str) -> list[str]:
    """The facts about a leaf, as egglog reads them."""
    if leaf.kind not in ("Var", "Weight"):
        return []
    name = text(leaf, prefix)
    result = [f"(set (shape {name}) {literal_text(leaf.type.shape)})", f'(set (dtype {name}) "{leaf.type.dtype}")']
    result += [f"({relation} {name})" for relation in ("nonneg", "nonzero", "finite") if getattr(leaf, relation)]
    if leaf.kind == "Weight":  # random numbers stand for its elements, see analysis/tokens.egg
        digest = hashlib.sha256(name.encode()).digest()
        pair = (int.from_bytes(digest[8 * i : 8 * i + 8], "little") % p for i, p in enumerate((2147483647, 2147483629)))
        result.append(f"(set (token {name}) (vec-of {' '.join(map(str, pair))}))")
    return result


def _size_text(size: int) -> str:
    """A size, a symbolic one by a name."""
    return str(size) if size > -2 else f"n{-size}"


def _type_text(type_: Type) -> str:
    return f"{type_.dtype}[{','.join(map(_size_text, type_.shape))}]"


def _number_text(type_: Type) -> str:
    """The number of a constant, with all its digits."""
    if type_.value is None:
        return "?"
    return repr(int(type_.value)) if "int" in type_.dtype and type_.value.is_integer() else repr(type_.value)


def readable(term: Argument) -> str:
    """A term for people: leaves by name or number, with their types."""
    if isinstance(term, Term):
        return f"({' '.join((term.head, *(readable(a) for a in term.arguments)))})"
    if isinstance(term, Leaf):
        if term.kind == "Full":
            return f"{_number_text(term.type)}:{_type_text(term.type)}"
        return "absent" if term.kind == "Absent" else f"{term.name}:{_type_text(term.type)}"
    return literal_text(term)
