"""What TOSA's operators compute on integers, in numpy, with the rounding of the specification.

Arm's reference model gives the same bits; this one needs no package, and keeps each value in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .graph import Array, Graph, Operator
from .scaling import apply_scaling, reciprocal

Attributes = Mapping[str, Any]
_EXACT_SUMS = 1 << 24
"""Below this, sums of integers are exact in float32."""


def evaluate_graph(graph: Graph, inputs: Mapping[str, Array], *, keeps_all: bool = False) -> dict[str, Array]:
    """The outputs by name; with `keeps_all` every value in between, too.

    Inputs have the shapes and types of the graph's. Raises KeyError for an operator that is not known here.
    """
    values: dict[str, Array] = {name: t.data for name, t in graph.tensors.items() if t.data is not None}
    values |= {name: np.asarray(inputs[name]) for name in graph.inputs}
    last = {name: place for place, operator in enumerate(graph.operators) for name in operator.inputs}
    kept = {*graph.outputs}
    for place, operator in enumerate(graph.operators):
        result = evaluate_operator(operator, [values[name] for name in operator.inputs])
        tensor = graph.tensors[operator.output]
        if result.shape != tensor.shape:
            raise ValueError(f"{operator.op}: makes {result.shape}, and {tensor.name} is {tensor.shape}")
        values[operator.output] = result.astype(np.dtype(tensor.dtype), copy=False)
        if not keeps_all:
            for name in operator.inputs:
                if last[name] == place and name not in kept:
                    values.pop(name, None)
    return values if keeps_all else {name: values[name] for name in graph.outputs}


def evaluate_operator(operator: Operator, inputs: list[Array]) -> Array:
    """What an operator makes of its inputs. Raises KeyError for one that is not known here."""
    result: Array = _OPERATORS[operator.op](inputs, operator.attributes)
    return result


def _zero(array: Array) -> int:
    return int(array.reshape(-1)[0])


def _padded(x: Array, pad: tuple[int, ...], value: int) -> Array:
    top, bottom, left, right = pad
    return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)


def _windows(x: Array, kernel: tuple[int, int], stride: tuple[int, ...], dilation: tuple[int, ...] = (1, 1)) -> Array:
    """Windows of NHWC as [N, rows, columns, C, kernel height, kernel width], without a copy."""
    extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, extents, (1, 2))
    return view[:, :: stride[0], :: stride[1], :, :: dilation[0], :: dilation[1]]


def _product(a: Array, b: Array) -> Array:
    """A matrix product of integers, exact, by the fastest type that holds its sums."""
    bound = a.shape[-1] * max(1, int(np.abs(a).max(initial=0))) * max(1, int(np.abs(b).max(initial=0)))
    dtype = np.float32 if bound < _EXACT_SUMS else np.float64
    result: Array = np.rint(a.astype(dtype) @ b.astype(dtype)).astype(np.int64)
    return result


def _convolution(inputs: list[Array], attributes: Attributes) -> Array:
    x, weights, bias, zero, weight_zero = inputs
    x = _padded(x.astype(np.int32) - _zero(zero), attributes["pad"], 0)
    w = weights.astype(np.int32) - _zero(weight_zero)
    outputs, height, width, depth = w.shape
    windows = _windows(x, (height, width), attributes["stride"], attributes["dilation"])
    columns = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, height * width * depth)
    result = _product(columns, w.reshape(outputs, -1).T) + bias
    return result.reshape(*windows.shape[:3], outputs)


def _depthwise(inputs: list[Array], attributes: Attributes) -> Array:
    x, weights, bias, zero, weight_zero = inputs
    x = _padded(x.astype(np.int32) - _zero(zero), attributes["pad"], 0)
    w = weights.astype(np.int32) - _zero(weight_zero)
    height, width, channels, multiplier = w.shape
    windows = _windows(x, (height, width), attributes["stride"], attributes["dilation"])
    result = np.zeros((*windows.shape[:4], multiplier), np.int64)
    for row in range(height):
        for column in range(width):
            result += windows[..., row, column, None].astype(np.int64) * w[row, column]
    return result.reshape(*windows.shape[:3], channels * multiplier) + bias


def _matmul(inputs: list[Array], attributes: Attributes) -> Array:
    a, b, a_zero, b_zero = inputs
    return _product(a.astype(np.int32) - _zero(a_zero), b.astype(np.int32) - _zero(b_zero))


def _max_pool(inputs: list[Array], attributes: Attributes) -> Array:
    x = _padded(inputs[0].astype(np.int32), attributes["pad"], np.iinfo(np.int32).min)
    result: Array = _windows(x, attributes["kernel"], attributes["stride"]).max((-2, -1))
    return result


def _average_pool(inputs: list[Array], attributes: Attributes) -> Array:
    x, zero, result_zero = inputs
    pad, kernel, stride = (attributes[name] for name in ("pad", "kernel", "stride"))
    centred = _padded(x.astype(np.int64) - _zero(zero), pad, 0)
    ones = _padded(np.ones((1, *x.shape[1:3], 1), np.int64), pad, 0)
    sums = _windows(centred, kernel, stride).sum((-2, -1))
    multiplier, shift = reciprocal(_windows(ones, kernel, stride).sum((-2, -1)))
    return _saturate(apply_scaling(sums, multiplier, shift) + _zero(result_zero), x.dtype)


def _saturate(values: Array, dtype: np.dtype[Any]) -> Array:
    limits = np.iinfo(dtype)
    return np.clip(values, limits.min, limits.max).astype(dtype)


def _rescale(inputs: list[Array], attributes: Attributes) -> Array:
    x, multiplier, shift, zero, result_zero = inputs
    if not attributes["per_channel"]:
        multiplier, shift = multiplier[:1], shift[:1]
    scaled = apply_scaling(x.astype(np.int64) - _zero(zero), multiplier, shift, attributes["rounding_mode"])
    return _saturate(scaled + _zero(result_zero), result_zero.dtype)


def _table(inputs: list[Array], attributes: Attributes) -> Array:
    x, table = inputs
    if table.dtype == np.int8:
        result: Array = table[x.astype(np.int32) + 128]
        return result
    place, rest = (x.astype(np.int64) >> 7) + 256, x.astype(np.int64) & 127
    entries = table.astype(np.int64)
    interpolated: Array = (entries[place] << 7) + np.diff(entries, append=entries[-1:])[place] * rest
    return interpolated


def _leading_zeros(inputs: list[Array], attributes: Attributes) -> Array:
    """Of integers of 32 bits, of which those below 0 have none; frexp gives the bits of the others."""
    x = inputs[0].astype(np.int64)
    return np.where(x < 0, 0, 32 - np.frexp(np.maximum(x, 0).astype(np.float64))[1])


def _shift_left(inputs: list[Array], attributes: Attributes) -> Array:
    return (inputs[0].astype(np.int64) << inputs[1].astype(np.int64)).astype(np.int32)


def _shift_right(inputs: list[Array], attributes: Attributes) -> Array:
    x, by = (each.astype(np.int64) for each in inputs)
    rounded = ((x >> np.maximum(by - 1, 0)) & 1) * (by > 0) if attributes["round"] else 0
    shifted: Array = (x >> by) + rounded
    return shifted


def _transposed_convolution(inputs: list[Array], attributes: Attributes) -> Array:
    x, weights, bias, zero, weight_zero = inputs
    top, bottom, left, right = attributes["out_pad"]
    down, across = attributes["stride"]
    x = x.astype(np.int32) - _zero(zero)
    w = weights.astype(np.int32) - _zero(weight_zero)
    outputs, height, width, _ = w.shape
    batch, rows, columns, _ = x.shape
    whole = np.zeros((batch, (rows - 1) * down + height, (columns - 1) * across + width, outputs), np.int64)
    for row in range(height):
        for column in range(width):
            ends = (row + (rows - 1) * down + 1, column + (columns - 1) * across + 1)
            whole[:, row : ends[0] : down, column : ends[1] : across] += _product(x, w[:, row, column].T)
    padded = np.pad(whole, ((0, 0), (max(0, top), max(0, bottom)), (max(0, left), max(0, right)), (0, 0)))
    height, width = padded.shape[1:3]
    kept = padded[:, max(0, -top) : height - max(0, -bottom), max(0, -left) : width - max(0, -right)]
    result: Array = kept + bias
    return result


def _multiply(inputs: list[Array], attributes: Attributes) -> Array:
    a, b, shift = inputs
    product, by = a.astype(np.int64) * b.astype(np.int64), _zero(shift)
    return (product + (1 << (by - 1))) >> by if by else product


def _slice(inputs: list[Array], attributes: Attributes) -> Array:
    x, start, size = inputs
    return x[tuple(slice(a, a + n) for a, n in zip(start.tolist(), size.tolist(), strict=True))]


def _pad(inputs: list[Array], attributes: Attributes) -> Array:
    x, pads, value = inputs
    return np.pad(x, pads.reshape(-1, 2).tolist(), constant_values=_zero(value))


def _wide(function: Callable[[Array, Array], Array]) -> Callable[[list[Array], Attributes], Array]:
    return lambda inputs, attributes: function(inputs[0].astype(np.int64), inputs[1].astype(np.int64))


_OPERATORS: Mapping[str, Callable[[list[Array], Attributes], Any]] = {
    "CONV2D": _convolution,
    "DEPTHWISE_CONV2D": _depthwise,
    "MATMUL": _matmul,
    "MAX_POOL2D": _max_pool,
    "AVG_POOL2D": _average_pool,
    "RESCALE": _rescale,
    "CLAMP": lambda inputs, attributes: np.clip(inputs[0], attributes["min_val"], attributes["max_val"]),
    "TABLE": _table,
    "ADD": _wide(np.add),
    "SUB": _wide(np.subtract),
    "MUL": _multiply,
    "TRANSPOSE_CONV2D": _transposed_convolution,
    "CLZ": _leading_zeros,
    "LOGICAL_LEFT_SHIFT": _shift_left,
    "ARITHMETIC_RIGHT_SHIFT": _shift_right,
    "MAXIMUM": _wide(np.maximum),
    "REDUCE_MAX": lambda inputs, attributes: inputs[0].max(attributes["axis"], keepdims=True),
    "REDUCE_MIN": lambda inputs, attributes: inputs[0].min(attributes["axis"], keepdims=True),
    "ARGMAX": lambda inputs, attributes: inputs[0].argmax(attributes["axis"]),
    "REDUCE_SUM": lambda inputs, attributes: inputs[0].sum(attributes["axis"], np.int64, keepdims=True),
    "IDENTITY": lambda inputs, attributes: inputs[0],
    "CONCAT": lambda inputs, attributes: np.concatenate(inputs, attributes["axis"]),
    "PAD": _pad,
    "SLICE": _slice,
    "RESHAPE": lambda inputs, attributes: inputs[0].reshape(inputs[1]),
    "TRANSPOSE": lambda inputs, attributes: inputs[0].transpose(attributes["perms"]),
}
