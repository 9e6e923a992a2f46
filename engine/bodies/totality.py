"""Operators that may run where they would not have run: they cannot fail, and give the same every time."""

from __future__ import annotations

import onnx_ir as ir

from ...ir.operators import SCHEMAS
from ..onnx.nodes import is_pure


def is_total(node: ir.Node) -> bool:
    """Whether a node runs on any operands of its types: shapes are known and nothing depends on elements."""
    row = SCHEMAS.get(node.op_type)
    if row is None or not row.is_total or not is_pure(node):
        return False
    operands = [value for value in node.inputs if value is not None]
    if any(value.dtype is None or value.dtype == ir.DataType.STRING for value in operands):
        return False
    return len(operands) <= 1 or all(value.shape is not None and value.shape.is_static() for value in operands)
