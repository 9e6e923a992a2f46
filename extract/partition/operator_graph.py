"""The operator graph of an ONNX model: ``Model -> OperatorGraph``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from ...engine.egraph.canonical import canonical
from ...engine.onnx.inference import Knowledge
from ...engine.onnx.model import Model
from ...engine.onnx.nodes import has_body, is_standard, outer_values
from ...engine.summary import layer_nodes
from ...ir.graph import Operator, OperatorGraph, Value
from ...ir.operators import OPERATORS


def operator_graph(model: Model, knowledge: Knowledge) -> OperatorGraph:
    """The nodes of `model` that depend on its inputs; types come from `knowledge`."""
    builder = _Builder(model, knowledge, {id(o) for o in model.graph.outputs})
    for node in layer_nodes(model):
        builder.add(node)
    return OperatorGraph(tuple(builder.operators), tuple(builder.values))


@dataclass
class _Builder:
    model: Model
    knowledge: Knowledge
    results: set[int]
    operators: list[Operator] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)

    def add(self, node: ir.Node) -> None:
        call = canonical(node, self.knowledge, self.model.opset)
        attributes = _plain(node)
        names = [v.name if v is not None else None for v in node.inputs]
        if call is not None:
            attributes = dict(zip((a.name for a in call.operator.attributes), call.attributes, strict=True))
            names = names if node.op_type == "Concat" else list(call.operands)
        elif has_body(node):
            names += [v.name for v in outer_values(node, self.model.graph)]
        inputs = tuple(self.read(name) if name else None for name in names)
        outputs = tuple(self.make(v) for v in node.outputs if v.name)
        name = node.name or f"{node.op_type} of {node.outputs[0].name}"
        is_opaque = attributes is None or (call is None and node.op_type in OPERATORS) or not is_standard(node)
        self.operators.append(Operator(name, node.op_type, attributes or {}, inputs, outputs, is_opaque))

    def read(self, name: str) -> int:
        """An input of the graph or a constant, unless an operator made it."""
        if name not in self.known:
            constant = name not in {i.name for i in self.model.graph.inputs} or (
                name in self.model.graph.initializers and name not in self.model.overridable_initializers
            )
            self.known[name] = len(self.values)
            self.values.append(Value(name, self.knowledge.types.get(name), None, constant))
        return self.known[name]

    def make(self, value: ir.Value) -> int:
        name = value.name or ""
        type_ = self.knowledge.types.get(name)
        self.known[name] = len(self.values)
        self.values.append(Value(name, type_, len(self.operators), False, id(value) in self.results))
        return self.known[name]


def _plain(node: ir.Node) -> dict[str, Any] | None:
    """The attributes of a node as plain values; None where one is a tensor, a graph, or a reference to another."""
    found: dict[str, Any] = {}
    for name, attribute in node.attributes.items():
        value = attribute.value
        value = tuple(value) if isinstance(value, list | tuple) else value
        items = value if isinstance(value, tuple) else (value,)
        if not all(isinstance(item, int | float | str) for item in items):
            return None
        found[name] = value
    return found
