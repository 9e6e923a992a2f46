"""Every value of a rewritten model has a type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
from onnx import helper

import eqfuse
from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
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


def test_a_size_that_only_new_values_have_follows_from_declared_ones() -> None:
    """Rules pad a convolution of a dynamic length apart; its kernel has to know the padded length."""
    relu = helper.make_node("Relu", ["x"], ["y"])
    knowledge = infer(read(model([relu], [value("x", [3, "N"])], [value("y", [3, "N"])], {})))
    pad = helper.make_node("Pad", ["x", "ends"], ["padded"])
    cut = helper.make_node("Slice", ["padded", "start", "stop", "axis"], ["cut"])
    stored = {"ends": np.array([0, 1, 0, 1]), "start": np.array([1]), "stop": np.array([-1]), "axis": np.array([1])}
    rewritten = read(model([pad, cut, relu], [value("x", [3, "N"])], [value("y", [3, "N"])], stored))
    for node, size in zip(rewritten.graph, ("N + 2", "other"), strict=False):
        node.outputs[0].shape, node.outputs[0].type = ir.Shape([3, size]), ir.TensorType(ir.DataType.FLOAT)
    found = knowledge_of_result(rewritten, knowledge)
    assert found.types["cut"].shape == (3, "other")
    assert found.symbols == knowledge.symbols | {"N + 2"}
