"""Types of outputs that a model declares without one: ONNX demands them, and ONNX Runtime infers them.

    x: float[2, 4];  y = GroupNormalization(x, scale, bias);  outputs: y  ->  y: float

Shape inference of the whole graph gives nothing for an operator without an inference function, and nothing behind it;
and operators that crash it if an operand has no type are left out of it. So nodes are also asked one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import onnx
import onnx_ir as ir
from onnx import shape_inference
from onnx_ir import serde

from .inference_faults import without_delicate_nodes
from .typing import infer_outputs, tensor_type, type_proto
from .wellformed import ONNX_DOMAINS

_Types = Mapping[str, onnx.TypeProto]


def infer_output_types(model: ir.Model) -> bool:
    """Give outputs that are declared without a type the one that follows from the sorted nodes.

    Whether there are any. An output whose type does not follow is left to the ONNX checker.
    """
    untyped = [value for value in model.graph.outputs if value.dtype in (None, ir.DataType.UNDEFINED)]
    if untyped:
        with suppress(Exception):  # inference raises several kinds, and a model may be too large for it
            types = _infer(serde.serialize_model(model))
            for value in (value for value in untyped if value.name in types):
                value.type = serde.deserialize_type_proto_for_type(types[value.name or ""])
                value.shape = serde.deserialize_type_proto_for_shape(types[value.name or ""])
    return bool(untyped)


def _infer(model: onnx.ModelProto) -> _Types:
    """The types of values of the main graph."""
    opset = next((each.version for each in model.opset_import if each.domain in ONNX_DOMAINS), 1)
    graph = model.graph
    types = {
        tensor.name: onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims) for tensor in graph.initializer
    }
    while True:
        tensors = {name: found for name, proto in types.items() if (found := tensor_type(proto)) is not None}
        inferred = shape_inference.infer_shapes(without_delicate_nodes(model, tensors)).graph
        values = (*inferred.input, *inferred.value_info, *inferred.output)
        types |= {value.name: value.type for value in values if value.type.WhichOneof("value")}
        news: dict[str, onnx.TypeProto] = {}
        for node in graph.node:
            found_here = _infer_node(node, types | news, opset)
            news |= {name: type_ for name, type_ in found_here.items() if name not in types}
        if not news:
            return types
        types |= news
        graph.value_info.extend(onnx.ValueInfoProto(name=name, type=type_) for name, type_ in news.items())


def _infer_node(node: onnx.NodeProto, types: _Types, opset: int) -> _Types:
    """The types of a standard node's results if those of its operands are known."""
    operands = [name for name in node.input if name]
    if node.domain not in ONNX_DOMAINS or any(name not in types for name in operands):
        return {}
    inferred = infer_outputs(node, {name: types[name] for name in operands}, {}, opset) or {}
    return _same_types(node, types, opset) | {name: type_proto(type_) for name, type_ in inferred.items()}


def _same_types(node: onnx.NodeProto, types: _Types, opset: int) -> dict[str, onnx.TypeProto]:
    """The element types that a node's schema says are those of its operands."""
    if not onnx.defs.has(node.op_type, opset, ""):
        return {}
    schema = onnx.defs.get_schema(node.op_type, opset, "")
    operands = zip(node.input, schema.inputs, strict=False)
    given = {formal.type_str: types[name].tensor_type.elem_type for name, formal in operands if name}
    return {
        name: onnx.helper.make_tensor_type_proto(given[formal.type_str], None)
        for name, formal in zip(node.output, schema.outputs, strict=False)
        if name and given.get(formal.type_str)
    }
