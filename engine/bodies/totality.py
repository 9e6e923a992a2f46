"""Operators that may run where they would not have run: they cannot fail, and give the same every time."""

from __future__ import annotations

import onnx_ir as ir

from ...ir.operators import ELEMENTWISE
from ..onnx.nodes import is_pure

_TOTAL = (
    ELEMENTWISE - {"Div", "Mod", "Pow", "BitShift", "Where"} | {"MatMul", "Transpose", "Shape", "Size", "Identity",
    "Softmax", "LogSoftmax", "Not", "Cast", "Conv", "LayerNormalization"}
)  # fmt: skip
"""Operators that run on every operand of fitting shape. Divisions of integers by zero end the process."""


def is_total(node: ir.Node) -> bool:
    """Whether a node runs on any operands of its types: shapes are known and nothing depends on elements."""
    if node.op_type not in _TOTAL or not is_pure(node):
        return False
    operands = [value for value in node.inputs if value is not None]
    if any(value.dtype is None or value.dtype == ir.DataType.STRING for value in operands):
        return False
    return len(operands) <= 1 or all(value.shape is not None and value.shape.is_static() for value in operands)
