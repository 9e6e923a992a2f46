"""Models on which a rule that is nearly right shows: guarded NaN, signs of zero, infinities, empty parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import eqfuse

from .onnx_runtime import outputs_of

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
    "logarithms of small numbers": (
        "real",
        "g (float[2] x) => (float[2] z) <float[2] w = {1.0, 1.25}>"
        "{ v = Mul(x, w) p = Softplus(x) q = Softplus(v) a = Log(p) b = Log(q) z = Add(a, b) }",
        [-80.0, -70.0],
    ),
    "logarithms of small and large numbers": (
        "real",
        "g (float[2] x) => (float[2] z)"
        "{ v = Neg(x) p = Softplus(x) q = Exp(v) r = Sqrt(q) s = Add(q, r) a = Log(p) b = Log(s) z = Sub(a, b) }",
        [-80.0, -85.0],
    ),
    "quotient of small and large roots": (
        "real",
        "g (float[2] x) => (float[2] z)"
        "{ v = Neg(x) p = Softplus(x) q = Softplus(v) a = Sqrt(p) b = Sqrt(q) z = Div(a, b) }",
        [86.0, 85.5],
    ),
    "product of many roots": (
        "real",
        "g (float[1,12] x) => (float[1] z){ p = Softplus(x) a = Sqrt(p) z = ReduceProd<axes=[1], keepdims=0>(a) }",
        [3e3 + n for n in range(12)],
    ),
    "divided by two small numbers": (
        "real",
        "g (float[2] x) => (float[2] z) <float[2] w = {1.0, 1.25}>"
        "{ v = Mul(x, w) p = Softplus(x) q = Softplus(v) a = Div(p, q) z = Div(a, p) }",
        [-60.0, -50.0],
    ),
    "quotient above a quotient": (
        "real",
        "g (float[2] x) => (float[2] z) { p = Softplus(x) q = Exp(x) r = Add(p, q) s = Div(q, r) z = Div(r, s) }",
        [70.0, 80.0],
    ),
    "root twice in a product": (
        "real",
        "g (float[2] x) => (float[2] z)"
        "{ v = Neg(x) p = Exp(x) q = Softplus(v) r = Sqrt(p) a = Mul(q, r) b = Mul(r, v) z = Mul(a, b) }",
        [80.0, 85.0],
    ),
    "clipped exponential": (
        "real",
        "g (float[3] x) => (float[3] z) <float l = {0.0}> { e = Exp(x) z = Clip(e, l) }",
        [100.0, -1.0, 1.0],
    ),
    "threshold of a logarithm": (
        "real",
        "g (float[3] x) => (float[3] z) { e = Log(x) z = ThresholdedRelu<alpha=0.0>(e) }",
        [-1.0, 0.5, 2.0],
    ),
    "chosen where a logarithm is above": (
        "real",
        "g (float[3] x) => (float[3] z) <float c = {0.5}, float d = {0.0}>"
        "{ e = Log(x) b = Greater(e, c) z = Where(b, e, d) }",
        [-1.0, 0.5, 2.0],
    ),
}


def outputs(model: onnx.ModelProto, x: np.ndarray) -> Sequence[np.ndarray]:
    return outputs_of(model, {"x": x}, as_written=True)


@pytest.mark.representatives(3)
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


@pytest.mark.parametrize("product", [False, True])
def test_constants_that_do_not_fit_their_type_are_not_made(product: bool) -> None:
    """800 times 90 is no number of float16; 8 times 9 is, so that the two factors become one."""
    scale, factor = (8, 9) if product else (800, 90)
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float16[2,4] x) => (float16[2,4] y) <int64[1] four = {4}>'
        f"{{ a = Constant<value_float={float(scale)}>() b = Constant<value_float={float(factor)}>()"
        " s1 = Expand(a, four) s = Cast<to=10>(s1) c = Cast<to=10>(b) n = LayerNormalization(x, s) y = Mul(n, c) }"
    )
    result = eqfuse.optimize(model)
    assert ("Mul" in {node.op_type for node in result.graph.node}) != product
    x = np.array([[0.5, 0.5, 0.5, 0.5], [1e-3, 0, 0, 1e-3]], np.float16)
    before, after = (np.asarray(outputs(each, x)[0], np.float32) for each in (model, result))
    np.testing.assert_allclose(after, before, rtol=1e-2)
    assert np.isfinite(before[0]).all()


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
