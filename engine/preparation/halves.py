"""float16 inside a model as float32: ``Model -> Model``.

    Y = f(X, W)  =>  Y = Cast(f(Cast(X, float32), W), float16), W a constant of float32

Every value of float16 is a number of float32, too, which holds more, and numbers that are cast to float16 between two
operators are no longer rounded. Inputs and outputs keep their types. ONNX Runtime computes float16 on processors of x86
in the same way, but rounds the result of each operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from onnx_ir import convenience

from ..onnx.model import Model
from ..onnx.nodes import BODY_DOMAIN
from ..onnx.wellformed import ONNX_DOMAINS, body_graphs

_HALF, _SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT
_TYPES = frozenset({"to", "dtype", "output_dtype", "stash_type", "softmax_precision", "precision"})
"""Attributes of ONNX's operators that name an element type."""
_BY_BITS = "BitCast"
"""The operator that reads the bits of numbers."""


def widen_halves(model: Model) -> Model:
    """The model with float32 in the place of float16; the same model if it has none, or operators of other domains or
    sequences, which may be of float16 only, or reads bits of numbers."""
    if not any(map(_is_half, _values(model.graph))) and not any(map(_names_half, model.graph.all_nodes())):
        return model
    known = (*ONNX_DOMAINS, BODY_DOMAIN)
    if any(node.domain not in known or node.op_type == _BY_BITS for node in model.graph.all_nodes()):
        return model
    if not all(value.type is None or isinstance(value.type, ir.TensorType) for value in _values(model.graph)):
        return model
    kept = model.overridable_initializers | {value.name for value in model.graph.inputs} - set(model.graph.initializers)
    result = model.ir.clone()
    graph = result.graph
    given = [value for value in graph.inputs if value.name in kept and _is_half(value)]
    ends = {place: value for place, value in enumerate(graph.outputs) if _is_half(value) and value not in given}
    _widen_numbers(graph, given)
    first = next(iter(graph), None)
    for value in given:
        returned = [place for place, output in enumerate(graph.outputs) if output is value]
        wide = ir.Value(name=f"{value.name}.float32", type=ir.TensorType(_SINGLE), shape=value.shape)
        convenience.replace_all_uses_with(value, wide, replace_graph_outputs=True)
        for place in returned:
            graph.outputs[place] = value
        if first is not None:
            graph.insert_before(first, _cast(value, wide))
    for place, value in ends.items():
        half = ir.Value(name=value.name, type=ir.TensorType(_HALF), shape=value.shape)
        value.name = f"{value.name}.float32"
        graph.append(_cast(value, half))
        graph.outputs[place] = half
    return replace(model, ir=result)


def _widen_numbers(graph: ir.Graph, given: Sequence[ir.Value]) -> None:
    """Make values, stored tensors and attributes of float16 those of float32, but for `given` inputs."""
    for value in _values(graph):
        if _is_half(value) and value not in given:
            value.type = ir.TensorType(_SINGLE)  # setting its dtype would change the type that clones share
            if value.const_value is not None:
                numbers = value.const_value.numpy().astype(np.float32)
                value.const_value = ir.tensor(numbers, name=value.name)
    for node in graph.all_nodes():
        for name, attribute in list(node.attributes.items()):
            if attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype == _HALF:
                node.attributes[name] = ir.AttrTensor(name, ir.tensor(attribute.value.numpy().astype(np.float32)))
            elif name in _TYPES and attribute.value == _HALF:
                node.attributes[name] = ir.AttrInt64(name, int(_SINGLE))


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    """The values of a graph and of those within it."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
        for body in body_graphs(node):
            yield from _values(body)


def _is_half(value: ir.Value) -> bool:
    stored = value.const_value is not None and value.const_value.dtype == _HALF
    return stored or (isinstance(value.type, ir.TensorType) and value.dtype == _HALF)


def _names_half(node: ir.Node) -> bool:
    """Whether an attribute of a node is of float16, or names it."""
    attributes = node.attributes.values()
    return any(
        (a.type == ir.AttributeType.TENSOR and a.value.dtype == _HALF) or (a.name in _TYPES and a.value == _HALF)
        for a in attributes
    )


def _cast(source: ir.Value, result: ir.Value) -> ir.Node:
    assert result.dtype is not None
    return ir.node("Cast", [source], {"to": int(result.dtype)}, outputs=[result], name=f"{result.name}.cast")
