"""The classes of a sample's terms in the e-graph in which its rule ran, and the terms that the rule added."""

from __future__ import annotations

from dataclasses import dataclass

from .conditions import Type
from .left_side import LEAVES
from .samples import Sample
from .scratch import EClass, Fired, ScratchNode
from .terms import Leaf, Term


@dataclass(frozen=True)
class Placement:
    """A sample, and what the rule made of it."""

    sample: Sample
    fired: Fired

    def class_of(self, term: Term | Leaf) -> EClass | None:
        """The e-class of a term of the sample."""
        classes = self.fired.classes.items()
        if isinstance(term, Leaf):
            return next((c for c, nodes in classes if any(_is_leaf(n, term) for n in nodes)), None)
        node = self.node_of(term)
        return next((c for c, nodes in classes if node in nodes), None)

    def node_of(self, term: Term | Leaf) -> ScratchNode | None:
        """The e-node that a term of the sample is; None for a leaf."""
        if isinstance(term, Leaf):
            return None
        arguments = tuple(self.class_of(a) if isinstance(a, (Term, Leaf)) else a for a in term.arguments)
        return None if None in arguments else ScratchNode(term.head, arguments)  # type: ignore[arg-type]

    def after(self) -> tuple[Term | Leaf, ...]:
        """The terms that the rule made in place of the roots; for a root that became equal to a leaf, that leaf."""

        def replace(root: Term | Leaf, number: EClass) -> Term | Leaf:
            added = [n for n in self.fired.classes[number] if n != self.node_of(root)]
            terms = (self.term(node, number) for node in sorted(added, key=_comes_last))
            return next((term for term in terms if term is not None), root)

        return tuple(replace(root, number) for root, number in zip(self.sample.roots, self.fired.roots, strict=True))

    def term(self, node: ScratchNode, number: EClass) -> Term | Leaf | None:
        """A term for an e-node of a class that does not go through the class itself."""
        return self._term(node, frozenset({number}))

    def _term(self, node: ScratchNode, above: frozenset[EClass]) -> Term | Leaf | None:
        """A term for an e-node that does not go through the classes above it."""
        if node.head in ("Var", "Weight"):
            name = str(node.arguments[0]).partition(".")[2]
            leaves = self.sample.leaves
            return next((leaf for leaf in leaves if leaf.name == name and leaf.kind == node.head), None)
        if node.head == "Full":
            shape, value, dtype = node.arguments
            return Leaf("Full", "", Type(shape, str(dtype), float(value)))  # type: ignore[arg-type]
        if node.head == "Absent":
            return Leaf("Absent")
        arguments = [self._of_class(a, above) if isinstance(a, EClass) else a for a in node.arguments]
        return None if None in arguments else Term(node.head, tuple(arguments))  # type: ignore[arg-type]

    def _of_class(self, number: EClass, above: frozenset[EClass]) -> Term | Leaf | None:
        if number in above:
            return None
        nodes = sorted(self.fired.classes[number], key=_comes_last)
        terms = (self._term(node, above | {number}) for node in nodes)
        return next((term for term in terms if term is not None), None)


def _comes_last(node: ScratchNode) -> bool:
    """A sort key that puts leaves before operators."""
    return node.head not in LEAVES


def _is_leaf(node: ScratchNode, leaf: Leaf) -> bool:
    if node.head != leaf.kind:
        return False
    if leaf.kind == "Full":
        return node.arguments == (leaf.type.shape, leaf.type.value, leaf.type.dtype)
    return leaf.kind == "Absent" or str(node.arguments[0]).partition(".")[2] == leaf.name
