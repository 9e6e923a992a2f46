"""The operator graph of an ONNX model: ``Model -> OperatorGraph``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import onnx_ir as ir

from ..ir.graph import Operator, OperatorGraph, Value
from ..ir.operation import VARIADIC
from ..ir.operators import OPERATORS
from ..ir.operators.graph_relations import fit_sizes, raise_sizes
from ..ir.sizes import NO_SIZES, ZERO, assume_sizes, size_as_dimension
from ..ir.types import TensorType
from .egraph.canonical import canonical
from .onnx.model import Model, elements
from .onnx.nodes import has_body, is_inferable, is_standard, layer_nodes, outer_values
from .onnx.typing import NAMELESS
from .shapes.inference import Knowledge


def operator_graph(
    model: Model, knowledge: Knowledge, sizes: Mapping[str, int] = NO_SIZES, *, for_kernels: bool = False
) -> OperatorGraph:
    """The nodes of `model` that depend on its inputs; types come from `knowledge`.

    Dynamic dimensions of inputs have the `sizes` that are optimised for, by their names, or assumed ones
    (`assume_sizes`) on which the model runs. A kernel gets its sizes with its tensors: a graph `for_kernels` has
    neither the operands that compute the shape of a result nor the nodes whose results only these read.
    """
    results = {output.name for output in model.graph.outputs}
    variable = {i.name for i in model.graph.inputs} - (model.graph.initializers.keys() - model.overridable_initializers)
    operators: list[Operator] = []
    values: list[Value] = []
    number: dict[str, int] = {}
    stored = model.stored
    scales = {scale.name for n in model.graph if n.op_type == "QuantizeLinear" and (scale := n.inputs[1]) is not None}

    def add_value(name: str, producer: int | None, is_constant: bool, is_output: bool) -> int:
        number[name] = len(values)
        is_one = is_constant and name in scales and _is_one(stored.get(name))
        values.append(Value(name, _type_of(name, knowledge), producer, is_constant, is_output, is_one=is_one))
        return number[name]

    for node, attributes, names, is_opaque in _describe_nodes(model, knowledge, for_kernels):
        for name in names:
            if name and name not in number:  # an input of the graph or a constant, as no operator made it
                add_value(name, None, name not in variable, False)
        inputs = tuple(number[name] if name else None for name in names)
        outputs = tuple(add_value(v.name, len(operators), False, v.name in results) for v in node.outputs if v.name)
        name = node.name or f"{node.op_type} of {next(v.name for v in node.outputs if v.name)}"
        last = max(position for position, v in enumerate(node.outputs) if v.name)
        absent = tuple(position for position, v in enumerate(node.outputs[:last]) if not v.name)
        operators.append(Operator(name, node.op_type, attributes, inputs, outputs, is_opaque, absent))
    for unread in model.graph.inputs:
        if unread.name in variable - number.keys():
            add_value(unread.name or "", None, False, False)  # its shape may be that of a result
    given = (knowledge.types.get(i.name or "") for i in model.graph.inputs)
    said = knowledge.symbolic.equations
    assumed = assume_sizes((type_.shape or () for type_ in given if type_ is not None), said.equal())
    typical = assumed | dict(sizes)
    graph = OperatorGraph(tuple(operators), tuple(values), typical, said.equal(), dict(said.lowest))
    unsaid = [name for name in assumed if name not in sizes]
    fitted = graph.with_typical(fit_sizes(graph, unsaid))
    return fitted.with_typical(raise_sizes(fitted, unsaid))


def _is_one(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and tensor.size == 1 and elements(tensor).item() == 1


def _type_of(name: str, knowledge: Knowledge) -> TensorType | None:
    """With the texts of sizes for dimensions that are no numbers; `NAMELESS` for unknown dimensions."""
    type_ = knowledge.types.get(name)
    if type_ is None or type_.shape is None or type_.is_static:
        return type_
    declared = knowledge.symbolic.declared
    sizes = (declared.size_of(d) if isinstance(d, int) or d in knowledge.symbols else None for d in type_.shape)
    texts = (NAMELESS if size is None else size_as_dimension(size) for size in sizes)
    return replace(type_, shape=tuple(texts))


class _Described(NamedTuple):
    """A node, its attributes, the names of the values that it and its bodies read, and whether it is opaque."""

    node: ir.Node
    attributes: dict[str, Any]
    reads: list[str | None]
    is_opaque: bool


def _describe_nodes(model: Model, knowledge: Knowledge, for_kernels: bool) -> list[_Described]:
    """The nodes that depend on inputs, in order; for kernels those alone that make an output, or a value that another
    of these nodes reads."""
    read = {output.name for output in model.graph.outputs}
    described = []
    for node in reversed([*layer_nodes(model)]):
        if not for_kernels or any(output.name in read for output in node.outputs if output.name):
            described.append(_describe_node(node, model, knowledge, for_kernels))
            read.update(described[-1].reads)
    return described[::-1]


def _describe_node(node: ir.Node, model: Model, knowledge: Knowledge, for_kernels: bool) -> _Described:
    """The node, its attributes and operands in canonical form if it has one."""
    call = canonical(node, knowledge, model.opset, keeps_auto_pad=True, follows_result=for_kernels)
    names = [v.name if v is not None else None for v in node.inputs]
    if call is not None:
        attributes = dict(zip((a.name for a in call.operator.attributes), call.attributes, strict=True))
        attributes |= {"auto_pad": call.auto_pad} if call.auto_pad else {}
        reads = names if node.op_type in VARIADIC else list(call.operands)
        return _Described(node, attributes, reads, not is_standard(node))
    if has_body(node):
        names += [v.name for v in outer_values(node, model.graph)]
    if for_kernels and is_standard(node) and _has_known_shape(node, knowledge):
        if _counts_up(node, knowledge):
            names[1] = None
        if node.op_type == "Pad" and (axes := _padded_axes(node, knowledge)):
            return _Described(node, {"axes": axes}, names, False)
    plain = _plain_attributes(node)
    is_opaque = plain is None or node.op_type in OPERATORS or not is_inferable(node)
    return _Described(node, plain or {}, names, is_opaque)


def _counts_up(node: ir.Node, knowledge: Knowledge) -> bool:
    """Whether a node makes the numbers below the size of its result."""
    given = [knowledge.constants.get(v.name or "") if v is not None else None for v in node.inputs[::2]]
    return node.op_type == "Range" and [array.item() for array in given if array is not None] == [0, 1]


def _padded_axes(node: ir.Node, knowledge: Knowledge) -> tuple[int, ...]:
    """The axes that a padding with a constant, by computed amounts for all axes, may change; () for other nodes."""
    pads = node.inputs[1].name if len(node.inputs) in (2, 3) and node.inputs[1] is not None else None
    said = knowledge.symbolic.contents.get(pads or "")
    if said is None or said.ndim != 1 or node.attributes.get_string("mode", "constant") != "constant":
        return ()
    half = said.size // 2
    return tuple(axis for axis in range(half) if any(s is None or s != ZERO for s in said[axis::half]))


def _has_known_shape(node: ir.Node, knowledge: Knowledge) -> bool:
    """Whether the shape of the first result follows from the sizes of a call."""
    type_ = knowledge.types.get(node.outputs[0].name or "")
    shape = None if type_ is None else type_.shape
    return shape is not None and all(isinstance(d, int) or d in knowledge.symbols for d in shape)


def _plain_attributes(node: ir.Node) -> dict[str, Any] | None:
    """The attributes of a node as plain values; None if one is a tensor, a graph, or a reference to another."""
    attributes: dict[str, Any] = {}
    for name, attribute in node.attributes.items():
        value = attribute.value
        value = tuple(value) if isinstance(value, list | tuple) else value
        items = value if isinstance(value, tuple) else (value,)
        if not all(issubclass(type_, int | float | str) for type_ in set(map(type, items))):
            return None
        attributes[name] = value
    return attributes
