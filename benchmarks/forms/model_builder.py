"""Small ONNX models, put together node by node, with the shape of every value at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

Shape = tuple[int, ...]
OPSET, IR_VERSION = 20, 9


@dataclass
class Builder:
    """A model in the making. Methods add to it and return names of values; `shape` tells theirs."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)

    def give(self, shape: Shape, element: int = onnx.TensorProto.FLOAT) -> str:
        """An input of this element type of ONNX."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, element, shape))
        self.shapes[name] = shape
        return name

    def weight(self, shape: Shape) -> str:
        """Random constants, scaled so that a sum over all but the first axis stays near 1."""
        generator = np.random.default_rng(len(self.weights))
        scale = 1.0 / np.sqrt(max(1, prod(shape[1:])))
        return self.constant((scale * generator.standard_normal(shape)).astype(np.float32))

    def constant(self, array: np.ndarray[Any, Any] | np.generic) -> str:
        """A constant."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        self.shapes[name] = array.shape
        return name

    def numbers(self, *numbers: int) -> str:
        """A constant list of whole numbers."""
        return self.constant(np.array(numbers, np.int64))

    def add(self, operator: str, *operands: str, **attributes: Any) -> str:
        """A node of one output."""
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, operands, [name], **attributes))
        (info,) = self.finish(name).graph.output
        self.shapes[name] = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
        return name

    def add_many(self, operator: str, operands: Sequence[str], outputs: int, **attributes: Any) -> tuple[str, ...]:
        """A node of several outputs."""
        names = tuple(f"{operator.lower()}{len(self.nodes)}.{n}" for n in range(outputs))
        self.nodes.append(helper.make_node(operator, operands, names, **attributes))
        return names

    def finish(self, *outputs: str) -> onnx.ModelProto:
        """The model with these outputs."""
        return shape_inference.infer_shapes(self._model(outputs), strict_mode=True, data_prop=True)

    def _model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        made = [onnx.ValueInfoProto(name=name) for name in outputs]  # inference adds their types
        graph = helper.make_graph(self.nodes, "form", self.inputs, made, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


Part = Callable[[Builder, str], str | tuple[str, ...] | None]
"""Adds operators behind a value; their result, or all results that are outputs, or None if they do not fit."""
