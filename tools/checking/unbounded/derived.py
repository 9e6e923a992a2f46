"""Relations that the analyses derive, as what they are derived from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, product

from ....rules.commute import variables
from ....rules.sexpr import Atom, Form, Node
from ..drawing.pattern import _deriving, renamed
from .relations import RELATIONS

_fresh = count()


def alternatives(facts: Sequence[Node], depth: int = 3) -> Iterator[tuple[Node, ...]]:
    """The facts in every way in which those that are derived can have been."""
    ways = [list(_ways(fact, depth)) for fact in facts]
    for choice in product(*ways):
        yield tuple(fact for part in choice for fact in part)


def _ways(fact: Node, depth: int) -> Iterator[tuple[Node, ...]]:
    known = not isinstance(fact, Form) or fact.head in RELATIONS or fact.head not in _deriving() or not depth
    if known or fact.head.endswith("-demand"):  # type: ignore[union-attr]
        yield (fact,)
        return
    assert isinstance(fact, Form)
    for conclusion, premises in _deriving()[fact.head]:
        yield from alternatives(_instantiated(fact, conclusion, premises), depth - 1)


def _instantiated(fact: Form, conclusion: Form, premises: Sequence[Node]) -> list[Node]:
    suffix = next(_fresh)
    own = {v.text: f"{v.text}.{suffix}" for p in (*premises, conclusion) for v in variables(p)}
    equal = [
        Form((Atom("="), renamed(given, own), wanted))
        for wanted, given in zip(fact.items[1:], conclusion.items[1:], strict=True)
    ]
    return [*equal, *(renamed(p, own) for p in premises)]
