"""Sizes that contradict each other: the model is optimised all the same, with fewer of them."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

import eqfuse
from eqfuse.engine.egraph.encode import Encoding
from eqfuse.engine.egraph.graph import EGraph
from eqfuse.engine.egraph.saturate import UnsoundRuleError, saturate

HALVES = """
<ir_version: 10, opset_import: ["": 17]> halves (float[n] x) => (float[m] y)
<int64[1] zero = {0}, int64[1] end = {9223372036854775807}, int64[1] two = {2}> {
    half = Slice(x, zero, end, zero, two)
    negative = Neg(half)
    y = Neg(negative)
}
"""


def test_a_contradiction_between_computed_sizes_costs_these_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def refuse_computed_sizes(encoding: Encoding, *rest: Any, **options: Any) -> EGraph:
        tried.append(set(encoding.symbols))
        if "(n + 1)//2" in encoding.symbols:
            raise UnsoundRuleError("united two terms of different shape or dtype")
        return saturate(encoding, *rest, **options)

    monkeypatch.setattr("eqfuse.driver.saturate.saturate", refuse_computed_sizes)
    result = eqfuse.optimize(onnx.parser.parse_model(HALVES))
    assert [node.op_type for node in result.graph.node] == ["Slice"]
    assert tried == [{"n", "(n + 1)//2"}, {"n"}]
