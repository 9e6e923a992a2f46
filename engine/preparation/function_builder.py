"""Operators as local functions in the making."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from ...ir.types import TensorType
from ..onnx.nodes import attribute_of, constant_node, stored_input

_AXES_AS_INPUT = 13
"""The opset since which a conversion takes scales along an axis and Unsqueeze its axes as an input."""


@dataclass
class FunctionBuilder:
    """A function in the making: its node, the types around it, and the nodes so far."""

    node: ir.Node
    types: Mapping[str, TensorType]
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    prefix: str = "v"
    """The names of the values that nodes compute begin with it: those of a body differ from those around it."""

    def name(self, place: int) -> str:
        """The name of an input in the function; "" if it is absent."""
        inputs = self.node.inputs
        return f"x{place}" if place < len(inputs) and inputs[place] is not None else ""

    def type_of(self, place: int) -> TensorType:
        """The type of an input. Raises UnknownForm."""
        value = self.node.inputs[place] if self.name(place) else None
        type_ = None if value is None else self.types.get(value.name or "")
        if type_ is None or type_.shape is None:
            raise UnknownForm
        return type_

    def rank(self, place: int) -> int:
        """The number of axes of an input. Raises UnknownForm."""
        return len(self.type_of(place).shape or ())

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute of the node."""
        return attribute_of(self.node, name, default)

    def require_attributes(self, **expected: Any) -> None:
        """Raise UnknownForm if the node has other values for these attributes."""
        if any(self.attribute(name, value) != value for name, value in expected.items()):
            raise UnknownForm

    def attributes(self, *names: str) -> dict[str, Any]:
        """Those of these attributes that the node gives."""
        return {name: self.node.attributes[name].value for name in names if name in self.node.attributes}

    def add(self, operator: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """A node more; returns the name of its result."""
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        result = result or f"{self.prefix}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, given, [result], **attributes))
        return result

    def constant(self, value: Any, dtype: str) -> str:
        """The name of a constant."""
        name = f"{self.prefix}{len(self.nodes)}"
        self.nodes.append(constant_node(name, value, dtype))
        return name

    def zero_point(self, place: int) -> str:
        """The name of a zero point; "" if it is 0 everywhere."""
        array = stored_input(self.node, place)
        return "" if array is not None and not np.any(array) else self.name(place)

    def dequantise(self, place: int) -> str:
        """The numbers that an input stands for; behind it stand its scale and its zero point."""
        return self.add("DequantizeLinear", *(self.name(place + i) for i in range(3)))

    def quantise(self, number: str, scale: str, zero: str) -> None:
        """The first result of the function."""
        self.add("QuantizeLinear", number, scale, zero, result="y0")

    def quantise_with_offset(self, number: str, scale_place: int) -> None:
        """The first result of the function: the zero point is added before rounding, as some kernels of ONNX Runtime
        do. That differs from QuantizeLinear halfway between two integers, if the zero point is odd."""
        scale, zero = self.name(scale_place), self.name(scale_place + 1)
        array = stored_input(self.node, scale_place + 1) if zero else None
        if not zero or (array is not None and not np.any(array % 2)):
            self.quantise(number, scale, zero)
            return
        offset = self.as_number(zero)
        moved = self.add("Add", self.add("Div", number, scale), offset)
        self.quantise(moved, self.constant(1, "float32"), self.constant(0, self.type_of(0).dtype))

    def spread(self, listed: str, place: int, axes: int) -> str:
        """An input that may have a value for each channel, with axes of one element behind it."""
        if self.rank(place) != 1 or not axes:
            return listed
        return self.spread_at(listed, range(1, 1 + axes))

    def spread_at(self, name: str, places: Sequence[int]) -> str:
        """A value with axes of one element at these places."""
        if self.opset < _AXES_AS_INPUT:
            return self.add("Unsqueeze", name, axes=list(places))
        return self.add("Unsqueeze", name, self.constant(places, "int64"))

    def as_number(self, integer: str) -> str:
        """An integer as float32."""
        return self.add("Cast", integer, to=onnx.TensorProto.FLOAT)

    def scale(self, total: str, factors: list[str], divisor: str = "") -> str:
        """A sum of 32 bits times scales, which are multiplied first."""
        return self.scale_number(self.as_number(total), factors, divisor)

    def scale_number(self, number: str, factors: list[str], divisor: str = "") -> str:
        """The same of a number."""
        factor = factors[0]
        for other in factors[1:]:
            factor = self.add("Mul", factor, other)
        if divisor:
            factor = self.add("Div", factor, divisor)
        return self.add("Mul", number, factor)


class UnknownForm(Exception):
    """There is no function for a form of an operator, or not enough is known of its operands."""
