"""Constants of the chosen graph."""

from __future__ import annotations

import numpy as np
from onnx import helper

import eqfuse
from eqfuse.engine.onnx.inference import SMALL

from ..models import model, value


def test_a_large_constant_with_an_absent_operand_is_folded() -> None:
    """x + clip(w, at most 1): the lower bound is absent."""
    weights = {"w": np.linspace(-2, 2, SMALL + 1, dtype=np.float32), "one": np.asarray(1, np.float32)}
    nodes = [helper.make_node("Clip", ["w", "", "one"], ["a"]), helper.make_node("Add", ["x", "a"], ["y"])]
    result = eqfuse.optimize_with_result(model(nodes, [value("x", [SMALL + 1])], [value("y", [SMALL + 1])], weights))
    assert [node.op_type for node in result.model.graph] == ["Add"]
