"""Small models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str | None]
Weights = Mapping[str, NDArray[Any]]


def value(name: str, shape: Shape | None, element_type: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str | onnx.ValueInfoProto],
    weights: Weights | None = None,
    opset: int = 17,
    ir_version: int = 8,
) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    results = [value(output, None) if isinstance(output, str) else output for output in outputs]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), results, initializers)
    domains = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=domains, ir_version=ir_version)


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def convnet(
    weights: Weights | None = None, epsilon: float = 1e-5, perm: Sequence[int] = (0, 2, 3, 1)
) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, Transpose, MatMul: values c, b, r, t, y."""
    nodes = [
        helper.make_node("Conv", ["x", "cw"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["b"], epsilon=epsilon),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=list(perm)),
        helper.make_node("MatMul", ["t", "mw"], ["y"]),
    ]
    return model(nodes, [value("x", [1, 3, 8, 8])], ["y"], convnet_weights() | dict(weights or {}))


def convnet_weights() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(7)
    return {
        "cw": normal(8, 3, 3, 3),
        "scale": rng.uniform(0.5, 2, 8).astype(np.float32),
        "shift": normal(8, seed=1),
        "mean": normal(8, seed=2),
        "var": rng.uniform(0.5, 2, 8).astype(np.float32),
        "mw": normal(8, 5, seed=3),
    }


def folded_convnet() -> onnx.ModelProto:
    """The same with the BatchNormalization folded into the Conv."""
    weights = convnet_weights()
    factor = weights["scale"] / np.sqrt(weights["var"] + np.float32(1e-5))
    nodes = [
        helper.make_node("Conv", ["x", "fw", "fb"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["t", "mw"], ["y"]),
    ]
    folded = {
        "fw": weights["cw"] * factor[:, None, None, None],
        "fb": weights["shift"] - weights["mean"] * factor,
        "mw": weights["mw"],
    }
    return model(nodes, [value("x", [1, 3, 8, 8])], ["y"], folded)
