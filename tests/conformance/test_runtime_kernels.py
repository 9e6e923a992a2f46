"""The kernels that ONNX Runtime is left with, before and after eqfuse: what it fused before, it fuses still."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse

from ..engine.models import model, normal, value
from ..runtime_kernels import runtime_kernels

pytestmark = pytest.mark.conformance

PRECIOUS = (
    "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "LayerNormalization", "SimplifiedLayerNormalization",
    "SkipLayerNormalization", "InstanceNormalization", "Attention",
)  # fmt: skip
"""Kernels for what would be many: their sum must not fall."""
_SKIPPED = 2
"""Kernels more that a SkipLayerNormalization may become, sums of a bias and of the residual: they take less time."""
LAYOUT = ("ReorderInput", "ReorderOutput")
FREE = ["batch", 32, "height", "width"]
FIXED = [1, 32, 24, 24]
TOKENS = ["batch", "length", 64]


class Network:
    """A model built node by node; constants get names of their own."""

    def __init__(self, shape: Sequence[int | str], opset: int) -> None:
        self.inputs = [value("x", shape)]
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray[Any, Any]] = {}

    def weight(self, array: Any, dtype: Any = np.float32) -> str:
        self.weights[f"w{len(self.weights)}"] = np.asarray(array, dtype)
        return f"w{len(self.weights) - 1}"

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [f"v{len(self.nodes)}"], **attributes))
        return str(self.nodes[-1].output[0])

    def conv(self, x: str, inputs: int, outputs: int, size: int = 1, **attributes: Any) -> str:
        group = attributes.get("group", 1)
        weight = self.weight(normal(outputs, inputs // group, size, size, seed=len(self.nodes)) / (inputs * size))
        bias = self.weight(normal(outputs, seed=len(self.nodes)))
        pads = [size // 2] * 4
        return self.add("Conv", x, weight, bias, kernel_shape=[size, size], pads=pads, **attributes)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        product = self.add("MatMul", x, self.weight(normal(inputs, outputs, seed=len(self.nodes)) / inputs**0.5))
        return self.add("Add", product, self.weight(normal(outputs, seed=len(self.nodes))))

    def gelu(self, x: str, kind: str) -> str:
        one, half = self.weight(1.0), self.weight(0.5)
        if kind == "tanh":
            cube = self.add("Mul", self.add("Pow", x, self.weight(3.0)), self.weight(0.044715))
            inner = self.add("Mul", self.add("Add", x, cube), self.weight(0.7978845608028654))
            return self.add("Mul", self.add("Mul", x, half), self.add("Add", self.add("Tanh", inner), one))
        bent = self.add("Add", self.add("Erf", self.add("Div", x, self.weight(2**0.5))), one)
        if kind == "half first":
            return self.add("Mul", self.add("Mul", x, half), bent)
        return self.add("Mul", self.add("Mul", x, bent), half)

    def mean(self, x: str, axes: Sequence[int]) -> str:
        if self.opset < 18:
            return self.add("ReduceMean", x, axes=list(axes), keepdims=1)
        return self.add("ReduceMean", x, self.weight(list(axes), np.int64), keepdims=1)

    def layer_norm(self, x: str, size: int) -> str:
        centred = self.add("Sub", x, self.mean(x, [-1]))
        variance = self.mean(self.add("Pow", centred, self.weight(2.0)), [-1])
        deviation = self.add("Sqrt", self.add("Add", variance, self.weight(1e-5)))
        scaled = self.add("Mul", self.add("Div", centred, deviation), self.weight(normal(size, seed=3)))
        return self.add("Add", scaled, self.weight(normal(size, seed=4)))

    def rms_norm(self, x: str, size: int) -> str:
        square = self.mean(self.add("Pow", x, self.weight(2.0)), [-1])
        root = self.add("Sqrt", self.add("Add", square, self.weight(1e-6)))
        return self.add("Mul", self.add("Div", x, root), self.weight(normal(size, seed=5)))

    def model(self, output: str) -> onnx.ModelProto:
        self.add("Tanh", output)
        made = model(self.nodes, self.inputs, [self.nodes[-1].output[0]], self.weights, self.opset)
        return onnx.shape_inference.infer_shapes(made)


def gelu_block(shape: Sequence[int | str], opset: int, kind: str) -> onnx.ModelProto:
    """The feed-forward part of a convolutional block, behind a stride."""
    net = Network(shape, opset)
    x = net.conv("x", 32, 32, 3, strides=[2, 2])
    y = net.conv(net.gelu(net.conv(x, 32, 64), kind), 64, 32)
    return net.model(net.conv(net.add("Add", x, y), 32, 32))


def squeeze_and_excite(shape: Sequence[int | str], opset: int, kind: str) -> onnx.ModelProto:
    net = Network(shape, opset)
    x = net.add("Relu", net.conv("x", 32, 32, 3, strides=[2, 2]))
    pooled = net.add("GlobalAveragePool", x) if kind == "pool" else net.mean(x, [2, 3])
    gate = net.conv(net.add("Relu", net.conv(pooled, 32, 16)), 16, 32)
    return net.model(net.conv(net.add("Mul", x, net.add("HardSigmoid", gate)), 32, 32))


def residual(shape: Sequence[int | str], opset: int, kind: str) -> onnx.ModelProto:
    net = Network(shape, opset)
    x = net.add("Relu", net.conv("x", 32, 32, 3, strides=[2, 2]))
    for _ in range(2):
        y = net.conv(x, 32, 32, 3)
        y = net.add("Mul", y, net.add("Sigmoid", y)) if kind == "swish" else net.add(kind, y)
        x = net.add("Relu", net.add("Add", x, net.conv(y, 32, 32, 3)))
    return net.model(x)


def transformer(shape: Sequence[int | str], opset: int, kind: str) -> onnx.ModelProto:
    """Two layers with the normalisation behind ("post") or before ("pre", "rms") the sums."""
    net = Network(shape, opset)
    x, norm = "x", net.rms_norm if kind == "rms" else net.layer_norm
    for _ in range(2):
        y = x if kind == "post" else norm(x, 64)
        heads = []
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            split = net.add("Reshape", net.linear(y, 64, 64), net.weight([0, 0, 4, 16], np.int64))
            heads.append(net.add("Transpose", split, perm=perm))
        scores = net.add("Div", net.add("MatMul", heads[0], heads[1]), net.weight(4.0))
        mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), heads[2])
        flat = net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), net.weight([0, 0, 64], np.int64))
        x = net.add("Add", net.linear(flat, 64, 64), x)
        x = norm(x, 64) if kind == "post" else x
        y = x if kind == "post" else norm(x, 64)
        x = net.add("Add", net.linear(net.gelu(net.linear(y, 64, 128), "erf"), 128, 64), x)
        x = norm(x, 64) if kind == "post" else x
    return net.model(x)


CASES = [
    *((gelu_block, shape, opset, kind) for shape in (FREE, FIXED) for opset in (11, 14)
      for kind in ("half first", "half last", "tanh")),
    *((squeeze_and_excite, shape, 13, kind) for shape in (FREE, FIXED) for kind in ("pool", "mean")),
    *((residual, shape, 14, kind) for shape in (FREE, FIXED) for kind in ("Relu", "swish", "HardSwish", "LeakyRelu")),
    *((transformer, shape, opset, kind) for shape in (TOKENS, [1, 32, 64]) for opset in (13, 18)
      for kind in ("post", "pre", "rms")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "shape", "opset", "kind"), CASES, ids=lambda each: getattr(each, "__name__", str(each)).replace(" ", "")
)
def test_what_the_runtime_fused_it_fuses_still(build: Any, shape: Sequence[int | str], opset: int, kind: str) -> None:
    source = build(shape, opset, kind)
    before, after = runtime_kernels(source), runtime_kernels(eqfuse.optimize(source))
    assert sum(after[name] for name in PRECIOUS) >= sum(before[name] for name in PRECIOUS), (before, after)
    assert sum(after[name] for name in LAYOUT) <= sum(before[name] for name in LAYOUT), (before, after)
    apart = _SKIPPED * max(0, before["SkipLayerNormalization"] - after["SkipLayerNormalization"])
    assert after.total() <= before.total() + apart, (before, after)
