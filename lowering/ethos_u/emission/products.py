"""Products: convolutions, matrix products with weights, and means, as sums of 32 bits that are scaled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log2, prod
from typing import Any

import numpy as np

from ....ir.operators import MATRIX_PRODUCTS, PRODUCTS
from ....ir.operators.linear import is_convolution
from ...base.errors import LoweringError
from ..tosa.graph import Array, Builder, Tensor
from .requantize import Target, add_rescale, as_map, clamp, rescale, zero_of
from .values import Constant, Integers, Number, memory_order, refuse, reorder

_MEANS = frozenset({"GlobalAveragePool", "AveragePool", "ReduceMean"})
WEIGHTED_SUMS = PRODUCTS | _MEANS
"""Operators whose results are sums of products with weights; those of a mean are all equal."""
_INT32 = np.iinfo(np.int32)
_LARGEST_WEIGHT = 127
_LARGEST_WINDOW = 64
"""The longest side of a filter that the NPU has."""
_POINTWISE: Mapping[str, Any] = {
    "pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "local_bound": False, "acc_type": "int32",
}  # fmt: skip
"""The attributes of a convolution of 1x1 on the map as it is."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of products that are emitted once their bias is known: numbers are sum * scale + offset.

    `scale` and `offset` have one element, or one for each channel, the last axis in memory. `bias` are integers that
    are added to the sums as they are. Of means whose windows differ, `addends` are the numbers that each averages, and
    `scale` is for the largest.
    """

    op: str
    operands: tuple[Tensor, ...]
    zeros: tuple[Tensor, ...]
    attributes: Mapping[str, Any]
    tensor_shape: tuple[int, ...]
    shape: tuple[int, ...]
    order: tuple[int, ...]
    channels: int
    node: str
    scale: Array
    offset: Array
    addends: Array | None = None

    def then(self, op: str, numbers: Array) -> Sums | None:
        """With a constant of one number, or one for each channel, behind it; None for another constant."""
        per_channel = self._along_channels(numbers)
        if per_channel is None:
            return None
        if op in ("Add", "Sub"):
            return replace(self, offset=self.offset + (per_channel if op == "Add" else -per_channel))
        factor = per_channel if op == "Mul" else 1.0 / per_channel
        return replace(self, scale=self.scale * factor, offset=self.offset * factor)

    def _along_channels(self, numbers: Array) -> Array | None:
        if numbers.size == 1:
            return numbers.reshape(1).astype(np.float64)
        axis = self.order[-1] - len(self.shape)
        shape = (*(1,) * (len(self.shape) - numbers.ndim), *numbers.shape)
        if len(shape) != len(self.shape) or shape[axis] != self.channels or prod(shape) != self.channels:
            return None
        return numbers.reshape(-1).astype(np.float64)

    def round(self, builder: Builder, target: Target) -> Integers:
        """The integers of a target. Raises LoweringError for a bias or scale that does not fit 32 bits."""
        scale = np.broadcast_to(self.scale, (self.channels,))
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise LoweringError(f"node {self.node!r}: a scale of its weights is no positive number")
        bias = np.rint(np.broadcast_to(self.offset, (self.channels,)) / scale)
        bias = np.clip(bias, _INT32.min, _INT32.max)
        tensor = builder.constant(bias, "int32", f"{self.node}.bias")
        if (bias == bias[0]).all():
            tensor = builder.constant(bias[:1], "int32", f"{self.node}.bias")
        operands = [*self.operands, tensor, *self.zeros] if self.op != "MATMUL" else [*self.operands, *self.zeros]
        if self.op == "MATMUL" and bias.any():
            raise LoweringError(f"node {self.node!r}: a constant is added to a product of two feature maps")
        total = builder.add(self.op, operands, "int32", self.tensor_shape, self.node, **self.attributes)
        if self.addends is not None:
            if bias.any():
                raise LoweringError(f"node {self.node!r}: a constant is added to means over windows of several sizes")
            bits = 30 - ceil(log2(255 * self.addends.max()))
            shares = builder.constant(np.rint(2.0**bits * self.addends.max() / self.addends), "int32", "shares")
            no_shift = builder.constant([0], "int8", "shift")
            total = builder.add("MUL", [total, shares, no_shift], "int32", self.tensor_shape, self.node)
            scale = scale * 2.0**-bits
        try:
            rounded = add_rescale(builder, total, scale / target.scale, 0, target.zero, "int8")
        except ValueError as error:
            raise LoweringError(f"node {self.node!r}: its scale cannot be written in 32 bits: {error}") from None
        rounded = clamp(builder, rounded, target)
        shape = tuple(self.shape[axis] for axis in self.order)
        if rounded.shape != shape:
            rounded = builder.add("RESHAPE", [rounded, builder.sizes(*shape)], "int8", shape)
        return Integers(rounded, self.shape, self.order, target.scale, target.zero)


def sums_of(builder: Builder, value: Number, operands: Sequence[Integers | Constant | None]) -> Sums | None:
    """The sums of an operator. Raises LoweringError for a form of it that the NPU does not have."""
    if value.op in _MEANS:
        return _mean(builder, value, operands)
    if value.op in MATRIX_PRODUCTS:
        return _matrix_product(builder, value, operands)
    if is_convolution(value.op):
        return _convolution(builder, value, operands)
    return _transposed_convolution(builder, value, operands)


def _centred(value: Number, operands: Sequence[Integers | Constant | None]) -> tuple[Integers, Array, Array]:
    """The data, the integers of the weights without their zero point, and their scales."""
    data, weights = operands[:2]
    if not isinstance(data, Integers):
        raise refuse(value, "its data are no quantised feature map")
    if not isinstance(weights, Constant):
        raise refuse(value, "its weights are no constants")
    if not value.op.endswith("Integer"):
        if weights.integers is None or weights.scales is None:
            raise refuse(value, "its weights are floats; quantise them, too")
        return data, weights.integers, weights.scales
    zeros = [each.numbers if isinstance(each, Constant) else None for each in (*operands[2:4], None, None)][:2]
    signed = 128 if zeros[0] is not None and zeros[0].dtype.name == "uint8" else 0
    zero = 0 if zeros[0] is None else int(zeros[0].reshape(-1)[0]) - signed
    integers = weights.numbers.astype(np.int32)
    if zeros[1] is not None:
        along = zeros[1].reshape((-1, *(1,) * (integers.ndim - 1))) if value.op == "ConvInteger" else zeros[1]
        integers = integers - along.astype(np.int32)
    return replace(data, scale=1.0, zero=zero), integers, np.ones(1)


def _weights(builder: Builder, value: Number, integers: Array) -> Tensor:
    if integers.min(initial=0) < -128 or integers.max(initial=0) > 127:
        raise refuse(value, "its weights less their zero point do not fit 8 bits; quantise them with the zero point 0")
    return builder.constant(integers, "int8", f"{value.node}.weights")


def _bias(value: Number, operands: Sequence[Integers | Constant | None], place: int) -> Array:
    if value.op.endswith("Integer") or len(operands) <= place or operands[place] is None:
        return np.zeros(1)
    bias = operands[place]
    if not isinstance(bias, Constant):
        raise refuse(value, "its bias is no constant")
    return bias.numbers.reshape(-1).astype(np.float64)


def _convolution(builder: Builder, value: Number, operands: Sequence[Integers | Constant | None]) -> Sums:
    data, integers, scales = _centred(value, operands)
    shape, group = value.shape, int(value.attributes["group"])
    if len(shape) not in (3, 4):
        raise refuse(value, "has more than two axes of positions")
    data = as_map(data, builder)
    outputs, depth = integers.shape[:2]
    kernel, stride, dilation = (
        _planar(value.attributes[name], 1) for name in ("kernel_shape", "strides", "dilations")
    )
    pads = value.attributes["pads"]
    pad = (*_pairs(pads, 0), *_pairs(pads, 1)) if len(shape) == 4 else (0, 0, *_pairs(pads, 0))
    x = _with_height(builder, data.tensor)
    filters = integers.reshape(outputs, depth, *kernel)
    channels = x.shape[-1]
    attributes = {
        "pad": pad, "stride": stride, "dilation": dilation, "local_bound": False, "acc_type": "int32",
    }  # fmt: skip
    # TOSA wants windows that end where the padded map ends; what they leave out at the end is not read.
    extent = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    sides = tuple(n + a + b for n, a, b in zip(x.shape[1:3], pad[::2], pad[1::2], strict=True))
    counts = tuple((n - e) // s + 1 for n, e, s in zip(sides, extent, stride, strict=True))
    excess = [(n - e) % s for n, e, s in zip(sides, extent, stride, strict=True)]
    x, attributes["pad"] = _trim(builder, x, pad, excess)
    tensor_shape = (x.shape[0], *counts, outputs)
    zeros = (zero_of(builder, data.zero), zero_of(builder, 0))
    if group == 1:
        op, weights = "CONV2D", filters.transpose(0, 2, 3, 1)
    elif group == channels and depth == 1:
        multiplier = outputs // group
        op, weights = "DEPTHWISE_CONV2D", filters.reshape(group, multiplier, *kernel).transpose(2, 3, 0, 1)
    else:
        op, weights = "CONV2D", _spread(filters, group).transpose(0, 2, 3, 1)
    return Sums(
        op, (x, _weights(builder, value, weights)), zeros, attributes, tensor_shape, shape,
        memory_order(len(shape), is_map=True), outputs, value.node, data.scale * _per_output(scales, outputs),
        _bias(value, operands, 2),
    )  # fmt: skip


def _transposed_convolution(
    builder: Builder, value: Number, operands: Sequence[Integers | Constant | None]
) -> Sums:
    data, integers, scales = _centred(value, operands)
    attributes = value.attributes
    if len(value.shape) != 4:
        raise refuse(value, "its operand is no feature map of two axes of positions")
    if attributes["group"] != 1 or any(each != 1 for each in attributes["dilations"]):
        raise refuse(value, "has groups or dilations")
    data = as_map(data, builder)
    pads, more = attributes["pads"], attributes["output_padding"]
    out_pad = (-pads[0], more[0] - pads[2], -pads[1], more[1] - pads[3])
    weights = _weights(builder, value, integers.transpose(1, 2, 3, 0))
    outputs = value.shape[1]
    zeros = (zero_of(builder, data.zero), zero_of(builder, 0))
    order = memory_order(4, is_map=True)
    return Sums(
        "TRANSPOSE_CONV2D", (data.tensor, weights), zeros, {
            "out_pad": out_pad, "stride": tuple(attributes["strides"]), "local_bound": False, "acc_type": "int32",
        }, tuple(value.shape[axis] for axis in order), value.shape, order, outputs, value.node,
        data.scale * _per_output(scales, outputs), _bias(value, operands, 2),
    )  # fmt: skip


def _spread(filters: Array, group: int) -> Array:
    """Filters of groups as those of one group, with zeros for the channels of the others."""
    outputs, depth, *kernel = filters.shape
    whole = np.zeros((outputs, depth * group, *kernel), filters.dtype)
    for number in range(group):
        rows = slice(number * outputs // group, (number + 1) * outputs // group)
        whole[rows, number * depth : (number + 1) * depth] = filters[rows]
    return whole


def _per_output(scales: Array, outputs: int) -> Array:
    return scales.reshape(-1).astype(np.float64) if scales.size in (1, outputs) else scales


def _planar(numbers: Sequence[int], first: int) -> tuple[int, int]:
    return (first, int(numbers[0])) if len(numbers) == 1 else (int(numbers[0]), int(numbers[1]))


def _pairs(pads: Sequence[int], axis: int) -> tuple[int, int]:
    return int(pads[axis]), int(pads[axis + len(pads) // 2])


def scaled_channels(builder: Builder, value: Number, data: Integers, factors: Array, offsets: Array) -> Sums:
    """Each channel times a factor, plus an offset: a depthwise convolution of 1x1, so that it is rounded once.

    Its weights are as large as they may be, for the offset is a multiple of a product with one of them.
    """
    if len(data.shape) not in (3, 4) or data.columns is not None:
        raise refuse(value, "is no feature map with channels")
    x = _with_height(builder, as_map(data, builder).tensor)
    channels = x.shape[-1]
    weights = builder.constant((_LARGEST_WEIGHT * np.sign(factors)).reshape(1, 1, channels, 1), "int8", "weights")
    return Sums(
        "DEPTHWISE_CONV2D", (x, weights), (zero_of(builder, data.zero), zero_of(builder, 0)), _POINTWISE, x.shape,
        value.shape, memory_order(len(value.shape), is_map=True), channels, value.node,
        data.scale * np.where(factors == 0, 1.0, np.abs(factors)) / _LARGEST_WEIGHT, offsets,
    )  # fmt: skip


def _with_height(builder: Builder, x: Tensor) -> Tensor:
    if len(x.shape) == 4:
        return x
    shape = (x.shape[0], 1, *x.shape[1:])
    return builder.add("RESHAPE", [x, builder.sizes(*shape)], x.dtype, shape)


def _trim(builder: Builder, x: Tensor, pad: tuple[int, ...], excess: Sequence[int]) -> tuple[Tensor, tuple[int, ...]]:
    """The map and its padding without the rows and columns at the end that no window reads."""
    pads, sizes = list(pad), list(x.shape)
    for axis, rest in enumerate(excess):
        taken = min(rest, pads[2 * axis + 1])
        pads[2 * axis + 1] -= taken
        sizes[1 + axis] -= rest - taken
    if tuple(sizes) != x.shape:
        start = builder.sizes(*(0 for _ in sizes))
        x = builder.add("SLICE", [x, start, builder.sizes(*sizes)], x.dtype, sizes)
    return x, tuple(pads)


def _matrix_product(builder: Builder, value: Number, operands: Sequence[Integers | Constant | None]) -> Sums:
    if isinstance(operands[0], Integers) and isinstance(operands[1], Integers):
        return _product_of_two(builder, value, operands[0], operands[1])
    data, integers, scales = _centred(value, operands)
    is_gemm = value.op == "Gemm"
    if is_gemm and (value.attributes["transA"] or value.attributes["alpha"] != 1 or value.attributes["beta"] != 1):
        raise refuse(value, "has factors or a transposed operand")
    if integers.ndim != 2:
        raise refuse(value, "has weights of more than two axes")
    columns = integers if is_gemm and value.attributes["transB"] else integers.T
    if data.columns is not None:
        columns = columns[:, data.columns]
    else:
        data = reorder(builder, data, tuple(range(len(data.shape))))
    outputs, depth = columns.shape
    rows = prod(data.shape[:-1])
    shape = (1, 1, rows, depth)
    x = data.tensor
    if x.shape != shape:
        x = builder.add("RESHAPE", [x, builder.sizes(*shape)], "int8", shape)
    weights = _weights(builder, value, columns.reshape(outputs, 1, 1, depth))
    zeros = (zero_of(builder, data.zero), zero_of(builder, 0))
    return Sums(
        "CONV2D", (x, weights), zeros, _POINTWISE, (1, 1, rows, outputs), value.shape,
        tuple(range(len(value.shape))), outputs, value.node, data.scale * _per_output(scales, outputs),
        _bias(value, operands, 2) if is_gemm else np.zeros(1),
    )  # fmt: skip


def _product_of_two(builder: Builder, value: Number, left: Integers, right: Integers) -> Sums:
    if value.op != "MatMul" or left.columns is not None or right.columns is not None:
        raise refuse(value, "its weights are no constants")
    if left.shape[:-2] != right.shape[:-2] or len(left.shape) < 2:
        raise refuse(value, "its operands are broadcast")
    tensors = []
    for each in (left, right):
        plain = reorder(builder, each, tuple(range(len(each.shape))))
        shape = (prod(each.shape[:-2]), *each.shape[-2:])
        reshaped = plain.tensor
        if reshaped.shape != shape:
            reshaped = builder.add("RESHAPE", [reshaped, builder.sizes(*shape)], "int8", shape)
        tensors.append(reshaped)
    zeros = (zero_of(builder, left.zero), zero_of(builder, right.zero))
    result = (tensors[0].shape[0], left.shape[-2], right.shape[-1])
    return Sums(
        "MATMUL", tuple(tensors), zeros, {}, result, value.shape, tuple(range(len(value.shape))), result[-1],
        value.node, np.asarray([left.scale * right.scale]), np.zeros(1),
    )  # fmt: skip


def is_map_mean(value: Number) -> bool:
    """Whether a ReduceMean is one over height and width of a feature map whose window the NPU has."""
    data = value.operands[0]
    if value.op != "ReduceMean" or not isinstance(data, Number | Integers) or len(data.shape) != 4:
        return False
    axes = value.attributes["axes"]
    return axes is not None and sorted(axis % 4 for axis in axes) == [2, 3] and max(data.shape[2:]) <= _LARGEST_WINDOW


def _mean(builder: Builder, value: Number, operands: Sequence[Integers | Constant | None]) -> Sums:
    """A mean as a depthwise convolution with ones: it is rounded once, as the original is."""
    data = operands[0]
    if not isinstance(data, Integers) or len(data.shape) not in (3, 4):
        raise refuse(value, "is no mean over the positions of a feature map")
    pads: tuple[int, ...] = (0, 0, 0, 0)
    includes_pads = True
    if value.op == "AveragePool":
        kernel, stride = (_planar(value.attributes[name], 1) for name in ("kernel_shape", "strides"))
        pads, includes_pads = tuple(value.attributes["pads"]), bool(value.attributes["count_include_pad"])
        pads = (0, pads[0], 0, pads[1]) if len(pads) == 2 else pads
        if any(each != 1 for each in value.attributes.get("dilations", ()) or ()):
            raise refuse(value, "has dilated windows")
    else:
        kernel, stride = _planar(data.shape[2:], 1), (1, 1)
    if max(kernel) > _LARGEST_WINDOW:
        raise refuse(value, f"its window has a side of more than {_LARGEST_WINDOW}")
    x = _with_height(builder, as_map(data, builder).tensor)
    counts = _planar(value.shape[2:], 1) if value.op == "AveragePool" else (1, 1)
    # Rows and columns behind the padding, which windows read if their number is rounded up; below 0: that none reads.
    beyond = [(n - 1) * s + k - size - pads[axis] - pads[axis + 2] for axis, (n, s, k, size) in
              enumerate(zip(counts, stride, kernel, x.shape[1:3], strict=True))]  # fmt: skip
    addends = _addends(x.shape[1:3], pads, beyond, kernel, stride, counts_pads=includes_pads)
    wide = (pads[0], pads[2] + max(0, beyond[0]), pads[1], pads[3] + max(0, beyond[1]))
    x, pad = _trim(builder, x, wide, [max(0, -each) for each in beyond])
    channels = x.shape[-1]
    ones = builder.constant(np.ones((*kernel, channels, 1)), "int8", f"{value.node}.ones")
    attributes = {"pad": pad, "stride": stride, "dilation": (1, 1), "local_bound": False, "acc_type": "int32"}
    zeros = (zero_of(builder, data.zero), zero_of(builder, 0))
    is_map = len(value.shape) == len(data.shape)
    return Sums(
        "DEPTHWISE_CONV2D", (x, ones), zeros, attributes, (x.shape[0], *counts, channels), value.shape,
        memory_order(len(value.shape), is_map=is_map), channels, value.node,
        np.asarray([data.scale / addends.max()]), np.zeros(1),
        addends=None if (addends == addends.max()).all() else addends,
    )  # fmt: skip


def _addends(
    sizes: Sequence[int], pads: Sequence[int], beyond: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
    *, counts_pads: bool,
) -> Array:  # fmt: skip
    """How many numbers each window averages, as (1, rows, columns, 1)."""
    sides = []
    for axis in range(2):
        inner = np.full(pads[axis] + sizes[axis] + pads[axis + 2], 1.0)
        if not counts_pads:
            inner[: pads[axis]] = 0.0
            inner[pads[axis] + sizes[axis] :] = 0.0
        read = np.pad(inner, (0, max(0, beyond[axis])))
        sides.append(np.lib.stride_tricks.sliding_window_view(read, kernel[axis])[:: stride[axis]].sum(-1))
    result: Array = np.maximum(np.outer(*sides), 1.0)[None, :, :, None]
    return result


__all__ = ["WEIGHTED_SUMS", "Sums", "rescale", "scaled_channels", "sums_of"]
