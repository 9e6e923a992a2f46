"""Operators that only ONNX Runtime has in ONNX's domain are read as those that they stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse

from ...onnx_runtime import outputs_of
from ..models import model, normal, value


@pytest.mark.parametrize(("opset", "is_one"), [(13, False), (17, False), (21, False), (23, True)])
def test_a_normalisation_without_a_mean(opset: int, is_one: bool, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["n"], axis=-1, epsilon=1e-3, stash_type=1),
        helper.make_node("Mul", ["n", "h"], ["y"]),
    ]
    proto = model(nodes, [value("x", ["N", 5, 8])], [value("y", ["N", 5, 8])], {"g": normal(8), "h": normal(8)})
    proto.opset_import[0].version = opset
    proto.ir_version = 10
    onnx.save(proto, tmp_path / "m.onnx")
    result = eqfuse.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx")
    assert result.verification is not None
    assert result.verification.status == "passed"
    written = onnx.load(tmp_path / "o.onnx")
    onnx.checker.check_model(written)
    assert any(node.op_type == "RMSNormalization" for node in written.graph.node) == is_one
    feeds = {"x": normal(3, 5, 8)}
    np.testing.assert_allclose(outputs_of(written, feeds)[0], outputs_of(proto, feeds)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [18, 20])
def test_a_normalisation_of_groups_with_a_scale_for_each(opset: int) -> None:
    nodes = [
        helper.make_node("GroupNormalization", ["x", "s", "b"], ["n"], num_groups=2, epsilon=0.01),
        helper.make_node("Mul", ["n", "h"], ["y"]),
    ]
    constants = {"s": normal(2), "b": normal(2), "h": normal(1)}
    proto = model(nodes, [value("x", ["N", 6, 3, "W"])], [value("y", ["N", 6, 3, "W"])], constants)
    proto.opset_import[0].version = opset
    optimized = eqfuse.optimize(proto)
    onnx.checker.check_model(optimized)
    feeds = {"x": normal(2, 6, 3, 5)}
    np.testing.assert_allclose(outputs_of(optimized, feeds)[0], outputs_of(proto, feeds)[0], rtol=1e-5, atol=1e-6)
