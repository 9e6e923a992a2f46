"""Models of float16 as models of float32 between casts: types, what is left alone, and compiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, parser
from onnx_ir import serde

import eqfuse
from eqfuse.engine.onnx.model import read
from eqfuse.engine.preparation.halves import widen_halves
from eqfuse.engine.shapes.inference import infer

NETWORK = """<ir_version: 8, opset_import: ["": 17]>
g (float16[n, 4] x, bool[1] c) => (float16[n, 6] y, float16[n, 4] z, float[n, 6] s)
<float16[4, 6] w = {WEIGHTS}> {
    half = Constant<value = float16[1] {14336}> ()
    p = MatMul(x, w)
    m = ReduceMean<axes = [1]>(p)
    rest = Sub(p, m)
    y = If(c) <then_branch = then () => (float16[n, 6] a) { a = Mul(rest, half) },
               else_branch = other () => (float16[n, 6] b) { b = Relu(rest) }>
    z = Mul(x, half)
    long = Cast<to = 1>(rest)
    doubled = Add(long, long)
    short = Cast<to = 10>(doubled)
    s = Cast<to = 1>(short)
}
"""


@pytest.fixture(scope="module")
def network() -> onnx.ModelProto:
    bits = np.linspace(-0.7, 0.8, 24).astype(np.float16).view(np.uint16)  # which is what ONNX's text has
    model = parser.parse_model(NETWORK.replace("WEIGHTS", ", ".join(map(str, bits))))
    onnx.checker.check_model(model, full_check=True)
    return model


def run(model: onnx.ModelProto, given: dict[str, Any]) -> list[Any]:
    results: list[Any] = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    return results


@pytest.mark.parametrize("chosen", [True, False])
def test_the_ends_stay_and_all_else_is_of_float32(network: onnx.ModelProto, chosen: bool) -> None:
    wide = widen_halves(read(network))
    types = {name: type_.dtype for name, type_ in infer(wide).types.items()}
    assert [name for name, dtype in types.items() if dtype == "float16"] == ["x", "y", "z"]
    proto = serde.serialize_model(wide.ir)
    onnx.checker.check_model(proto, full_check=True)
    before, after = ([v.type for v in (*m.graph.input, *m.graph.output)] for m in (network, proto))
    assert before == after
    assert [v.name for v in network.graph.output] == [v.name for v in proto.graph.output]
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float16)
    for expected, result in zip(*(run(m, {"x": x, "c": np.array([chosen])}) for m in (network, proto)), strict=True):
        assert expected.dtype == result.dtype
        np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), atol=4e-3)


@pytest.mark.parametrize(
    "body",
    [
        "y = Relu(x)",  # of no float16
        "h = Cast<to = 10>(x) k = own.Double(h) y = Cast<to = 1>(k)",  # which may take nothing else
    ],
)
def test_other_models_stay(body: str) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[4] x) => (float[4] y) {{ {body} }}'
    model = read(parser.parse_model(text))
    assert widen_halves(model) is model


def test_an_input_that_is_an_output_and_a_default_that_callers_replace() -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float16[2] x, float16[2] w) => (float16[2] x, float16[2] y)'
        "<float16[2] w = {15360, 16384}> { y = Mul(x, w) }"
    )
    proto = serde.serialize_model(widen_halves(read(model)).ir)
    x = np.array([3, 5], np.float16)
    for given in ({"x": x}, {"x": x, "w": np.array([7, 9], np.float16)}):
        for expected, result in zip(run(model, given), run(proto, given), strict=True):
            np.testing.assert_array_equal(result, expected)
    assert [t.data_type for t in proto.graph.initializer] == [TensorProto.FLOAT16]


def test_compiled_it_needs_no_other_runtime(network: onnx.ModelProto, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    eqfuse.compile(network, bundle, threads=1, measure=False)
    assert not (bundle / "fallback").exists()
    assert json.loads((bundle / "manifest.json").read_text())["inputs"][0]["dtype"] == "float16"
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float16)
    given = {"x": x, "c": np.array([True])}
    results = eqfuse.load(bundle)(**given)
    assert isinstance(results, dict)
    for expected, result in zip(run(network, given), results.values(), strict=True):
        assert expected.dtype == result.dtype
        np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), atol=4e-3)
