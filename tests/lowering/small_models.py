"""Small models to compile, and what ONNX Runtime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.graph import OperatorGraph

from ..engine.models import model as build
from ..engine.models import value
from ..onnx_runtime import outputs_of

Array = np.ndarray[Any, Any]
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def weights(*shape: int, seed: int = 0) -> Array:
    """Small random numbers."""
    return (np.random.default_rng(seed).standard_normal(shape) / 4).astype(np.float32)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, Sequence[int | str | None]],
    integers: Sequence[str] = (),
    **stored: Array,
) -> onnx.ModelProto:
    """A model of opset 17; inputs and outputs are floats but for those among `integers`."""

    def port(name: str, shape: Sequence[int | str | None]) -> onnx.ValueInfoProto:
        return value(name, shape, INT if name in integers else FLOAT)

    return build(nodes, [port(*i) for i in inputs.items()], [port(*o) for o in outputs.items()], stored)


def graph_of(proto: onnx.ModelProto) -> OperatorGraph:
    """The operators of a model."""
    read_model = read(proto)
    return operator_graph(read_model, infer(read_model))


def chain() -> onnx.ModelProto:
    """x -> MatMul -> Relu -> MatMul of the same shapes -> Relu -> y: two kernels that differ in their weights only."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    return model(nodes, {"x": (4, 8)}, {"y": (4, 8)}, w1=weights(8, 8, seed=1), w2=weights(8, 8, seed=2))


def with_fallback() -> onnx.ModelProto:
    """Two inputs and outputs, and a MaxRoiPool between a MatMul and an Add: nothing lowers a MaxRoiPool."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MaxRoiPool", ["a", "regions"], ["pooled"], pooled_shape=[2, 3]),
        helper.make_node("Add", ["pooled", "bias"], ["y"]),
    ]
    ends = {"x": (1, 1, 4, 8), "bias": (1, 3)}, {"y": (1, 1, 2, 3), "pooled": (1, 1, 2, 3)}
    return model(nodes, *ends, w=weights(8, 6), regions=np.array([[0, 0, 0, 5, 3]], np.float32))


def with_loops() -> onnx.ModelProto:
    """A TopK between a MatMul and an Add: a TopK is a plain loop."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("TopK", ["a", "k"], ["v", "indices"]),
        helper.make_node("Add", ["v", "bias"], ["y"]),
    ]
    ends = {"x": (2, 8), "bias": (1, 3)}, {"y": (2, 3), "indices": (2, 3)}
    return model(nodes, *ends, ["indices"], w=weights(8, 6), k=np.array([3]))


def expected(proto: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs in ONNX Runtime."""
    return dict(zip([port.name for port in proto.graph.output], outputs_of(proto, inputs), strict=True))


def random_inputs(proto: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    """A float array for each input."""
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in proto.graph.input}
    return {name: weights(*shape, seed=seed + n) for n, (name, shape) in enumerate(shapes.items())}


def saved(proto: onnx.ModelProto, path: Path) -> Path:
    """The model as a file."""
    onnx.save(proto, path)
    return path
