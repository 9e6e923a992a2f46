"""Operators that draw numbers, which a bundle leaves to ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper

import eqfuse

from ..small_models import model, saved


def test_two_operators_draw_different_numbers(tmp_path: Path) -> None:
    """Each runs as a model of its own, in which it has the same place as the other in its own."""
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["u"]),
        helper.make_node("RandomNormalLike", ["x"], ["v"]),
        helper.make_node("Sub", ["u", "v"], ["d"]),
        helper.make_node("Add", ["x", "x"], ["z"]),
    ]
    path = saved(model(nodes, {"x": [64]}, {"d": [64], "z": [64]}), tmp_path / "random.onnx")
    eqfuse.compile(path, tmp_path / "build", threads=1, measure=False)
    x = np.ones(64, np.float32)
    outputs = eqfuse.load(tmp_path / "build")(x)
    assert np.unique(outputs["d"]).size > 60
    again = eqfuse.load(tmp_path / "build")(x)
    assert not np.array_equal(outputs["d"], again["d"])


def test_a_seed_of_the_model_stays(tmp_path: Path) -> None:
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["y"], seed=3.0), helper.make_node("Add", ["x", "x"], ["z"])]
    path = saved(model(nodes, {"x": [8]}, {"y": [8], "z": [8]}), tmp_path / "seeded.onnx")
    eqfuse.compile(path, tmp_path / "build", threads=1, measure=False)
    first, second = (eqfuse.load(tmp_path / "build")(np.ones(8, np.float32))["y"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
