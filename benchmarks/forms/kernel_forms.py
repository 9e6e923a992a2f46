"""Forms of kernels: an operator that reads many elements for one (the anchor), what stands before it and behind it.

Schedules are made for kernels as networks have them; a form is one of them in any layout and of any size. Each is a
small ONNX model: `list_forms` gives the whole product of anchors, what precedes and what follows, where shapes fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx

from .model_builder import Builder, Part, Shape


@dataclass(frozen=True)
class Form:
    """A kernel: the shape of its input, and its parts by name."""

    name: str
    shape: Shape
    parts: tuple[Part, ...]
    ahead: int = 0
    """Operators in front that are a kernel of their own."""
    anchor: str = ""

    def model(self) -> onnx.ModelProto | None:
        """The model; None where the parts do not fit each other."""
        builder = Builder()
        values: tuple[str, ...] = (builder.give(self.shape),)
        for part in self.parts:
            result = part(builder, values[-1])
            if result is None:
                return None
            values = (result,) if isinstance(result, str) else result
        return builder.finish(*values)


# --- anchors


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


# --- what precedes


def nothing(b: Builder, x: str) -> str:
    """The input itself."""
    return x


def unary(*operators: str) -> Part:
    """Element-wise operators one behind the other."""

    def build(b: Builder, x: str) -> str:
        for operator in operators:
            x = b.add(operator, x)
        return x

    return build


def compute_map(b: Builder, x: str) -> str | tuple[str, ...] | None:
    """A 1x1 convolution, so that the anchor reads a feature map that a kernel has made."""
    if len(b.shapes[x]) not in (3, 4, 5):
        return None
    rank = len(b.shapes[x]) - 2
    return convolution(b.shapes[x][1], (1,) * rank)(b, x)


def turn(b: Builder, x: str) -> str | None:
    """A Transpose, from an input whose last two axes are exchanged: what comes out has the shape of the input."""
    shape = b.shapes[x]
    if len(shape) < 3:
        return None
    other = b.give((*shape[:-2], shape[-1], shape[-2]))
    turned = b.add("Transpose", other, perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2])
    return b.add("Add", x, turned)


def join(b: Builder, x: str) -> str:
    """A Concat along axis 1 whose middle is taken: the anchor reads from two tensors, from the middle of an axis."""
    size = b.shapes[x][1]
    y = b.add("Concat", x, b.give(b.shapes[x]), axis=1)
    return b.add("Slice", y, b.numbers(size // 2), b.numbers(size // 2 + size), b.numbers(1))


def unfold(b: Builder, x: str) -> str:
    """Reshape, Transpose, Reshape, as around grouped convolutions."""
    n, c, *rest = b.shapes[x]
    size = prod(rest)
    y = b.add("Transpose", b.give((n, size, c)), perm=[0, 2, 1])
    return b.add("Add", b.add("Reshape", y, b.numbers(n, c, *rest)), x)


# --- what follows


def with_activation(operator: str) -> Part:
    """The value and its activation are both outputs."""
    return lambda b, x: (x, b.add(operator, x))


def gelu(b: Builder, x: str) -> str:
    """x * 0.5 * (1 + erf(x / sqrt(2))), as exporters write it."""
    half, one, root = (b.constant(np.float32(n)) for n in (0.5, 1.0, np.sqrt(2.0)))
    y = b.add("Add", b.add("Erf", b.add("Div", x, root)), one)
    return b.add("Mul", b.add("Mul", x, y), half)


def residual(b: Builder, x: str) -> str:
    """The sum with another input."""
    return b.add("Add", x, b.give(b.shapes[x]))


def arithmetic(b: Builder, x: str) -> str:
    """What image filters do with a mean: a variance, and a quotient with it."""
    other, one = b.give(b.shapes[x]), b.constant(np.float32(1.5))
    y = b.add("Sub", b.add("Mul", other, other), b.add("Mul", x, x))
    return b.add("Div", b.add("Sub", other, x), b.add("Add", b.add("Abs", y), one))


def part_of(axis: int) -> Part:
    """A Slice that leaves out the last element of an axis, and Gelu."""

    def build(b: Builder, x: str) -> str | None:
        if len(b.shapes[x]) <= axis or b.shapes[x][axis] < 2:
            return None
        y = b.add("Slice", x, b.numbers(0), b.numbers(-1), b.numbers(axis))
        return gelu(b, y)

    return build


def gate(axis: int, activation: Part) -> Part:
    """Two halves, one of which gates the other."""

    def build(b: Builder, x: str) -> str | None:
        size = b.shapes[x][axis]
        if size % 2:
            return None
        first, second = (
            b.add("Slice", x, b.numbers(low), b.numbers(high), b.numbers(axis))
            for low, high in ((0, size // 2), (size // 2, size))
        )
        activated = activation(b, second)
        assert isinstance(activated, str)
        return b.add("Mul", first, activated)

    return build


def exchange(b: Builder, x: str) -> str | None:
    """The last two axes exchanged."""
    rank = len(b.shapes[x])
    if rank < 3:
        return None
    return b.add("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])


def exchange_and_add(b: Builder, x: str) -> str | None:
    """The last two axes exchanged, and the sum with another input."""
    y = exchange(b, x)
    return None if y is None else residual(b, y)


def flatten(b: Builder, x: str) -> str | None:
    """A map as rows of channels, as behind a patch embedding; and the sum with a constant."""
    shape = b.shapes[x]
    if len(shape) < 4:
        return None
    y = b.add("Reshape", x, b.numbers(0, shape[1], -1))
    y = b.add("Transpose", y, perm=[0, 2, 1])
    return b.add("Add", y, b.weight((1, *b.shapes[y][1:])))


def heads(b: Builder, x: str) -> str | None:
    """Rows of channels cut into heads: Reshape, Transpose."""
    shape = b.shapes[x]
    if len(shape) != 3 or shape[-1] % 4:
        return None
    y = b.add("Reshape", x, b.numbers(0, 0, 4, shape[2] // 4))
    return b.add("Transpose", y, perm=[0, 2, 1, 3])


def rotary(b: Builder, x: str) -> str | None:
    """A rotary embedding of heads: halves exchanged, one negated, times a sine, plus the product with a cosine."""
    y = heads(b, x)
    if y is None or b.shapes[y][-1] % 2:
        return None
    half, whole = b.shapes[y][-1] // 2, b.shapes[y][-1]
    first = b.add("Slice", y, b.numbers(0), b.numbers(half), b.numbers(3))
    second = b.add("Slice", y, b.numbers(half), b.numbers(whole), b.numbers(3))
    turned = b.add("Concat", b.add("Neg", second), first, axis=-1)
    sine, cosine = (b.weight((1, 1, *b.shapes[y][2:])) for _ in range(2))
    result = b.add("Add", b.add("Mul", y, cosine), b.add("Mul", turned, sine))
    return b.add("Transpose", result, perm=[0, 1, 3, 2])


def joined(b: Builder, x: str) -> str:
    """A Concat with another input along axis 1, behind Relu."""
    return b.add("Concat", b.add("Relu", x), b.give(b.shapes[x]), axis=1)


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
        (1, 64, 16, 16), lambda b, x: b.add("Resize", x, "", b.constant(np.array([1, 1, 2, 2], "f")), mode="linear")
    ),
    "sine": ((1, 24, 40, 40), unary("Sin")),
    "mean of maps": ((1, 80, 14, 14), reduction("ReduceMean", 2, 3)),
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
    "product odd": ((2, 49, 75), product(90, bias=True)),
    "product of a row": ((1, 1, 256), product(320, bias=True)),
    "product of inputs": ((1, 4, 50, 24), batched_product(50)),
    "product of inputs flipped": ((2, 3, 37, 32), batched_product(41, flip=True)),
}
"""The shape of the input, and the anchor."""

BEFORE: dict[str, Part] = {
    "": nothing,
    "map": compute_map,
    "sigmoid": unary("Sigmoid"),
    "turn": turn,
    "join": join,
    "unfold": unfold,
}
AFTER: dict[str, Part] = {
    "": nothing,
    "and relu": with_activation("Relu"),
    "gelu": gelu,
    "residual": residual,
    "arithmetic": arithmetic,
    "cut rows": part_of(2),
    "cut channels": part_of(1),
    "gate channels": gate(1, unary("Sigmoid")),
    "gate last": gate(-1, gelu),
    "exchange": exchange,
    "exchange, add": exchange_and_add,
    "flatten": flatten,
    "heads": heads,
    "rotary": rotary,
    "joined": joined,
}


def list_forms(
    anchors: Sequence[str] = (), before: Sequence[str] = (), after: Sequence[str] = (),
    among: Mapping[str, tuple[Shape, Part]] = ANCHORS,
) -> Iterator[Form]:  # fmt: skip
    """All forms of `among`, or those of the given names; ones whose parts do not fit have no model."""
    for anchor, (shape, part) in among.items():
        for first, precedes in BEFORE.items():
            for last, follows in AFTER.items():
                chosen = ((anchors, anchor), (before, first), (after, last))
                if all(not names or name in names for names, name in chosen):
                    name = " > ".join(filter(None, (first, anchor, last)))
                    yield Form(name, shape, (precedes, part, follows), int(precedes is compute_map), anchor)
