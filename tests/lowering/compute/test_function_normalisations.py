"""Normalisations that ONNX defines by other operators, of fixed and free sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import eqfuse

from ..small_models import expected

NORMALISED = "y = MeanVarianceNormalization <axes = [0, 2, 3]> (x)"
GROUPED = "y = GroupNormalization <num_groups = 2> (x, s, b)"
CASES = [
    *((opset, size, NORMALISED) for opset in (9, 13, 18) for size in (5, "H")),
    *((21, size, GROUPED) for size in (5, "H")),
    (13, 5, "y = MeanVarianceNormalization (x)"),
]


@pytest.mark.parametrize(
    ("opset", "size", "node"),
    [pytest.param(*case, marks=() if case[:2] == (13, "H") else pytest.mark.conformance) for case in CASES],
)
def test_as_onnx_runtime(opset: int, size: int | str, node: str, tmp_path: Path) -> None:
    text = (
        f"(float[2, 4, {size}, 3] x) => (float[2, 4, {size}, 3] y) <float[4] s = {{1, 2, 3, 4}}, float[4] b = "
        f"{{0, 1, 0, 1}}> {{ {node} }}"
    )
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> normalised {text}')
    onnx.save(proto, tmp_path / "in.onnx")
    compiled = eqfuse.compile(tmp_path / "in.onnx", tmp_path / "bundle", threads=1, measure=False)
    assert compiled.manifest.fallbacks == ()
    x = np.random.default_rng(0).standard_normal((2, 4, 5, 3)).astype(np.float32)
    found = eqfuse.load(tmp_path / "bundle").run({"x": x})["y"]
    np.testing.assert_allclose(found, expected(proto, {"x": x})["y"], rtol=1e-4, atol=1e-5)
