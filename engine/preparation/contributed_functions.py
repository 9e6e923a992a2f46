"""Operators that ONNX Runtime fuses, of its domain ``com.microsoft``, as local functions of those that it fused.

    SkipLayerNormalization(x, s, g, b) => LayerNormalization(x + s, g, b)
    Attention(x, w, b)                 => softmax(q k' / sqrt(size)) v,  q, k, v = parts of x w + b

Tools that prepare models for ONNX Runtime write them; taken apart, they are fused with their neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import onnx

from ..onnx.runtime_operators import MEAN_AXES_INPUT
from ..onnx.typing import dtype_of
from .function_builder import FunctionBuilder, UnknownForm

_LAYER_NORMALIZATION_SINCE = 17
"""The opset since which there is a LayerNormalization."""
_HIDDEN = -10000.0
"""What is added to the scores of hidden positions if a node does not say it."""
_SUM_OF_EMBEDDINGS = 2
"""The output of an EmbedLayerNormalization that is the sum before it is normalised."""
_ACTIVATIONS = {
    "": (), "Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
}  # fmt: skip
"""Activations of a FusedConv, and the names of their parameters."""


def _number(function: FunctionBuilder, value: float) -> str:
    return function.constant(value, function.type_of(0).dtype)


def _gelu(function: FunctionBuilder) -> None:
    """x / 2 (1 + erf(x / sqrt 2)), of a sum with a bias if there is one."""
    x = _plus(function, "x0", 1)
    share = function.add("Erf", function.add("Div", x, _number(function, math.sqrt(2.0))))
    share = function.add("Add", share, _number(function, 1.0))
    half = function.add("Mul", x, _number(function, 0.5))
    function.add("Mul", half, share, result="y0")


def _fast_gelu(function: FunctionBuilder) -> None:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    x = _plus(function, "x0", 1)
    cube = function.add("Mul", function.add("Mul", function.add("Mul", x, x), x), _number(function, 0.044715))
    inside = function.add("Mul", function.add("Add", x, cube), _number(function, math.sqrt(2.0 / math.pi)))
    share = function.add("Add", function.add("Tanh", inside), _number(function, 1.0))
    function.add("Mul", function.add("Mul", x, _number(function, 0.5)), share, result="y0")


def _quick_gelu(function: FunctionBuilder) -> None:
    """x sigmoid(alpha x)."""
    scaled = function.add("Mul", "x0", _number(function, function.attribute("alpha", 1.702)))
    function.add("Mul", "x0", function.add("Sigmoid", scaled), result="y0")


def _plus(function: FunctionBuilder, value: str, place: int) -> str:
    """A value and the input at a place, if there is one."""
    return function.add("Add", value, function.name(place)) if function.name(place) else value


def _mean(function: FunctionBuilder, value: str) -> str:
    if function.opset < MEAN_AXES_INPUT:
        return function.add("ReduceMean", value, axes=[-1])
    return function.add("ReduceMean", value, function.constant([-1], "int64"))


def _normalise(function: FunctionBuilder, number: str, scale: str, shift: str, result: str, *, centred: bool) -> None:
    """A number by the root mean square along its last axis, of the deviations from the mean if it is `centred`."""
    epsilon = function.attribute("epsilon", 1e-12)
    if centred and function.opset >= _LAYER_NORMALIZATION_SINCE:
        function.add("LayerNormalization", number, scale, shift, result=result, axis=-1, epsilon=epsilon)
        return
    if centred:
        number = function.add("Sub", number, _mean(function, number))
    square = _mean(function, function.add("Mul", number, number))
    spread = function.add("Sqrt", function.add("Add", square, _number(function, epsilon)))
    number = function.add("Mul", function.add("Div", number, spread), scale)
    function.add("Add" if shift else "Identity", number, shift, result=result)


def _skip_normalisation(function: FunctionBuilder, *, centred: bool) -> None:
    """The normalised sum of two operands and a bias; the sum is the fourth output."""
    scale, shift, bias = (2, 3, 4) if centred else (2, 0, 3)
    outputs = function.node.outputs
    if any(output.name for output in outputs[1:3]):
        raise UnknownForm
    total = _plus(function, function.add("Add", "x0", "x1"), bias)
    shifted = function.name(shift) if shift else ""
    _normalise(function, total, function.name(scale), shifted, "y0", centred=centred)
    for place in range(1, len(outputs)):
        function.add("Identity", total, result=f"y{place}")


def _embedding(function: FunctionBuilder) -> None:
    """The normalised sum of what stands in tables for words, positions and segments; and how many positions of each
    sample have a mask of 1, or 0 without one."""
    if function.opset < _LAYER_NORMALIZATION_SINCE:
        raise UnknownForm
    total = function.add("Gather", function.name(2), "x0")
    if function.name(8):
        total = function.add("Add", total, function.add("Gather", function.name(3), function.name(8)))
    else:
        ends = [function.constant([0], "int64"), _size(function, "x0", 1)]
        total = function.add("Add", total, function.add("Slice", function.name(3), *ends, ends[0]))
    if function.name(1) and function.name(4):
        total = function.add("Add", total, function.add("Gather", function.name(4), function.name(1)))
    _normalise(function, total, function.name(5), function.name(6), "y0", centred=True)
    shown = function.add("Equal", function.name(7) or function.add("Sub", "x0", "x0"), function.constant(1, "int32"))
    counted = function.add("Cast", shown, to=onnx.TensorProto.INT32)
    function.add("ReduceSum", counted, function.constant([1], "int64"), result="y1", keepdims=0)
    if len(function.node.outputs) > _SUM_OF_EMBEDDINGS:
        function.add("Identity", total, result=f"y{_SUM_OF_EMBEDDINGS}")


def _size(function: FunctionBuilder, value: str, axis: int) -> str:
    """The extent of an axis as a list of one number."""
    return function.add("Gather", function.add("Shape", value), function.constant([axis], "int64"))


def _transposed(function: FunctionBuilder, place: int, name: str) -> str:
    if not function.attribute(name, 0):
        return function.name(place)
    rank = function.rank(place)
    if rank < 2:
        raise UnknownForm
    return function.add("Transpose", function.name(place), perm=[*range(rank - 2), rank - 1, rank - 2])


def _product(function: FunctionBuilder) -> None:
    function.require_attributes(transBatchA=0, transBatchB=0)
    product = function.add("MatMul", _transposed(function, 0, "transA"), _transposed(function, 1, "transB"))
    function.add("Mul", product, _number(function, function.attribute("alpha", 1.0)), result="y0")


def _convolution(function: FunctionBuilder) -> None:
    """A convolution, something that is added to it, and an activation."""
    kind, parameters = function.attribute("activation", ""), function.attribute("activation_params", ())
    if kind not in _ACTIVATIONS or len(parameters) != len(_ACTIVATIONS[kind]):
        raise UnknownForm
    windows = function.attributes("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    result = function.add("Conv", "x0", "x1", function.name(2), **windows)
    result = _plus(function, result, 3)
    given = dict(zip(_ACTIVATIONS[kind], map(float, parameters), strict=True))
    function.add(kind or "Identity", result, result="y0", **given)


def _attention(function: FunctionBuilder) -> None:
    """Attention with one product for queries, keys and values; those of the past lie in one tensor."""
    if function.name(6) or "qkv_hidden_sizes" in function.node.attributes:
        raise UnknownForm
    past, bias = function.name(4), function.name(5)
    if past and bias:
        raise UnknownForm  # no kernel takes both
    mask = _both(function, masking(function, 3, "x0", past), bias)
    attend_packed(function, _plus(function, function.add("MatMul", "x0", "x1"), 2), mask, past)


def attend_packed(function: FunctionBuilder, number: str, mask: str, past: str = "") -> None:
    """Attention of queries, keys and values that lie beside each other, in heads; `past` has the keys and values of the
    positions before. Raises UnknownForm."""
    function.require_attributes(do_rotary=0, past_present_share_buffer=0)
    outputs = len(function.node.outputs)
    if function.rank(0) != len(("batch", "positions", "channels")):
        raise UnknownForm
    heads, width = function.attribute("num_heads", 0), (function.type_of(1).shape or (0,))[-1]
    if not isinstance(width, int) or width % 3 or not heads or width // 3 % heads:
        raise UnknownForm
    size = width // 3 // heads
    number = _in_heads(function, number, 3 * heads, size)
    queries, keys, values = (
        function.add(
            "Slice", number, *(function.constant([place], "int64") for place in (part * heads, part * heads + heads, 1))
        )
        for part in range(3)
    )  # fmt: skip
    if past:
        pasts = (function.add("Gather", past, function.constant(part, "int64"), axis=0) for part in range(2))
        keys, values = (function.add("Concat", *pair, axis=2) for pair in zip(pasts, (keys, values), strict=True))
    if outputs > 1:
        function.add("Concat", *(function.spread_at(part, [0]) for part in (keys, values)), result="y1", axis=0)
    _attend(function, (queries, keys, values), size, width // 3, mask)


def _in_heads(function: FunctionBuilder, number: str, heads: int, size: int) -> str:
    shape = function.constant([0, 0, heads, size], "int64")
    return function.add("Transpose", function.add("Reshape", number, shape), perm=[0, 2, 1, 3])


def _attend(function: FunctionBuilder, parts: Sequence[str], size: int, width: int, mask: str) -> None:
    """Queries, keys and values in heads, of which queries have `size` channels, and results together `width`."""
    queries, keys, values = parts
    factor = _number_of_scores(function, function.attribute("scale", 0.0) or size**-0.5)
    turned = function.add("Transpose", keys, perm=[0, 1, 3, 2])
    scores = function.add("Mul", function.add("MatMul", queries, turned), factor)
    if function.attribute("unidirectional", 0):
        later = _hide_later(function, _size(function, queries, 2), _size(function, keys, 2))
        mask = _both(function, mask, later)
    if mask:
        scores = function.add("Add", scores, mask)
    mixed = function.add("MatMul", function.add("Softmax", scores, axis=-1), values)
    mixed = function.add("Transpose", mixed, perm=[0, 2, 1, 3])
    function.add("Reshape", mixed, function.constant([0, 0, width], "int64"), result="y0")


def _hide_later(function: FunctionBuilder, queries: str, keys: str) -> str:
    """What is added to scores of keys behind a query, of which the last is at the last key."""
    begin, one = function.constant(0, "int64"), function.constant(1, "int64")
    end = function.add("Squeeze", keys)
    first = function.add("Squeeze", function.add("Sub", keys, queries))
    own = function.spread_at(function.add("Range", first, end, one), [1])
    hidden = function.add("Greater", function.add("Range", begin, end, one), own)
    dtype = dtype_of(_type_of_scores(function))
    lowest = _number_of_scores(function, float(np.finfo(dtype.numpy()).min))
    return function.add("Mul", function.add("Cast", hidden, to=int(dtype)), lowest)


def _rotate(function: FunctionBuilder) -> None:
    """Pairs of channels turned by an angle that grows with the position: (a cos - b sin, a sin + b cos). A pair is made
    of channels of both halves, or of neighbours."""
    function.require_attributes(scale=1.0, is_packed_batching=0)
    half, rank, dtype = (function.type_of(2).shape or (0,))[-1], function.rank(0), "int64"
    channels = (function.type_of(0).shape or (0,))[-1]
    if not isinstance(half, int) or not isinstance(channels, int) or rank not in (3, 4):
        raise UnknownForm
    size, number = channels, "x0"
    if rank == len(("batch", "positions", "channels")):
        heads = function.attribute("num_heads", 0)
        size = channels // heads if heads else 2 * half
        number = function.add("Reshape", number, function.constant([0, 0, channels // size, size], dtype))
    places = "x1"
    if function.rank(1) == 1:  # the first of as many positions
        length = function.add("Squeeze", _size(function, "x0", rank - 2))
        ends = function.constant(0, dtype), length, function.constant(1, dtype)
        places = function.spread_at(function.add("Add", "x1", function.add("Range", *ends)), [0])
    cos, sin = (
        function.spread_at(function.add("Gather", function.name(table), places), [2 if rank == 3 else 1])
        for table in (2, 3)
    )

    def cut(begin: int, end: int, step: int = 1) -> str:
        return function.add("Slice", number, *(function.constant([n], dtype) for n in (begin, end, -1, step)))

    neighbours = bool(function.attribute("interleaved", 0))
    a, b = (cut(n, 2 * half, 2) if neighbours else cut(n * half, (n + 1) * half) for n in range(2))
    turned = [
        function.add("Sub", function.add("Mul", a, cos), function.add("Mul", b, sin)),
        function.add("Add", function.add("Mul", a, sin), function.add("Mul", b, cos)),
    ]
    if neighbours:
        pairs = function.add("Concat", *(function.spread_at(part, [4]) for part in turned), axis=-1)
        turned = [function.add("Reshape", pairs, function.constant([0, 0, 0, 2 * half], dtype))]
    rest = [cut(2 * half, size)] if 2 * half < size else []
    whole = function.add("Concat", *turned, *rest, axis=-1)
    function.add("Reshape", whole, function.add("Shape", "x0"), result="y0")


def _both(function: FunctionBuilder, mask: str, other: str) -> str:
    """What is added to scores by two masks, of which each may be absent."""
    return function.add("Add", mask, other) if mask and other else mask or other


def _type_of_scores(function: FunctionBuilder) -> str:
    """The scores of quantised operands are floats."""
    dtype = function.type_of(0).dtype
    return dtype if dtype.startswith("float") else "float32"


def _number_of_scores(function: FunctionBuilder, value: float) -> str:
    return function.constant(value, _type_of_scores(function))


def masking(function: FunctionBuilder, place: int, keys: str, past: str) -> str:
    """What is added to scores: 0 at positions whose mask is not 0, or before the length of a sample; "" without a mask.

    Raises UnknownForm, also for lengths beside keys of the `past`, which count these, or do not.
    """
    mask = function.name(place)
    if not mask:
        return ""
    if function.rank(place) == 1:
        if past or (function.type_of(place).shape or ())[0] != (function.type_of(0).shape or ())[0]:
            raise UnknownForm  # lengths and beginnings in one list
        ends = [function.constant(0, "int64"), function.add("Squeeze", _size(function, keys, 1))]
        positions = function.add("Range", *ends, function.constant(1, "int64"))
        lengths = function.spread_at(function.add("Cast", mask, to=onnx.TensorProto.INT64), [1])
        mask = function.add("Less", positions, lengths)
    elif function.rank(place) == len(("batch", "positions")):
        mask = function.add("Cast", mask, to=onnx.TensorProto.BOOL)
    else:
        raise UnknownForm
    one = _number_of_scores(function, 1.0)
    shown = function.add("Cast", mask, to=int(dtype_of(_type_of_scores(function))))
    hidden = function.add("Sub", one, shown)
    value = _number_of_scores(function, function.attribute("mask_filter_value", _HIDDEN))
    return function.spread_at(function.add("Mul", hidden, value), [1, 2])


def _attention_of_three(function: FunctionBuilder) -> None:
    """Attention of queries, keys and values of their own, and of keys and values of the past."""
    if any(map(function.name, range(8, 10))) or not function.name(2):
        raise UnknownForm
    heads, shapes = function.attribute("num_heads", 0), [function.type_of(place).shape or () for place in range(3)]
    widths = [shape[-1] for shape in shapes if len(shape) == len(("batch", "positions", "channels"))]
    channels = [width for width in widths if isinstance(width, int) and heads and not width % heads]
    if len(channels) < len(shapes):
        raise UnknownForm
    parts, begin = [], 0
    for place, width in enumerate(channels):
        part = function.name(place)
        if function.name(3):
            ends = (function.constant([end], "int64") for end in (begin, begin + width))
            part = function.add("Add", part, function.add("Slice", function.name(3), *ends))
        begin += width
        part = _in_heads(function, part, heads, width // heads)
        past = function.name(5 + place) if place else ""
        parts.append(function.add("Concat", past, part, axis=2) if past else part)
    for place in range(1, len(function.node.outputs)):
        function.add("Identity", parts[place], result=f"y{place}")
    mask = _both(function, masking(function, 4, "x1", function.name(6)), function.name(5))
    _attend(function, parts, channels[0] // heads, channels[2], mask)


FLOATS: Mapping[str, Callable[[FunctionBuilder], None]] = {
    "Gelu": _gelu, "BiasGelu": _gelu, "FastGelu": _fast_gelu, "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": partial(_skip_normalisation, centred=True),
    "SkipSimplifiedLayerNormalization": partial(_skip_normalisation, centred=False),
    "EmbedLayerNormalization": _embedding, "FusedMatMul": _product, "FusedConv": _convolution,
    "Attention": _attention, "MultiHeadAttention": _attention_of_three, "RotaryEmbedding": _rotate,
}  # fmt: skip
"""What writes the function of a node of such an operator."""
