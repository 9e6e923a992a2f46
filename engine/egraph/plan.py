"""The chosen graph as a list of things to make, before any of it is made.

A plan orders the selected classes, tells constants from computed values, flattens chains of binary Concats into
one node, and finds for each node the original ONNX node that it can reuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from .encode import Encoding, multiple_outputs
from .graph import EGraph, ENode, Selection


@dataclass(frozen=True)
class PlanStep:
    """Make the value of `owner` (a class) by `node`, whose operands are `operands` (classes), all made before.

    `original`: the position of the ONNX node that computes just this, if the model has one.
    """

    owner: int
    node: ENode
    operands: tuple[int, ...]
    original: int | None


@dataclass(frozen=True)
class Origins:
    """Which ONNX nodes and values of the model live in which class."""

    nodes: Mapping[tuple[int, ENode], int]
    chains: Mapping[tuple[int, tuple[int, ...]], int]
    names: Mapping[int, tuple[str, ...]]

    def find(self, owner: int, node: ENode, operands: tuple[int, ...]) -> int | None:
        """Position of an ONNX node that is this e-node of this class."""
        if node.op == "Concat":
            return self.chains.get((owner, operands))
        return self.nodes.get((owner, node))


def locate_origins(graph: ir.Graph, encoding: Encoding, egraph: EGraph) -> Origins:
    """Locate the model's nodes and values in the e-graph."""
    nodes: dict[tuple[int, ENode], int] = {}
    chains: dict[tuple[int, tuple[int, ...]], int] = {}
    for position, onnx_node in enumerate(graph):
        term = encoding.nodes.get(onnx_node)
        if term is None:
            continue
        owner, node = egraph.terms[term], encoding.terms[term]
        enode = ENode(node.op, node.attributes, tuple(egraph.terms[c] for c in node.children))
        nodes.setdefault((owner, enode), position)
        if node.op == "Concat":
            operands = (encoding.values[i.name or ""] for i in onnx_node.inputs if i is not None)
            chains.setdefault((owner, tuple(egraph.terms[o] for o in operands)), position)
    return Origins(nodes, chains, _names(encoding, egraph))


def _names(encoding: Encoding, egraph: EGraph) -> dict[int, tuple[str, ...]]:
    names: dict[int, list[str]] = {}
    for name, term in encoding.values.items():
        names.setdefault(egraph.terms[term], []).append(name)
    return {owner: tuple(n) for owner, n in names.items()}


def plan_steps(egraph: EGraph, selection: Selection, origin: Origins) -> tuple[PlanStep, ...]:
    """Everything to make, operands before their users, close to the order of the original graph."""
    made: dict[int, PlanStep] = {}
    for owner in _postorder(egraph, selection):
        node = selection.choice[owner]
        operands = tuple(_flattened(owner, node, egraph, selection))
        made[owner] = PlanStep(owner, node, operands, origin.find(owner, node, operands))
    return tuple(made[o] for o in _ordered(egraph, made))


def _flattened(owner: int, node: ENode, egraph: EGraph, selection: Selection) -> Iterator[int]:
    """Operands of a node; of a Concat, those of the Concats below it on the same axis."""
    for child in node.children:
        inner = selection.choice.get(child)
        nested = node.op == "Concat" and inner is not None and not egraph.classes[child].constant
        if nested and inner is not None and inner.op == "Concat" and inner.attributes == node.attributes:
            yield from _flattened(child, inner, egraph, selection)
        else:
            yield child


def _postorder(egraph: EGraph, selection: Selection) -> list[int]:
    """Classes that the roots reach through flattened operands, children first."""
    done: dict[int, None] = {}
    stack: list[tuple[int, bool]] = [(r, False) for r in reversed(egraph.roots)]
    while stack:
        owner, ready = stack.pop()
        if owner in done:
            continue
        if ready:
            done[owner] = None
            continue
        stack.append((owner, True))
        operands = _flattened(owner, selection.choice[owner], egraph, selection)
        stack += [(c, False) for c in reversed(list(operands)) if c not in done]
    return list(done)


def _ordered(egraph: EGraph, made: Mapping[int, PlanStep]) -> list[int]:
    """Topological order in which a node stands where the original graph had it, or right after its operands."""
    place: dict[int, tuple[float, int]] = {}
    for rank, (owner, step) in enumerate(made.items()):
        latest = max((place[c][0] for c in step.operands), default=-1.0)
        own = -1.0 if step.original is None else float(step.original)
        place[owner] = (max(own, latest), rank)
    return sorted(made, key=lambda o: place[o])


def is_value(node: ENode) -> bool:
    """Whether an e-node is a tensor rather than a node with several outputs."""
    return not multiple_outputs(node.op)

