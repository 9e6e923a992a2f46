"""Outputs that are declared without a type."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, TypeProto, helper

import eqfuse
from eqfuse.support.errors import ModelError

from ...onnx_runtime import outputs_of
from ..models import model, normal, value

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


SCALES = {"s": normal(2), "b": normal(2)}
GROUPS = helper.make_node("GroupNormalization", ["x", "s", "b"], ["a"], num_groups=2)
NEGATED = helper.make_node("Neg", ["a"], ["y"])
BEHIND_OPERATORS_WITHOUT_INFERENCE = {
    "nodes in any order": ([NEGATED, helper.make_node("Relu", ["x"], ["a"])], {}, 17),
    "a normalisation of groups": ([GROUPS, NEGATED], SCALES, 21),
    "one that ONNX withdrew": ([GROUPS, NEGATED], SCALES, 18),
    "one whose inference crashes": (
        [
            helper.make_node("EyeLike", ["m"], ["e"]),
            helper.make_node("Flatten", ["a"], ["m"]),
            helper.make_node("MeanVarianceNormalization", ["x"], ["a"], axes=[0, 2]),
            helper.make_node("Gemm", ["e", "m"], ["y"], transA=1),
        ],
        {},
        13,
    ),
}


@pytest.mark.parametrize(
    ("nodes", "constants", "opset"),
    BEHIND_OPERATORS_WITHOUT_INFERENCE.values(),
    ids=BEHIND_OPERATORS_WITHOUT_INFERENCE,
)
def test_an_operator_without_inference_and_any_order_hide_no_type(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], opset: int
) -> None:
    original = model(nodes, [value("x", [3, 2, 4])], ["y"], constants)
    original.opset_import[0].version = opset
    original.graph.output[0].ClearField("type")
    optimized = eqfuse.optimize(original)
    assert optimized.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT
    feeds = {"x": normal(3, 2, 4)}
    np.testing.assert_allclose(outputs_of(optimized, feeds)[0], outputs_of(original, feeds)[0], rtol=1e-5, atol=1e-6)


def test_an_output_of_a_custom_operator_has_to_declare_one() -> None:
    original = model([helper.make_node("Own", ["x"], ["y"], domain="mine")], [value("x", [2])], ["y"])
    original.opset_import.append(helper.make_opsetid("mine", 1))
    original.graph.output[0].ClearField("type")
    with pytest.raises(ModelError, match="output 'y' has no type, and none follows from the nodes; declare it"):
        eqfuse.optimize(original)
