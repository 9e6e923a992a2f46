"""Quantised operators as TOSA: each within a step of ONNX Runtime on the same integers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnxruntime.quantization import QuantFormat

from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.base.interface import inputs_of
from eqfuse.lowering.base.ports import random_inputs
from eqfuse.lowering.ethos_u.back_end import border_of
from eqfuse.lowering.ethos_u.model import integers_for, numbers_of
from eqfuse.lowering.ethos_u.tosa.evaluation import evaluate_graph
from eqfuse.lowering.ethos_u.verification import verify_operators
from eqfuse.support.errors import VerificationError

from .networks import emitted, float_model, quantised, with_tail

IMAGE = (1, 4, 9, 8)
CONV = "a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w, b)"
WEIGHTS = {"w": (8, 4, 3, 3), "b": (8,)}
NETWORKS = {
    "convolution": (f"{CONV} y = Relu(a)", IMAGE, WEIGHTS),
    "strides": ("y = Conv<kernel_shape=[3,3], strides=[2,2], pads=[0,1,1,0]>(x, w, b)", IMAGE, WEIGHTS),
    "depthwise": ("y = Conv<kernel_shape=[3,3], group=4, dilations=[2,2]>(x, v)", IMAGE, {"v": (8, 1, 3, 3)}),
    "groups": ("y = Conv<kernel_shape=[1,1], group=2>(x, v)", IMAGE, {"v": (6, 2, 1, 1)}),
    "one axis": ("y = Conv<kernel_shape=[3], pads=[1,1]>(x, v)", (1, 4, 9), {"v": (6, 4, 3)}),
    "residual": (f"{CONV} c = Relu(a) d = Conv<kernel_shape=[1,1]>(c, v) y = Add(d, c)", IMAGE,
                 WEIGHTS | {"v": (8, 8, 1, 1)}),
    "product": (f"{CONV} c = Sigmoid(a) y = Mul(a, c)", IMAGE, WEIGHTS),
    "classifier": (f"{CONV} c = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a) d = Flatten(c) y = Gemm(d, v, u)", IMAGE,
                   WEIGHTS | {"v": (8 * 4 * 4, 5), "u": (5,)}),
    "mean": (f"{CONV} c = GlobalAveragePool(a) d = Flatten(c) y = MatMul(d, v)", IMAGE, WEIGHTS | {"v": (8, 5)}),
    "average": (f"{CONV} y = AveragePool<kernel_shape=[3,3], strides=[2,2]>(a)", IMAGE, WEIGHTS),
    "concat": (f"{CONV} c = Relu(a) y = Concat<axis=1>(c, x)", IMAGE, WEIGHTS),
    "transpose": (f"{CONV} y = Transpose<perm=[0,2,3,1]>(a)", IMAGE, WEIGHTS),
    "softmax of channels": (f"{CONV} y = Softmax<axis=1>(a)", IMAGE, WEIGHTS),
    "softmax of columns": (f"{CONV} y = Softmax<axis=-1>(a)", IMAGE, WEIGHTS),
    "attention": (f"{CONV} c = Softmax<axis=-1>(a) d = Transpose<perm=[0,1,3,2]>(a) y = MatMul(c, d)", IMAGE, WEIGHTS),
    "layer norm": ("a = MatMul(x, w) y = LayerNormalization<axis=-1>(a, g, h)", (1, 9, 16),
                   {"w": (16, 24), "g": (24,), "h": (24,)}),
    "layer norm of a map": (f"{CONV} y = LayerNormalization<axis=2, epsilon=0.01>(a, g)", IMAGE,
                            WEIGHTS | {"g": (9, 8)}),
    "sum": (f"{CONV} i = Constant<value = int64[2] {{1, 3}}>() c = ReduceSum<keepdims=0>(a, i) y = MatMul(c, v)", IMAGE,
            WEIGHTS | {"v": (9, 5)}),
    "mean of columns": (f"{CONV} c = ReduceMean<axes=[-1]>(a) y = Conv<kernel_shape=[1,1]>(c, v)", IMAGE,
                        WEIGHTS | {"v": (6, 8, 1, 1)}),
    "extremes": (f"{CONV} c = ReduceMax<axes=[2], keepdims=1>(a) d = ReduceMin<axes=[3], keepdims=1>(a) y = Add(c, d)",
                 IMAGE, WEIGHTS),
    "transposed": (f"{CONV} y = ConvTranspose<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], "
                   "output_padding=[1,1]>(a, v)", IMAGE, WEIGHTS | {"v": (8, 6, 3, 3)}),
    "transposed, padded": ("y = ConvTranspose<kernel_shape=[2,3], strides=[2,2], pads=[0,1,0,0]>(x, v)", IMAGE,
                           {"v": (4, 6, 2, 3)}),
    "enlarged": (f'{CONV} s = Constant<value = float[4] {{1.0, 1.0, 2.0, 3.0}}>() '
                 'c = Resize<mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric">'
                 "(a, , s) "
                 "y = Conv<kernel_shape=[1,1]>(c, v)", IMAGE, WEIGHTS | {"v": (6, 8, 1, 1)}),
    "interpolated": (f'{CONV} s = Constant<value = float[4] {{1.0, 1.0, 2.0, 3.0}}>() '
                     'c = Resize<mode="linear">(a, , s) '
                     "y = Conv<kernel_shape=[1,1]>(c, v)", IMAGE, WEIGHTS | {"v": (6, 8, 1, 1)}),
    "interpolated, asymmetric": (
        f'{CONV} s = Constant<value = float[4] {{1.0, 1.0, 4.0, 1.0}}>() '
        'y = Resize<mode="linear", coordinate_transformation_mode="asymmetric">(a, , s)', IMAGE, WEIGHTS),
    "enlarged to sizes": (
        f'{CONV} s = Constant<value = int64[4] {{1, 8, 13, 11}}>() c = Resize<mode="nearest">(a, , , s) '
        "y = Conv<kernel_shape=[1,1]>(c, v)", IMAGE, WEIGHTS | {"v": (6, 8, 1, 1)}),
    "interpolated to corners": (
        f'{CONV} s = Constant<value = int64[4] {{1, 8, 17, 13}}>() '
        'y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(a, , , s)', IMAGE, WEIGHTS),
    "interpolated to fewer": (
        f'{CONV} s = Constant<value = int64[4] {{1, 8, 5, 3}}>() y = Resize<mode="linear">(a, , , s)', IMAGE, WEIGHTS),
    "reflected": (f"{CONV} p = Constant<value = int64[8] {{0, 0, 2, 1, 0, 0, 1, 3}}>() "
                  'c = Pad<mode="reflect">(a, p) y = Conv<kernel_shape=[1,1]>(c, v)', IMAGE,
                  WEIGHTS | {"v": (6, 8, 1, 1)}),
    "edges": (f"{CONV} p = Constant<value = int64[8] {{0, 0, 2, 0, 0, 0, 0, 1}}>() "
              'c = Pad<mode="edge">(a, p) y = Conv<kernel_shape=[1,1]>(c, v)', IMAGE, WEIGHTS | {"v": (6, 8, 1, 1)}),
    "normalised": (f"{CONV} v = Constant<value = float[8] {{0.1, 0.5, 1.0, 0.2, 2.0, 0.7, 0.3, 0.9}}>() "
                   "c = BatchNormalization(a, g, h, m, v) d = Relu(c) y = Conv<kernel_shape=[1,1]>(d, u)", IMAGE,
                   WEIGHTS | {"g": (8,), "h": (8,), "m": (8,), "u": (6, 8, 1, 1)}),
    "every other": (f"{CONV} from = Constant<value = int64[2] {{0, 1}}>() e = Constant<value = int64[2] {{9, 8}}>() "
                    "i = Constant<value = int64[2] {2, 3}>() t = Constant<value = int64[2] {2, 3}>() "
                    "c = Slice(a, from, e, i, t) y = Conv<kernel_shape=[1,1]>(c, v)", IMAGE,
                    WEIGHTS | {"v": (6, 8, 1, 1)}),
    "gathered": (f"{CONV} i = Constant<value = int64[5] {{2, 3, 4, 0, -1}}>() c = Gather<axis=1>(a, i) "
                 "y = Conv<kernel_shape=[1,1]>(c, v)", IMAGE, WEIGHTS | {"v": (6, 5, 1, 1)}),
    "gelu": (f"{CONV} r = Constant<value_float=1.41421356>() o = Constant<value_float=1.0>() "
             "h = Constant<value_float=0.5>() c = Div(a, r) d = Erf(c) e = Add(d, o) f = Mul(a, e) y = Mul(f, h)",
             IMAGE, WEIGHTS),
    "hard swish": (f"{CONV} c = HardSwish(a) y = Conv<kernel_shape=[1,1]>(c, v)", IMAGE,
                   WEIGHTS | {"v": (6, 8, 1, 1)}),
    "means of one axis": ("a = Conv<kernel_shape=[3], pads=[1,1]>(x, v) c = AveragePool<kernel_shape=[4], "
                          "strides=[2], pads=[1,0]>(a) y = GlobalAveragePool(c)", (1, 4, 19), {"v": (6, 4, 3)}),
    "average, padded": (f"{CONV} y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(a)", IMAGE, WEIGHTS),
    "average, rounded up": (f"{CONV} y = AveragePool<kernel_shape=[2,3], strides=[2,2], ceil_mode=1>(a)", IMAGE,
                            WEIGHTS),
    "average, with padding": (f"{CONV} y = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,0,1], ceil_mode=1, "
                              "count_include_pad=1>(a)", IMAGE, WEIGHTS),
    "two operands": (f"{CONV} c = Transpose<perm=[0,1,3,2]>(a) y = MatMul(a, c)", IMAGE, WEIGHTS),
}  # fmt: skip


@pytest.mark.parametrize("signed", [True, False], ids=["int8", "uint8"])
@pytest.mark.parametrize("name", NETWORKS)
def test_operators_are_within_a_step(name: str, signed: bool, tmp_path: Path) -> None:
    made, compilation = emitted(quantised(float_model(*NETWORKS[name]), tmp_path, signed=signed))
    verify_operators(ir.to_proto(compilation.model.ir), made, compilation.ports, 0, 60.0)
    assert len(made.rounded) >= 2


def test_operators_with_scales_of_their_own(tmp_path: Path) -> None:
    path = quantised(float_model(*NETWORKS["classifier"]), tmp_path, QuantFormat.QOperator, signed=False)
    made, compilation = emitted(path)
    verify_operators(ir.to_proto(compilation.model.ir), made, compilation.ports, 0, 60.0)
    assert sum(each.op == "CONV2D" for each in made.graph.operators) == 2


def test_feature_maps_are_not_transposed(tmp_path: Path) -> None:
    made, _ = emitted(quantised(float_model(*NETWORKS["classifier"]), tmp_path))
    assert "TRANSPOSE" not in {each.op for each in made.graph.operators}


def test_another_factor_is_noticed(tmp_path: Path) -> None:
    made, compilation = emitted(quantised(float_model(*NETWORKS["convolution"]), tmp_path))
    doubled = {
        name: replace(t, data=t.data - 1) if t.data is not None and name.startswith("shift") else t
        for name, t in made.graph.tensors.items()
    }
    wrong = replace(made, graph=replace(made.graph, tensors=doubled))
    with pytest.raises(VerificationError, match="steps on the same integers"):
        verify_operators(ir.to_proto(compilation.model.ir), wrong, compilation.ports, 0, 60.0)


def test_floats_are_refused(tmp_path: Path) -> None:
    onnx.save(float_model(*NETWORKS["convolution"]), tmp_path / "float.onnx")
    with pytest.raises(LoweringError, match=r"quantise it first: onnxruntime\.quantization\.quantize_static"):
        emitted(tmp_path / "float.onnx")


def test_places_of_the_largest(tmp_path: Path) -> None:
    """ONNX Runtime's tool does not quantise a model that ends with ArgMax, so the operator is added behind it."""
    path = quantised(float_model(*NETWORKS["convolution"]), tmp_path)
    model = onnx.load(path)
    for name, axis, keepdims in (("channels", 1, 1), ("columns", 3, 0)):
        model.graph.node.append(
            onnx.helper.make_node("ArgMax", ["y"], [name], name=name, axis=axis, keepdims=keepdims)
        )
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None))
    del model.graph.output[0]
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    made, compilation = emitted(path)
    feeds = random_inputs(compilation.ports, 3)
    results = evaluate_graph(made.graph, integers_for(made.inputs, feeds))
    for wire, expected in zip(
        made.outputs, onnxruntime.InferenceSession(path).run(None, dict(feeds)), strict=True
    ):  # fmt: skip
        assert (numbers_of(wire, results[wire.tensor]) == expected).mean() > 0.95
        assert len(np.unique(expected)) > 3


def test_what_the_npu_does_not_have_is_behind_a_border(tmp_path: Path) -> None:
    path = with_tail(quantised(float_model(*NETWORKS["convolution"]), tmp_path))
    with pytest.raises(LoweringError, match=r"output 'z' is made by node 'sums' \(CumSum\)"):
        emitted(path)
    model = read(path)
    border = border_of(model, infer(model), inputs_of(model), {})
    assert border is not None
    assert border.outputs == ("y", "y_QuantizeLinear_Output")
    assert (border.left, border.read) == (("z",), ("y_QuantizeLinear_Output",))
    assert border.operators == ("shares (Softmax)", "sums (CumSum)")


def test_a_model_without_integers_has_no_border(tmp_path: Path) -> None:
    onnx.save(float_model(*NETWORKS["convolution"]), tmp_path / "float.onnx")
    model = read(tmp_path / "float.onnx")
    assert border_of(model, infer(model), inputs_of(model), {}) is None
