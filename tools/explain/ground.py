"""Ground terms of an encoding, and the class of each in the e-graph of the whole model.

Operands of an opaque node are a list in egglog and in ground terms; an encoding and a snapshot have them flattened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...engine.egraph.graph import EGraph, ENode
from .congruence import Congruence

NIL = ENode("Nil", (), ())


def reachable(starts: Iterable[int], following: Callable[[int], Iterable[int]]) -> list[int]:
    """All numbers that `starts` reach by `following`, in ascending order: operands come before their users."""
    reached: set[int] = set()
    pending = list(starts)
    while pending:
        current = pending.pop()
        if current not in reached:
            reached.add(current)
            pending += following(current)
    return sorted(reached)


def add_node(terms: Congruence, node: ENode) -> int:
    """The ground term of a flattened node over ground terms."""
    if node.op != "Op":
        return terms.add(node)
    operands = terms.add(NIL)
    for child in reversed(node.children):
        operands = terms.add(ENode("Cons", (), (child, operands)))
    return terms.add(ENode("Op", node.attributes, (operands,)))


def equal_to(terms: Congruence, node: ENode) -> int | None:
    """The oldest ground term that equals a flattened node, if there is any."""
    if node.op != "Op":
        return terms.equal_node(node)
    operands = terms.equal_node(NIL)
    for child in reversed(node.children):
        if operands is None:
            return None
        operands = terms.equal_node(ENode("Cons", (), (child, operands)))
    return None if operands is None else terms.equal_node(ENode("Op", node.attributes, (operands,)))


def flatten(terms: Congruence, term: int) -> ENode:
    """A ground term with the operands of an opaque node flattened."""
    node = terms.terms[term]
    if node.op != "Op":
        return node
    children, rest = [], terms.terms[node.children[0]]
    while rest.op == "Cons":
        children.append(rest.children[0])
        rest = terms.terms[rest.children[1]]
    return ENode("Op", node.attributes, tuple(children))


class Constants:
    """Which ground terms are made of stored constants alone."""

    def __init__(self, terms: Congruence) -> None:
        self.terms = terms
        self._constant: list[bool] = []

    def has(self, term: int) -> bool:
        """Whether the term is one."""
        for node in self.terms.terms[len(self._constant) :]:  # operands come before their users
            self._constant.append(node.op != "Var" and all(self._constant[c] for c in node.children))
        return self._constant[term]


class Owners:
    """The class of each ground term in the e-graph of the whole model, if that has one for it."""

    def __init__(self, egraph: EGraph, terms: Congruence, given: Iterable[tuple[int, int]]) -> None:
        self.terms = terms
        self.index = {node: owner for owner, c in enumerate(egraph.classes) for node in c.nodes}
        self.of: dict[int, int | None] = dict(given)
        self._next = 0

    def update(self) -> list[tuple[int, int]]:
        """Look at the new terms. Returns those that have a class, with the class."""
        placed = []
        for term in range(self._next, len(self.terms.terms)):
            owner = self.of.setdefault(term, self._find(term))
            if owner is not None:
                placed.append((term, owner))
        self._next = len(self.terms.terms)
        return placed

    def _find(self, term: int) -> int | None:
        node = flatten(self.terms, term)
        children = [self.of.get(c) for c in node.children]
        if any(c is None for c in children):
            return None
        return self.index.get(ENode(node.op, node.attributes, tuple(c for c in children if c is not None)))
