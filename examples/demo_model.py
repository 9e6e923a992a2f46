"""Build the model of `make demo`: a small mobile vision network with the structure that exported models really have.

Inverted residual blocks with squeeze-and-excitation (MobileNetV2 and V3), one transformer block (MobileViT) whose
LayerNormalization and GELU are spelled out in elementary operators, a classifier and a segmentation head. The
weights are random but calibrated: every normalisation holds the statistics of the tensor that reaches it, so that
both outputs depend on the image. Every run on a machine writes the same bytes.

    python examples/demo_model.py demo.onnx
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

SEED = 0
OPSET = 17
IMAGE = (1, 3, 96, 96)
CLASSES = 10
HEADS = 4


def run_node(node: onnx.NodeProto, inputs: dict[str, NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    """The outputs of one node."""
    types = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in inputs.items()}
    typed = [helper.make_tensor_value_info(name, types[name], value.shape) for name, value in inputs.items()]
    graph = helper.make_graph([node], "node", typed, [onnx.ValueInfoProto(name=name) for name in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


class Builder:
    """A graph under construction, each tensor with the value that it has for one sample image."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(SEED)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.values: dict[str, NDArray[np.generic]] = {}

    def input(self, name: str, shape: Sequence[int]) -> str:
        self.values[name] = self.random.normal(size=shape).astype(np.float32)
        return name

    def weight(self, value: NDArray[np.generic]) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        self.values[name] = value
        return name

    def real(self, value: float | Sequence[float]) -> str:
        return self.weight(np.asarray(value, np.float32))

    def integers(self, *value: int) -> str:
        return self.weight(np.asarray(value, np.int64))

    def normal(self, *shape: int, fan_in: int) -> str:
        """A random weight that keeps the variance of its operand."""
        return self.weight((self.random.normal(size=shape) / math.sqrt(fan_in)).astype(np.float32))

    def near(self, centre: float, size: int) -> str:
        """A trained scale or shift: near `centre`, nowhere exactly there."""
        return self.weight((centre + 0.2 * self.random.normal(size=size)).astype(np.float32))

    def op(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        node = helper.make_node(op_type, list(inputs), [output or name], name=name, **attributes)
        self.nodes.append(node)
        (self.values[node.output[0]],) = run_node(node, {each: self.values[each] for each in inputs if each})
        return str(node.output[0])

    def size(self, name: str, axis: int) -> int:
        return int(self.values[name].shape[axis])

    def model(self, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
        def describe_values(names: Sequence[str]) -> list[onnx.ValueInfoProto]:
            return [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, self.values[n].shape) for n in names]

        graph = helper.make_graph(self.nodes, "demo", describe_values(inputs), describe_values(outputs), self.weights)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="eqfuse-demo")


def batch_norm(b: Builder, x: str) -> str:
    channels = b.size(x, 1)
    value = b.values[x].astype(np.float64)
    mean, variance = value.mean((0, 2, 3)), value.var((0, 2, 3)) + 0.01
    statistics = (b.weight(mean.astype(np.float32)), b.weight(variance.astype(np.float32)))
    return b.op("BatchNormalization", x, b.near(1, channels), b.near(0, channels), *statistics)


def relu6(b: Builder, x: str) -> str:
    return b.op("Clip", x, b.real(0), b.real(6))


def conv(b: Builder, x: str, channels: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> str:
    """A convolution with its padding as a node of its own, as some exporters write it."""
    if kernel > 1:
        before, after = (kernel - 1) // 2, kernel // 2
        x = b.op("Pad", x, b.integers(0, 0, before, before, 0, 0, after, after), mode="constant")
    depth = b.size(x, 1) // groups
    weight = b.normal(channels, depth, kernel, kernel, fan_in=depth * kernel * kernel)
    return b.op("Conv", x, weight, kernel_shape=[kernel] * 2, strides=[stride] * 2, group=groups)


def squeeze_excite(b: Builder, x: str) -> str:
    channels = b.size(x, 1)
    gate = b.op("Relu", conv(b, b.op("GlobalAveragePool", x), channels // 4))
    gate = relu6(b, b.op("Add", conv(b, gate, channels), b.real(3)))
    return b.op("Mul", x, b.op("Div", gate, b.real(6)))


def inverted_residual(b: Builder, x: str, channels: int, stride: int) -> str:
    hidden = 4 * b.size(x, 1)
    y = relu6(b, batch_norm(b, conv(b, x, hidden)))
    y = relu6(b, batch_norm(b, conv(b, y, hidden, kernel=3, stride=stride, groups=hidden)))
    y = batch_norm(b, conv(b, squeeze_excite(b, y), channels))
    return b.op("Add", x, y) if b.values[x].shape == b.values[y].shape else y


def linear(b: Builder, x: str, features: int) -> str:
    depth = b.size(x, -1)
    return b.op("Add", b.op("MatMul", x, b.normal(depth, features, fan_in=depth)), b.near(0, features))


def layer_norm(b: Builder, x: str) -> str:
    centred = b.op("Sub", x, b.op("ReduceMean", x, axes=[-1]))
    variance = b.op("ReduceMean", b.op("Pow", centred, b.real(2)), axes=[-1])
    scaled = b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, b.real(1e-5))))
    features = b.size(x, -1)
    return b.op("Add", b.op("Mul", scaled, b.near(1, features)), b.near(0, features))


def gelu(b: Builder, x: str) -> str:
    error = b.op("Erf", b.op("Div", x, b.real(math.sqrt(2))))
    return b.op("Mul", b.op("Mul", x, b.op("Add", error, b.real(1))), b.real(0.5))


def attention(b: Builder, x: str) -> str:
    tokens, features = b.size(x, 1), b.size(x, 2)

    def heads(perm: Sequence[int]) -> str:
        split = b.op("Reshape", linear(b, x, features), b.integers(1, tokens, HEADS, features // HEADS))
        return b.op("Transpose", split, perm=perm)

    query, key, value = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    scores = b.op("Div", b.op("MatMul", query, key), b.real(math.sqrt(features // HEADS)))
    mixed = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    return linear(b, b.op("Reshape", mixed, b.integers(1, tokens, features)), features)


def transformer(b: Builder, image: str) -> str:
    """A transformer block over the pixels of `image`, between two changes of layout."""
    _, features, height, width = b.values[image].shape
    x = b.op("Transpose", b.op("Reshape", image, b.integers(1, features, height * width)), perm=[0, 2, 1])
    x = b.op("Add", x, attention(b, layer_norm(b, x)))
    x = b.op("Add", x, linear(b, gelu(b, linear(b, layer_norm(b, x), 4 * features)), features))
    return b.op("Reshape", b.op("Transpose", x, perm=[0, 2, 1]), b.integers(1, features, height, width))


def classifier(b: Builder, x: str) -> str:
    pooled = b.op("Flatten", b.op("GlobalAveragePool", x))
    depth = b.size(pooled, 1)
    weight, bias = b.normal(CLASSES, depth, fan_in=depth), b.near(0, CLASSES)
    return b.op("Gemm", pooled, weight, bias, output="logits", transB=1)


def segmentation(b: Builder, coarse: str, fine: str) -> str:
    """Classify every pixel of the coarse features, enlarged, next to the fine ones."""
    factor = b.size(fine, 2) // b.size(coarse, 2)
    large = b.op("Resize", coarse, "", b.real([1, 1, factor, factor]), mode="linear")
    depth = b.size(coarse, 1) + b.size(fine, 1)
    weight, bias = b.normal(CLASSES, depth, 1, 1, fan_in=depth), b.near(0, CLASSES)
    return b.op("Conv", b.op("Concat", large, fine, axis=1), weight, bias, output="segmentation")


def demo_model() -> onnx.ModelProto:
    """The model: input `image` (1, 3, 96, 96), outputs `logits` (1, 10) and `segmentation` (1, 10, 24, 24)."""
    b = Builder()
    image = b.input("image", IMAGE)
    x = relu6(b, batch_norm(b, conv(b, image, 16, kernel=3, stride=2)))
    fine = x = inverted_residual(b, x, 24, stride=2)
    for channels, stride in ((24, 1), (40, 2), (40, 1), (64, 2), (64, 1)):
        x = inverted_residual(b, x, channels, stride)
    x = transformer(b, x)
    return b.model([image], [classifier(b, x), segmentation(b, x, fine)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    output: Path = parser.parse_args().output
    output.parent.mkdir(parents=True, exist_ok=True)
    model = demo_model()
    onnx.checker.check_model(model, full_check=True)
    output.write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
