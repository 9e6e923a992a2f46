"""Every value of a rewritten model has a type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import helper

import eqfuse
from eqfuse.engine.summary import knowledge_of_result

from .models import model, value


def test_a_filled_constant_has_a_type() -> None:
    """Those of one value throughout are written as a ConstantOfShape."""
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


def test_a_value_of_a_class_without_a_type_has_one() -> None:
    """Rules make such classes where a budget ends the rewriting."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Pow", ["r", "two"], ["y"])]
    source = model(nodes, [value("x", [2, 3])], [value("y", [2, 3])], {"two": np.float32(2).reshape(())})
    rewritten = eqfuse.optimize_with_result(source).rewritten
    middle = next(node.outputs[0] for node in rewritten.model.graph)
    middle.shape = None
    kept = {name: type_ for name, type_ in rewritten.knowledge.types.items() if name != middle.name}
    types = knowledge_of_result(rewritten.model, replace(rewritten.knowledge, types=kept)).types
    assert types[middle.name or ""].shape == (2, 3)
