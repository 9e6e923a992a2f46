"""A plan for writing the chosen graph: which values to make, in which order, by which nodes.

It orders the selected classes, flattens chains of binary Concats, Maxs or Mins into one node, and finds for each node
the original ONNX node that it can reuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ...ir.operation import VARIADIC
from ...support.errors import ModelError
from ..onnx.model import Model
from ..onnx.nodes import title
from .encode import Encoding, multiple_outputs
from .graph import EGraph, ENode, Selection, postorder


@dataclass(frozen=True)
class PlanStep:
    """Make the value of the class `owner` by `node` from the classes `operands`, which earlier steps make.

    `original` is the position of the model's node that computes the same, None if there is none.
    """

    owner: int
    node: ENode
    operands: tuple[int, ...]
    original: int | None


@dataclass(frozen=True)
class Origins:
    """The model's nodes and value names in each class, the nodes by their positions; a node of many operands, which
    is a chain of terms, has all of its links in `nodes`."""

    nodes: Mapping[tuple[int, ENode], int]
    chains: Mapping[tuple[int, tuple[int, ...]], int]
    names: Mapping[int, tuple[str, ...]]

    def find(self, owner: int, node: ENode, operands: tuple[int, ...]) -> int | None:
        """The position of a node of the model that is this e-node of this class."""
        if node.op in VARIADIC:
            return self.chains.get((owner, operands))
        return self.nodes.get((owner, node))


def locate_origins(graph: ir.Graph, encoding: Encoding, egraph: EGraph) -> Origins:
    """Locate the model's nodes and values in the e-graph."""

    def enode_of(term: int) -> ENode:
        node = encoding.terms[term]
        return ENode(node.op, node.attributes, tuple(egraph.terms[c] for c in node.children))

    nodes: dict[tuple[int, ENode], int] = {}
    chains: dict[tuple[int, tuple[int, ...]], int] = {}
    for position, onnx_node in enumerate(graph):
        term = encoding.nodes.get(onnx_node)
        if term is None:
            continue
        owner, node = egraph.terms[term], encoding.terms[term]
        nodes.setdefault((owner, enode_of(term)), position)
        if node.op in VARIADIC:
            for _ in range(len(onnx_node.inputs) - 2):  # the links of its chain
                term = encoding.terms[term].children[-1]
                nodes.setdefault((egraph.terms[term], enode_of(term)), position)
            operands = (encoding.values[i.name or ""] for i in onnx_node.inputs if i is not None)
            chains.setdefault((owner, tuple(egraph.terms[o] for o in operands)), position)
    names: dict[int, list[str]] = {}
    for name, term in encoding.values.items():
        names.setdefault(egraph.terms[term], []).append(name)
    return Origins(nodes, chains, {owner: tuple(n) for owner, n in names.items()})


def plan_steps(egraph: EGraph, selection: Selection, origin: Origins) -> tuple[PlanStep, ...]:
    """The steps, operands before their users; original nodes keep their places, new ones follow their operands."""
    steps: dict[int, PlanStep] = {}
    places: dict[int, tuple[float, int]] = {}

    def operands_of(owner: int) -> tuple[int, ...]:
        return tuple(_flatten_chain(selection.choice[owner], egraph, selection))

    for rank, owner in enumerate(postorder(egraph.roots, operands_of)):
        node, operands = selection.choice[owner], operands_of(owner)
        original = origin.find(owner, node, operands)
        steps[owner] = PlanStep(owner, node, operands, original)
        latest = max((places[c][0] for c in operands), default=-1.0)
        places[owner] = max(-1.0 if original is None else float(original), latest), rank
    return tuple(steps[owner] for owner in sorted(steps, key=lambda o: places[o]))


def _flatten_chain(node: ENode, egraph: EGraph, selection: Selection) -> Iterator[int]:
    """Operands of a node; for a link of a chain, those of the links below it with the same attributes.

    A link that a chain reaches in several ways is an operand: doubled a dozen times, one would have thousands.
    """

    def links(children: Sequence[int]) -> Iterator[tuple[int, ENode | None]]:
        for child in children:
            inner = selection.choice.get(child)
            is_link = inner is not None and (inner.op, inner.attributes) == (node.op, node.attributes)
            yield child, inner if is_link and not egraph.classes[child].constant else None

    if node.op not in VARIADIC:
        yield from node.children
        return
    ways: Counter[int] = Counter()
    pending = list(links(node.children))
    while pending:
        child, inner = pending.pop()
        ways[child] += 1
        if inner is not None and ways[child] == 1:
            pending += links(inner.children)
    pending = list(links(node.children))[::-1]
    while pending:
        child, inner = pending.pop()
        if inner is not None and ways[child] == 1:
            pending += list(links(inner.children))[::-1]
        else:
            yield child


def is_value(node: ENode) -> bool:
    """Whether an e-node is a tensor rather than a node with several outputs."""
    return not multiple_outputs(node.op)


def missing_value_error(model: Model, egraph: EGraph, origin: Origins, owner: int) -> ModelError:
    """The error for a constant class without a value. It blames the model's own node if one makes that value."""
    names = origin.names.get(owner, ())
    node = next((n for n in model.graph if any(o.name in names for o in n.outputs)), None)
    if node is None:
        ops = sorted({n.op for n in egraph.classes[owner].nodes})
        return ModelError(
            f"{model.label}: rules make a constant by {', '.join(ops)} that cannot be computed: element types or "
            "shapes of the model contradict each other, or a rule is wrong; mend the model or leave rules out by --skip"
        )
    return ModelError(
        f"{model.label}: {title(node)}: makes a constant that cannot be computed, for its operands do not fit or are "
        "too large; mend the node or remove it"
    )
