"""Shapes of what ONNX Runtime's own operators return are those of the arrays that it computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import eqfuse
from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.sizes import parse_size

from ...onnx_runtime import outputs_of

SIZES = {"N": 2, "S": 5, "H": 9, "M": 3}
"""The sizes of dynamic dimensions with which the operators run."""


@dataclass(frozen=True)
class Port:
    """An input; one with `content` is a constant."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    content: Any = None


@dataclass(frozen=True)
class Call:
    op: str
    inputs: tuple[Port | None, ...]
    outputs: int = 1
    attributes: dict[str, Any] = field(default_factory=dict)


def floats(name: str, *shape: int | str) -> Port:
    return Port(name, "float32", shape)


def bytes_(name: str, *shape: int | str) -> Port:
    return Port(name, "uint8", shape)


def scale(name: str) -> tuple[Port, Port]:
    """The scale and the zero point of a quantised tensor."""
    return Port(f"{name}_s", "float32", (), np.float32(0.5)), Port(f"{name}_z", "uint8", (), np.uint8(3))


A, B, IMAGE = bytes_("a", "N", 4), bytes_("b", "N", 4), bytes_("a", "N", 4, "H", 8)
ROWS = floats("x", "N", "S", 64)
NORM = floats("g", 64), floats("h", 64)
IDS = tuple(Port(name, "int32", ("N", "S"), None) for name in ("ids", "segments"))
CALLS = [
    Call("QLinearAdd", (A, *scale("a"), B, *scale("b"), *scale("y"))),
    Call("QLinearAdd", (A, *scale("a"), bytes_("b", 4), *scale("b"), *scale("y"))),
    Call("QLinearMul", (A, *scale("a"), bytes_("b", 1, 4), *scale("b"), *scale("y"))),
    Call("QLinearConcat", (*scale("y"), A, *scale("a"), bytes_("b", "N", 3), *scale("b")), 1, {"axis": 1}),
    Call("QLinearConcat", (*scale("y"), A, *scale("a"), bytes_("b", "M", 4), *scale("b")), 1, {"axis": 0}),
    Call("QLinearSigmoid", (A, *scale("a"), *scale("y"))),
    Call("QLinearLeakyRelu", (A, *scale("a"), *scale("y")), 1, {"alpha": 0.1}),
    Call("QLinearSoftmax", (A, *scale("a"), *scale("y")), 1, {"axis": 1, "opset": 13}),
    Call("QLinearWhere", (Port("c", "bool", ("N", 4)), A, *scale("a"), B, *scale("b"), *scale("y"))),
    Call("QLinearGlobalAveragePool", (IMAGE, *scale("a"), *scale("y"))),
    Call("QLinearAveragePool", (IMAGE, *scale("a"), *scale("y")), 1, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Call("QGemm", (A, *scale("a"), bytes_("b", 4, 8), *scale("b"), None, *scale("y"))),
    Call("DynamicQuantizeMatMul", (floats("x", "N", 4), bytes_("b", 4, 8), *scale("b"))),
    Call("MatMulIntegerToFloat", (A, bytes_("b", 4, 8), scale("a")[0], scale("b")[0])),
    Call("QuantizeLinear", (floats("x", "N", 4), *scale("y"))),
    Call("DequantizeLinear", (A, *scale("a"))),
    Call("QAttention", (
        bytes_("a", "N", "S", 64), bytes_("w", 64, 192), floats("b", 192), scale("a")[0], scale("w")[0], None,
        scale("a")[1], scale("w")[1],
    ), 1, {"num_heads": 4}),
    Call("FusedConv", (floats("x", "N", 3, "H", 8), floats("w", 4, 3, 3, 3)), 1, {"activation": "Relu"}),
    Call("FusedMatMul", (floats("x", "N", 4, "S"), floats("w", "N", 4, 8)), 1, {"transA": 1}),
    Call("FusedGemm", (floats("x", "N", 4), floats("w", 4, 8)), 1, {"activation": "Relu"}),
    *(Call(op, (ROWS,)) for op in ("Gelu", "FastGelu", "QuickGelu")),
    Call("BiasGelu", (ROWS, NORM[0])),
    Call("SkipLayerNormalization", (ROWS, floats("s", "N", "S", 64), *NORM)),
    Call("SkipSimplifiedLayerNormalization", (ROWS, floats("s", "N", "S", 64), NORM[0])),
    Call("EmbedLayerNormalization", (
        *IDS, floats("w", 9, 64), floats("p", 9, 64), floats("t", 9, 64), *NORM, Port("m", "int32", ("N", "S")),
    ), 2),
    Call("Attention", (ROWS, floats("w", 64, 192), floats("b", 192)), 1, {"num_heads": 4}),
    Call("MultiHeadAttention", (ROWS, floats("k", "N", "M", 64), floats("v", "N", "M", 64)), 1, {"num_heads": 4}),
    Call("RotaryEmbedding", (
        ROWS, Port("p", "int64", ("N", "S")), floats("c", 9, 8), floats("s", 9, 8),
    ), 1, {"num_heads": 4}),
    Call("MatMulNBits", (
        floats("x", "N", 64), bytes_("b", 8, 2, 16), floats("s", 16),
    ), 1, {"K": 64, "N": 8, "bits": 4, "block_size": 32}),
    Call("Inverse", (floats("x", "N", 4, 4),)),
    Call("ExpandDims", (floats("x", "N", 4), Port("axis", "int32", (), np.int32(1)))),
    Call("Trilu", (floats("x", "N", 4, "S"),)),
    Call("Unique", (floats("x", "N"),), 3),
]  # fmt: skip


def build(call: Call) -> onnx.ModelProto:
    given = [port for port in call.inputs if port is not None]
    kinds = {port.name: helper.np_dtype_to_tensor_dtype(np.dtype(port.dtype)) for port in given}
    inputs = [helper.make_tensor_value_info(p.name, kinds[p.name], p.shape) for p in given if p.content is None]
    stored = [numpy_helper.from_array(np.asarray(p.content), p.name) for p in given if p.content is not None]
    names = [f"y{number}" for number in range(call.outputs)]
    node = helper.make_node(
        call.op, ["" if p is None else p.name for p in call.inputs], names, domain="com.microsoft", **call.attributes
    )
    outputs = list(map(helper.make_empty_tensor_value_info, names))
    graph = helper.make_graph([node], call.op, inputs, outputs, stored)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=9
    )


def computed(proto: onnx.ModelProto) -> list[np.ndarray[Any, Any]]:
    feeds = {}
    for port in proto.graph.input:
        shape = [d.dim_value or SIZES[d.dim_param] for d in port.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
        feeds[port.name] = np.random.default_rng(0).uniform(0, 2, shape).astype(dtype)
    return outputs_of(proto, feeds)


def declare(proto: onnx.ModelProto, arrays: list[np.ndarray[Any, Any]]) -> None:
    """Say the element types of the outputs, which every model does."""
    for port, array in zip(proto.graph.output, arrays, strict=True):
        port.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(array.dtype)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.op)
def test_the_shapes_are_those_that_the_runtime_computes(call: Call) -> None:
    proto = build(call)
    arrays = computed(proto)
    declare(proto, arrays)
    types = infer(read(proto)).types
    for name, array in zip([port.name for port in proto.graph.output], arrays, strict=True):
        assert types[name].dtype == array.dtype.name
        shape = types[name].shape
        assert shape is not None
        assert len(shape) == array.ndim
        if call.op == "Unique":  # the number of elements depends on their values
            continue
        for dimension, size in zip(shape, array.shape, strict=True):
            found = parse_size(str(dimension))
            assert found is not None
            assert found.value(SIZES.__getitem__) == size


@pytest.mark.conformance
@pytest.mark.parametrize("call", [call for call in CALLS if call.op != "Unique"], ids=lambda call: call.op)
def test_they_are_compiled(call: Call, tmp_path: Path) -> None:
    proto = build(call)
    declare(proto, computed(proto))
    onnx.save(proto, tmp_path / "in.onnx")
    compiled = eqfuse.compile(tmp_path / "in.onnx", tmp_path / "bundle", threads=1, measure=False)
    assert compiled.manifest.provenance.verification.startswith(("passed", "not verifiable"))


def test_a_chain_of_them_between_operators_of_onnx_is_known() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> chain (float[N, 3, H, H] x) => (float[A] y)
        <int64[2] flat = {0, -1}, float s = {0.1}, uint8 z = {1}> {
        c = com.microsoft.FusedConv <activation = "Relu", strides = [2, 2]> (x, w)
        q = com.microsoft.QuantizeLinear (c, s, z)
        p = com.microsoft.QLinearAveragePool <kernel_shape = [2, 2]> (q, s, z, s, z)
        d = com.microsoft.DequantizeLinear (p, s, z)
        r = Relu (d)
        f = Reshape (r, flat)
        g = com.microsoft.Gelu (f)
        y = ReduceSum <keepdims = 0> (g, one)
    }"""
    proto = onnx.parser.parse_model(text.replace("uint8 z = {1}", "uint8 z = {1}, int64[1] one = {1}"))
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w"))
    types = infer(read(proto)).types
    assert types["p"].shape == ("N", 4, "(H + 1)//2 - 2", "(H + 1)//2 - 2")
    assert types["g"].dtype == "float32"
    assert types["y"].shape == ("N",)
