"""Constants of one value throughout, which are written as a ConstantOfShape, have a type like all others."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import eqfuse
from eqfuse.engine.summary import knowledge_of_result


def test_a_filled_constant_has_a_type() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n, 4, 4]) for name, n in (("x", 8), ("y", 16))]
    shapes = {"w": (16, 8, 1, 1), **dict.fromkeys(("scale", "shift", "mean", "variance"), (16,))}
    stored = [numpy_helper.from_array(np.full(shape, 0.5, np.float32), name) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "filled", ports[:1], ports[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    rewritten = eqfuse.optimize(model).rewritten
    fills = [node.outputs[0].name or "" for node in rewritten.model.graph if node.op_type == "ConstantOfShape"]
    known = knowledge_of_result(rewritten.model, rewritten.knowledge).types
    assert {known[name].shape for name in fills} == {(16, 8, 1, 1)}
