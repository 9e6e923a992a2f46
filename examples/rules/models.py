"""Write a small model for each of the rule files beside this one: swish.onnx, embedding.onnx, single_token.onnx."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]


def swish() -> onnx.ModelProto:
    """Two dense layers, each followed by x * sigmoid(1.702 x)."""
    weights: dict[str, Array] = {"w1": _random(64, 128), "w2": _random(128, 32), "beta": np.array(1.702, np.float32)}
    nodes = []
    for i, source in ((1, "x"), (2, "h1")):
        nodes += [
            helper.make_node("MatMul", [source, f"w{i}"], [f"y{i}"]),
            helper.make_node("Mul", [f"y{i}", "beta"], [f"s{i}"]),
            helper.make_node("Sigmoid", [f"s{i}"], [f"g{i}"]),
            helper.make_node("Mul", [f"y{i}", f"g{i}"], [f"h{i}"]),
        ]
    return _model(nodes, weights, _float("x", 16, 64), _float("h2", 16, 32))


def embedding() -> onnx.ModelProto:
    """Tokens looked up in a table and scaled by the root of its width, then a dense layer."""
    weights: dict[str, Array] = {"table": _random(1000, 64), "scale": np.array(8.0, np.float32), "w": _random(64, 64)}
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["looked_up"]),
        helper.make_node("Mul", ["looked_up", "scale"], ["scaled"]),
        helper.make_node("Relu", ["scaled"], ["positive"]),
        helper.make_node("MatMul", ["positive", "w"], ["y"]),
    ]
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, 32])
    return _model(nodes, weights, tokens, _float("y", 1, 32, 64))


def single_token() -> onnx.ModelProto:
    """Attention of one position to itself: its softmax has one element."""
    weights: dict[str, Array] = {"q": _random(64, 64), "k": _random(64, 64), "v": _random(64, 64)}
    nodes = [
        *(helper.make_node("MatMul", ["x", w], [f"x{w}"]) for w in "qkv"),
        helper.make_node("Transpose", ["xk"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["xq", "kt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "xv"], ["y"]),
    ]
    return _model(nodes, weights, _float("x", 4, 1, 64), _float("y", 4, 1, 64))


def _random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32) / np.float32(8)


def _float(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(
    nodes: list[onnx.NodeProto], weights: dict[str, Array], source: onnx.ValueInfoProto, result: onnx.ValueInfoProto
) -> onnx.ModelProto:
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "example", [source], [result], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def main(folder: Path) -> None:
    """Write the three models into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for build in (swish, embedding, single_token):
        onnx.save(build(), folder / f"{build.__name__}.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("models"))
