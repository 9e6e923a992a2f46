"""Shapes that are computed from shapes: known however many of them follow each other."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.onnx.typing import NAMELESS
from eqfuse.engine.shapes.inference import infer, infer_node_types
from eqfuse.ir.types import TensorType
from eqfuse.support.errors import ModelError

from ..models import model, value


def views(depth: int, batch: int | str) -> onnx.ModelProto:
    """Reshape to (size of axis 0, 2, -1), flatten, and so on: each target is computed from the result before."""
    constants = {"zero": np.array(0), "axis": np.array([0]), "two": np.array([2]), "rest": np.array([-1])}
    nodes, data = [], "x"
    for i in range(depth):
        names = ("shape", "first", "size", "target", "split", "flat", "y")
        shape, first, size, target, split, flat, result = (f"{name}{i}" for name in names)
        nodes += [
            helper.make_node("Shape", [data], [shape]),
            helper.make_node("Gather", [shape, "zero"], [first]),
            helper.make_node("Unsqueeze", [first, "axis"], [size]),
            helper.make_node("Concat", [size, "two", "rest"], [target], axis=0),
            helper.make_node("Reshape", [data, target], [split]),
            helper.make_node("Flatten", [split], [flat]),
            helper.make_node("Relu", [flat], [result]),
        ]
        data = result
    return model(nodes, [value("x", [batch, 8])], [data], constants)


@pytest.mark.parametrize("depth", [1, 40])
def test_every_shape_of_a_chain_of_computed_reshapes_is_known(depth: int) -> None:
    knowledge = infer(read(views(depth, 3)))
    assert knowledge.types[f"split{depth - 1}"].shape == (3, 2, 4)
    assert knowledge.types[f"y{depth - 1}"].shape == (3, 8)


def test_a_symbolic_size_stays_symbolic() -> None:
    knowledge = infer(read(views(3, "batch")))
    first = knowledge.types["split0"].shape
    assert first is not None
    assert not isinstance(first[0], int)


def test_an_if_without_its_bodies_has_no_types_by_its_schema() -> None:
    """A flat model has such nodes, which read what their branches compute."""
    operands = [ir.Value(name=name) for name in ("condition", "then", "else")]
    node = ir.Node("", "If", operands, outputs=[ir.Value(name="y")])
    types = {name: TensorType("float32", (2,)) for name in ("then", "else")} | {"condition": TensorType("bool", ())}
    assert infer_node_types(node, types, {}, {"": 17}) == {}


@pytest.mark.parametrize(("copies", "steps"), [(1, "t"), (2, "2*t")])
def test_a_quantised_lstm_has_the_shapes_of_an_lstm(copies: int, steps: str) -> None:
    joined = helper.make_node("Concat", ["x"] * copies, ["xs"], axis=0)
    names = ["xs", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y", "last"], domain="com.microsoft", hidden_size=3)
    shapes = {"w": (1, 4, 12), "r": (1, 3, 12), "ws": (1,), "rs": (1,), "wz": (1,), "rz": (1,)}
    constants = {n: np.ones(shape, np.float32 if "s" in n else np.uint8) for n, shape in shapes.items()}
    built = model([joined, node], [value("x", ["t", 2, 4])], ["y", "last"], constants)
    built.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    types = infer(read(built)).types
    assert types["y"] == TensorType("float32", (steps, 1, 2, 3))
    assert types["last"] == TensorType("float32", (1, 2, 3))


def test_a_window_that_is_larger_than_its_map_gives_no_negative_size() -> None:
    pool = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[9, 2])
    types = infer(read(model([pool], [value("x", [1, 2, 4, 4])], ["y"]))).types
    assert types["y"].shape in ((1, 2, NAMELESS, 3), (1, 2, 1, 3))


@pytest.mark.parametrize(
    ("operator", "attributes"), [("Add", {}), ("ConvTranspose", {}), ("Concat", {"axis": 0}), ("Where", {})]
)
def test_operands_of_one_type_parameter_have_one_type(operator: str, attributes: dict[str, int]) -> None:
    names = ["c", "x", "w"] if operator == "Where" else ["x", "w"]
    node = helper.make_node(operator, names, ["y"], "mixed", **attributes)
    stored = {"w": np.ones((2, 2, 3, 3)), "c": np.array(True)}
    proto = model([node], [value("x", [2, 2, 3, 3])], ["y"], {name: stored[name] for name in names if name != "x"})
    with pytest.raises(ModelError, match=r"node 'mixed' .*: 'x' is of float32 and 'w' of float64: .* same type"):
        infer(read(proto))


def test_operands_of_several_type_parameters_may_differ() -> None:
    node = helper.make_node("Gather", ["x", "w"], ["y"])
    infer(read(model([node], [value("x", [2, 3])], ["y"], {"w": np.array([0])})))
