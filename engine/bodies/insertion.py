"""New nodes of a flat graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from .flatten import FlatModel

_AXES_ARE_INPUTS = 13
"""The opset from which Squeeze, Unsqueeze and Split take axes and sizes as inputs."""
_LISTS = {"Squeeze": "axes", "Unsqueeze": "axes", "Split": "split"}


@dataclass(frozen=True)
class Insertion:
    """Puts nodes in front of one."""

    flat: FlatModel
    before: ir.Node

    def add(self, op_type: str, inputs: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
        """The first result of a new node; lists are attributes or inputs, as the model's opset has them."""
        return self.add_all(op_type, inputs, 1, **attributes)[0]

    def add_all(
        self, op_type: str, inputs: Sequence[ir.Value | None], count: int, **attributes: Any
    ) -> Sequence[ir.Value]:
        """The results of a new node."""
        operands, name = list(inputs), _LISTS.get(op_type)
        if name is not None and self.flat.model.opset >= _AXES_ARE_INPUTS:
            operands.append(self.store(np.asarray(attributes.pop(name), np.int64)))
        outputs = [ir.Value(name=self.flat.fresh(op_type)) for _ in range(count)]
        self.flat.graph.insert_before(self.before, ir.node(op_type, operands, attributes=attributes, outputs=outputs))
        return outputs

    def reshape(self, value: ir.Value, shape: ir.Value) -> ir.Value:
        """The elements of a value in another shape."""
        return self.add("Reshape", [value, shape])

    def store(self, array: np.ndarray[Any, Any]) -> ir.Value:
        """A constant."""
        return self.add("Constant", [], value=ir.tensor(array))

    def replace(self, output: ir.Value, value: ir.Value) -> None:
        """Let an output, which belongs to no node any more, be a copy of a value."""
        self.flat.graph.insert_before(self.before, ir.Node("", "Identity", [value], outputs=[output]))
