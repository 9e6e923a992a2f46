"""From ONNX types to `TensorType` and back, and the types that ONNX infers for the outputs of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import shape_inference

from ...ir.types import Dimension, TensorType

NAMELESS = "?"
"""The dimension of a type of which nothing is known; one is not equal to another."""
_FAILURES = (onnx.checker.ValidationError, onnx.defs.SchemaError, RuntimeError, KeyError, ValueError)
"""The errors of onnx if it infers nothing from the types of a node's operands."""


def dtype_name(dtype: ir.DataType) -> str:
    """numpy's name of an element type: ``float32``, ``int64``, ``bool``, ``string``, ``bfloat16`` ..."""
    if dtype == ir.DataType.STRING:
        return "string"
    return str(dtype.numpy().name)


def dtype_of(name: str) -> ir.DataType:
    """The reverse of `dtype_name`."""
    return _BY_NAME[name]


_BY_NAME = {dtype_name(d): d for d in ir.DataType if d not in (ir.DataType.UNDEFINED,)}


def tensor_type(proto: onnx.TypeProto) -> TensorType | None:
    """The type of a tensor value; None for sequences, maps, optionals and unset types."""
    if not proto.HasField("tensor_type") or not proto.tensor_type.elem_type:
        return None
    tensor = proto.tensor_type
    dtype = dtype_name(ir.DataType(tensor.elem_type))
    if not tensor.HasField("shape"):
        return TensorType(dtype, None)
    return TensorType(dtype, tuple(_dimension(d) for d in tensor.shape.dim))


def declare_type(value: ir.Value, type_: TensorType | None) -> None:
    """Give a value a type and a shape unless it states its own; nothing if the type is not known."""
    if type_ is not None:
        value.type = value.type or ir.TensorType(dtype_of(type_.dtype))
        value.shape = value.shape or (None if type_.shape is None else ir.Shape(type_.shape))


def type_proto(type_: TensorType) -> onnx.TypeProto:
    """The reverse of `tensor_type`."""
    return onnx.helper.make_tensor_type_proto(int(dtype_of(type_.dtype)), type_.shape)


def infer_outputs(
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    constants: Mapping[str, np.ndarray[Any, Any]],
    opset: int,
) -> dict[str, TensorType] | None:
    """The types of the tensors that a node of ONNX returns; None if ONNX refuses the types of its operands.

    `types` and `constants` are those of the operands, by name. {} if nothing follows from them.
    """
    data = {name: onnx.numpy_helper.from_array(constants[name], name) for name in types if name in constants}
    imports = [onnx.helper.make_opsetid("", opset)]
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
        results = shape_inference.infer_node_outputs(schema, node, dict(types), data, None, imports)
    except shape_inference.InferenceError:
        return None
    except _FAILURES:
        return {}
    return {name: type_ for name, proto in results.items() if (type_ := tensor_type(proto)) is not None}


def _dimension(dimension: onnx.TensorShapeProto.Dimension) -> Dimension:
    """A size or a symbol. A negative size, which inference gives a window larger than its operand, is none."""
    if dimension.HasField("dim_value") and dimension.dim_value >= 0:
        return int(dimension.dim_value)
    return str(dimension.dim_param) or NAMELESS


def constant_type(tensor: ir.TensorProtocol) -> TensorType:
    """The type of a stored tensor."""
    return TensorType(dtype_name(tensor.dtype), tuple(int(d) for d in tensor.shape.numpy()))


def keep_declared_shapes(result: ir.Model, original: ir.Model) -> None:
    """Give the outputs of a result the sizes and names that the original declares for their dimensions."""
    for output, declared in zip(result.graph.outputs, original.graph.outputs, strict=True):
        given, found = declared.shape, output.shape
        if given is not None and found is not None and len(given) == len(found):
            pairs = zip(given, found, strict=True)
            output.shape = ir.Shape([f if isinstance(g, ir.SymbolicDim) and g.value is None else g for g, f in pairs])


def drop_annotations(result: ir.Model, original: ir.Model) -> None:
    """Remove the types of intermediate values if the original carries none either: they only make files larger."""
    if any(o.shape is not None for n in original.graph.all_nodes() for o in n.outputs if not o.is_graph_output()):
        return
    for node in result.graph.all_nodes():
        for output in node.outputs:
            if not output.is_graph_output():
                output.type = output.shape = None
