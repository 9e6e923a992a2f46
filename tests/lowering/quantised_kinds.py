"""Kinds of random quantised graphs.

- Exact graphs have scales that are powers of two and operators whose results are then multiples of one: floats hold
  every result exactly, in whatever order sums are taken, so that the last bit of every element is determined. They are
  chains of several operators, each quantised behind, and meet many ties, which round to even.
- Rounded ones have any scale and any operator, but a single rounding to integers, at their end: results may differ by a
  step. To feed an operator what the reference has before it is to make a graph of it alone.
- Attention has its softmax between two products, and is quantised between them, too.
- Integer ones are ConvInteger, MatMulInteger and DynamicQuantizeLinear, and exact.
- Activations are the operands of a MatMulInteger, both of them; and exact.
- The operators QLinearConv, QLinearMatMul and those of ONNX Runtime's own domain stand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import log2
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from .quantised_graphs import CONTRIBUTED, Array, Drawing, QuantisedGraph, Value

MOST_SUMMED = 2**24 // (255 * 255)
"""Products of a sum that float32 holds exactly."""
_MOST_OPERATORS = 4
_NEAR = 8
"""Times two by which scales of two operands may differ, so that their sum is exact."""


# --- operators on maps of channels


def _conv(d: Drawing, x: Value) -> str:
    """A convolution: dense, pointwise, of groups or of each channel; with stride, padding on one side, dilation."""
    channels, side = x.shape[1], x.shape[2]
    group = d.pick(1, 1, channels, *[each for each in (2, 4) if channels % each == 0])
    outputs = group * d.pick(1, 2) if group == channels else group * d.pick(1, 3, 4)
    kernel = d.pick(*[size for size in (1, 3, 3, 5) if size <= side + 1])
    while channels // group * kernel**2 > MOST_SUMMED:
        kernel -= 2
    dilation = d.pick(1, 1, 2) if 2 * (kernel - 1) < side else 1
    pads = d.pick([kernel // 2] * 4, [0] * 4, [0, 1, 1, 0]) if dilation * (kernel - 1) < side else [kernel] * 4
    weight, scales = d.weight((outputs, channels // group, kernel, kernel), 0, x.scale)
    bias = [d.bias(outputs, scales)] if d.chance(0.7) else []
    return d.add(
        "Conv", d.dequantise(x), weight, *bias, kernel_shape=[kernel] * 2, group=group, pads=pads,
        strides=[d.pick(1, 1, 2)] * 2, dilations=[dilation] * 2,
    )  # fmt: skip


def _activated(d: Drawing, name: str) -> str:
    """With an activation behind, or none."""
    match d.pick("none", "Relu", "Relu", "Clip", "LeakyRelu"):
        case "Relu":
            return d.add("Relu", name)
        case "Clip":
            return d.add("Clip", name, d.constant(np.float32(0)), d.constant(np.float32(d.pick(6, 1))))
        case "LeakyRelu":
            return d.add("LeakyRelu", name, alpha=0.25 if d.exact else 0.1)
        case _:
            return name


def _pool(d: Drawing, x: Value) -> str:
    """Maximum, or a mean of four or, where results may differ by a step, of nine."""
    side = x.shape[2]
    if d.chance(0.4):
        return d.add("MaxPool", d.dequantise(x), kernel_shape=[2, 2], strides=[d.pick(1, 2)] * 2)
    if d.exact or side < 3:
        return d.add("AveragePool", d.dequantise(x), kernel_shape=[2, 2], strides=[d.pick(1, 2)] * 2)
    pads = d.pick([0] * 4, [1] * 4)
    include = d.pick(0, 1)
    return d.add("AveragePool", d.dequantise(x), kernel_shape=[3, 3], pads=pads, count_include_pad=include)


def _global_pool(d: Drawing, x: Value) -> str:
    if d.exact and log2(x.shape[2] * x.shape[3]) % 1:
        return d.add("GlobalMaxPool", d.dequantise(x))
    return d.add("GlobalAveragePool", d.dequantise(x))


# --- operators on any tensor


def _matmul(d: Drawing, x: Value) -> str:
    """By a stored matrix, with or without a bias."""
    inner, outputs = x.shape[-1], d.pick(4, 7, 16)
    if len(x.shape) == 2 and d.chance():
        transposed = d.pick(0, 1)
        weight, scales = d.weight((outputs, inner) if transposed else (inner, outputs), 1 - transposed, x.scale)
        bias = [d.bias(outputs, scales)] if d.chance() else []
        return d.add("Gemm", d.dequantise(x), weight, *bias, transB=transposed)
    weight, scales = d.weight((inner, outputs), 1, x.scale)
    found = d.add("MatMul", d.dequantise(x), weight)
    return d.add("Add", found, d.bias(outputs, scales)) if d.chance() else found


def _product_of_two(d: Drawing, x: Value) -> str:
    """A product of two values that both depend on inputs, as in attention."""
    return d.add("MatMul", d.dequantise(x), d.dequantise(d.input((*x.shape[:-2], x.shape[-1], d.pick(3, 8)))))


def _attention(d: Drawing, x: Value) -> str:
    """Both products of attention with the softmax between them, quantised in the same or in other places."""
    rows, size = x.shape[-2:]
    keys = d.add("Transpose", d.dequantise(d.input((*x.shape[:-2], rows + 3, size))), perm=_swapped(x))
    scores = d.add("Mul", d.add("MatMul", d.dequantise(x), keys), d.constant(np.float32(1 / (x.scale * size * 9000))))
    weights = d.add("Softmax", d.dequantise(d.quantise(scores)) if d.chance() else scores, axis=-1)
    weights = d.dequantise(d.quantise(weights, "uint8")) if d.chance(0.8) else weights
    return d.add("MatMul", weights, d.dequantise(d.input((*x.shape[:-2], rows + 3, d.pick(4, 8, 17)))))


def _swapped(x: Value) -> list[int]:
    """The order of axes with the last two exchanged."""
    rank = len(x.shape)
    return [*range(rank - 2), rank - 1, rank - 2]


def _with_another(d: Drawing, x: Value) -> str:
    """With another input of its shape, or one that is broadcast."""
    shape = x.shape if d.chance(0.7) else (1,) * (len(x.shape) - 1) + x.shape[-1:]
    return _pair(d, x, d.input(shape))


def _pair(d: Drawing, x: Value, y: Value) -> str:
    operators = ("Mul", "Add", "Sub", "Max", "Min") if abs(log2(x.scale / y.scale)) <= _NEAR else ("Mul", "Max", "Min")
    operands = [d.dequantise(x), d.dequantise(y)]
    return d.add(d.pick(*operators), *operands[:: d.pick(1, -1)])


def _concat(d: Drawing, x: Value) -> str:
    other = d.input(x.shape)
    return d.add("Concat", *[d.dequantise(x), d.dequantise(other)][:: d.pick(1, -1)], axis=d.pick(1, -1))


def _again(d: Drawing, x: Value) -> str:
    """Nothing between: other parameters."""
    return d.dequantise(x)


def _activation(d: Drawing, x: Value) -> str:
    return _activated(d, d.dequantise(x))


_MAPS: tuple[Callable[[Drawing, Value], str], ...] = (_conv, _conv, _conv, _pool, _global_pool)
_ANY: tuple[Callable[[Drawing, Value], str], ...] = (
    _matmul, _product_of_two, _with_another, _with_another, _concat, _again, _activation,
)  # fmt: skip


def _curve(d: Drawing, x: Value) -> str:
    """Operators whose results floats do not hold exactly."""
    name = d.dequantise(x)
    match d.pick("Softmax", "Sigmoid", "Tanh", "HardSwish", "Swish", "Gelu", "LayerNormalization", "Mean", "Div"):
        case "Softmax":
            return d.add("Softmax", name, axis=-1)
        case "Swish":
            return d.add("Mul", name, d.add("Sigmoid", name))
        case "Gelu":
            error = d.add("Erf", d.add("Div", name, d.constant(np.float32(2**0.5))))
            whole = d.add("Mul", name, d.add("Add", error, d.constant(np.float32(1))))
            return d.add("Mul", whole, d.constant(np.float32(0.5)))
        case "LayerNormalization":
            scale, shift = (d.constant(d.generator.uniform(0.5, 1.5, x.shape[-1]).astype("float32")) for _ in "ab")
            return d.add("LayerNormalization", name, scale, shift, axis=-1, epsilon=1e-3)
        case "Mean":
            return d.add("ReduceMean", name, axes=[-1], keepdims=d.pick(0, 1))
        case "Div":
            return d.add("Div", name, d.constant(np.float32(d.generator.uniform(0.5, 3))))
        case operator:
            return d.add(operator, name)


# --- operators that move 8 bits


def _moved(d: Drawing, x: Value) -> Value:
    """Elements moved without a change, as 8 bits or as floats between."""
    is_map = len(x.shape) == 4 and x.shape[2] > 1
    kind = d.pick("Transpose", "Reshape", "Slice", "Flatten", *["MaxPool", "Pad"] * is_map)

    def apply(name: str) -> str:
        match kind:
            case "Transpose":
                return d.add("Transpose", name, perm=[*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2])
            case "Reshape":
                return d.add("Reshape", name, d.constant(np.array([x.shape[0], -1, x.shape[-1]])))
            case "Slice":
                starts, ends, axes = (d.constant(np.array([n])) for n in (0, max(1, x.shape[-1] - 1), -1))
                return d.add("Slice", name, starts, ends, axes)
            case "Flatten":
                return d.add("Flatten", name)
            case "MaxPool":
                return d.add("MaxPool", name, kernel_shape=[2, 2])
            case _:
                value = np.array(x.zero, x.dtype) if name == x.name else np.float32(0)
                return d.add("Pad", name, d.constant(np.array([0, 0, 1, 0, 0, 0, 0, 1])), d.constant(value))

    if d.chance():
        name = apply(x.name)
    else:
        same = [d.constant(np.float32(x.scale)), d.constant(np.array(x.zero, x.dtype))]
        name = d.add("QuantizeLinear", apply(d.add("DequantizeLinear", x.name, *same)), *same)
    return Value(name, d.compute(name), x.scale, x.zero)


# --- graphs


def _start(d: Drawing) -> Value:
    """A map of channels or a matrix."""
    if d.chance(0.65):
        side = d.pick(4, 5, 7, 8)
        return d.input((1, d.pick(3, 4, 8), side, side))
    return d.input(d.pick((5, 16), (2, 3, 8), (1, 2, 6, 12), (8, 33)))


def _draw_exact(d: Drawing) -> QuantisedGraph:
    """Operators in a row, each quantised behind; now and then one result is added to an earlier one of its shape."""
    values = [_start(d)]
    for _ in range(d.generator.integers(1, _MOST_OPERATORS, endpoint=True)):
        x = values[-1]
        earlier = [each for each in values[:-1] if each.shape == x.shape]
        if d.chance(0.25):
            values.append(_moved(d, x))
        elif earlier and d.chance():
            values.append(d.quantise(_activated(d, _pair(d, x, d.pick(*earlier)))))
        else:
            is_map = len(x.shape) == 4 and x.shape[2] == x.shape[3] > 1
            values.append(d.quantise(_activated(d, d.pick(*_MAPS * 3 * is_map, *_ANY)(d, x))))
    if d.chance(0.2):
        return d.finish(d.dequantise(values[-1]))
    return d.finish(values[-1].name)


def _draw_rounded(d: Drawing) -> QuantisedGraph:
    """One operator, or a residual sum of two, and one rounding."""
    x = _start(d)
    is_map = len(x.shape) == 4
    found = _activated(d, d.pick(*_MAPS * 3 * is_map, *_ANY, *[_curve] * 5)(d, x))
    if d.chance(0.3):
        shape = d.compute(found).shape
        found = d.add(d.pick("Add", "Mul"), found, d.dequantise(d.input(shape)))
    return d.finish(d.quantise(found).name, steps=1)


def _draw_attention(d: Drawing) -> QuantisedGraph:
    """Integers that a step moves inside are weights of a mean, which move its result by another step at most."""
    x = d.input(d.pick((5, 16), (2, 3, 8), (1, 2, 6, 12), (1, 2, 49, 16)))
    return d.finish(d.quantise(_attention(d, x)).name, steps=2)


def _seven_bits(d: Drawing, shape: Sequence[int], dtype: str) -> Array:
    """Weights of which ONNX Runtime sums no two products that 16 bits do not hold, as it does without VNNI."""
    return d.integers(shape, dtype, *((-64, 63) if dtype == "int8" else (0, 127)))


def _draw_integer(d: Drawing) -> QuantisedGraph:
    """ConvInteger or MatMulInteger, of 8 bits or of floats that DynamicQuantizeLinear makes 8 bits."""
    is_conv, is_dynamic = d.chance(), d.chance(0.4)
    axes = d.pick(1, 2)
    maps = (1, 4, 6, 6) if axes == 2 else (1, d.pick(1, 3, 4), d.pick(12, 20, 21))
    shape = maps if is_conv else d.pick((5, 16), (2, 3, 8))
    weight_type = d.pick("int8", "uint8")
    factors = []
    if is_dynamic:
        # The range is 255 steps of a power of two, so that the scale and all results are exact.
        zero, step = int(d.integers((), "uint8", 1, 254)), 2.0 ** -int(d.integers((), "uint8", 2, 8))
        numbers = d.integers(shape, "int32", -zero, 255 - zero)
        numbers.flat[:2] = -zero, 255 - zero
        floats = d.name()
        d.inputs[floats] = (numbers * step).astype(np.float32)
        x, scale, zero_name = d.name(), d.name(), d.name()
        d.nodes.append(helper.make_node("DynamicQuantizeLinear", [floats], [x, scale, zero_name]))
        operands, factors = [x], [scale]
    else:
        dtype = d.pick("uint8", "int8") if weight_type == "int8" and not is_conv else "uint8"
        value = d.input(shape, dtype)
        operands, zero_name = [value.name], d.constant(np.array(d.zero(dtype), dtype))
    outputs = d.pick(3, 8)
    is_full = is_dynamic or d.chance(0.7)
    zeros = d.pick(0, 3, 11, *[] if is_conv else [d.integers((outputs,), "int32", 0, 11)])
    weight_zero = d.constant(np.array(zeros, weight_type))
    attributes: dict[str, Any] = {}
    if is_conv:
        group = d.pick(1, 1, 4, 2) if shape[1] == 4 else 1
        kernel, stride = (3, d.pick(1, 2)) if axes == 2 else d.pick((3, 1), (4, 2), (6, 3), (8, 4))
        weight = _seven_bits(d, (outputs * group, shape[1] // group, *[kernel] * axes), weight_type)
        attributes = {"group": group, "pads": [d.pick(0, 0, 1)] * 2 * axes, "strides": [stride] * axes}
    else:
        weight = _seven_bits(d, (shape[-1], outputs), weight_type)
    operands += [d.constant(weight), *([zero_name] * is_full), *([weight_zero] * (is_full and d.chance()))]
    name = d.add("ConvInteger" if is_conv else "MatMulInteger", *operands, **attributes)
    if factors:
        name = d.add("Mul", d.add("Cast", name, to=TensorProto.FLOAT), *factors)
        name = d.add("Mul", name, d.constant(np.float32(2.0**-6)))
    return d.finish(name)


def _draw_activations(d: Drawing) -> QuantisedGraph:
    """MatMulInteger of two inputs, of which the second may be transposed; its bytes are the largest now and then."""
    batch, rows, columns = d.pick((), (2,), (1, 3), (2, 3)), d.pick(1, 5, 17), d.pick(3, 8, 20, 33)
    depth, is_turned = d.pick(1, 2, 7, 16, 33, 66), d.chance()
    names, zeros = [], []
    for shape in ((*batch, rows, depth), (*batch, columns, depth) if is_turned else (*batch, depth, columns)):
        dtype, name = d.pick("uint8", "int8"), d.name()
        d.inputs[name] = _seven_bits(d, shape, dtype) if names else d.integers(shape, dtype)
        zeros.append(d.constant(np.array(d.zero(dtype), dtype)))
        names.append(name)
    if is_turned:
        rank = len(batch) + 2
        names[1] = d.add("Transpose", names[1], perm=[*range(rank - 2), rank - 1, rank - 2])
    return d.finish(d.add("MatMulInteger", *names, *zeros[: d.pick(0, 1, 2, 2)]))


def _draw_operator(d: Drawing) -> QuantisedGraph:
    """One of the operators that take scales and zero points as operands."""
    kind = d.pick("QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd", "QLinearMul", "QLinearConcat",
                  "QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool", "QLinearAveragePool",
                  "QLinearSoftmax")  # fmt: skip
    dtype = d.pick("uint8", "int8")

    def all_parameters(value: Value) -> list[str]:
        return [d.constant(np.float32(value.scale)), d.constant(np.array(value.zero, value.dtype))]

    def output_like(scale: float) -> list[str]:
        return [d.constant(np.float32(d.scale(scale))), d.constant(np.array(d.zero(dtype), dtype))]

    def weight_of(shape: Sequence[int], channels: int | None) -> tuple[list[str], float]:
        scales = np.vectorize(d.scale)(0.02 * d.generator.uniform(0.5, 2, channels)).astype(np.float32)
        zeros = np.zeros(np.shape(scales), "int8")
        return [d.constant(_seven_bits(d, shape, "int8")), d.constant(scales), d.constant(zeros)], float(scales.max())

    match kind:
        case "QLinearConv":
            x, group, outputs = d.input((1, 4, 6, 6), dtype), d.pick(1, 1, 2, 4), 8
            weight, near = weight_of((outputs, 4 // group, 3, 3), d.pick(None, outputs))
            after = output_like(x.scale * near * 60 * (4 // group) ** 0.5)
            bias = [d.constant(d.integers((outputs,), "int32", -3000, 3000))] * d.chance()
            operands = [x.name, *all_parameters(x), *weight, *after, *bias]
            pads, strides = d.pick([1] * 4, [0] * 4), [d.pick(1, 2)] * 2
            name = d.add("QLinearConv", *operands, group=group, pads=pads, strides=strides)
            return d.finish(name, steps=0 if d.exact else 1)
        case "QLinearMatMul":
            x = d.input(d.pick((5, 16), (2, 3, 16)), dtype)
            weight, near = weight_of((16, 8), None)
            after = output_like(x.scale * near * 40)
            name = d.add("QLinearMatMul", x.name, *all_parameters(x), *weight, *after)
            return d.finish(name, steps=0 if d.exact else 1)
        case "QGemm":
            x = d.input((5, 16), dtype)
            weight, near = weight_of((8, 16), d.pick(None, 8))
            offsets = d.constant(d.integers((8,), "int32", -3000, 3000))
            after = output_like(x.scale * near * 40)
            name = d.add("QGemm", x.name, *all_parameters(x), *weight, offsets, *after, transB=1, domain=CONTRIBUTED)
        case "QLinearAdd" | "QLinearMul":
            x, y = d.input((2, 3, 8), dtype), d.input(d.pick((2, 3, 8), (1, 1, 8)), dtype)
            after = output_like(max(x.scale, y.scale) * 1.5 if kind == "QLinearAdd" else x.scale * y.scale * 90)
            operands = [x.name, *all_parameters(x), y.name, *all_parameters(y), *after]
            name = d.add(kind, *operands, domain=CONTRIBUTED)
        case "QLinearConcat":
            x, y = d.input((2, 3, 8), dtype), d.input((2, 5, 8), dtype)
            operands = [*output_like(max(x.scale, y.scale)), x.name, *all_parameters(x), y.name, *all_parameters(y)]
            name = d.add(kind, *operands, axis=1, domain=CONTRIBUTED)
        case "QLinearSigmoid" | "QLinearLeakyRelu" | "QLinearSoftmax":
            x = d.input((2, 3, 8), dtype)
            after = output_like(x.scale if kind == "QLinearLeakyRelu" else 1 / 256)
            attributes: dict[str, Any] = {"alpha": 0.1} if kind == "QLinearLeakyRelu" else {}
            attributes = {"opset": 13, "axis": -1} if kind == "QLinearSoftmax" else attributes
            name = d.add(kind, x.name, *all_parameters(x), *after, domain=CONTRIBUTED, **attributes)
        case _:
            x = d.input((1, 4, 6, 6), dtype)
            attributes = {"kernel_shape": [3, 3]} if kind == "QLinearAveragePool" else {}
            operands = [x.name, *all_parameters(x), *output_like(x.scale / 2)]
            name = d.add(kind, *operands, domain=CONTRIBUTED, channels_last=0, **attributes)
    rounds_once = d.exact and kind not in ("QLinearSoftmax", "QLinearSigmoid")
    return d.finish(name, steps=0 if rounds_once else 1)


# --- graphs for a single question


def overflowing_product() -> QuantisedGraph:
    """A sum of products that 32 bits do not hold: it wraps. Weights of seven bits, as above."""
    depth = 150_000
    nodes = [helper.make_node("MatMulInteger", ["wrap_x", "wrap_w"], ["wrap_y"])]
    weights = np.random.default_rng(0).integers(56, 64, (depth, 8), dtype="int8")
    data = np.random.default_rng(1).integers(250, 255, (2, depth), dtype="uint8", endpoint=True)
    return QuantisedGraph(tuple(nodes), {"wrap_w": weights}, {"wrap_x": data}, "wrap_y", 0)


PECULIAR_SCALES = (0.0, np.nan, np.inf, -0.5, 1e-42)
"""Scales that no tool should write, but files have; the reciprocal of the last is infinite."""
_OF_WEIGHTS = (0.0, np.nan, -0.5)
"""Those by which a sum of products is the same as products that are summed up, to the last bit."""


def with_peculiar_scales() -> list[QuantisedGraph]:
    """Activations and weights with such a scale each, without a zero point and with one."""
    graphs = []
    data = np.array([[0.0, 0.5, -3.0, 1e-43], [2.0, -1e30, 7.0, 0.25]], np.float32)
    weights = np.array([[0, 1, -128], [127, -1, 5], [3, 0, 0], [9, 2, -2]], np.int8)
    for number, scale in enumerate(PECULIAR_SCALES):
        for zero in ((), (np.int8(-7),)):
            prefix = f"p{number}_{len(zero)}"
            d = Drawing(np.random.default_rng(number), prefix, exact=True)
            d.inputs[f"{prefix}_x"] = data
            operands = [d.constant(np.float32(scale)), *(d.constant(np.asarray(each)) for each in zero)]
            quantised = d.add("QuantizeLinear", d.add("Relu", f"{prefix}_x"), *operands)
            graphs.append(d.finish(quantised))
            if scale not in _OF_WEIGHTS:
                continue
            d = Drawing(np.random.default_rng(number), f"{prefix}_w", exact=True)
            x = d.input((2, 4), "uint8")
            scales = np.array([0.5, scale, 0.25], np.float32)
            zeros = [d.constant(np.full(3, each)) for each in zero]
            weight = d.add("DequantizeLinear", d.constant(weights), d.constant(scales), *zeros, axis=1)
            graphs.append(d.finish(d.add("MatMul", d.dequantise(x), weight)))
    return graphs


@dataclass(frozen=True)
class Kind:
    """A kind of graphs; `is_exact`: scales are powers of two (None: of some)."""

    draw: Callable[[Drawing], QuantisedGraph]
    is_exact: bool | None


KINDS: Mapping[str, Kind] = {
    "exact": Kind(_draw_exact, True),
    "rounded": Kind(_draw_rounded, False),
    "attention": Kind(_draw_attention, False),
    "integer": Kind(_draw_integer, True),
    "activations": Kind(_draw_activations, True),
    "operator": Kind(_draw_operator, None),
}
"""By name."""


def draw_graphs(kind: str, seed: int, wanted: int) -> list[QuantisedGraph]:
    """Graphs of a kind, whose outputs depend on their inputs."""
    generator = np.random.default_rng(seed)
    graphs: list[QuantisedGraph] = []
    for number in count():
        is_exact = KINDS[kind].is_exact
        exact = bool(generator.integers(2)) if is_exact is None else is_exact
        graph = KINDS[kind].draw(Drawing(generator, f"{kind}{number}", exact))
        graphs += [graph] * graph.depends_on_inputs
        if len(graphs) == wanted:
            return graphs
    raise AssertionError("the numbers do not end")
