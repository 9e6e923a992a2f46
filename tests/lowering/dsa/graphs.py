"""Operator graphs to schedule, and accelerators to schedule them on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqfuse.costmodels.dsa_device import DsaDevice, load_dsa_device
from eqfuse.ir.graph import Operator, OperatorGraph, Value
from eqfuse.ir.types import TensorType

Shape = tuple[int, ...]


class Builder:
    """Adds operators one by one; each returns the index of its value. Layers are operators alone unless joined."""

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.values: list[Value] = []
        self.layers: list[tuple[int, ...]] = []

    def value(self, shape: Sequence[int], *, constant: bool = False) -> int:
        name = f"{'w' if constant else 'x'}{len(self.values)}"
        self.values.append(Value(name, TensorType("float32", tuple(shape)), None, constant))
        return len(self.values) - 1

    def shape(self, value: int) -> Shape:
        return self.values[value].extent.dimensions

    def add(
        self, op: str, inputs: Sequence[int | None], *shapes: Sequence[int], joined: bool = False, **attributes: object
    ) -> int:
        """An operator with outputs of these shapes; returns the first of them."""
        number = len(self.operators)
        outputs = tuple(range(len(self.values), len(self.values) + len(shapes)))
        self.operators.append(Operator(f"n{number}", op, attributes, tuple(inputs), outputs))
        types = [TensorType("float32", tuple(shape)) for shape in shapes]
        self.values += [Value(f"v{o}", t, number) for o, t in zip(outputs, types, strict=True)]
        if joined:
            self.layers[-1] += (number,)
        else:
            self.layers.append((number,))
        return outputs[0]

    def relu(self, x: int, *, joined: bool = False) -> int:
        return self.add("Relu", [x], self.shape(x), joined=joined)

    def sum(self, a: int, b: int, *, joined: bool = False) -> int:
        return self.add("Add", [a, b], self.shape(a), joined=joined)

    def conv(self, x: int, filters: int, kernel: int = 1, stride: int = 1, group: int = 1) -> int:
        batch, channels, height, width = self.shape(x)
        weight = self.value((filters, channels // group, kernel, kernel), constant=True)
        pad = kernel // 2
        sides = [(side + 2 * pad - kernel) // stride + 1 for side in (height, width)]
        return self.add("Conv", [x, weight], (batch, filters, *sides), group=group, **windows(kernel, stride, pad))

    def pool(self, x: int, kernel: int, stride: int, pad: int = 0) -> int:
        batch, channels, *spatial = self.shape(x)
        sides = [(side + 2 * pad - kernel) // stride + 1 for side in spatial]
        return self.add("MaxPool", [x], (batch, channels, *sides), **windows(kernel, stride, pad))

    def resize(self, x: int, scale: int) -> int:
        batch, channels, height, width = self.shape(x)
        return self.add("Resize", [x], (batch, channels, scale * height, scale * width), mode="nearest", config="")

    def gemm(self, x: int, columns: int) -> int:
        rows, inner = self.shape(x)
        return self.add("Gemm", [x, self.value((inner, columns), constant=True)], (rows, columns))

    def graph(self, *outputs: int) -> OperatorGraph:
        values = [replace(v, is_output=index in outputs) for index, v in enumerate(self.values)]
        return OperatorGraph(tuple(self.operators), tuple(values))


def windows(kernel: int, stride: int, pad: int) -> dict[str, object]:
    return {"kernel_shape": (kernel,) * 2, "strides": (stride,) * 2, "pads": (pad,) * 4, "dilations": (1, 1)}


def accelerator(local_bytes: int, cores: int = 8, **figures: int) -> DsaDevice:
    """An STCP920 whose cores together have that much LB for activations."""
    device = load_dsa_device("stcp920")
    each = local_bytes // cores
    return replace(device, cores=cores, local_buffer=each + 1, weight_buffer=1, **figures)


def halving_stages(batch: int = 8) -> tuple[Builder, int]:
    """Fig. 3a: four stages, each of which halves its tensor: 32, 16, 8, 4 and then 2 rows of `batch` x 8 x 8."""
    builder = Builder()
    x = builder.value((batch, 8, 32, 8))
    for rows in (16, 8, 4, 2):
        attributes = {"kernel_shape": (2, 1), "strides": (2, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
        x = builder.add("MaxPool", [x], (batch, 8, rows, 8), **attributes)
    return builder, x


HALVING_LOCAL_BYTES = 2 * 8 * 32 * 8 * 2
"""LB for which the stages are split into 8, 4, 2 and 1: between 1.5 and 3 images of the first."""


def block(builder: Builder, x: int, width: int, stride: int = 1, *, shortcut: bool = False, fused: bool = False) -> int:
    """A conv or identity block of Fig. 2; its addition and ReLU are a layer of their own unless `fused`."""
    a = builder.relu(builder.conv(x, width), joined=True)
    a = builder.relu(builder.conv(a, width, 3, stride), joined=True)
    other = builder.conv(x, 4 * width, 1, stride) if shortcut else x
    a = builder.conv(a, 4 * width)
    return builder.relu(builder.sum(a, other, joined=fused), joined=True)


def resnet50(batch: int) -> tuple[Builder, int]:
    """ResNet-50 v1.5, batch normalisation folded, additions fused behind convolutions."""
    builder = Builder()
    x = builder.value((batch, 3, 224, 224))
    weight = builder.value((64, 3, 7, 7), constant=True)
    x = builder.add("Conv", [x, weight], (batch, 64, 112, 112), group=1, **windows(7, 2, 3))
    x = builder.pool(builder.relu(x, joined=True), 3, 2, 1)
    for stage, (count, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for number in range(count):
            x = block(builder, x, width, 2 if stage and not number else 1, shortcut=not number, fused=True)
    x = builder.add("GlobalAveragePool", [x], (batch, 2048, 1, 1))
    x = builder.add("Flatten", [x], (batch, 2048), axis=1)
    return builder, builder.gemm(x, 1000)
