"""Softmax and LayerNormalization on integers of 32 bits, with tables of 16 bits for what is not linear.

Rows of numbers are the last axis of (1, 1, rows, columns). Each value keeps enough bits for a result within a step of
that of floats; the comments have the units, x being the integers of the operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log2, prod, sqrt

import numpy as np

from ..tosa.graph import Array, Attribute, Builder, ElementType, Tensor
from .requantize import Target, add_rescale, clamp
from .values import Constant, Integers, Number, refuse, reorder

NORMALIZATIONS = frozenset({"Softmax", "LayerNormalization"})
_ONE = 32767
"""The integer for 1 in tables of 16 bits."""
_INTERPOLATED = 7
"""Bits that a TABLE of 16 bits puts behind its entries."""
_ENTRIES = 513
_LONGEST_ROW = 1 << 16
"""Numbers of 15 bits that are summed up in 32 bits."""


def normalize(
    builder: Builder, value: Number, operands: Sequence[Integers | Constant | None], target: Target
) -> Integers:
    """The rounded result. Raises LoweringError for a form that the NPU does not have."""
    data = operands[0]
    if not isinstance(data, Integers) or data.columns is not None:
        raise refuse(value, "its operand is no quantised feature map")
    if value.op == "Softmax":
        return _softmax(builder, value, data, target)
    return _layer_norm(builder, value, data, operands[1:], target)


@dataclass(frozen=True)
class _Rows:
    """Arithmetic on rows; operands of one column broadcast."""

    builder: Builder
    node: str

    def apply(self, op: str, *operands: Tensor, dtype: ElementType = "int32", **attributes: Attribute) -> Tensor:
        shape = np.broadcast_shapes(*(each.shape for each in operands if len(each.shape) == 4))
        return self.builder.add(op, operands, dtype, shape, self.node, **attributes)

    def constant(self, data: object) -> Tensor:
        array = np.asarray(data, np.int64)
        return self.builder.constant(array.reshape(1, 1, 1, array.size), "int32", f"{self.node}.constant")

    def sub(self, a: Tensor, b: Tensor) -> Tensor:
        return self.apply("SUB", a, b)

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        return self.apply("MUL", a, b, self.builder.constant([0], "int8", "shift"))

    def scaled(self, x: Tensor, factor: float, dtype: ElementType = "int32", zero: int = 0) -> Tensor:
        return add_rescale(self.builder, x, factor, zero, 0, dtype)

    def reduced(self, op: str, x: Tensor) -> Tensor:
        dtype: ElementType = "int32" if op == "REDUCE_SUM" else "int8"
        attributes: dict[str, Attribute] = {} if op == "REDUCE_SUM" else {"nan_mode": "PROPAGATE"}
        return self.builder.add(op, [x], dtype, (*x.shape[:-1], 1), self.node, axis=3, **attributes)

    def shifted(self, x: Tensor, by: Tensor) -> Tensor:
        """To the right."""
        return self.apply("ARITHMETIC_RIGHT_SHIFT", x, by, round=False)

    def looked_up(self, x: Tensor, entries: Array) -> Tensor:
        """Of integers i * 128 + j of 16 bits the entry i + 256, and j / 128 of the way to the next one."""
        table = self.builder.constant(np.rint(entries), "int16", f"{self.node}.table")
        return self.scaled(self.apply("TABLE", x, table), 2.0**-_INTERPOLATED)


def _in_rows(builder: Builder, data: Integers, axes: Sequence[int]) -> tuple[Tensor, tuple[int, ...]]:
    """The integers as rows of these axes, which come last; and the order of all axes then."""
    order = (*(axis for axis in data.order if axis not in axes), *axes)
    plain = reorder(builder, data, order)
    columns = prod(data.shape[axis] for axis in axes)
    shape = (1, 1, prod(data.shape) // columns, columns)
    x = plain.tensor
    return (x if x.shape == shape else builder.add("RESHAPE", [x, builder.sizes(*shape)], "int8", shape)), order


def _finish(
    rows: _Rows, value: Number, x: Tensor, factor: float, target: Target, order: tuple[int, ...]
) -> Integers:
    builder = rows.builder
    tensor = clamp(builder, add_rescale(builder, x, factor, 0, target.zero, "int8", value.node), target)
    shape = [value.shape[axis] for axis in order]
    if tensor.shape != tuple(shape):
        tensor = builder.add("RESHAPE", [tensor, builder.sizes(*shape)], "int8", shape)
    return Integers(tensor, value.shape, order, target.scale, target.zero)


def _softmax(builder: Builder, value: Number, data: Integers, target: Target) -> Integers:
    rows = _Rows(builder, value.node)
    x, order = _in_rows(builder, data, [int(value.attributes["axis"]) % len(value.shape)])
    if x.shape[-1] > _LONGEST_ROW:
        raise refuse(value, f"adds more than {_LONGEST_ROW} numbers up")
    highest = rows.reduced("REDUCE_MAX", x)
    below = rows.sub(rows.scaled(x, 1.0), rows.scaled(highest, 1.0))  # -255 to 0
    powers = np.exp(data.scale * np.minimum(np.arange(_ENTRIES) - 256.0, 0.0)) * _ONE
    power = rows.looked_up(rows.scaled(below, 128.0, "int16"), powers)  # e^(x - highest) * _ONE
    total = rows.reduced("REDUCE_SUM", power)  # of _ONE and more: 1 to 17 zeros lead
    zeros = rows.apply("CLZ", total)
    leading = rows.apply("LOGICAL_LEFT_SHIFT", total, rows.sub(zeros, rows.constant(1)))  # 2^30 to 2^31
    place = rows.scaled(rows.sub(leading, rows.constant(3 << 29)), 2.0**-14, "int16")
    inverse = rows.looked_up(place, _ONE / (1.0 + np.arange(_ENTRIES) / 512.0))  # 2^30 / leading * _ONE
    # power * inverse = share * _ONE * 2^(31 - zeros), of which 10 bits are kept behind those of _ONE.
    share = rows.shifted(rows.mul(power, inverse), rows.sub(rows.constant(21), zeros))
    return _finish(rows, value, share, 1.0 / (_ONE * 1024.0 * target.scale), target, order)


def _layer_norm(
    builder: Builder, value: Number, data: Integers, parameters: Sequence[Integers | Constant | None], target: Target
) -> Integers:
    rank = len(value.shape)
    axes = range(int(value.attributes["axis"]) % rank, rank)
    numbers = [each.numbers.astype(np.float64) if isinstance(each, Constant) else None for each in parameters]
    if any(given is None and each is not None for given, each in zip(numbers, parameters, strict=True)):
        raise refuse(value, "its scale or shift is no constant")
    rows = _Rows(builder, value.node)
    x, order = _in_rows(builder, data, axes)
    count = x.shape[-1]
    gain, shift = (_spread(given, default, value.shape[axes[0] :]) for given, default in
                   zip((*numbers, None, None)[:2], (1.0, 0.0), strict=True))  # fmt: skip
    total = rows.reduced("REDUCE_SUM", rows.scaled(x, 1.0, zero=data.zero))
    centred = rows.sub(rows.scaled(x, float(count), zero=data.zero), total)  # (x - mean) * count
    # Squares of (x - mean) * 2^bits add up to at most count / 4 * 255^2 * 4^bits, half of them at either end.
    bits = floor((30.9 - log2(count * 255.0**2 / 4)) / 2)
    if bits < 0:
        raise refuse(value, f"squares of {count} numbers do not fit 32 bits")
    small = rows.scaled(centred, 2.0**bits / count)
    epsilon = float(value.attributes["epsilon"]) * count * 4.0**bits / data.scale**2
    least = int(np.clip(np.rint(epsilon), 1, 1 << 24))
    squares = rows.apply("ADD", rows.reduced("REDUCE_SUM", rows.mul(small, small)), rows.constant(least))
    half = rows.shifted(rows.sub(rows.apply("CLZ", squares), rows.constant(1)), rows.constant(1))  # 0 to 15
    leading = rows.apply("LOGICAL_LEFT_SHIFT", squares, rows.apply("ADD", half, half))  # 2^29 to 2^31
    place = rows.scaled(rows.sub(leading, rows.constant(1 << 30)), 2.0**-15, "int16")
    at = np.maximum(1.0 + (np.arange(_ENTRIES) - 256) / 256, 0.5)  # leading / 2^30
    root = rows.looked_up(place, (1 << 14) / np.sqrt(at))
    # 1 / sqrt(squares) = root * 2^(half - 29), and 1 / deviation is sqrt(count) * 2^bits times as much.
    wide = rows.mul(rows.scaled(centred, 256.0 / count), root)
    normal = rows.shifted(wide, rows.sub(rows.constant(15), half))
    unit = sqrt(count) * 2.0 ** (bits - 22)
    # No number is farther from the mean than sqrt(count) deviations: this many fill 15 bits.
    fine = sqrt(count) * 2.0**-15
    step = max(float(np.abs(gain).max(initial=0.0)) * 2.0**-14, float(np.abs(shift).max(initial=0.0)) * 2.0**-29 / fine)
    if step == 0.0:
        raise refuse(value, "its scale and shift are 0")
    scaled = rows.mul(rows.scaled(normal, unit / fine), rows.constant(np.rint(gain / step)))
    moved = rows.apply("ADD", scaled, rows.constant(np.rint(shift / (step * fine))))
    return _finish(rows, value, moved, step * fine / target.scale, target, order)


def _spread(numbers: Array | None, default: float, shape: tuple[int, ...]) -> Array:
    """A parameter of each column."""
    result: Array = np.broadcast_to(default if numbers is None else numbers, shape).reshape(-1)
    return result
