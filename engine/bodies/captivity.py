"""Keeps values that depend on the arguments of an iteration inside its Loop or Scan.

Rules may find that a value outside a body equals one that is computed from the arguments of the body. The value
outside cannot be computed that way.
"""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from ..egraph.encode import Encoding
from ..egraph.graph import EClass, EGraph, ENode
from .flatten import FlatModel, region_of

Captors = frozenset[int]
"""The scopes of the regions in which alone a value exists."""


def without_captive_nodes(egraph: EGraph, encoding: Encoding, flat: FlatModel, graph: ir.Graph) -> EGraph:
    """The e-graph of the encoded `graph` without e-nodes that exist in fewer scopes than others of their class."""
    if not flat.regions:
        return egraph
    formals = {name: region.scope for region in flat.regions for name in region.formals}
    own: dict[object, int] = {}
    for node in graph:
        region = region_of(node, flat.regions)
        if region is not None:
            own[encoding.terms[encoding.nodes[node]].attributes[0]] = region.scope
    captors: dict[int, Captors] = {}

    def of(node: ENode) -> Captors | None:
        """The captors of an e-node; None while those of an operand are unknown."""
        if node.op == "Var":
            return frozenset({formals[str(node.attributes[0])]} if node.attributes[0] in formals else ())
        if any(child not in captors for child in node.children):
            return None
        everyone = frozenset().union(*(captors[child] for child in node.children))
        return everyone - {own[node.attributes[0]]} if node.op == "Op" and node.attributes[0] in own else everyone

    changes = True
    while changes:
        changes = False
        for owner, class_ in enumerate(egraph.classes):
            best = min((c for node in class_.nodes if (c := of(node)) is not None), key=len, default=None)
            if best is not None and (owner not in captors or len(best) < len(captors[owner])):
                captors[owner] = best
                changes = True

    def freest(owner: int, class_: EClass) -> EClass:
        nodes = tuple(n for n in class_.nodes if (c := of(n)) is not None and c <= captors[owner])
        return replace(class_, nodes=nodes or class_.nodes)

    return replace(egraph, classes=tuple(freest(owner, class_) for owner, class_ in enumerate(egraph.classes)))
