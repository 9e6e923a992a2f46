"""Quantised operators as TOSA: each within a step of ONNX Runtime on the same integers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest
from onnxruntime.quantization import QuantFormat

from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.ethos_u.verification import verify_operators
from eqfuse.support.errors import VerificationError

from .networks import emitted, float_model, quantised

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
    import onnx

    onnx.save(float_model(*NETWORKS["convolution"]), tmp_path / "float.onnx")
    with pytest.raises(LoweringError, match=r"quantise it first: onnxruntime\.quantization\.quantize_static"):
        emitted(tmp_path / "float.onnx")
