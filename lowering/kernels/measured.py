"""Sizes that depend on the values of tensors: which operators meet them, and how large they can get.

    n = NonZero(X); y = Gather(Z, n)  =>  (y, its sizes) = one program of loops, y at most as large as X has elements

Between the loops of one program a tensor is as large as it is. Only what leaves the program, for whoever runs the
model, gets a bound, in memory of which the sizes are measured that it has; without a bound, the memory grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import reduce
from types import MappingProxyType

import onnx
from onnx import helper, numpy_helper

from ...engine.onnx.model import read
from ...engine.onnx.typing import dtype_of, tensor_type
from ...engine.operator_graph import operator_graph
from ...engine.shapes.inference import infer
from ...ir.graph import OperatorGraph, Value
from ...ir.operators import OPERATORS, RESHAPES
from ...ir.sizes import ONE, Size, TooComplex, dimension_as_size, extremum, number, parse_size
from ...ir.types import TensorType
from ...support.errors import ModelError
from ..plan.sizes import size_of, upper_bound

Shape = tuple[Size | None, ...]

PREFIX = "measured_"
"""The prefix of the names of such sizes."""
_NO_LARGER = frozenset({"Slice", "TopK", "Compress", "Split", "Unique"})
"""Operators none of whose axes is longer in a result than in the first input."""


def join_measured(
    graph: OperatorGraph, groups: Sequence[tuple[int, ...]]
) -> tuple[OperatorGraph, tuple[tuple[int, ...], ...]]:
    """The graph with names for unknown sizes of the model's outputs; all operators that meet such are one group.

    So are those on a way from one of them to another.
    """
    unknown = {number for number, value in enumerate(graph.values) if value.producer is not None and is_open(value)}
    if not unknown:
        return graph, tuple(groups)
    touching = {i for i, o in enumerate(graph.operators) if not unknown.isdisjoint((*o.inputs, *o.outputs))}
    onwards = reach(touching, graph.successors)
    inside = onwards & reach(touching, graph.predecessors)
    behind = onwards - inside
    values = tuple(_named(n, v) if n in unknown and v.is_output else v for n, v in enumerate(graph.values))
    first = (tuple(m for m in group if m not in onwards) for group in groups)
    last = (tuple(m for m in group if m in behind) for group in groups)
    return replace(graph, values=values), (*filter(None, first), tuple(sorted(inside)), *filter(None, last))


def reach(starts: Set[int], neighbours: Sequence[Sequence[int]]) -> set[int]:
    """The operators that are reached from some, these included."""
    reached, waiting = set(starts), list(starts)
    while waiting:
        for neighbour in neighbours[waiting.pop()]:
            if neighbour not in reached:
                reached.add(neighbour)
                waiting.append(neighbour)
    return reached


def is_open(value: Value) -> bool:
    """Whether a size of the value is unknown."""
    shape = value.type.shape if value.type is not None else None
    return value.type is not None and shape is not None and None in map(dimension_as_size, shape)


def is_measured(value: Value) -> bool:
    """Whether a size of the value is found out by what computes it."""
    shape = value.type.shape if value.type is not None else None
    return any(isinstance(extent, str) and extent.startswith(PREFIX) for extent in shape or ())


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


def find_bounds(model: onnx.ModelProto, trips: Mapping[str, Size] = MappingProxyType({})) -> dict[str, Size | None]:
    """The bound of each size that is measured, for dynamic sizes of the inputs; None if nothing says how large it gets.

    `trips` says how often Loops run at most, by the names of their limits, if these are no constants.

    Sizes that an operator decides by values are symbols behind it, of which inference makes polynomials; these can be
    as large as the bounds of the symbols let them.
    """
    if not measured_sizes(model.graph):
        return {}
    part, bounds = onnx.ModelProto(), dict[str, Size]()
    part.CopyFrom(model)
    try:
        shapes = _bound_results(part, bounds, trips)
        return dict(_bound_measured(model.graph, shapes, bounds))
    except (ModelError, TooComplex):
        return dict.fromkeys(measured_sizes(model.graph))


def _bound_measured(
    graph: onnx.GraphProto, shapes: Mapping[str, Shape | None], bounds: Mapping[str, Size]
) -> Iterator[tuple[str, Size | None]]:
    """The bound of each size that is measured, by the shapes of the results and the bounds of the symbols in them."""
    ports = (_sizes(tensor_type(port.type)) or () for port in graph.input)
    given = {name for shape in ports for size in shape if size is not None for name in size.names()}
    for name, (place, axis) in measured_sizes(graph).items():
        shape = shapes[graph.output[place].name]
        size = None if shape is None else shape[axis]
        bound = None if size is None else _in_full(size_of(upper_bound(size, bounds)))
        yield name, bound if bound is not None and bound.names() <= given else None


def _bound_results(
    part: onnx.ModelProto, bounds: dict[str, Size], trips: Mapping[str, Size]
) -> dict[str, Shape | None]:
    """The shapes of the results of a part of the model, for dynamic sizes of its inputs and of symbols in `bounds`, to
    which those of this part are added. The part is changed."""
    for output in part.graph.output:
        output.type.tensor_type.ClearField("shape")  # its sizes have names that inference would take for symbols
    results = [output.name for output in part.graph.output]
    declared = {info.name: _sizes(tensor_type(info.type)) for info in part.graph.value_info}
    types = _infer_types(part)
    while (place := _find_deciding(part, types)) is not None:
        node = part.graph.node.pop(place)
        computed = [output for output in part.graph.output if output.name not in node.output]
        del part.graph.output[:]
        part.graph.output.extend(computed)
        shapes = {name: _sizes(type_) for name, type_ in types.items()}
        branches = [_bound_branch(node, body, part, types, bounds, trips) for body in _branches(node)]
        for position, name in enumerate(node.output):
            if not name:
                continue
            shape = shapes.get(name) or declared.get(name)
            largest: Shape | None
            if node.op_type == "Loop" and shape is not None and None in shape:
                largest = (_constant(part, node.input[0]) or trips.get(node.input[0]), *shape[1:])
            elif branches:
                largest = _widest_branch(shape, [branch[position] for branch in branches], bounds)
            else:
                largest = _largest(node, shape, [shapes.get(source) for source in node.input], part)
            part.graph.input.append(_make_input(name, types.get(name), shape, largest, bounds))
        types = _infer_types(part)
    return {name: _sizes(types.get(name)) for name in results}


def _branches(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [attribute.g for attribute in node.attribute] if node.op_type == "If" else []


def _bound_branch(
    node: onnx.NodeProto, body: onnx.GraphProto, part: onnx.ModelProto, types: Mapping[str, TensorType],
    bounds: dict[str, Size], trips: Mapping[str, Size],
) -> list[Shape | None]:  # fmt: skip
    """The shapes of the results of a branch of an If, by the sizes of the values that it reads around it."""
    branch = onnx.ModelProto()
    branch.CopyFrom(part)
    branch.graph.CopyFrom(body)
    own = {tensor.name for tensor in body.initializer}
    branch.graph.initializer.extend(tensor for tensor in part.graph.initializer if tensor.name not in own)
    stored = {tensor.name for tensor in branch.graph.initializer}
    branch.graph.input.extend(
        helper.make_tensor_value_info(name, int(dtype_of(type_.dtype)), type_.shape)
        for name, type_ in types.items()
        if name not in stored
    )
    for output, name in zip(branch.graph.output, node.output, strict=True):
        if name in types and not output.HasField("type"):
            output.type.tensor_type.elem_type = int(dtype_of(types[name].dtype))
    results = [output.name for output in body.output]
    shapes = _bound_results(branch, bounds, trips)
    return [shapes[name] for name in results]


def _widest_branch(shape: Shape | None, branches: Sequence[Shape | None], bounds: Mapping[str, Size]) -> Shape | None:
    """The shape of a result of an If with the larger size of either branch if they differ."""
    if shape is None or any(branch is None or len(branch) != len(shape) for branch in branches):
        return shape
    sizes = list(shape)
    for axis, size in enumerate(shape):
        ends = [branch[axis] for branch in branches if branch is not None]
        if size is None and None not in ends:
            sizes[axis] = extremum("max", [size_of(upper_bound(end, bounds)) for end in ends if end is not None])
    return tuple(sizes)


def _infer_types(model: onnx.ModelProto) -> dict[str, TensorType]:
    """The types of all values of a part of the model, with the texts of sizes."""
    given = {port.name: type_ for port in model.graph.input if (type_ := tensor_type(port.type)) is not None}
    if not model.graph.output:
        return given
    part = read(model)
    knowledge = infer(part)
    graph = operator_graph(part, knowledge).at_call
    named = {value.name: value.type for value in graph.values if value.type is not None}
    return {**given, **{name: type_ for name, type_ in knowledge.types.items() if type_.is_static}, **named}


def _sizes(type_: TensorType | None) -> Shape | None:
    """The shape of a type; None for an unknown size or rank."""
    return None if type_ is None or type_.shape is None else tuple(map(dimension_as_size, type_.shape))


def _find_deciding(model: onnx.ModelProto, types: Mapping[str, TensorType]) -> int | None:
    """The place of the first node with a result whose size does not follow from the shapes of its operands."""
    for place, node in enumerate(model.graph.node if model.graph.output else ()):
        shapes = [_sizes(types.get(name)) for name in node.output if name]
        if any(shape is None or None in shape for shape in shapes):
            return place
    return None


def _largest(
    node: onnx.NodeProto, shape: Shape | None, inputs: Sequence[Shape | None], model: onnx.ModelProto
) -> Shape | None:
    """The shape of a result with bounds for its unknown sizes, as far as the operator has some."""
    if shape is None or None not in shape:
        return shape
    first = inputs[0] if inputs else None
    if first is None or None in first:
        return shape
    elements = _product(first)
    if node.op_type == "NonZero":
        return (number(len(first)), elements)
    if node.op_type == "NonMaxSuppression" and inputs[1] is not None and len(inputs[1]) == 3 and None not in inputs[1]:
        most = _constant(model, node.input[2]) if len(node.input) > 2 else None
        boxes = inputs[1][2] if most is None else extremum("min", [size for size in (inputs[1][2], most) if size])
        return (_product((*inputs[1][:2], boxes)), number(3))
    if node.op_type in _NO_LARGER and len(shape) == len(first):
        return tuple(d if s is None else s for s, d in zip(shape, first, strict=True))
    if node.op_type in RESHAPES or (node.op_type in ("Compress", "Unique") and len(shape) == 1):
        return tuple(elements if size is None else size for size in shape)
    if node.op_type in OPERATORS and OPERATORS[node.op_type].category.startswith("elementwise"):
        return tuple(_widest(inputs, axis - len(shape)) if s is None else s for axis, s in enumerate(shape))
    return shape


def _product(shape: Sequence[Size | None]) -> Size:
    return reduce(Size.__mul__, (size for size in shape if size is not None), ONE)


def _constant(model: onnx.ModelProto, name: str) -> Size | None:
    """The single element of a constant."""
    arrays = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == name)
    return next((number(int(array.item())) for array in arrays if array.size == 1), None)


def _widest(inputs: Sequence[Shape | None], axis: int) -> Size | None:
    """The largest size of operands along an axis counted from the last: those that differ in form are equal, or 1."""
    if None in inputs:
        return None
    sizes = [shape[axis] for shape in inputs if shape is not None and len(shape) >= -axis]
    return extremum("max", [size for size in sizes if size is not None]) if None not in sizes else None


def _make_input(
    name: str, type_: TensorType | None, shape: Shape | None, largest: Shape | None, bounds: dict[str, Size]
) -> onnx.ValueInfoProto:
    """A result as an input of the part: sizes that values decide are new symbols, whose bounds are noted."""
    dimensions: list[int | str] = []
    for axis, (size, most) in enumerate(zip(shape or (), largest or (), strict=True)):
        exact = None if size is None else size.number
        dimensions.append(f"bounded_{name}_{axis}" if exact is None else exact)
        if exact is None and (bound := size or most) is not None:
            bounds[str(dimensions[-1])] = size_of(upper_bound(bound, bounds))
    dtype = type_.dtype if type_ is not None else "float32"
    return helper.make_tensor_value_info(name, int(dtype_of(dtype)), None if shape is None else dimensions)


def _in_full(size: Size) -> Size:
    """The size with the expressions that are names of dimensions: `2*H + 1` may be one."""
    parsed = {name: parse_size(name) for name in size.names()}
    return size.replace({name: each for name, each in parsed.items() if each is not None})
