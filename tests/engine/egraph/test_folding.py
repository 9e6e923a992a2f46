"""Constants of the chosen graph."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import eqfuse
from eqfuse.engine.onnx.inference import SMALL


def test_a_large_constant_with_an_absent_operand_is_folded() -> None:
    """x + clip(w, at most 1): the lower bound is absent."""
    stored = {"w": np.linspace(-2, 2, SMALL + 1, dtype=np.float32), "one": np.float32(1.0)}
    nodes = [helper.make_node("Clip", ["w", "", "one"], ["a"]), helper.make_node("Add", ["x", "a"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SMALL + 1]) for name in "xy"]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in stored.items()]
    graph = helper.make_graph(nodes, "clipped", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    result = eqfuse.optimize(model)
    assert [node.op_type for node in result.model.graph] == ["Add"]
