"""Rules look into the configuration of a Resize, so it has to reach the e-graph unchanged."""

from __future__ import annotations

import numpy as np
from onnx import helper

import eqfuse

from .models import model, normal, value


def test_resize_by_sizes_before_a_convolution_stays_right() -> None:
    """The rules must see the list of sizes and write the new number of channels into it."""
    nodes = [
        helper.make_node("Resize", ["x", "", "", "sizes"], ["large"], mode="nearest"),
        helper.make_node("Conv", ["large", "w"], ["y"]),
    ]
    weights = {"sizes": np.array([1, 8, 64, 64]), "w": normal(3, 8, 1, 1)}
    outputs = [value("y", [1, 3, 64, 64])]
    result = eqfuse.optimize_with_result(model(nodes, [value("x", [1, 8, 32, 32])], outputs, weights, opset=18))
    assert result.verification is not None
    assert result.verification.status == "passed"
    assert result.after.flops < result.before.flops
