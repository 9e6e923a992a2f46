"""Models on which a rule that is nearly right shows: guarded NaN, signs of zero, infinities, empty parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

import eqfuse

NAN, INF = float("nan"), float("inf")

CASES: dict[str, tuple[Any, str, list[float]]] = {
    "guarded by greater": (
        "real",
        "g (float[4] x) => (float[4] y) <float[4] w = {0.5, 0.5, 0.5, 0.5}>"
        "{ s = Sqrt(x) c = Greater(s, w) y = Where(c, s, w) }",
        [-1.0, -2.0, 4.0, 0.01],
    ),
    "guarded by less": (
        "real",
        "g (float[4] x) => (float[4] y) <float[4] w = {0.5, 0.5, 0.5, 0.5}>"
        "{ s = Sqrt(x) c = Less(s, w) y = Where(c, s, w) }",
        [-1.0, -2.0, 4.0, 0.01],
    ),
    "sum of negative zeros": (
        "exact",
        "g (float[2,2] x) => (float[2] z) <int64[1] a = {1}>"
        "{ c = Neg(x) y = ReduceSum<keepdims=0>(c, a) z = Reciprocal(y) }",
        [0.0, 0.0, 1.0, -1.0],
    ),
    "largest of ceilings": (
        "exact",
        "g (float[2,2] x) => (float[2] z) { c = Ceil(x) y = ReduceMax<axes=[1], keepdims=0>(c) z = Reciprocal(y) }",
        [-0.5, 0.0, 0.0, -0.5],
    ),
    "largest of floors": (
        "exact",
        "g (float[2,2] x) => (float[2] z) { c = Floor(x) y = ReduceMax<axes=[1], keepdims=0>(c) z = Reciprocal(y) }",
        [-0.0, 0.5, 0.5, -0.0],
    ),
    "largest of padded": (
        "exact",
        "g (float[1,1,2,2] x) => (float[1,1,n,m] z) <int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}>"
        "{ r = Relu(x) c = Pad(r, p) y = MaxPool<kernel_shape=[2,2]>(c) z = Reciprocal(y) }",
        [-0.0, -1.0, -0.0, 2.0],
    ),
    "clipped to what is finite": ("exact", "g (float[2] x) => (float[2] z) { y = Clip(x) z = Neg(y) }", [INF, -INF]),
    "divided by a negative zero": (
        "real",
        "g (float[1,1,3] x) => (float[1,1,3] z) <float[1,1,3] w = {0.0, 0.0, 0.0}> { y = PRelu(x, w) z = Div(x, y) }",
        [-1.0, -2.0, 3.0],
    ),
    "rows hidden by strides": (
        "real",
        "g (float[1,2,5,4] x) => (float[2,2,3,2] z)"
        "<float[2,2,1,1] w = {1.0, 2.0, 3.0, 4.0}, float[1,2,1,4] r = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}>"
        "{ c = Conv<strides=[2,2]>(x, w) y = Concat<axis=2>(x, r) d = Conv<strides=[2,2]>(y, w)"
        " z = Concat<axis=0>(c, d) }",
        list(np.linspace(-1, 1, 40)),
    ),
    "nothing of a convolution": (
        "real",
        "g (float[1,3,6] x) => (float[1,n,m] z)"
        "<float[2,3,1] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, int64[1] s = {2}, int64[1] e = {2}, int64[1] a = {2}>"
        "{ c = Conv(x, w) y = Slice(c, s, e, a) z = Neg(y) }",
        list(np.linspace(-1, 1, 18)),
    ),
}


def outputs(model: onnx.ModelProto, x: np.ndarray) -> Sequence[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    results: Sequence[Any] = ort.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    return results


@pytest.mark.parametrize("name", CASES)
def test_result_is_bit_identical(name: str, tmp_path: Path) -> None:
    precision, text, values = CASES[name]
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.array(values, np.float32).reshape(shape)
    path = tmp_path / "optimized.onnx"
    eqfuse.optimize(model, path, precision=precision, verify=False)
    for before, after in zip(outputs(model, x), outputs(onnx.load(path), x), strict=True):
        assert before.tobytes() == after.tobytes()


def test_constant_that_is_moved_back_is_one() -> None:
    """Here every transposition is the identity, for what it moves are ones."""
    weights = ", ".join(map(str, range(9)))
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1,3,3,1] x) => (float[1,3,3,1] y)'
        f"<float[1,3,3,1] w = {{{weights}}}>"
        "{ t = Transpose<perm=[3,1,2,0]>(x) s = Sigmoid(t) a = Add(s, w)"
        " b = Transpose<perm=[3,1,2,0]>(a) y = Mul(a, b) }"
    )
    assert eqfuse.optimize_with_result(model, verify=False).saturation.stop_reason == "saturated"
