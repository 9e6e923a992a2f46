"""Operators whose shape inference ends the process where it knows no type for an operand, kept away from it."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from ...ir.types import TensorType
from .typing import dtype_of

_DELICATE = frozenset({"EyeLike", "RegexFullMatch", "TreeEnsemble", "DictVectorizer", "LabelEncoder"})
"""Those that onnx 1.19 to 1.23 lets read the type of an operand without asking if there is one."""


def without_delicate_nodes(model: onnx.ModelProto, types: Mapping[str, TensorType]) -> onnx.ModelProto:
    """The model without the nodes whose inference may end this process, but for those whose operand is of a type known.

    That type becomes a declared one: where inference of the operand fails, it would be unknown once more.
    """
    if not any(node.op_type in _DELICATE for node in model.graph.node):
        return model
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
