"""Constants of one value throughout, which are written as a ConstantOfShape, have a type like all others."""

from __future__ import annotations

import numpy as np
from onnx import helper

import eqfuse
from eqfuse.engine.summary import knowledge_of_result

from .models import model, value


def test_a_filled_constant_has_a_type() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["y"]),
    ]
    shapes = {"w": (16, 8, 1, 1), **dict.fromkeys(("scale", "shift", "mean", "variance"), (16,))}
    weights = {name: np.full(shape, 0.5, np.float32) for name, shape in shapes.items()}
    source = model(nodes, [value("x", [1, 8, 4, 4])], [value("y", [1, 16, 4, 4])], weights)
    rewritten = eqfuse.optimize_with_result(source).rewritten
    fills = [node.outputs[0].name or "" for node in rewritten.model.graph if node.op_type == "ConstantOfShape"]
    types = knowledge_of_result(rewritten.model, rewritten.knowledge).types
    assert {types[name].shape for name in fills} == {(16, 8, 1, 1)}
