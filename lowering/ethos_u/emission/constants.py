"""Constants of a model as numbers, and as the integers that they were dequantised from."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...base.errors import LoweringError
from ...base.weights import Weights
from ..tosa.graph import Array, Builder
from .values import Constant, Integers, Number

_LARGEST = 127


class ConstantReader:
    """Reads constants, each once."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._producers = {out.name: node for node in weights.model.graph for out in node.outputs}
        self._known: dict[str, Constant] = {}

    def constant(self, name: str) -> Constant:
        """The constant of a name. Raises LoweringError if it cannot be computed."""
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def _read(self, name: str) -> Constant:
        node = self._producers.get(name)
        names = [value.name if value is not None else None for value in node.inputs] if node is not None else []
        if node is not None and node.op_type == "DequantizeLinear":
            return self._dequantised(node, names)
        if node is not None and node.op_type == "Transpose" and names[0]:
            inner = self.constant(names[0])
            if inner.integers is not None and inner.scales is not None:
                perm = node.attributes.get_ints("perm", tuple(range(inner.numbers.ndim))[::-1])
                scales = inner.scales if inner.scales.size == 1 else inner.scales.transpose(perm)
                return Constant(inner.numbers.transpose(perm), inner.integers.transpose(perm), scales)
        return Constant(self._weights[name])

    def _dequantised(self, node: ir.Node, names: list[str | None]) -> Constant:
        arrays = [self._weights[name] for name in names if name]
        integers, scales = arrays[0].astype(np.int32), arrays[1].astype(np.float64)
        axis = node.attributes.get_int("axis", 1)
        if len(arrays) > 2:
            integers = integers - _along(arrays[2].astype(np.int32), integers, axis)
        scales = _along(scales, integers, axis)
        return Constant((integers * scales).astype(np.float32), integers, scales)

    def integers(self, builder: Builder, constant: Constant, reader: Number) -> Integers:
        """A constant operand of a sum or product as integers of 8 bits."""
        numbers, integers = constant.numbers, constant.integers
        scales = constant.scales
        if integers is None or scales is None or scales.size > 1 or np.abs(integers).max(initial=0) > _LARGEST + 1:
            largest = float(np.abs(numbers).max(initial=0.0))
            if not np.isfinite(largest):
                raise LoweringError(f"node {reader.node!r} ({reader.op}): a constant is not finite")
            scale = largest / _LARGEST or 1.0
            integers = np.rint(numbers / scale)
        else:
            scale = float(scales.reshape(()))
        tensor = builder.constant(np.clip(integers, -_LARGEST - 1, _LARGEST), "int8", f"{reader.node}.constant")
        return Integers(tensor, numbers.shape, tuple(range(numbers.ndim)), scale, 0)


def _along(parameter: Array, x: Array, axis: int) -> Array:
    if parameter.size == 1:
        return parameter.reshape((1,) * x.ndim)
    return parameter.reshape([-1 if each == axis % x.ndim else 1 for each in range(x.ndim)])
