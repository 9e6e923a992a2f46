"""The elements of every e-class, computed in float64 by each of its e-nodes: all have to agree.

A class has the value that the original graph gives it, a new one that of the first of its e-nodes. Every e-node is
computed from the values of its operands' classes, so that what a wrong rule united shows where it happened, and
rounding does not pile up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx_ir import serde

from eqfuse.costmodels.choices import DEFAULT_DEVICE
from eqfuse.costmodels.device import load_device
from eqfuse.costmodels.model import cost_model
from eqfuse.engine.egraph.decode import decode
from eqfuse.engine.egraph.encode import Encoding, encode
from eqfuse.engine.egraph.graph import EGraph, ENode
from eqfuse.engine.egraph.plan import locate_origins
from eqfuse.engine.egraph.saturate import Budget, saturate
from eqfuse.engine.egraph.worker import Worker
from eqfuse.engine.onnx.model import Model, read
from eqfuse.engine.shapes.inference import Knowledge, infer
from eqfuse.extract.extraction.select import Criteria, select
from eqfuse.ir.operators import OPERATORS, Operand, Unsupported, evaluate, full
from eqfuse.rules.vocabulary import RuleSelection

from .builder import Array, Graph
from .builder import evaluate as run

Value = Array | tuple[Array, ...] | None
BUDGET = Budget(nodes=4000, seconds=60, iterations=6)
NEAR = 3e-6
"""Rules know numbers like the root of 2 in the precision of float32."""
LOCAL = 2e-4
LOCAL_HALF = 2e-3
"""What one operator in float32, or in float16, may be off from float64, relative to its operands."""
_WIDE = {"float32": "float64", "float16": "float64"}


@dataclass(frozen=True)
class Disagreement:
    """Two values of one class: `owner` is the class, -1 for a node of the original that is encoded wrongly."""

    owner: int
    node: str
    first: str
    expected: Array
    found: Array

    def __str__(self) -> str:
        at = np.unravel_index(int(np.argmax(_distance(self.expected, self.found))), self.expected.shape)
        pair = "" if self.expected.shape != self.found.shape else f"{self.expected[at]} and {self.found[at]} at {at}"
        return (
            f"class {self.owner}: {self.first} and {self.node}: {self.expected.dtype}{list(self.expected.shape)} "
            f"{self.found.dtype}{list(self.found.shape)} {pair}"
        )


@dataclass(frozen=True)
class Saturated:
    """An e-graph with the graph it comes from."""

    graph: Graph
    model: Model
    knowledge: Knowledge
    encoding: Encoding
    egraph: EGraph

    def cheapest(self) -> onnx.ModelProto:
        """The graph that the optimiser would choose."""
        criteria = Criteria.of(cost_model("roofline", load_device(DEFAULT_DEVICE)))
        origin = locate_origins(self.model.graph, self.encoding, self.egraph)
        chosen = select(self.egraph, self.encoding, origin, self.model.opset, criteria, time_limit=3.0, method="exact")
        return serde.serialize_model(decode(self.model, self.knowledge, self.encoding, self.egraph, chosen).ir)


def saturate_graph(graph: Graph, rules: RuleSelection | None = None, budget: Budget = BUDGET) -> Saturated:
    """Everything that the catalogue finds equal; with the rules that are approximate only where all numbers are finite,
    for these may differ elsewhere. Rules that leave numbers unrounded make others within half a step, and stay out."""
    model = read(graph.model)
    knowledge = infer(model)
    encoding = encode(model, knowledge)
    finite = all(np.isfinite(a).all() for a in named_values(graph).values() if a.dtype.kind == "f")
    with Worker(rules or RuleSelection(precision="fast" if finite else "real", skip=("step",))) as worker:
        return Saturated(graph, model, knowledge, encoding, saturate(encoding, worker, budget))


def named_values(graph: Graph) -> dict[str, Array]:
    """Every value of the graph as ONNX Runtime computes it, by name."""
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    present = {o.name for o in model.graph.output}
    outputs = [o for node in model.graph.node for o in node.output if o not in present]
    model.graph.output.extend(onnx.ValueInfoProto(name=o) for o in outputs)
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    return {**stored, **graph.feeds, **run(model, graph.feeds)}


class Evaluation:
    """Values of terms and classes."""

    def __init__(self, saturated: Saturated) -> None:
        self.graph, self.encoding, self.egraph = saturated.graph, saturated.encoding, saturated.egraph
        values = named_values(self.graph)
        self.names = {n: _widen(a) for n, a in values.items()}
        self.halves = frozenset(n for n, a in values.items() if a.dtype == np.float16)
        self.sizes = _sizes(self.graph, self.encoding.symbols)
        self.unsupported = 0

    def disagreements(self) -> Iterator[Disagreement]:
        """What does not agree: nodes with their encoding, then e-nodes of one class."""
        yield from self._check_encoding()
        values = {self.egraph.terms[t]: v for t, v in self._terms().items() if t in self.egraph.terms}
        first = dict.fromkeys(values, "the original")
        waiting = [(o, n) for o, c in enumerate(self.egraph.classes) for n in c.nodes]
        progress = True
        while progress:
            later: list[tuple[int, ENode]] = []
            progress = False
            for owner, node in waiting:
                if any(c not in values for c in node.children):
                    later.append((owner, node))
                    continue
                progress = True
                value = self._value(node, [values[c] for c in node.children])
                if owner not in values and value is not None:
                    values[owner], first[owner] = value, show(node)
                elif value is not None:
                    scale = _largest(value, *(values[c] for c in node.children))
                    yield from self._compare(owner, first[owner], node, values[owner], value, NEAR * scale)
            waiting = later
        self.known = values

    def _check_encoding(self) -> Iterator[Disagreement]:
        """Each node of the original on the values of its operands, against ONNX Runtime."""
        term_names: dict[int, str] = {}
        for name, number in self.encoding.values.items():
            if name in self.names:
                term_names.setdefault(number, name)
        given: dict[int, Value] = {t: self.names[n] for t, n in term_names.items()}
        for index, term in enumerate(self.encoding.terms):
            absent = term.op == "Absent"
            value = None if absent else self._value(term, [given.get(c) for c in term.children], given, term.children)
            if index not in given and (value is not None or absent):
                given[index] = value
            elif value is not None:
                name = term_names[index]
                scale = _largest(value, *(given.get(c) for c in term.children))
                allowed = LOCAL_HALF if name in self.halves or term.attributes == ("float16",) else LOCAL
                yield from self._compare(-1, name, term, given[index], value, allowed * scale)

    def _terms(self) -> dict[int, Value]:
        """The original in float64, opaque nodes as ONNX Runtime computes them."""
        values: dict[int, Value] = {}
        given = {t: self.names[n] for n, t in self.encoding.values.items() if n in self.names}
        for index, term in enumerate(self.encoding.terms):
            value = self._value(term, [values.get(c) for c in term.children], values, term.children)
            if value is not None:
                values[index] = value
            elif index in given or term.op == "Absent":
                values[index] = given.get(index)
        return values

    def _compare(
        self, owner: int, first: str, node: ENode, expected: Value, actual: Value, allowed: float
    ) -> Iterator[Disagreement]:
        pairs = zip(_parts(expected), _parts(actual), strict=False)
        for left, right in pairs:
            if not _agree(left, right, allowed):
                yield Disagreement(owner, show(node), first, left, right)

    def _value(
        self,
        node: ENode,
        operands: list[Value],
        defined: Mapping[int, Value] | None = None,
        children: tuple[int, ...] = (),
    ) -> Value:
        """The value of a node; None if it cannot be told."""
        if node.op in ("Var", "Weight"):
            return self.names.get(str(node.attributes[0]))
        if node.op in ("Absent", "Op") or (defined is not None and any(c not in defined for c in children)):
            return None
        literals = [self._literal(a) for a in node.attributes]
        try:
            if node.op == "Full":
                return full(*literals)
            if node.op == "Out":
                parts = operands[0]
                return parts[literals[0]] if isinstance(parts, tuple) else None
            values, attributes = iter(operands), iter(literals)
            arguments = [
                next(values) if isinstance(a, Operand) else next(attributes) for a in OPERATORS[node.op].arguments
            ]
            with np.errstate(all="ignore"):
                return evaluate(node.op, arguments)
        except Unsupported:
            self.unsupported += 1
            return None

    def _literal(self, literal: Any) -> Any:
        if isinstance(literal, tuple):
            return tuple(self.sizes.get(d, d) for d in literal)
        return _WIDE.get(literal, literal) if isinstance(literal, str) else literal


def _sizes(graph: Graph, symbols: Mapping[str, int]) -> dict[int, int]:
    sizes = {}
    for value in graph.model.graph.input:
        for dimension, size in zip(value.type.tensor_type.shape.dim, graph.feeds[value.name].shape, strict=True):
            if dimension.dim_param in symbols:
                sizes[symbols[dimension.dim_param]] = size
    return sizes


def _widen(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _parts(value: Value) -> tuple[Array, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _largest(*values: Value) -> float:
    """The largest number in sight, at least a little."""
    arrays = [np.abs(a[np.isfinite(a)]) for v in values for a in _parts(v) if a.dtype.kind == "f"]
    return max([1e-6, *(float(a.max()) for a in arrays if a.size)])


def _distance(left: Array, right: Array) -> Array:
    """How far two arrays lie apart; 0 for two infinities, whose sign a zero without one (-0, rounding) may decide."""
    if left.shape != right.shape:
        return np.zeros(left.shape)
    if left.dtype.kind != "f" or right.dtype.kind != "f":
        return np.asarray(left != right).astype(np.float64)
    with np.errstate(all="ignore"):
        distance = np.abs(left - right)
    same = (left == right) | (np.isnan(left) & np.isnan(right)) | (np.isinf(left) & np.isinf(right))
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))


def _agree(left: Array, right: Array, allowed: float) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return bool(np.all(_distance(left, right) <= (allowed if left.dtype.kind == "f" else 0)))


def show(node: ENode) -> str:
    """An e-node for people."""
    return f"({' '.join((node.op, *map(str, node.attributes), *(f'c{c}' for c in node.children)))})"
