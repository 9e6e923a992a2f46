"""Operators on quantised tensors as local functions of conversions, products of integers, and operators on numbers.

    QLinearConv(x, w, b) => QuantizeLinear(Cast(ConvInteger(x, w) + b) * (sx * sw / sy), 1, zy)
    QLinearAdd(a, b)     => QuantizeLinear(DequantizeLinear(a) + DequantizeLinear(b), sy, zy)

Products keep their sums of 32 bits, to which a bias of 32 bits is added before one scale, as in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from ...ir.operators.quantization import QUANTIZED
from ...ir.types import BYTES, TensorType
from ..onnx.nodes import is_standard, stored_input
from .contributed_functions import FLOATS, attend_packed, masking
from .function_builder import FunctionBuilder, UnknownForm

_MICROSOFT = "com.microsoft"
_LARGEST_BYTE = 255
"""The largest distance of a byte from its zero point."""
_EXACT = 1 << 24
"""Float32 holds all integers below it."""
_OLDEST = 10
"""The opset since which there are conversions."""
_LAST_AXIS = 13
"""The opset since which a Softmax takes one axis."""
_ROUND_SINCE = 11
"""The opset since which there is a Round."""
_SHORT_SINCE = 21
"""The opset since which a conversion of ONNX takes integers of 16 bits."""


def _convolution(function: FunctionBuilder) -> None:
    function.require_attributes(channels_last=0)
    spatial = function.rank(3) - 2
    settings = function.attributes("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    total = function.add("ConvInteger", "x0", "x3", function.name(2), function.zero_point(5), **settings)
    if not function.name(8):
        number = function.as_number(total)
    else:
        bias = function.spread(function.name(8), 8, spatial)
        if _are_sums_exact(function.node):
            number = function.add("Add", function.as_number(total), function.as_number(bias))
        else:
            number = function.as_number(function.add("Add", total, bias))
    scales = [function.name(1), function.spread(function.name(4), 4, spatial)]
    one = function.constant(1, "float32")
    function.quantise(function.scale_number(number, scales, function.name(6)), one, function.name(7))


def _are_sums_exact(node: ir.Node) -> bool:
    """Whether float32 holds all sums of a QLinearConv with its bias: then the bias is added to numbers, where rules
    find it, with the same result."""
    weights, zero, bias = (stored_input(node, place) for place in (3, 5, 8))
    if weights is None or bias is None or (zero is None and len(node.inputs) > 5 and node.inputs[5] is not None):
        return False
    filters = weights.reshape(len(weights), -1).astype(np.float64)
    apart = filters if zero is None else filters - zero.reshape(-1, 1)
    largest = _LARGEST_BYTE * np.abs(apart).sum(axis=1) + np.abs(bias.astype(np.float64))
    return bool(largest.max(initial=0.0) < _EXACT)


def _matrix_product(function: FunctionBuilder) -> None:
    total = function.add("MatMulInteger", "x0", "x3", function.name(2), function.zero_point(5))
    scaled = function.scale(total, [function.name(1), function.name(4)], function.name(6))
    function.quantise(scaled, function.constant(1, "float32"), function.name(7))


def _general_product(function: FunctionBuilder) -> None:
    """Without a scale of the result it is a number."""
    sides = [function.name(0), function.name(3)]
    for place, name in enumerate(("transA", "transB")):
        if function.attribute(name, 0):
            sides[place] = function.add("Transpose", sides[place], perm=[1, 0])
    total = function.add("MatMulInteger", *sides, function.name(2), function.zero_point(5))
    if function.name(6):
        total = function.add("Add", total, function.name(6))
    scales = [function.constant(function.attribute("alpha", 1.0), "float32"), function.name(1), function.name(4)]
    if not function.name(7):
        function.add("Identity", function.scale(total, scales), result="y0")
        return
    one = function.constant(1, "float32")
    function.quantise(function.scale(total, scales, function.name(7)), one, function.name(8))


def _of_two(operator: str) -> Callable[[FunctionBuilder], None]:
    def write(function: FunctionBuilder) -> None:
        result = function.add(operator, function.dequantise(0), function.dequantise(3))
        function.quantise_with_offset(result, 6)

    return write


def _average(function: FunctionBuilder) -> None:
    function.require_attributes(channels_last=0)
    window = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    result = function.add("AveragePool", function.dequantise(0), **function.attributes(*window))
    function.quantise_with_offset(result, 3)


def _of_one(operator: str, *names: str) -> Callable[[FunctionBuilder], None]:
    def write(function: FunctionBuilder) -> None:
        function.require_attributes(channels_last=0)
        result = function.add(operator, function.dequantise(0), **function.attributes(*names))
        function.quantise(result, function.name(3), function.name(4))

    return write


def _softmax(function: FunctionBuilder) -> None:
    """The version of Softmax is an attribute: before 13 it flattens the axes from its own on."""
    rank, axis = function.rank(0), function.attribute("axis", -1)
    if function.attribute("opset", _LAST_AXIS) < _LAST_AXIS and axis not in (-1, rank - 1):
        raise UnknownForm
    result = function.add("Softmax", function.dequantise(0), axis=axis)
    function.quantise(result, function.name(3), function.name(4))


def _choice(function: FunctionBuilder) -> None:
    result = function.add("Where", function.name(0), function.dequantise(1), function.dequantise(4))
    function.quantise(result, function.name(7), function.name(8))


def _joined(function: FunctionBuilder) -> None:
    """Scale and zero point of the result come first."""
    parts = [function.dequantise(place) for place in range(2, len(function.node.inputs), 3)]
    result = function.add("Concat", *parts, axis=function.attribute("axis", 0))
    function.quantise(result, function.name(0), function.name(1))


def _product_of_integers(function: FunctionBuilder) -> None:
    """A product of integers as a number, with a bias of numbers."""
    total = function.add("MatMulInteger", "x0", "x1", function.name(4), function.zero_point(5))
    _add_bias(function, function.scale(total, [function.name(2), function.name(3)]), 6)


def _product_of_rounded(function: FunctionBuilder) -> None:
    """The product of numbers, rounded to integers first, and integers."""
    integers, scale, zero = _round_dynamically(function, "x0")
    total = function.add("MatMulInteger", integers, function.name(1), zero, function.zero_point(3))
    _add_bias(function, function.scale(total, [scale, function.name(2)]), 4)


def _add_bias(function: FunctionBuilder, number: str, place: int) -> None:
    bias = function.name(place)
    function.add("Add" if bias else "Identity", number, *([bias] if bias else []), result="y0")


def _attention(function: FunctionBuilder) -> None:
    """Attention with one product for queries, keys and values; masks of single positions."""
    total = function.add("MatMulInteger", "x0", "x1", function.name(6), function.zero_point(7))
    number = function.add("Add", function.scale(total, [function.name(3), function.name(4)]), function.name(2))
    past = function.name(8)
    attend_packed(function, number, masking(function, 5, function.name(0), past), past)


def _product_of_blocks(function: FunctionBuilder) -> None:
    """A product by stored weights of few bits with a scale for each block of a column; they become numbers now."""
    bits, size = function.attribute("bits", 4), function.attribute("block_size", 0)
    depth, columns = function.attribute("K", 0), function.attribute("N", 0)
    packed, scales = (stored_input(function.node, place) for place in (1, 2))
    if bits not in (2, 4, 8) or function.name(4) or packed is None or scales is None:
        raise UnknownForm
    blocks = -(-depth // size)
    values = _unpacked(packed.reshape(columns, blocks, -1), bits)[..., :size].astype(np.float32)
    zeros: np.ndarray[Any, Any] = np.full((columns, blocks), 2.0 ** (bits - 1), np.float32)
    if function.name(3):
        given = stored_input(function.node, 3)
        if given is None:
            raise UnknownForm
        is_packed = given.dtype == np.uint8
        zeros = _unpacked(given.reshape(columns, -1), bits)[:, :blocks] if is_packed else given.reshape(columns, blocks)
    factors = scales.reshape(columns, blocks, 1).astype(np.float32)
    numbers = (values - zeros[..., None].astype(np.float32)) * factors
    weights = numbers.reshape(columns, -1)[:, :depth].T
    product = function.add("MatMul", "x0", function.constant(weights, function.type_of(0).dtype))
    _add_bias(function, product, 5)


def _unpacked(array: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """The numbers of a few bits in each byte, the lowest bits first, along the last axis."""
    parts = [(array >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*array.shape[:-1], -1)


def _round_dynamically(function: FunctionBuilder, number: str) -> tuple[str, str, str]:
    """The integers of a value, their scale and their zero point: zero is one of the numbers that they stand for."""
    nothing, steps, one = (function.constant(value, "float32") for value in (0, 255, 1))
    ends = [function.add(f"Reduce{name}", number, keepdims=0) for name in ("Max", "Min")]
    high, low = (function.add(name, end, nothing) for name, end in zip(("Max", "Min"), ends, strict=True))
    width = function.add("Sub", high, low)
    is_flat = function.add("Equal", width, nothing)
    scale = function.add("Where", is_flat, one, function.add("Div", width, steps))
    byte = function.constant(0, "uint8")
    start = function.add("Neg", function.add("Div", low, scale))
    zero = function.add("QuantizeLinear", start, one, byte)
    return function.add("QuantizeLinear", number, scale, zero), scale, zero


def _dynamic(function: FunctionBuilder) -> None:
    for number, name in enumerate(_round_dynamically(function, "x0")):
        function.add("Identity", name, result=f"y{number}")


def _recurrence(function: FunctionBuilder) -> None:
    """An LSTM whose products have rounded operands: the inputs of all steps together, the states of each step anew.

    One with weights of int8 has no function, for a kernel computes it.
    """
    if {function.type_of(1).dtype, function.type_of(2).dtype} == {"int8"}:
        raise UnknownForm
    usual = ["Sigmoid", "Tanh", "Tanh"]
    ways = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}.get(function.attribute("direction", "forward"))
    if ways is None or function.name(4) or function.name(7):
        raise UnknownForm  # sequences of several lengths, and gates that see the cell
    function.require_attributes(clip=0.0, input_forget=0)
    if list(function.attribute("activations", usual * len(ways))) != usual * len(ways):
        raise UnknownForm
    rounded = _round_dynamically(function, "x0")
    steps = [_steps(function, place, is_reverse, rounded) for place, is_reverse in enumerate(ways)]
    places = ([1], [0], [0])
    for number in range(len(function.node.outputs)):
        parts = [function.spread_at(each[number], places[number]) for each in steps]
        function.add("Concat", *parts, axis=places[number][0], result=f"y{number}")


def _steps(
    function: FunctionBuilder, place: int, is_reverse: int, rounded: tuple[str, str, str]
) -> tuple[str, str, str]:
    """All hidden states of a direction, the last one, and the last cell."""
    size = function.attribute("hidden_size", 0)

    def of_direction(input_: int) -> str:
        return function.add("Gather", function.name(input_), function.constant(place, "int64"), axis=0)

    def zero_of(input_: int) -> str:
        return of_direction(input_) if function.zero_point(input_) else ""

    integers, scale, zero = rounded
    total = function.add("MatMulInteger", integers, of_direction(1), zero, zero_of(9))
    sums = function.scale(total, [scale, of_direction(8)])
    if function.name(3):
        bias = of_direction(3)
        halves = [_columns(function, bias, half, 4 * size, axis=0) for half in range(2)]
        sums = function.add("Add", sums, function.add("Add", *halves))
    states = [of_direction(each) if function.name(each) else _no_state(function, size) for each in (5, 6)]
    weights = (of_direction(2), of_direction(10), zero_of(11))
    cell, *results = (f"{function.prefix}{name}{place}" for name in ("cell", "hidden", "memory", "states"))
    function.nodes.append(
        helper.make_node(
            "Scan", [*states, sums], results, body=_step(function, cell, size, weights), num_scan_inputs=1,
            scan_input_directions=[is_reverse], scan_output_directions=[is_reverse],
        )
    )  # fmt: skip
    return results[2], results[0], results[1]


def _step(function: FunctionBuilder, prefix: str, size: int, weights: tuple[str, str, str]) -> onnx.GraphProto:
    """One step of an LSTM: from its hidden state, its cell and the sums of its inputs to the next states."""
    body = replace(function, nodes=[], prefix=prefix)
    hidden, memory, sums = (f"{prefix}_{name}" for name in ("h", "c", "z"))
    integers, scale, zero = _round_dynamically(body, hidden)
    recurrent, recurrent_scale, recurrent_zero = weights
    total = body.add("MatMulInteger", integers, recurrent, zero, recurrent_zero)
    gates = body.add("Add", sums, body.scale(total, [scale, recurrent_scale]))
    enter, leave, forget, new = (_columns(body, gates, gate, size, axis=1) for gate in range(4))
    kept = body.add("Mul", body.add("Sigmoid", forget), memory)
    added = body.add("Mul", body.add("Sigmoid", enter), body.add("Tanh", new))
    after = body.add("Add", kept, added)
    output = body.add("Mul", body.add("Sigmoid", leave), body.add("Tanh", after))
    again = body.add("Identity", output)
    batch = (function.type_of(0).shape or ())[1]

    def described(name: str, width: int) -> onnx.ValueInfoProto:
        shape = [batch if isinstance(batch, int) else None, width]
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    operands = [described(hidden, size), described(memory, size), described(sums, 4 * size)]
    return helper.make_graph(body.nodes, prefix, operands, [described(name, size) for name in (output, after, again)])


def _columns(function: FunctionBuilder, name: str, number: int, size: int, axis: int) -> str:
    """One of the parts of equal size along an axis."""
    ends = (function.constant([end], "int64") for end in (number * size, number * size + size, axis))
    return function.add("Slice", name, *ends)


def _no_state(function: FunctionBuilder, size: int) -> str:
    """The state before the first step, of zeros: [batch, units]."""
    batch = (function.type_of(0).shape or ())[1]
    if isinstance(batch, int):
        return function.constant(np.zeros((batch, size)), "float32")
    sizes = function.add("Shape", "x0")
    batch_size = function.add("Gather", sizes, function.constant([1], "int64"), axis=0)
    shape = function.add("Concat", batch_size, function.constant([size], "int64"), axis=0)
    return function.add("Expand", function.constant(0, "float32"), shape)


def _converted(operator: str) -> Callable[[FunctionBuilder], None]:
    """Conversions of the runtime's own domain take integers of more kinds; those of ONNX's are the same."""

    def write(function: FunctionBuilder) -> None:
        dtype = function.type_of(2).dtype if function.name(2) else ""
        if dtype not in QUANTIZED:
            raise UnknownForm
        if dtype not in BYTES and function.opset < _SHORT_SINCE:
            _convert_short(function, operator, dtype)
            return
        names = [function.name(place) for place in range(3)]
        function.add(operator, *names, result="y0", **function.attributes("axis"))

    return write


def _convert_short(function: FunctionBuilder, operator: str, dtype: str) -> None:
    """A conversion of integers of 16 bits by operators on numbers, of one scale."""
    if function.rank(1) or function.rank(2) or function.opset < _ROUND_SINCE:
        raise UnknownForm
    scale, zero = function.name(1), function.name(2)
    if operator == "DequantizeLinear":
        number, offset = (function.add("Cast", name, to=onnx.TensorProto.FLOAT) for name in ("x0", zero))
        function.add("Mul", function.add("Sub", number, offset), scale, result="y0")
        return
    ends = np.iinfo(dtype)
    low, high = (function.constant(end, "float32") for end in (ends.min, ends.max))
    number = function.add("Round", function.add("Div", "x0", scale))
    number = function.add("Add", number, function.add("Cast", zero, to=onnx.TensorProto.FLOAT))
    number = function.add("Min", function.add("Max", number, low), high)
    function.add("Cast", number, result="y0", to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


_STANDARD: Mapping[str, Callable[[FunctionBuilder], None]] = {
    "QLinearConv": _convolution, "QLinearMatMul": _matrix_product, "DynamicQuantizeLinear": _dynamic,
}  # fmt: skip
_CONTRIBUTED: Mapping[str, Callable[[FunctionBuilder], None]] = {
    "QLinearConv": _convolution, "QGemm": _general_product, "QLinearAdd": _of_two("Add"), "QLinearMul": _of_two("Mul"),
    "QLinearSigmoid": _of_one("Sigmoid"), "QLinearLeakyRelu": _of_one("LeakyRelu", "alpha"),
    "QLinearAveragePool": _average, "QLinearGlobalAveragePool": _of_one("GlobalAveragePool"),
    "QLinearSoftmax": _softmax, "QLinearConcat": _joined, "QLinearWhere": _choice,
    "QAttention": _attention, "MatMulNBits": _product_of_blocks,
    "MatMulIntegerToFloat": _product_of_integers, "DynamicQuantizeMatMul": _product_of_rounded,
    "DynamicQuantizeLSTM": _recurrence, **FLOATS,
    "QuantizeLinear": _converted("QuantizeLinear"), "DequantizeLinear": _converted("DequantizeLinear"),
}  # fmt: skip


def is_compound(node: ir.Node) -> bool:
    """Whether a node may be a function of conversions, of products of integers, or of what a runtime fuses."""
    return _writer_of(node) is not None


def _writer_of(node: ir.Node) -> Callable[[FunctionBuilder], None] | None:
    rows = _STANDARD if is_standard(node) else _CONTRIBUTED if node.domain == _MICROSOFT else {}
    return rows.get(node.op_type)


def compound_function(node: ir.Node, opset: int, types: Mapping[str, TensorType]) -> onnx.FunctionProto | None:
    """The function of a node; None for a form that has none, and if the ranks of its operands are not known."""
    write = _writer_of(node)
    if opset < _OLDEST or write is None:
        return None
    function = FunctionBuilder(node, types, opset)
    try:
        write(function)
    except UnknownForm:
        return None
    inputs = [f"x{number}" for number in range(len(node.inputs))]
    outputs = [f"y{number}" for number in range(len(node.outputs))]
    return helper.make_function(
        "eqfuse.compound", node.op_type, inputs, outputs, function.nodes, [helper.make_opsetid("", opset)]
    )
