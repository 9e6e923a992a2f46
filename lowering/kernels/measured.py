"""Sizes that depend on the values of tensors: which operators meet them, and how large they can get.

    n = NonZero(X); y = Gather(Z, n)  =>  (y, its sizes) = one program of loops, y at most as large as X has elements

Between the loops of one program a tensor is as large as it is. Only what leaves the program, for whoever runs the
model, gets a bound, in memory of which the sizes are measured that it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from math import prod

import onnx
from onnx import helper

from ...ir.graph import OperatorGraph, Value
from ...ir.size_names import dimension_as_size
from ...ir.types import TensorType
from ..errors import LoweringError

PREFIX = "measured_"
"""What the names of such sizes begin with."""
_NO_LARGER = frozenset({"Slice", "TopK", "Compress", "Split", "Unique"})
"""Operators none of whose axes is longer in a result than in the first input."""


def join_measured(
    graph: OperatorGraph, groups: Sequence[tuple[int, ...]]
) -> tuple[OperatorGraph, tuple[tuple[int, ...], ...]]:
    """The graph with names for unknown sizes of the model's outputs; all operators that meet such are one group.

    So are those on a way from one of them to another.
    """
    unknown = {number for number, value in enumerate(graph.values) if value.producer is not None and _is_open(value)}
    if not unknown:
        return graph, tuple(groups)
    touching = {i for i, o in enumerate(graph.operators) if not unknown.isdisjoint((*o.inputs, *o.outputs))}
    onwards = _reach(touching, graph.successors)
    inside = onwards & _reach(touching, graph.predecessors)
    behind = onwards - inside
    values = tuple(_named(n, v) if n in unknown and v.is_output else v for n, v in enumerate(graph.values))
    first = (tuple(m for m in group if m not in onwards) for group in groups)
    last = (tuple(m for m in group if m in behind) for group in groups)
    return replace(graph, values=values), (*filter(None, first), tuple(sorted(inside)), *filter(None, last))


def _reach(starts: Set[int], neighbours: Sequence[Sequence[int]]) -> set[int]:
    """The operators that are reached from some, these included."""
    reached, waiting = set(starts), list(starts)
    while waiting:
        for neighbour in neighbours[waiting.pop()]:
            if neighbour not in reached:
                reached.add(neighbour)
                waiting.append(neighbour)
    return reached


def _is_open(value: Value) -> bool:
    shape = value.type.shape if value.type is not None else None
    return value.type is not None and shape is not None and None in map(dimension_as_size, shape)


def _named(number: int, value: Value) -> Value:
    assert value.type is not None
    assert value.type.shape is not None
    shape = tuple(
        f"{PREFIX}{number}_{axis}" if dimension_as_size(extent) is None else extent
        for axis, extent in enumerate(value.type.shape)
    )
    return replace(value, type=TensorType(value.type.dtype, shape))


def measured_sizes(graph: onnx.GraphProto) -> dict[str, tuple[int, int]]:
    """The output and the axis of each size that the outputs of a part of the model name."""
    return {
        dimension.dim_param: (number, axis)
        for number, output in enumerate(graph.output)
        for axis, dimension in enumerate(output.type.tensor_type.shape.dim)
        if dimension.dim_param.startswith(PREFIX)
    }


def bounds_of(model: onnx.ModelProto) -> Mapping[str, tuple[int, ...]]:
    """The largest shapes of the values of a part of the model, as far as they are known: inference from the largest
    shapes of the operands. Raises LoweringError for inputs without a known shape."""
    types: dict[str, onnx.TypeProto] = {i.name: i.type for i in model.graph.input}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, tensor in constants.items():
        types[name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    for node in model.graph.node:
        ports = [onnx.ValueInfoProto(name=n, type=types[n]) for n in dict.fromkeys(node.input) if n in types]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        stored = [constants[name] for name in dict.fromkeys(node.input) if name in constants]
        graph = helper.make_graph([node], "node", ports, results, stored)
        single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
        inferred = onnx.shape_inference.infer_shapes(single, data_prop=True).graph.output
        for output in inferred:
            operands = [_shape(types[name]) if name in types else None for name in node.input]
            shape, kind = _largest(node, _shape(output.type), operands), output.type.tensor_type.elem_type
            largest = None if shape is None else [None if extent < 0 else extent for extent in shape]
            types[output.name] = helper.make_tensor_type_proto(kind, largest)
    shapes = {name: _shape(type_) for name, type_ in types.items()}
    return {name: shape for name, shape in shapes.items() if shape is not None and -1 not in shape}


def _shape(type_: onnx.TypeProto) -> tuple[int, ...] | None:
    """The shape of a type, -1 for unknown sizes."""
    if not type_.tensor_type.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else -1 for d in type_.tensor_type.shape.dim)


def _largest(
    node: onnx.NodeProto, shape: tuple[int, ...] | None, inputs: Sequence[tuple[int, ...] | None]
) -> tuple[int, ...] | None:
    """The shape with bounds for its unknown sizes, as far as the operator has some."""
    first = inputs[0] if inputs else None
    if shape is None or -1 not in shape or first is None or -1 in first:
        return shape
    if node.op_type == "NonZero":
        return (len(first), prod(first))
    if node.op_type == "NonMaxSuppression" and len(inputs) > 1 and inputs[1] is not None:
        return (prod(inputs[1]), 3)
    if node.op_type in _NO_LARGER and len(shape) == len(first):
        return tuple(d if s == -1 else s for s, d in zip(shape, first, strict=True))
    if node.op_type in ("Compress", "Unique") and len(shape) == 1:
        return (prod(first),)
    return shape


def require_bounds(model: onnx.ModelProto) -> dict[str, int]:
    """The bound of each size that is measured. Raises LoweringError for one that has none."""
    known = bounds_of(model)
    bounds = {}
    for name, (number, axis) in measured_sizes(model.graph).items():
        output = model.graph.output[number].name
        if output not in known:
            raise LoweringError(f"nothing says how large {output!r} can get")
        bounds[name] = known[output][axis]
    return bounds
