"""Sampled terms as ONNX models, for ONNX Runtime and ONNX's own shape inference to judge."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ....ir.operators import OPERATORS, Array, Attribute, full
from ....ir.operators.numbers import element_type
from ..drawing.pattern import Value
from ..drawing.terms import Argument, Leaf, Term

OPSET = 24
IR_VERSION = 10
_INPUTS_OF_RESIZE = {"roi": np.float32, "scales": np.float32, "sizes": np.int64}


class Inexpressible(Exception):
    """ONNX has no such operator, type or literal."""


def term_model(terms: Sequence[Term | Leaf], dtypes: Mapping[str, str]) -> onnx.ModelProto:
    """A model whose inputs are the named leaves and whose outputs ``y0``, ``y1``, ... are the terms.

    `dtypes` renames element types; extended precision becomes float64. Raises Inexpressible.
    """
    writer = _Writer({old: "float64" if new == "longdouble" else new for old, new in dtypes.items()})
    try:
        made = [writer.value(term) for term in terms]
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise Inexpressible(str(error)) from None
    nodes = [helper.make_node("Identity", [name], [f"y{i}"]) for i, name in enumerate(made)]
    outputs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(len(made))]
    graph = helper.make_graph([*writer.nodes, *nodes], "term", list(writer.inputs.values()), outputs, writer.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def feeds(model: onnx.ModelProto, elements: Mapping[str, Array]) -> dict[str, Array]:
    """The elements of the leaves that a model asks for, in its types."""
    types = {i.name: helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in model.graph.input}
    return {name: np.asarray(elements[name]).astype(dtype) for name, dtype in types.items()}


@dataclass
class _Writer:
    dtypes: Mapping[str, str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, onnx.ValueInfoProto] = field(default_factory=dict)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    known: dict[Term | Leaf, str] = field(default_factory=dict)

    def value(self, term: Argument) -> str:
        """The name of a term's value, with the nodes that make it; that of the first output of several."""
        if not isinstance(term, (Term, Leaf)):
            raise Inexpressible(f"{term!r} is no tensor")
        if term not in self.known:
            self.known[term] = self._leaf(term) if isinstance(term, Leaf) else self._term(term)
        return self.known[term]

    def _type(self, dtype: str) -> int:
        return int(helper.np_dtype_to_tensor_dtype(element_type(self.dtypes.get(dtype, dtype))))

    def _leaf(self, leaf: Leaf) -> str:
        if leaf.kind == "Absent":
            return ""
        if leaf.kind == "Full":
            dtype = self.dtypes.get(leaf.type.dtype, leaf.type.dtype)
            return self._constant(full(leaf.type.shape, leaf.type.value or 0.0, dtype))
        type_ = helper.make_tensor_value_info(leaf.name, self._type(leaf.type.dtype), leaf.type.shape)
        self.inputs.setdefault(leaf.name, type_)
        return leaf.name

    def _constant(self, array: Array) -> str:
        name = f"?c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def _term(self, term: Term) -> str:
        if term.head == "Out":
            node, index = term.arguments
            self.value(node)
            return f"{self.known[node]}.{index}" if index else self.known[node]  # type: ignore[index]
        operator = OPERATORS.get(term.head)
        if operator is None:
            raise Inexpressible(f"no operator is called {term.head}")
        inputs, attributes = [], {}
        for argument, value in zip(operator.arguments, term.arguments, strict=True):
            if not isinstance(argument, Attribute):
                inputs.append(self.value(value))
            elif argument.input_since is not None:
                scalar = term.head == "CumSum"
                inputs.append(self._constant(np.asarray(value[0] if scalar else value, np.int64)))  # type: ignore[index]
            else:
                attributes[argument.name] = value
        return self._node(term.head, inputs, attributes)  # type: ignore[arg-type]

    def _node(self, head: str, inputs: list[str], attributes: dict[str, Value]) -> str:
        written: dict[str, Any] = dict(attributes)
        if head == "Cast":
            written["to"] = self._type(str(attributes["to"]))
        elif head == "Reshape":
            written["allowzero"] = 1  # a rule's shape is the full result
        elif head == "Resize":
            config = json.loads(str(written.pop("config")))
            for name, dtype in _INPUTS_OF_RESIZE.items():
                inputs.append(self._constant(np.asarray(config.pop(name), dtype)) if name in config else "")
            written |= config
        name = f"?v{len(self.nodes)}"
        outputs = [name]
        while inputs and not inputs[-1]:
            inputs.pop()
        if head == "Split":
            count = len(numpy_helper.to_array(next(c for c in self.constants if c.name == inputs[1])))
            outputs += [f"{name}.{i}" for i in range(1, count)]
        self.nodes.append(helper.make_node(head, inputs, outputs, **written))
        return name
