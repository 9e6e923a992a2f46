"""The constants of a model as arrays, those that are computed by its nodes too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir import serde

from ..engine.onnx.evaluation import evaluate
from ..engine.onnx.model import Model, elements
from ..engine.onnx.nodes import has_body, outer_values
from .errors import LoweringError

Array = np.ndarray[Any, Any]


@dataclass
class Weights:
    """Constants of the main graph by name, each read or computed once."""

    model: Model
    _arrays: dict[str, Array] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Array:
        """The elements of one. Raises LoweringError where neither evaluator can compute it."""
        if name not in self._arrays:
            self._arrays[name] = self._read(name) if name in self._tensors else self._compute(name)
        return self._arrays[name]

    @property
    def _tensors(self) -> Mapping[str, ir.TensorProtocol]:
        return self.model.stored

    def _read(self, name: str) -> Array:
        return np.ascontiguousarray(self._tensors[name].numpy()).reshape(tuple(self._tensors[name].shape.numpy()))

    def _compute(self, name: str) -> Array:
        """Run the nodes that a constant comes from; a default that callers of the original may replace is one too."""
        value = self.model.graph.initializers.get(name)
        if value is not None and value.const_value is not None:
            return np.asarray(elements(value.const_value))
        nodes, leaves = self._sources(name)
        opsets = dict(self.model.ir.opset_imports)
        results = evaluate(nodes, {leaf: self[leaf] for leaf in leaves}, [name], opsets)
        if name not in results:
            raise LoweringError(f"{self.model.label}: the constant {name!r} cannot be computed here")
        return results[name]

    def _sources(self, name: str) -> tuple[list[onnx.NodeProto], list[str]]:
        """The nodes behind a constant in an order to run them, and the stored tensors that they read."""
        producers = {output.name: node for node in self.model.graph for output in node.outputs}
        nodes: dict[str, ir.Node] = {}
        leaves: dict[str, None] = {}

        def visit(wanted: str) -> None:
            if wanted in self._tensors or wanted not in producers:
                leaves[wanted] = None
                return
            node = producers[wanted]
            for operand in _operands(node, self.model.graph):
                visit(operand)
            nodes[node.outputs[0].name or ""] = node

        visit(name)
        return [serde.serialize_node(node) for node in nodes.values()], list(leaves)


def _operands(node: ir.Node, graph: ir.Graph) -> Iterable[str]:
    values = (*node.inputs, *(outer_values(node, graph) if has_body(node) else ()))
    return [value.name for value in values if value is not None and value.name]
