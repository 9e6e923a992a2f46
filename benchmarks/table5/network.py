"""Builds ONNX graphs node by node, with random weights, as exporters write them.

Weights are random rather than of one value, for a constant of one value allows rewrites that those of a trained model
do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Size = int | tuple[int, ...]
"""Of a window: one number for all sides, or each."""


@dataclass
class Network:
    """Collects nodes and weights. Methods return the name of the value they made.

    `rank` is the number of spatial axes, `channels` the second dimension of each feature map.
    """

    name: str
    rank: int = 2
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    channels: dict[str, int] = field(default_factory=dict)
    stored: dict[bytes, str] = field(default_factory=dict)
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def input(self, name: str, shape: Sequence[int], kind: int = TensorProto.FLOAT) -> str:
        """An input of the model."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        if len(shape) > 1:
            self.channels[name] = shape[1]
        return name

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        """One node; it is taken to keep the channels of its first input."""
        return self.split(op, 1, *inputs, **attributes)[0]

    def split(self, op: str, outputs: int, *inputs: str, **attributes: object) -> list[str]:
        """One node of several outputs."""
        number = len(self.nodes)
        names = [f"{op.lower()}_{number}" + (f"_{i}" if i else "") for i in range(outputs)]
        node = helper.make_node(op, list(inputs), names, name=f"{op}_{number}", **attributes)  # type: ignore[arg-type]
        self.nodes.append(node)
        for name in names:
            self.channels[name] = self.channels.get(inputs[0] if inputs else "", 0)
        return names

    def constant(self, values: object, kind: type = np.float32) -> str:
        """A small stored constant; equal ones are stored once."""
        array: npt.NDArray[Any] = np.asarray(values, kind)
        key = repr((array.dtype, array.shape)).encode() + array.tobytes()
        if key not in self.stored:
            self.stored[key] = self._store(array)
        return self.stored[key]

    def integers(self, *values: int) -> str:
        """A list of integers, as shapes and axes are given."""
        return self.constant(list(values), np.int64)

    def weight(self, *shape: int, around: float = 0.0, variance: float | None = None) -> str:
        """A random weight, of a variance that keeps the values that pass through it in bounds."""
        if variance is None:
            variance = 0.0025 if len(shape) == 1 else 1 / sum(shape) if len(shape) == 2 else 2 / prod(shape[1:])
        noise = self.generator.standard_normal(shape, np.float32)
        return self._store(np.float32(around) + np.float32(variance**0.5) * noise)

    def _store(self, array: npt.NDArray[Any]) -> str:
        name = f"w_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    # --- layers of convolutional networks

    def sides(self, size: Size) -> tuple[int, ...]:
        """One number for each spatial axis."""
        return (size,) * self.rank if isinstance(size, int) else size

    def conv(
        self, x: str, outputs: int, kernel: Size = 3, *, stride: Size = 1, padding: Size | None = None, group: int = 1,
        bias: bool = True, dilation: int = 1, gain: float = 2.0,
    ) -> str:  # fmt: skip
        """Convolution; without `padding`, as much as keeps the size (at stride 1).

        `gain` is the variance of its result for values of variance 1: a rectifier behind it takes half away.
        """
        window = self.sides(kernel)
        pads = tuple(dilation * (side // 2) for side in window) if padding is None else self.sides(padding)
        inputs = self.channels[x] // group
        weight = self.weight(outputs, inputs, *window, variance=gain / (inputs * prod(window)))
        found = self.add(
            "Conv", x, weight, *([self.weight(outputs)] if bias else []), kernel_shape=window, pads=pads * 2,
            strides=self.sides(stride), group=group, dilations=(dilation,) * self.rank,
        )  # fmt: skip
        self.channels[found] = outputs
        return found

    def norm(self, x: str) -> str:
        """Batch normalisation with its statistics, as written by an exporter that does not fold it."""
        channels = self.channels[x]
        scale, shift, mean = self.weight(channels, around=1.0), self.weight(channels), self.weight(channels)
        variance = self.constant(self.generator.uniform(0.5, 1.5, channels))
        return self.add("BatchNormalization", x, scale, shift, mean, variance, epsilon=1e-3)

    def pool(self, x: str, kernel: Size, stride: Size, padding: Size = 0, kind: str = "MaxPool", ceil: int = 0) -> str:
        """Pooling over windows."""
        window, pads = self.sides(kernel), self.sides(padding) * 2
        return self.add(kind, x, kernel_shape=window, strides=self.sides(stride), pads=pads, ceil_mode=ceil)

    def concat(self, *parts: str, axis: int = 1) -> str:
        """Joined along an axis."""
        found = self.add("Concat", *parts, axis=axis)
        self.channels[found] = sum(self.channels[part] for part in parts)
        return found

    def relu(self, x: str) -> str:
        """max(x, 0)."""
        return self.add("Relu", x)

    def swish(self, x: str) -> str:
        """x sigmoid(x), in two nodes."""
        return self.add("Mul", x, self.add("Sigmoid", x))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """Fully connected, by Gemm."""
        return self.add("Gemm", x, self.weight(outputs, inputs), self.weight(outputs), transB=1)

    # --- what exporters write for sizes that are not known when they trace

    def dimension(self, x: str, axis: int) -> str:
        """One dimension as a scalar: Shape, Gather."""
        return self.add("Gather", self.add("Shape", x), self.constant(axis, np.int64), axis=0)

    def vector(self, *parts: str | int) -> str:
        """Scalars and numbers as one list: Unsqueeze of each scalar, Concat."""
        known = [p if isinstance(p, str) else self.integers(p) for p in parts]
        lists = [
            self.add("Unsqueeze", p, self.integers(0)) if isinstance(part, str) else p
            for p, part in zip(known, parts, strict=True)
        ]
        return self.add("Concat", *lists, axis=0)

    def view(self, x: str, *parts: str | int) -> str:
        """Reshape to dimensions of which some are computed."""
        return self.add("Reshape", x, self.vector(*parts))

    def model(self, outputs: Mapping[str, Sequence[int]], opset: int = 13) -> onnx.ModelProto:
        """The whole model; outputs by name, with their shapes."""
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, results, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
