"""Types of single nodes, from what is known of their operands.

Shape inference of a whole graph stops at a Reshape whose target is computed. Node by node, in order, such a target is
known by the time its Reshape comes, however many of them follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper
from onnx_ir import serde

from ...ir.types import TensorType
from .evaluation import evaluate_by_reference
from .nodes import has_body, is_standard
from .typing import dtype_of, tensor_type

Arrays = Mapping[str, "np.ndarray[Any, Any]"]
_WHOLE = frozenset(("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))


def infer_node_types(
    node: ir.Node, types: Mapping[str, TensorType], constants: Arrays, opsets: Mapping[str, int]
) -> dict[str, TensorType]:
    """The outputs that are fully known because all operands are; none where nothing new is."""
    if not is_standard(node) or has_body(node) or all(_is_static(types, o) for o in node.outputs if o.name):
        return {}
    operands = {i.name: types.get(i.name) for i in node.inputs if i is not None and i.name}
    if not all(type_ is not None and type_.is_static for type_ in operands.values()):
        return {}
    protos = {name: _proto(type_) for name, type_ in operands.items() if type_ is not None}
    data = {name: numpy_helper.from_array(constants[name], name) for name in operands if name in constants}
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get("", 1), "")
        found = onnx.shape_inference.infer_node_outputs(schema, serde.serialize_node(node), protos, data, None, imports)
    except (onnx.defs.SchemaError, onnx.shape_inference.InferenceError, RuntimeError, KeyError):
        return {}  # whoever infers the whole graph says what is wrong with it
    known = {name: tensor_type(proto) for name, proto in found.items()}
    return {name: t for name, t in known.items() if t is not None and t.is_static and "?" not in (t.shape or ())}


def compute_integers(
    node: ir.Node, types: Mapping[str, TensorType], constants: Arrays, opsets: Mapping[str, int]
) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs of a node of constant operands, where they are integers: what shapes are computed from."""
    types_ = [types.get(o.name or "") for o in node.outputs]
    if not all(type_ is not None and type_.dtype in _WHOLE for type_ in types_):
        return {}
    operands = [i.name for i in node.inputs if i is not None and i.name]
    needed = {name: constants[name] for name in operands if name in constants}
    names = [o.name for o in node.outputs if o.name]
    return evaluate_by_reference([serde.serialize_node(node)], needed, names, opsets)


def _is_static(types: Mapping[str, TensorType], value: ir.Value) -> bool:
    type_ = types.get(value.name or "")
    return type_ is not None and type_.is_static


def _proto(type_: TensorType) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(int(dtype_of(type_.dtype)), type_.shape)
