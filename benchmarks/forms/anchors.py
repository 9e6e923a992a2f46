"""The anchors of forms: operators that read many elements for one, with the shapes of their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .model_builder import Builder, Part, Shape


def unary(*operators: str) -> Part:
    """Element-wise operators one behind the other."""

    def build(b: Builder, x: str) -> str:
        for operator in operators:
            x = b.add(operator, x)
        return x

    return build


def convolution(
    outputs: int, kernel: Shape, group: int = 1, stride: int = 1, pads: Shape | None = None, bias: bool = True,
    dilation: int = 1,
) -> Part:  # fmt: skip
    """A convolution of any rank, padded by half a kernel on each side."""

    def build(b: Builder, x: str) -> str:
        operands = [b.weight((outputs, b.shapes[x][1] // group, *kernel)), *([b.weight((outputs,))] if bias else [])]
        half = pads or tuple(dilation * (k // 2) for k in kernel) * 2
        many = len(kernel)
        attributes: dict[str, Any] = {"strides": [stride] * many, "pads": half, "dilations": [dilation] * many}
        return b.add("Conv", x, *operands, group=group, **attributes)

    return build


def transposed(outputs: int, kernel: Shape, stride: int, group: int = 1) -> Part:
    """A ConvTranspose."""

    def build(b: Builder, x: str) -> str:
        weights = b.weight((b.shapes[x][1], outputs // group, *kernel))
        pads = [(k - stride + 1) // 2 for k in kernel] * 2
        return b.add(
            "ConvTranspose", x, weights, b.weight((outputs,)), group=group, strides=[stride] * len(kernel), pads=pads
        )

    return build


def pool(operator: str, kernel: int, stride: int, pad: int, rank: int = 2) -> Part:
    """A pooling over windows."""
    attributes = {"kernel_shape": [kernel] * rank, "strides": [stride] * rank, "pads": [pad] * 2 * rank}
    return lambda b, x: b.add(operator, x, **attributes)


def product(columns: int, bias: bool = False) -> Part:
    """A product by a constant matrix."""

    def build(b: Builder, x: str) -> str:
        y: str = b.add("MatMul", x, b.weight((b.shapes[x][-1], columns)))
        return b.add("Add", y, b.weight((columns,))) if bias else y

    return build


def batched_product(columns: int, flip: bool = False) -> Part:
    """A product of two inputs, the second of them flipped or not."""

    def build(b: Builder, x: str) -> str:
        *batch, _, depth = b.shapes[x]
        second = b.give((*batch, columns, depth) if flip else (*batch, depth, columns))
        if flip:
            second = b.add("Transpose", second, perm=[*range(len(batch)), len(batch) + 1, len(batch)])
        return b.add("MatMul", x, second)

    return build


def layer_norm(b: Builder, x: str) -> str:
    """A LayerNormalization over the last axis."""
    size = b.shapes[x][-1:]
    return b.add("LayerNormalization", x, b.weight(size), b.weight(size), axis=-1)


def instance_norm(b: Builder, x: str) -> str:
    """An InstanceNormalization."""
    size = b.shapes[x][1:2]
    return b.add("InstanceNormalization", x, b.weight(size), b.weight(size))


def group_norm(groups: int) -> Part:
    """A GroupNormalization as exporters write it: InstanceNormalization of groups between two Reshapes."""

    def build(b: Builder, x: str) -> str:
        shape = b.shapes[x]
        y = b.add("Reshape", x, b.numbers(shape[0], groups, -1))
        ones, zeros = (b.constant(np.full(groups, n, np.float32)) for n in (1, 0))
        y = b.add("InstanceNormalization", y, ones, zeros)
        y = b.add("Reshape", y, b.numbers(*shape))
        size = (shape[1], *(1 for _ in shape[2:]))
        return b.add("Add", b.add("Mul", y, b.weight(size)), b.weight(size))

    return build


def reduction(operator: str, *axes: int) -> Part:
    """A reduction over axes, which stay as 1."""
    return lambda b, x: b.add(operator, x, b.numbers(*axes), keepdims=1)


def softmax(axis: int = -1) -> Part:
    """A Softmax."""
    return lambda b, x: b.add("Softmax", x, axis=axis)


ANCHORS: dict[str, tuple[Shape, Part]] = {
    "conv 1x1": ((1, 48, 29, 31), convolution(70, (1, 1))),
    "conv 1x1 batch": ((3, 32, 14, 14), convolution(64, (1, 1))),
    "conv 3x3": ((1, 128, 28, 28), convolution(128, (3, 3), bias=False)),
    "conv 3x3 odd": ((2, 19, 15, 17), convolution(21, (3, 3))),
    "conv 3x3 /2": ((1, 24, 33, 33), convolution(40, (3, 3), stride=2)),
    "conv 5x5 dilated": ((1, 16, 28, 28), convolution(24, (5, 5), dilation=2)),
    "conv first": ((1, 3, 96, 96), convolution(32, (7, 7), stride=2)),
    "conv 5x5 to 3": ((1, 32, 48, 48), convolution(3, (5, 5))),
    "conv 3x3 grouped": ((1, 64, 20, 20), convolution(64, (3, 3), group=4)),
    "conv 3x3 odd groups": ((1, 60, 13, 13), convolution(84, (3, 3), group=12)),
    "depthwise 3x3": ((1, 50, 28, 28), convolution(50, (3, 3), group=50)),
    "depthwise 5x5 /2": ((2, 32, 29, 29), convolution(32, (5, 5), group=32, stride=2)),
    "depthwise 7x7": ((1, 96, 14, 14), convolution(96, (7, 7), group=96)),
    "patch embedding": ((1, 3, 112, 112), convolution(192, (16, 16), stride=16, pads=(0, 0, 0, 0))),
    "patch 4x4": ((1, 3, 64, 64), convolution(96, (4, 4), stride=4, pads=(0, 0, 0, 0))),
    "conv1d": ((1, 64, 200), convolution(80, (3,))),
    "conv1d /2": ((2, 40, 301), convolution(64, (5,), stride=2)),
    "conv1d grouped even": ((1, 96, 149), convolution(96, (16,), group=8)),
    "conv1d depthwise": ((1, 64, 250), convolution(64, (7,), group=64)),
    "conv1d causal": ((2, 48, 120), convolution(48, (4,), group=48, pads=(3, 3))),
    "conv3d": ((1, 8, 6, 20, 20), convolution(16, (3, 3, 3))),
    "conv3d depthwise": ((1, 16, 6, 14, 14), convolution(16, (3, 3, 3), group=16)),
    "transposed 2x2 /2": ((1, 32, 16, 16), transposed(24, (2, 2), 2)),
    "transposed 2x2 /2 to pages": ((1, 64, 16, 16), transposed(32, (2, 2), 2)),
    "transposed 4x4 /2": ((1, 32, 15, 17), transposed(20, (4, 4), 2)),
    "transposed 4x4 /2 to 3": ((1, 16, 32, 32), transposed(3, (4, 4), 2)),
    "transposed 3x3": ((1, 24, 20, 20), transposed(24, (3, 3), 1)),
    "transposed1d /2": ((1, 48, 100), transposed(32, (4,), 2)),
    "transposed3d /2": ((1, 16, 4, 8, 8), transposed(16, (2, 2, 2), 2)),
    "average 3x3": ((1, 3, 96, 128), pool("AveragePool", 3, 1, 1)),
    "average 3x3 unpadded": ((1, 4, 65, 67), pool("AveragePool", 3, 1, 0)),
    "average 2x2 /2": ((1, 40, 28, 28), pool("AveragePool", 2, 2, 0)),
    "max 3x3 /2": ((1, 48, 29, 29), pool("MaxPool", 3, 2, 1)),
    "max 5x5": ((1, 32, 20, 20), pool("MaxPool", 5, 1, 2)),
    "average1d": ((1, 48, 200), pool("AveragePool", 4, 2, 1, rank=1)),
    "max3d": ((1, 16, 8, 16, 16), pool("MaxPool", 2, 2, 0, rank=3)),
    "linear x2": (
        (1, 64, 16, 16),
        lambda b, x: b.add("Resize", x, "", b.constant(np.array([1, 1, 2, 2], "f")), mode="linear"),
    ),
    "sine": ((1, 24, 40, 40), unary("Sin")),
    "mean of maps": ((1, 80, 14, 14), reduction("ReduceMean", 2, 3)),
    "mean of images": ((4, 1, 64, 256), reduction("ReduceMean", 1, 2, 3)),
    "mean of a batch": ((8, 32, 15, 13), reduction("ReduceMean", 0, 2, 3)),
    "mean of channels": ((1, 64, 28, 28), reduction("ReduceMean", 1)),
    "mean of rows": ((2, 50, 96), reduction("ReduceMean", 1)),
    "sum of last": ((4, 30, 70), reduction("ReduceSum", 2)),
    "instance norm": ((1, 32, 28, 28), instance_norm),
    "instance norm 1d": ((2, 40, 300), instance_norm),
    "group norm": ((1, 32, 20, 20), group_norm(4)),
    "layer norm": ((1, 65, 96), layer_norm),
    "layer norm batch": ((3, 50, 128), layer_norm),
    "softmax": ((1, 4, 50, 50), softmax()),
    "softmax of channels": ((1, 21, 32, 32), softmax(1)),
    "product": ((1, 64, 96), product(128)),
    "product of pages": ((1, 1024, 64), product(32)),
    "product odd": ((2, 49, 75), product(90, bias=True)),
    "product of a row": ((1, 1, 256), product(320, bias=True)),
    "product of inputs": ((1, 4, 50, 24), batched_product(50)),
    "product of inputs flipped": ((2, 3, 37, 32), batched_product(41, flip=True)),
}
"""The shape of the input, and the anchor. Columns of "pages", transposed, are as many bytes apart as those."""
