"""What draws at random does so anew in each call, in a loop or in ONNX Runtime, and verification says that it was not
compared."""

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

LOOPS = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


@pytest.mark.parametrize(
    "operator", [pytest.param(name, marks=() if name == "Dropout" else pytest.mark.conformance) for name in MODELS]
)
def test_it_draws_anew_in_each_call(operator: str, tmp_path: Path) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> random {MODELS[operator]}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "in.onnx")
    compiled = eqfuse.compile(tmp_path / "in.onnx", tmp_path / "bundle", threads=1, measure=False)
    left = [] if operator in LOOPS else [(operator,)]
    assert [entry.operators for entry in compiled.manifest.fallbacks] == left
    assert "'y' depends on a random operator and was not compared" in compiled.manifest.provenance.verification
    loaded = eqfuse.load(tmp_path / "bundle")
    feeds = {"x": np.ones((8, 8), np.float32)} | ({"t": np.array(True)} if operator == "Dropout" else {})
    assert not np.array_equal(loaded.run(feeds)["y"], loaded.run(feeds)["y"])


@pytest.mark.parametrize(("operator", "mean", "deviation"), [
    ("RandomNormal", 3.0, 2.0), ("RandomUniform", 0.0, 4.0 / 12**0.5),
])  # fmt: skip
def test_numbers_have_the_distribution_that_is_asked_for(
    operator: str, mean: float, deviation: float, tmp_path: Path
) -> None:
    """Of as many numbers as a value decides, which ONNX Runtime could not hand to compiled code."""
    asked = "mean = 3.0, scale = 2.0" if operator == "RandomNormal" else "low = -2.0, high = 2.0"
    text = f"""<ir_version: 8, opset_import: ["": 17]> random (float[40000] x) => (float[k] y) {{
        n = NonZero(x) f = Cast <to = 1> (n) r = {operator}Like <{asked}> (f) o = Constant <value_ints = [-1]> ()
        y = Reshape(r, o) }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "in.onnx")
    eqfuse.compile(tmp_path / "in.onnx", tmp_path / "bundle", threads=1, measure=False)
    drawn = eqfuse.load(tmp_path / "bundle").run({"x": np.ones(40000, np.float32)})["y"]
    assert drawn.shape == (40000,)
    assert abs(drawn.mean() - mean) < 0.06
    assert abs(drawn.std() / deviation - 1) < 0.03
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.03
