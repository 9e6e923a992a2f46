"""Outputs that are declared without a type."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, TypeProto, helper

import eqfuse

from ..models import model, value

TYPES = {
    "no type": TypeProto(),
    "no element type": helper.make_tensor_type_proto(TensorProto.UNDEFINED, None),
}


@pytest.mark.parametrize("declared", TYPES.values(), ids=TYPES)
def test_they_get_the_type_that_is_inferred_and_the_callers_model_stays(declared: TypeProto) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Shape", ["a"], ["y"])]
    original = model(nodes, [value("x", [2, "N"])], ["a", "y"])
    for output in original.graph.output:
        output.type.CopyFrom(declared)
    before = original.SerializeToString(deterministic=True)
    optimized = eqfuse.optimize(original)
    assert original.SerializeToString(deterministic=True) == before
    wanted = [value("a", [2, "N"]), value("y", [2], TensorProto.INT64)]
    assert [output.type for output in optimized.graph.output] == [each.type for each in wanted]
    onnx.checker.check_model(optimized, full_check=True)
