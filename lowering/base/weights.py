"""The constants of a model as arrays, those that are computed by its nodes too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir import serde

from ...engine.onnx.evaluation import evaluate
from ...engine.onnx.model import Model, elements
from ...engine.onnx.nodes import has_body, outer_values
from ...engine.shapes.inference import infer
from .errors import LoweringError

Array = np.ndarray[Any, Any]


@dataclass
class Weights:
    """Constants of the main graph by name, each read or computed once.

    One that a Loop computes is given up at the `deadline` (time.monotonic), or after ten seconds.
    """

    model: Model
    deadline: float = inf
    _arrays: dict[str, Array] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Array:
        """The elements of one. Raises LoweringError if neither evaluator can compute it, or it depends on an input."""
        if name not in self._arrays:
            self._arrays[name] = self._read(name) if name in self._tensors else self._compute(name)
        return self._arrays[name]

    @property
    def _tensors(self) -> Mapping[str, ir.TensorProtocol]:
        return self.model.stored

    def _read(self, name: str) -> Array:
        return np.ascontiguousarray(elements(self._tensors[name])).reshape(tuple(self._tensors[name].shape.numpy()))

    def _compute(self, name: str) -> Array:
        """Run the nodes that a constant comes from; a default that callers of the original may replace is one too."""
        value = self.model.graph.initializers.get(name)
        if value is not None and value.const_value is not None:
            return np.asarray(elements(value.const_value))
        nodes, leaves = self._sources(name, self._tensors)
        if any(leaf not in self._tensors for leaf in leaves):  # a shape that the model asks for
            nodes, leaves = self._sources(name, self._tensors.keys() | self._inferred.keys())
        opsets = dict(self.model.ir.opset_imports)
        results = evaluate(nodes, {leaf: self._leaf(leaf, name) for leaf in leaves}, [name], opsets, self.deadline)
        if name not in results:
            made = f"{nodes[-1].op_type} makes it" if nodes else "nothing makes it"
            raise LoweringError(
                f"{self.model.label}: the constant {name!r} ({made}) cannot be computed before the run: it takes too "
                "long, or ONNX Runtime does not run it"
            )
        return results[name]

    def _leaf(self, leaf: str, name: str) -> Array:
        """The elements of the constants from which a constant is computed."""
        if leaf in self._inferred and leaf not in self._tensors:
            return self._inferred[leaf]
        if leaf not in self._tensors and leaf not in self.model.graph.initializers:
            raise LoweringError(f"{self.model.label}: {name!r} is no constant, for it depends on {leaf!r}")
        return self[leaf]

    @cached_property
    def _inferred(self) -> Mapping[str, Array]:
        """Small constants that follow from shapes, too."""
        return infer(self.model).constants

    def _sources(self, name: str, known: Collection[str]) -> tuple[list[onnx.NodeProto], list[str]]:
        """The nodes behind a constant in the order of the model, and what they read that is known or made by none."""
        wanted, nodes = {name: None}, list[ir.Node]()
        for node in reversed(self.model.graph):
            if any(output.name in wanted and output.name not in known for output in node.outputs):
                nodes.append(node)
                wanted |= dict.fromkeys(_operands(node, self.model.graph))
        made = {output.name for node in nodes for output in node.outputs if output.name not in known}
        return [serde.serialize_node(node) for node in reversed(nodes)], [each for each in wanted if each not in made]


def _operands(node: ir.Node, graph: ir.Graph) -> Iterable[str]:
    values = (*node.inputs, *(outer_values(node, graph) if has_body(node) else ()))
    return [value.name for value in values if value is not None and value.name]
