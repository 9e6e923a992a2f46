"""Congruence closure over ground terms that can say why two terms are equal.

Nieuwenhuis and Oliveras, "Proof-producing congruence closure", 2005: a forest whose edges are the equations in the
order in which they were stated, and the congruences that follow from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ...engine.egraph.graph import ENode


@dataclass(frozen=True)
class Use:
    """An equation used from left to right, or with `forward` false from right to left."""

    equation: int
    forward: bool


@dataclass(frozen=True)
class _Edge:
    """An edge between two terms of one class; `equation` is None if the terms are equal because their operands are."""

    target: int
    equation: int | None
    forward: bool


@dataclass
class Congruence:
    """Terms (children are indices of terms) and the equations stated about them."""

    terms: list[ENode] = field(default_factory=list)
    _index: dict[ENode, int] = field(default_factory=dict)
    _parents: list[int] = field(default_factory=list)
    _members: dict[int, list[int]] = field(default_factory=dict)
    _oldest: dict[int, int] = field(default_factory=dict)
    _users: dict[int, list[int]] = field(default_factory=dict)
    _lookup: dict[ENode, int] = field(default_factory=dict)
    _edges: list[_Edge | None] = field(default_factory=list)

    def add(self, node: ENode) -> int:
        """The term; the same one for the same node."""
        if node in self._index:
            return self._index[node]
        term = len(self.terms)
        self.terms.append(node)
        self._index[node] = term
        self._parents.append(term)
        self._members[term] = [term]
        self._oldest[term] = term
        self._edges.append(None)
        for child in {self._root(c) for c in node.children}:
            self._users.setdefault(child, []).append(term)
        twin = self._lookup.setdefault(self._signature(node), term)
        if twin != term:
            self._unite([(term, twin, None)])
        return term

    def find(self, term: int) -> int:
        """The oldest term that equals this one."""
        return self._oldest[self._root(term)]

    def equal_node(self, node: ENode) -> int | None:
        """The oldest term that equals the node, if there is any; the node is not added."""
        twin = self._lookup.get(self._signature(node))
        return None if twin is None else self.find(twin)

    def equate(self, left: int, right: int, equation: int) -> None:
        """State that two terms are equal."""
        self._unite([(left, right, equation)])

    def explain(self, left: int, right: int) -> list[Use]:
        """The equations that lead from one term to the other, in the order of rewriting, each use once.

        Requires that the two are equal.
        """
        uses: dict[Use, None] = {}
        seen: set[tuple[int, int]] = set()
        pending: list[Use | tuple[int, int]] = [(left, right)]
        while pending:
            item = pending.pop()
            if isinstance(item, Use):
                uses.setdefault(item)
            elif item not in seen:
                seen.add(item)
                pending += reversed(list(self._along(*item)))
        return list(uses)

    # --- union-find

    def _root(self, term: int) -> int:
        while self._parents[term] != term:
            self._parents[term] = self._parents[self._parents[term]]
            term = self._parents[term]
        return term

    def _signature(self, node: ENode) -> ENode:
        """A form of the node that is the same for all nodes with equal operands."""
        return ENode(node.op, node.attributes, tuple(map(self._root, node.children)))

    def _unite(self, pending: list[tuple[int, int, int | None]]) -> None:
        while pending:
            left, right, equation = pending.pop()
            small, large = sorted((self._root(left), self._root(right)), key=lambda r: len(self._members[r]))
            if small == large:
                continue
            if self._root(left) != small:
                self._link(right, _Edge(left, equation, False))
            else:
                self._link(left, _Edge(right, equation, True))
            self._parents[small] = large
            self._members[large] += self._members.pop(small)
            self._oldest[large] = min(self._oldest[large], self._oldest.pop(small))
            pending += self._congruent(small, large)

    def _congruent(self, small: int, large: int) -> Iterable[tuple[int, int, None]]:
        """Terms over the smaller class that the union makes equal to others."""
        moved = self._users.pop(small, [])
        self._users.setdefault(large, []).extend(moved)
        for user in moved:
            twin = self._lookup.setdefault(self._signature(self.terms[user]), user)
            if self._root(twin) != self._root(user):
                yield user, twin, None

    # --- the forest

    def _link(self, term: int, edge: _Edge) -> None:
        """Turn the edges from the term to the root of its tree around, then hang it below another term."""
        new: _Edge | None = edge
        while True:
            old = self._edges[term]
            self._edges[term] = new
            if old is None:
                return
            new = _Edge(term, old.equation, not old.forward)
            term = old.target

    def _ancestors(self, term: int) -> Iterator[int]:
        yield term
        while (edge := self._edges[term]) is not None:
            term = edge.target
            yield term

    def _along(self, left: int, right: int) -> Iterator[Use | tuple[int, int]]:
        """The path between two terms; in place of a congruence it has the pairs of operands that differ."""
        above = set(self._ancestors(left))
        meeting = next(term for term in self._ancestors(right) if term in above)
        yield from self._climb(left, meeting, down=False)
        for step in reversed([*self._climb(right, meeting, down=True)]):
            yield Use(step.equation, not step.forward) if isinstance(step, Use) else (step[1], step[0])

    def _climb(self, term: int, top: int, *, down: bool) -> Iterator[Use | tuple[int, int]]:
        while term != top:
            edge = self._edges[term]
            assert edge is not None
            if edge.equation is not None:
                yield Use(edge.equation, edge.forward)
            else:
                pairs = zip(self.terms[term].children, self.terms[edge.target].children, strict=True)
                differing = [pair for pair in pairs if pair[0] != pair[1]]
                yield from reversed(differing) if down else differing
            term = edge.target
