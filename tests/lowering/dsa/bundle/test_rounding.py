"""How far rounding explains that outputs differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from eqfuse.engine.verification.baseline import Baseline, Run
from eqfuse.engine.verification.runs.source import open_source
from eqfuse.lowering.dsa.bundle.verification import magnitudes, rounding_effect

from ...small_models import Array, model


def effect(weight: float, x: Array, folder: Path) -> float:
    """Of rounding weight and input of a product to float16."""
    made = model(
        [helper.make_node("Mul", ["x", "w"], ["y"])], {"x": (2,)}, {"y": (2,)}, w=np.full(2, weight, np.float32)
    )
    onnx.save(made, folder / "m.onnx")
    run = Run({"x": x}, {"y": x * np.float32(weight)})
    with open_source(folder / "m.onnx", "original") as source:
        return rounding_effect(source, [Baseline((run,))], "float16")["y"]


@pytest.mark.parametrize(
    ("weight", "x", "expected"), [(0.5, 2.0, 0.0), (1.0, 2049.0, 1.0), (2049.0, 1.0, 1.0), (2049.0, 2049.0, 4097.0)]
)
def test_weights_and_inputs_are_rounded(weight: float, x: float, expected: float, tmp_path: Path) -> None:
    assert effect(weight, np.full(2, x, np.float32), tmp_path) == expected


def test_numbers_that_are_not_finite_have_no_magnitude() -> None:
    run = Run({}, {"y": np.array([np.inf, -3.0, np.nan]), "flag": np.array([True])})
    assert magnitudes([Baseline((run,))]) == {"y": 3.0, "flag": 0.0}
