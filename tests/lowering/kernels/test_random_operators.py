"""What draws at random runs in ONNX Runtime, anew in each call, and verification says that it was not compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import eqfuse

MODELS = {
    "Dropout": "(float[8, 8] x, bool t) => (float[8, 8] y) <float r = {0.5}> { y = Dropout(x, r, t) }",
    "RandomNormalLike": "(float[8, 8] x) => (float[8, 8] y) { n = RandomNormalLike(x) y = Add(x, n) }",
    "RandomNormal": "(float[8, 8] x) => (float[8, 8] y) { n = RandomNormal <shape = [8, 8]> () y = Add(x, n) }",
    "RandomUniformLike": "(float[8, 8] x) => (float[8, 8] y) { n = RandomUniformLike(x) y = Add(x, n) }",
    "RandomUniform": "(float[8, 8] x) => (float[8, 8] y) { n = RandomUniform <shape = [8, 8]> () y = Add(x, n) }",
    "Bernoulli": "(float[8, 8] x) => (float[8, 8] y) { p = Sigmoid(x) y = Bernoulli(p) }",
    "Multinomial": "(float[8, 8] x) => (int32[8, 9] y) { y = Multinomial <sample_size = 9> (x) }",
}


@pytest.mark.parametrize(
    "operator", [pytest.param(name, marks=() if name == "Dropout" else pytest.mark.conformance) for name in MODELS]
)
def test_it_draws_anew_in_each_call(operator: str, tmp_path: Path) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> random {MODELS[operator]}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "in.onnx")
    compiled = eqfuse.compile(tmp_path / "in.onnx", tmp_path / "bundle", threads=1, measure=False)
    assert [entry.operators for entry in compiled.manifest.fallbacks] == [(operator,)]
    assert "'y' depends on a random operator and was not compared" in compiled.manifest.provenance.verification
    loaded = eqfuse.load(tmp_path / "bundle")
    feeds = {"x": np.ones((8, 8), np.float32)} | ({"t": np.array(True)} if operator == "Dropout" else {})
    assert not np.array_equal(loaded.run(feeds)["y"], loaded.run(feeds)["y"])
