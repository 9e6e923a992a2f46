"""Models whose products of bytes would saturate in ONNX Runtime without VNNI, rewritten as there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from eqfuse.engine.onnx import exact_products
from eqfuse.engine.onnx.exact_products import make_products_exact
from eqfuse.engine.onnx.runtime_values import open_session

Array = np.ndarray[Any, Any]
LEFT = np.array([[255, 255, 250, 3], [255, 254, 0, 255]], np.uint8)
RIGHT = np.array([[127, -128, 5], [127, -128, 127], [126, -128, -1], [-128, 127, 64]], np.int8)
ONE = np.array(1.0, np.float32)


@dataclass(frozen=True)
class Product:
    """An operator, with its operands by name; those that are not fed are stored."""

    op: str
    operands: Mapping[str, Array]
    fed: Sequence[str]
    expected: Array
    domain: str = ""

    def model(self) -> onnx.ModelProto:
        def port(name: str, array: Array) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

        graph = helper.make_graph(
            [helper.make_node(self.op, [*self.operands], ["y"], domain=self.domain)],
            "product",
            [port(name, self.operands[name]) for name in self.fed],
            [port("y", self.expected)],
            [numpy_helper.from_array(array, name) for name, array in self.operands.items() if name not in self.fed],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _integers(left_zero: int = 0, right_zero: int = 0) -> Array:
    sums: Array = (LEFT.astype(np.int32) - left_zero) @ (RIGHT.astype(np.int32) - right_zero)
    return sums


def _as_filters(matrix: Array) -> Array:
    return np.ascontiguousarray(matrix.T[:, :, None, None])


def _rounded(sums: Array, scale: float) -> Array:
    integers: Array = np.clip(np.rint(sums / np.float32(scale)) + 128, 0, 255).astype(np.uint8)
    return integers


SCALE = np.array(512.0, np.float32)
ZERO, SIGNED_ZERO = np.array(3, np.uint8), np.array(-5, np.int8)
BETWEEN = np.array(128, np.uint8)
QUANTISED: dict[str, Array] = {
    "sa": ONE, "za": ZERO, "b": RIGHT, "sb": ONE, "zb": SIGNED_ZERO, "sy": SCALE, "zy": BETWEEN,
}  # fmt: skip
PRODUCTS = [
    Product("MatMulInteger", {"a": LEFT, "b": RIGHT}, ["a"], _integers()),
    Product("MatMulInteger", {"a": LEFT, "b": RIGHT}, ["a", "b"], _integers()),
    Product("MatMulInteger", {"a": LEFT, "b": RIGHT, "za": ZERO, "zb": SIGNED_ZERO}, ["a"], _integers(3, -5)),
    Product("ConvInteger", {"x": np.ascontiguousarray(RIGHT.T[:, :, None, None]), "w": LEFT[:, :, None, None]}, ["x"],
            np.ascontiguousarray(_integers().T[:, :, None, None])),
    Product("QLinearMatMul", {"a": LEFT, **QUANTISED}, ["a"], _rounded(_integers(3, -5), 512)),
    Product("QLinearConv", {"a": LEFT[:, :, None, None], **QUANTISED, "b": _as_filters(RIGHT)}, ["a"],
            _rounded(_integers(3, -5), 512)[:, :, None, None]),
    Product("QGemm", {"a": LEFT, "sa": ONE, "za": ZERO, "b": RIGHT, "sb": ONE, "zb": SIGNED_ZERO}, ["a"],
            _integers(3, -5).astype(np.float32), "com.microsoft"),
    Product("MatMulIntegerToFloat", {"a": LEFT, "b": RIGHT, "sa": ONE, "sb": ONE, "za": ZERO, "zb": SIGNED_ZERO}, ["a"],
            _integers(3, -5).astype(np.float32), "com.microsoft"),
    Product("DynamicQuantizeMatMul", {"a": LEFT.astype(np.float32), "b": RIGHT, "sb": ONE, "zb": SIGNED_ZERO}, ["a"],
            _integers(0, -5).astype(np.float32), "com.microsoft"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _without_vnni(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_products, "products_saturate", lambda: True)


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.op)
def test_sums_are_exact(product: Product) -> None:
    assert make_products_exact(product.model()) != product.model()
    (found,) = open_session(product.model()).run(None, {name: product.operands[name] for name in product.fed})
    np.testing.assert_allclose(found, product.expected, rtol=1e-6)


def test_operands_of_one_sign_stay_as_they_are() -> None:
    """ONNX Runtime's products of int8 by int8 are exact, and it has no QLinearMatMul of int8 by uint8."""
    operands = {"a": LEFT.view(np.int8), **QUANTISED, "za": SIGNED_ZERO, "zy": SIGNED_ZERO}
    model = Product("QLinearMatMul", operands, ["a"], LEFT.view(np.int8)).model()
    assert make_products_exact(model) == model


def test_types_are_known_behind_operators_that_move_integers() -> None:
    """MatMulInteger without zero points says nothing about the types of its operands."""
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    moved (float[2,4] x, int8[3,4] b) => (int32[2,3] y) {
        q, s, z = DynamicQuantizeLinear(x)
        t = Transpose(b)
        y = MatMulInteger(q, t)
    }
    """
    exact = make_products_exact(onnx.parser.parse_model(text))
    assert exact.graph.node[-1].op_type == "MatMulInteger"
    assert len(exact.graph.node[-1].input) == 4
    x = LEFT.astype(np.float32)
    (found,) = open_session(onnx.parser.parse_model(text)).run(None, {"x": x, "b": np.ascontiguousarray(RIGHT.T)})
    np.testing.assert_array_equal(found, _integers())


def test_bodies_are_rewritten() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    branches (bool c, uint8[2,4] a, int8[4,3] b) => (int32[2,3] y) {
        y = If(c) <
            then_branch = product () => (int32[2,3] u) { u = MatMulInteger(a, b) },
            else_branch = none () => (int32[2,3] v) { v = Constant<value = int32[2,3] {0, 0, 0, 0, 0, 0}>() }
        >
    }
    """
    given = {"c": np.array(True), "a": LEFT, "b": RIGHT}
    (found,) = open_session(onnx.parser.parse_model(text)).run(None, given)
    np.testing.assert_array_equal(found, _integers())


def test_packed_attention_is_exact() -> None:
    random, heads, width = np.random.default_rng(0), 2, 16
    weights = random.integers(-128, 128, (width, 3 * width)).astype(np.int8)
    bias = random.standard_normal(3 * width).astype(np.float32)
    stored = {
        "w": weights, "b": bias, "sx": np.float32(0.02), "sw": np.float32(0.01), "m": None, "zx": np.uint8(120),
        "zw": np.int8(3),
    }  # fmt: skip
    names = ["x", *(name if array is not None else "" for name, array in stored.items())]
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("QAttention", names, ["y"], domain="com.microsoft", num_heads=heads)],
            "attention",
            [helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [1, 5, width])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 5, width])],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items() if array is not None],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
        ir_version=8,
    )
    x = random.integers(0, 256, (1, 5, width)).astype(np.uint8)
    (found,) = open_session(model).run(None, {"x": x})
    projected = ((x[0].astype(np.int64) - 120) @ (weights.astype(np.int64) - 3)) * (0.02 * 0.01) + bias
    parts = [np.split(part, heads, -1) for part in np.split(projected, 3, -1)]
    for head, (q, k, v) in enumerate(zip(*parts, strict=True)):
        shares = np.exp(q @ k.T / np.sqrt(q.shape[-1]))
        expected = shares / shares.sum(-1, keepdims=True) @ v
        np.testing.assert_allclose(found[0, :, 8 * head : 8 * head + 8], expected, atol=1e-4)
