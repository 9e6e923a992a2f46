"""Blocks of well-known networks as operator graphs; operators are numbered in the order of the calls."""

from __future__ import annotations

from eqfuse.ir.graph import OperatorGraph

from .graphs import Builder, Shape


def conv(b: Builder, x: int, channels: int, kernel: int = 3, group: int = 1) -> int:
    """A convolution that keeps height and width."""
    n, c, h, w = (int(d) for d in b.shape(x))
    weight = b.constant(channels, c // group, kernel, kernel)
    return b.op("Conv", x, weight, shape=(n, channels, h, w), pads=(kernel // 2,) * 4, group=group)


def batch_norm(b: Builder, x: int) -> int:
    """Batch normalisation over the second axis."""
    channels = b.shape(x)[1]
    return b.op("BatchNormalization", x, *(b.constant(channels) for _ in range(4)), shape=b.shape(x))


def linear(b: Builder, x: int, width: int) -> int:
    """A matrix product and a bias: two operators."""
    shape = (*b.shape(x)[:-1], width)
    return b.op("Add", b.op("MatMul", x, b.constant(b.shape(x)[-1], width), shape=shape), b.constant(width))


def the_texts_example() -> OperatorGraph:
    """conv2d, add, relu, multiply, add: TVM's example of a diamond below a convolution."""
    b = Builder()
    x = b.op("Conv", b.input(1, 3, 16, 16), b.input(3, 3, 3, 3), shape=(1, 3, 14, 14))
    relu = b.op("Relu", b.op("Add", x, b.constant(1, 3, 14, 14)))
    return b.graph(b.op("Add", relu, b.op("Mul", x, b.constant())))


def residual() -> OperatorGraph:
    """ResNet's basic block, batch normalisation folded into a bias: 0-2, 3-4, then 5 adds the input, 6."""
    b = Builder()
    x = b.input(1, 8, 14, 14)
    y = b.op("Relu", b.op("Add", conv(b, x, 8), b.constant(1, 8, 1, 1)))
    y = b.op("Add", conv(b, y, 8), b.constant(1, 8, 1, 1))
    return b.graph(b.op("Relu", b.op("Add", y, x)))


def projected_residual() -> OperatorGraph:
    """A residual block whose skip path is a convolution too: 0-1, 2, 3 (skip), 4 adds, 5."""
    b = Builder()
    x = b.input(1, 8, 14, 14)
    y = conv(b, b.op("Relu", conv(b, x, 16)), 16)
    return b.graph(b.op("Relu", b.op("Add", y, conv(b, x, 16, 1))))


def inverted_residual() -> OperatorGraph:
    """MobileNet-V2's: pointwise 0-1, depthwise 2-3, pointwise 4, 5 adds the input."""
    b = Builder()
    x = b.input(1, 8, 14, 14)
    y = b.op("Relu", conv(b, x, 48, 1))
    y = b.op("Relu", conv(b, y, 48, 3, group=48))
    return b.graph(b.op("Add", conv(b, y, 8, 1), x))


def squeeze_excitation() -> OperatorGraph:
    """Depthwise 0, swish 1-2, squeeze 3, gate 4-5 and 6-7, excitation 8, projection 9."""
    b = Builder()
    x = conv(b, b.input(1, 8, 14, 14), 8, 3, group=8)
    x = b.op("Mul", x, b.op("Sigmoid", x))
    y = b.op("GlobalAveragePool", x, shape=(1, 8, 1, 1))
    y = b.op("Relu", conv(b, y, 2, 1))
    y = b.op("Sigmoid", conv(b, y, 8, 1))
    return b.graph(conv(b, b.op("Mul", x, y), 4, 1))


def inception() -> OperatorGraph:
    """Branches 0-1, 2-3 and 4-5 (pool, convolution), 6 joins them, 7."""
    b = Builder()
    x = b.input(1, 8, 14, 14)
    left = b.op("Relu", conv(b, x, 4, 1))
    middle = b.op("Relu", conv(b, x, 4, 3))
    right = conv(b, b.op("MaxPool", x, shape=(1, 8, 14, 14)), 4, 1)
    return b.graph(b.op("Relu", b.op("Concat", left, middle, right, shape=(1, 12, 14, 14), axis=1)))


def transformer() -> OperatorGraph:
    """A pre-norm layer, one head: norm 0, q 1-2, k 3-4, v 5-6, k' 7, scores 8-10, context 11-13, 14, norm 15, MLP."""
    b = Builder()
    x = b.input(2, 6, 16)
    y = _layer_norm(b, x)
    q, k, v = (linear(b, y, 16) for _ in range(3))
    k = b.op("Transpose", k, shape=(2, 16, 6), perm=(0, 2, 1))
    scores = b.op("Mul", b.op("MatMul", q, k, shape=(2, 6, 6)), b.constant())
    x = b.op("Add", x, linear(b, b.op("MatMul", b.op("Softmax", scores, axis=-1), v, shape=(2, 6, 16)), 16))
    h = linear(b, _layer_norm(b, x), 64)
    gelu = b.op("Mul", h, b.op("Add", b.op("Erf", b.op("Mul", h, b.constant())), b.constant()))
    return b.graph(b.op("Add", x, linear(b, gelu, 16)))


def lstm_step() -> OperatorGraph:
    """Products 0-3, 4 adds them, 5 splits, gates 6-9, cell 10-12, hidden 13-14."""
    b = Builder()
    x, h, c = b.input(2, 8), b.input(2, 4), b.input(2, 4)
    gates = b.op("Add", linear(b, x, 16), linear(b, h, 16))
    i, f, g, o = b.node("Split", (gates,), [(2, 4)] * 4, {"axis": 1})
    i, f, g, o = b.op("Sigmoid", i), b.op("Sigmoid", f), b.op("Tanh", g), b.op("Sigmoid", o)
    cell = b.op("Add", b.op("Mul", f, c), b.op("Mul", i, g))
    return b.graph(b.op("Mul", o, b.op("Tanh", cell)), cell)


def elementwise_into_concat() -> OperatorGraph:
    """Two element-wise nodes 0, 1 that a Concat 2 joins, then 3."""
    b = Builder()
    x, y = b.input(2, 4), b.input(2, 4)
    joined = b.op("Concat", b.op("Relu", x), b.op("Sigmoid", y), shape=(2, 8), axis=1)
    return b.graph(b.op("Exp", joined))


def concat_on_a_branch() -> OperatorGraph:
    """0 feeds 1 and, through a Concat 2 and a Slice 3, both of which it reaches, the sum 4."""
    b = Builder()
    x = b.op("Relu", b.input(2, 8))
    joined = b.op("Concat", x, b.input(2, 8), shape=(2, 16), axis=1)
    part = b.op("Slice", joined, shape=(2, 8), axes=(1,), starts=(4,), ends=(12,))
    return b.graph(b.op("Add", b.op("Exp", x), part))


def conv_before_a_slice() -> OperatorGraph:
    """A Conv 0 whose first channels 1 are kept."""
    b = Builder()
    x = conv(b, b.input(1, 8, 6, 6), 8)
    return b.graph(b.op("Slice", x, shape=(1, 4, 6, 6), axes=(1,), starts=(0,), ends=(4,)))


def normalised() -> OperatorGraph:
    """Conv 0, BatchNormalization 1, Relu 2."""
    b = Builder()
    return b.graph(b.op("Relu", batch_norm(b, conv(b, b.input(1, 8, 6, 6), 8))))


def _layer_norm(b: Builder, x: int) -> int:
    width: Shape = b.shape(x)[-1:]
    return b.op("LayerNormalization", x, b.constant(*width), b.constant(*width), shape=b.shape(x), axis=-1)
