"""The element types of all values, in bodies too: ``model -> names to element types``.

Loops need no shapes, and shape inference stops where a shape depends on data; element types never do.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

import onnx
from onnx import defs, helper

from ..base.errors import LoweringError
from ..plan.kernel_nodes import KERNEL_DOMAIN, signature_of

Types = MutableMapping[str, str]

_BY_ATTRIBUTE = ("to", "dtype", "output_datatype", "output_dtype")


def type_name(elem_type: int) -> str:
    """numpy's name of an element type of ONNX; ``string`` of text."""
    return "string" if elem_type == onnx.TensorProto.STRING else str(helper.tensor_dtype_to_np_dtype(elem_type).name)


def graph_types(graph: onnx.GraphProto, opsets: Mapping[str, int], outer: Mapping[str, str]) -> Types:
    """The element types of a graph's values, on top of those of the graphs around it.

    Raises LoweringError for a value that is no tensor, or of which ONNX does not say what it is.
    """
    types: Types = ChainMap({}, dict(outer))
    for port in graph.input:
        if port.type.HasField("tensor_type") and port.type.tensor_type.elem_type:
            types[port.name] = type_name(port.type.tensor_type.elem_type)
    types.update({tensor.name: type_name(tensor.data_type) for tensor in graph.initializer})
    for node in graph.node:
        named = zip(node.output, node_types(node, opsets, types), strict=False)
        types.update({name: dtype for name, dtype in named if name})
    return types


def node_types(node: onnx.NodeProto, opsets: Mapping[str, int], types: Mapping[str, str]) -> list[str]:
    """The element types of the outputs of a node."""
    if node.domain == KERNEL_DOMAIN:
        return list(signature_of(node).dtypes)
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in ("If", "Loop", "Scan") and node.domain == "":
        body = attributes.get("body") or attributes["then_branch"]
        if node.op_type != "If":
            skipped = 2 if node.op_type == "Loop" else int(opsets[""] < 9)
            given = node.input[skipped:]
            body_inputs = body.input[2 if node.op_type == "Loop" else 0 :]
            given_types = {i.name: types[g] for i, g in zip(body_inputs, given, strict=True)}
            types = {**types, **given_types}
        inner = graph_types(body, opsets, types)
        results = [_lookup(inner, o.name) for o in body.output]
        return results[1:] if node.op_type == "Loop" else results
    if node.op_type == "Constant":
        return [_constant_type(attributes)]
    for name in _BY_ATTRIBUTE:
        if attributes.get(name):
            return [type_name(attributes[name])] * len(node.output)
    if node.op_type == "ConstantOfShape":
        value = attributes.get("value")
        return [type_name(value.data_type) if value is not None else "float32"]
    if node.op_type.endswith("Like") and node.domain == "" and node.op_type != "CastLike":
        return [_lookup(types, node.input[0])]
    opset = opsets.get(node.domain, 1)
    if not defs.has(node.op_type, opset, node.domain):
        raise LoweringError(f"{node.op_type} has no plain loop")
    schema = defs.get_schema(node.op_type, opset, node.domain)
    bound: dict[str, str] = {}
    for position, name in enumerate(node.input):
        if name:
            formal = schema.inputs[min(position, len(schema.inputs) - 1)]
            bound.setdefault(formal.type_str, _lookup(types, name))
    results = []
    for position in range(len(node.output)):
        formal = schema.outputs[min(position, len(schema.outputs) - 1)]
        results.append(bound.get(formal.type_str) or _only_type(formal))
    return results


def _lookup(types: Mapping[str, str], name: str) -> str:
    if name not in types:
        raise LoweringError(f"{name!r} is no tensor")
    return types[name]


def _constant_type(attributes: Mapping[str, Any]) -> str:
    (name, value), *_ = attributes.items()
    if name == "value":
        return type_name(value.data_type)
    return "float32" if "float" in name else "int64" if "int" in name else "string"


def _only_type(formal: defs.OpSchema.FormalParameter) -> str:
    """The type of an output that has one by its schema, or float32 where it may choose."""
    names: Iterable[str] = formal.types
    tensors = {name[len("tensor(") : -1] for name in names if name.startswith("tensor(")}
    if not tensors:
        raise LoweringError(f"{formal.name} is no tensor")
    if len(tensors) == 1:
        (name,) = tensors
        return {"float": "float32", "double": "float64"}.get(name, name)
    return "float32"
