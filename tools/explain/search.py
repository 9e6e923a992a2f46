"""What an explanation is about: a model's graph, what the rules made of it, and what was chosen."""

from __future__ import annotations

from dataclasses import dataclass

from ...engine.egraph.encode import Encoding
from ...engine.egraph.graph import EGraph, ENode, Selection
from ...rules.loader import RuleSet


@dataclass(frozen=True)
class Search:
    """A model's graph as terms, its e-graph, what was chosen from it, and the rules of the run."""

    encoding: Encoding
    egraph: EGraph
    selection: Selection
    rules: RuleSet


def is_unchanged(term: int, search: Search) -> bool:
    """Whether the optimised graph makes a value by the operator that the original has, from the same operands."""
    node, terms = search.encoding.terms[term], search.egraph.terms
    same = ENode(node.op, node.attributes, tuple(terms[c] for c in node.children))
    if search.selection.choice.get(terms[term]) != same:
        return False
    return node.op != "Out" or is_unchanged(node.children[0], search)
