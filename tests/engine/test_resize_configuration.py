"""Rules look into the configuration of a Resize, so it has to reach the e-graph as it is."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import eqfuse


def _resized_by_sizes() -> onnx.ModelProto:
    """A Resize to given sizes before a pointwise convolution that changes the number of channels."""
    weights = np.random.default_rng(0).standard_normal((3, 8, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Resize", ["x", "", "", "sizes"], ["large"], mode="nearest"),
        helper.make_node("Conv", ["large", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "resize",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 64, 64])],
        [numpy_helper.from_array(np.array([1, 8, 64, 64]), "sizes"), numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_resize_by_sizes_before_a_convolution_stays_right() -> None:
    """The rules must see the list of sizes and write the new number of channels into it."""
    result = eqfuse.optimize(_resized_by_sizes())
    assert result.verification is not None
    assert result.verification.status == "passed"
    assert result.after.flops < result.before.flops
