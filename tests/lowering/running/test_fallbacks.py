"""Operators that ONNX Runtime runs inside of a bundle read and fill the memory of its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.engine.onnx import runtime_values

from ..small_models import expected, model, saved

ROIS = np.array([[0, 0, 0, 9, 9], [0, 3, 2, 20, 30]], np.float32)


def pooled(rows: int | str) -> onnx.ModelProto:
    """Regions of a map of 32 columns, which no kernel pools."""
    nodes = [
        helper.make_node("MaxRoiPool", ["x", "rois"], ["p"], pooled_shape=[2, 2]),
        helper.make_node("Add", ["p", "p"], ["y"]),
    ]
    return model(nodes, {"x": [1, 8, rows, 32]}, {"y": [2, 8, 2, 2]}, rois=ROIS)


def compiled(proto: onnx.ModelProto, folder: Path) -> Any:
    path = saved(proto, folder / "model.onnx")
    eqfuse.compile(path, folder / "build", threads=1, measure=False)
    return eqfuse.load(folder / "build")


def draw(rows: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((1, 8, rows, 32)).astype(np.float32)


def assert_right(network: Any, proto: onnx.ModelProto, x: np.ndarray[Any, Any]) -> None:
    np.testing.assert_allclose(network(x), expected(proto, {"x": x})["y"], rtol=1e-6)


def test_inputs_at_other_places_and_with_other_elements(tmp_path: Path) -> None:
    network, first, second = compiled(pooled(40), tmp_path), draw(40, 1), draw(40, 2)
    for x in (first, second, first):
        assert_right(network, pooled(40), x)
    first *= -1
    assert_right(network, pooled(40), first)


def test_inputs_of_other_sizes(tmp_path: Path) -> None:
    network = compiled(pooled("H"), tmp_path)
    for rows in (40, 64, 40):
        assert_right(network, pooled("H"), draw(rows, rows))


def test_tensors_that_stay_are_bound_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, bind = [], runtime_values.bind_filled

    def count(*arguments: Any) -> Any:
        calls.append(arguments)
        return bind(*arguments)

    monkeypatch.setattr(runtime_values, "bind_filled", count)
    run = compiled(pooled(40), tmp_path).bind_inputs({"x": draw(40, 1)})
    calls.clear()
    for _ in range(3):
        run()
    assert len(calls) == 1
