"""Constants that nodes compute."""

from __future__ import annotations

import time
from math import inf

import numpy as np
import onnx
import pytest

from eqfuse.engine.onnx import evaluation

LOOP = """<ir_version: 8, opset_import: ["": 17]> loop () => (float[2] y)
    <int64 trips = {%d}, bool on = {1}, float[2] x = {1, 2}> {
        y = Loop(trips, on, x) <body = b (int64 i, bool c, float[2] a) => (bool d, float[2] s) {
            s = Add(a, a) d = Identity(c)
        }>
    }"""


def values(trips: int, deadline: float = inf) -> dict[str, np.ndarray]:
    graph = onnx.parser.parse_model(LOOP % trips).graph
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return evaluation.evaluate(list(graph.node), constants, ["y"], {"": 17}, deadline)


def test_a_loop_of_constants_is_computed() -> None:
    np.testing.assert_array_equal(values(3)["y"], [8, 16])


def test_one_that_goes_on_for_days_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_LIMIT", 0.5)
    assert values(8_600_000_000) == {}


def test_a_deadline_ends_one_that_goes_on_for_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_LIMIT", 1e9)
    monkeypatch.setattr(evaluation, "_LEAST_SECONDS", 0.1)
    assert values(8_600_000_000, deadline=time.monotonic()) == {}


def test_text_is_cast_to_numbers() -> None:
    node = onnx.helper.make_node("Cast", ["text"], ["y"], to=onnx.TensorProto.FLOAT)
    text = np.array([b"1", b"0.5"], object)
    np.testing.assert_array_equal(evaluation.evaluate([node], {"text": text}, ["y"], {"": 17})["y"], [1, 0.5])
