"""Constants of the chosen graph."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.engine.egraph import folding
from eqfuse.engine.egraph.folding import _INTERMEDIATE_BYTES
from eqfuse.engine.shapes.inference import SMALL

from ..models import model, value


def test_a_large_constant_with_an_absent_operand_is_folded() -> None:
    """x + clip(w, at most 1): the lower bound is absent."""
    weights = {"w": np.linspace(-2, 2, SMALL + 1, dtype=np.float32), "one": np.asarray(1, np.float32)}
    nodes = [helper.make_node("Clip", ["w", "", "one"], ["a"]), helper.make_node("Add", ["x", "a"], ["y"])]
    result = eqfuse.optimize_with_result(model(nodes, [value("x", [SMALL + 1])], [value("y", [SMALL + 1])], weights))
    assert [node.op_type for node in result.model.graph] == ["Add"]


def summed_range(length: int) -> onnx.ModelProto:
    """x + the sum of the numbers below a length, which a Range makes."""
    weights = {"zero": np.asarray(0), "length": np.asarray(length), "one": np.asarray(1)}
    nodes = [
        helper.make_node("Range", ["zero", "length", "one"], ["numbers"]),
        helper.make_node("Cast", ["numbers"], ["floats"], to=onnx.TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["floats"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    return model(nodes, [value("x", [3])], [value("y", [3])], weights)


def test_a_constant_larger_than_all_weights_is_not_computed_on_the_way_to_another() -> None:
    enough, too_many = summed_range(SMALL + 1), summed_range(_INTERMEDIATE_BYTES // 8 + 1)
    folded = eqfuse.optimize_with_result(enough).model.graph
    kept = eqfuse.optimize_with_result(too_many, verify=False).model.graph
    assert [node.op_type for node in folded] == ["Add"]
    assert [node.op_type for node in kept] == ["Range", "Cast", "ReduceSum", "Add"]


def test_a_constant_as_large_as_the_weights_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "_INTERMEDIATE_BYTES", 0)
    weights = {"w": np.linspace(-2, 2, SMALL + 1, dtype=np.float32)}
    nodes = [helper.make_node("Tanh", ["w"], ["a"]), helper.make_node("Add", ["x", "a"], ["y"])]
    result = eqfuse.optimize_with_result(model(nodes, [value("x", [SMALL + 1])], [value("y", [SMALL + 1])], weights))
    assert [node.op_type for node in result.model.graph] == ["Add"]


def test_a_uniform_constant_of_any_size_is_known_without_computing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """x + (2 * 1.5), where the product would be too large an array."""
    monkeypatch.setattr(folding, "_INTERMEDIATE_BYTES", 0)
    fill = helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [1.5])
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["fill"], value=fill),
        helper.make_node("Mul", ["fill", "two"], ["product"]),
        helper.make_node("Add", ["x", "product"], ["y"]),
    ]
    weights = {"shape": np.asarray([SMALL + 1]), "two": np.asarray(2, np.float32)}
    result = eqfuse.optimize_with_result(model(nodes, [value("x", [1])], [value("y", [SMALL + 1])], weights))
    assert [node.op_type for node in result.model.graph] == ["ConstantOfShape", "Add"]
