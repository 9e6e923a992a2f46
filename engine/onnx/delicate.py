"""Keeps operators away from shape inference that crash it if an operand has no type."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from ...ir.types import TensorType

_DELICATE = frozenset({"EyeLike", "RegexFullMatch", "TreeEnsemble", "DictVectorizer", "LabelEncoder"})
"""In onnx 1.19 to 1.23 the inference of these operators reads an operand's type without a check that it has one."""


def without_delicate_nodes(model: onnx.ModelProto, types: Mapping[str, TensorType]) -> onnx.ModelProto:
    """The model without the nodes whose inference may crash this process: delicate ones with no operand in `types`.

    The types of the other delicate operands are declared, since inference of the operand itself may fail.
    """
    if not any(node.op_type in _DELICATE for node in model.graph.node):
        return model
    from .typing import dtype_of  # with onnx-ir, which takes a while to import

    safe = onnx.ModelProto()
    safe.CopyFrom(model)
    del safe.graph.node[:]
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    declared = {value.name for value in values if value.type.WhichOneof("value")}
    for node in model.graph.node:
        operand = node.input[0] if node.input else ""
        if node.op_type not in _DELICATE or operand in types:
            safe.graph.node.append(node)
        if node.op_type in _DELICATE and operand in types and operand not in declared:
            element_type = dtype_of(types[operand].dtype)
            safe.graph.value_info.append(onnx.helper.make_tensor_value_info(operand, int(element_type), None))
            declared.add(operand)
    return safe
