"""Rules look into the configuration of a Resize: its sizes reach the e-graph unchanged, and what only spells out a
default does not reach it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import eqfuse

from .models import model, normal, value

DEFAULTS_SPELLED_OUT = {
    "antialias": 0, "cubic_coeff_a": -0.75, "exclude_outside": 0, "extrapolation_value": 0.0, "nearest_mode": "floor",
    "keep_aspect_ratio_policy": "stretch", "coordinate_transformation_mode": "half_pixel",
}  # fmt: skip
"""As PyTorch's newer exporter writes them; nearest_mode is not read in the mode linear."""


@pytest.mark.parametrize("settings", [{"mode": "nearest"}, {"mode": "linear", **DEFAULTS_SPELLED_OUT}])
def test_resize_by_sizes_before_a_convolution_stays_right(settings: dict[str, Any]) -> None:
    """The rules must see the list of sizes and write the new number of channels into it."""
    nodes = [
        helper.make_node("Resize", ["x", "", "", "sizes"], ["large"], **settings),
        helper.make_node("Conv", ["large", "w"], ["y"]),
    ]
    weights = {"sizes": np.array([1, 8, 64, 64]), "w": normal(3, 8, 1, 1)}
    outputs = [value("y", [1, 3, 64, 64])]
    result = eqfuse.optimize_with_result(model(nodes, [value("x", [1, 8, 32, 32])], outputs, weights, opset=18))
    assert result.verification is not None
    assert result.verification.status == "passed"
    assert result.after.flops < result.before.flops
