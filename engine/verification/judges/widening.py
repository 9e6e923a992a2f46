"""Turns a model into one that computes in float64."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ..runs.values import Value

_NARROW = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_datatype", "softmax_precision"})
_FLOAT_BY_DEFAULT = {
    "ConstantOfShape": onnx.helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))),
    **dict.fromkeys(
        ("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"),
        onnx.helper.make_attribute("output_datatype", TensorProto.DOUBLE),
    ),
}
"""Attributes without which an operator gives float32."""
_BIT_OPERATORS = frozenset({"BitCast"})
"""Operators that see the bits of a number, which stay those of its own type."""


def widen(model: onnx.ModelProto) -> None:
    """Turn every float32, float16 and bfloat16 of a model into float64, in place: weights, constants and casts."""
    _widen_graph(model.graph)
    for function in model.functions:
        widen_nodes(function.node)


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in _NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    widen_nodes(graph.node)


def widen_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    """Do the same to the attributes and bodies of nodes, in place."""
    for node in nodes:
        if node.op_type in _BIT_OPERATORS:
            continue
        default = _FLOAT_BY_DEFAULT.get(node.op_type)
        if default is not None and all(attribute.name != default.name for attribute in node.attribute):
            node.attribute.append(default)
        for attribute in node.attribute:
            _widen_attribute(attribute)


def _widen_attribute(attribute: onnx.AttributeProto) -> None:
    if attribute.type == onnx.AttributeProto.TENSOR:
        _widen_tensor(attribute.t)
    elif attribute.type == onnx.AttributeProto.GRAPH:
        _widen_graph(attribute.g)
    elif attribute.type == onnx.AttributeProto.INT and attribute.name in _TYPE_ATTRIBUTES:
        attribute.i = TensorProto.DOUBLE if attribute.i in _NARROW else attribute.i
    elif attribute.name in ("value_float", "value_floats"):
        values: Any = attribute.f if attribute.name == "value_float" else list(attribute.floats)
        constant = numpy_helper.from_array(np.asarray(values, dtype=np.float64))
        attribute.CopyFrom(onnx.helper.make_attribute("value", constant))


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _NARROW:
        wide = numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
        tensor.CopyFrom(wide)


def widen_value(value: Value) -> Value:
    """A value with its narrower floats as float64."""
    if isinstance(value, list):
        return [widen_value(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.name in ("float32", "float16", "bfloat16"):
        return value.astype(np.float64)
    return value
