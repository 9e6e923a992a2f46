"""Groups as ONNX local functions: ``Model, Partition -> Model``, and back.

Each group of several nodes becomes a function, and one call of it. Its body is the original nodes, names and
metadata included, so that inlining gives back the same graph; hence equal groups have functions of their own,
with the same digest in their metadata. The values that a group reads from outside are the inputs of its function,
constants among them unless these are linked: then they are Constant nodes of the body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from ....engine.onnx.model import Model, first_line
from ....engine.onnx.nodes import has_body, outer_values
from ....engine.onnx.provenance import GROUP_KEY
from ....engine.onnx.wellformed import ONNX_DOMAINS
from ....engine.shapes.inference import check
from ....support.directed_graphs import strongly_connected_components
from ....support.errors import ModelError
from ..canonical_key import subgraph_key
from ..groups import Partition, PartitionError
from .annotate import annotate, partitioned_nodes

DOMAIN = "eqfuse.subgraph"
DIGEST_KEY = "eqfuse.subgraph"
"""On functions: the canonical key of the sub-graph (canonical_key.py)."""

_IR_VERSION = 8
"""The first ONNX IR version that has local functions."""
_NAMED_OPERATORS = 4
"""Operators in the name of a function; the name counts the others."""


def as_functions(model: Model, partition: Partition, link_constants: bool = False) -> Model:
    """A new model in which each group of two or more nodes is one call of a function of the domain `DOMAIN`.

    With `link_constants` the constants that it reads are inside of the function, a copy in each that reads them.

    Nodes keep their numbers of groups (annotate.py), and calls carry them too. A model below ONNX IR version 8,
    which has no functions, gets version 8. A group stays unchanged if nothing reads its results. It becomes
    several functions if a single one could not run: if a shape is known by inference, the operator graph has no
    edge for it, but the nodes that compute it are still there and may lie in other groups.

    Raises PartitionError if the partition is of another model, or a group of several holds a node with a body.
    """
    result = Model(model.ir.clone(), model.path)
    annotate(result, partition)
    nodes = partitioned_nodes(result, partition)
    if result.ir.ir_version < 4:  # initializers had to be inputs; from 4 on that would let a caller replace them
        result.graph.inputs[:] = [i for i in result.graph.inputs if i.name not in result.graph.initializers]
    result.ir.ir_version = max(result.ir.ir_version, _IR_VERSION)
    for piece in _split_groups(result.graph, nodes, partition):
        if len(piece) > 1:
            number, digest = partition.group[piece[0]], subgraph_key(partition.graph, piece)
            _replace_by_call(result, [nodes[index] for index in piece], number, digest, link_constants)
    result.graph.sort()
    return result


def inline_functions(model: Model) -> Model:
    """The model with its functions inlined; itself if it has none to inline.

    Functions of other versions of a domain than the model stay. The nodes of a function then follow each other,
    whatever their order was before. Raises ModelError if the ONNX checker refuses the model, and if a function
    was edited so that it cannot be inlined.
    """
    versions = dict(model.ir.opset_imports)
    fitting = {
        identifier: function
        for identifier, function in model.ir.functions.items()
        if all(versions.setdefault(domain, version) == version for domain, version in function.opset_imports.items())
    }
    if not fitting:
        return model
    check(model)
    try:
        copy = model.ir.clone()
        InlinePass(lambda function: function.identifier() in fitting)(copy)
    except (ir.passes.PassError, ir.passes.InvariantError, ValueError, RuntimeError) as error:
        domains = ", ".join(sorted({function.domain for function in fitting.values()}))
        raise ModelError(f"{model.label}: functions of {domains} cannot be inlined: {first_line(error)}") from error
    used = {node.domain for node in copy.graph.all_nodes()} | {f.domain for f in copy.functions.values()}
    for domain in {function.domain for function in fitting.values()} - used:
        copy.opset_imports.pop(domain, None)
    return Model(copy, model.path)


# --- groups that can run


def _split_groups(graph: ir.Graph, nodes: Sequence[ir.Node], partition: Partition) -> list[tuple[int, ...]]:
    """The groups, as nodes by their indices, those on cycles divided until there are none.

    Cycles need an edge that the operator graph does not have. Such edges within a strongly connected component of
    groups raise the level of the nodes after them, and a group on a cycle is divided into its levels. No cycle is left:
    levels never go down along an edge, so on one they would be equal, and all its edges be of the operator graph.
    """
    group = partition.group
    maker = {value: index for index, node in enumerate(nodes) for value in node.outputs}
    sources = [{maker[value] for value in _values_read(node, graph) if value in maker} for node in nodes]
    readers: dict[int, set[int]] = {number: set() for number in range(partition.count)}
    for index, own in enumerate(sources):
        for source in own:
            readers[group[source]].add(group[index])
    components = strongly_connected_components(readers)
    component = {number: place for place, members in enumerate(components) for number in members}
    levels: list[int] = []  # per node, how many edges that the operator graph does not have lie before it
    pieces: dict[tuple[int, int], list[int]] = {}
    for index, own in enumerate(sources):
        here = component[group[index]]
        hidden = own.difference(partition.graph.predecessors[index])
        rising = {s for s in hidden if group[s] != group[index] and component[group[s]] == here}
        levels.append(max((levels[source] + (source in rising) for source in own), default=0))
        pieces.setdefault((group[index], levels[index] if len(components[here]) > 1 else 0), []).append(index)
    return [tuple(piece) for piece in pieces.values()]


def _values_read(node: ir.Node, graph: ir.Graph) -> list[ir.Value]:
    outer = outer_values(node, graph) if has_body(node) else ()
    return [value for value in (*node.inputs, *outer) if value is not None]


# --- one function


def _replace_by_call(
    model: Model, nodes: Sequence[ir.Node], number: int, digest: str | None, link_constants: bool
) -> None:
    """Put a call in place of nodes of the main graph."""
    for node in nodes:
        if has_body(node):
            raise PartitionError(
                f"group {number}: node {node.name or node.op_type!r} runs a body, so it must be a group of its own"
            )
    inside = set(nodes)
    read = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    results = (value for node in nodes for value in node.outputs)
    inputs = tuple(value for value in read if value.producer() not in inside)
    outputs = tuple(v for v in results if v.is_graph_output() or any(use.node not in inside for use in v.uses()))
    if not outputs:
        return
    copies = {value.name: _constant_node(value) for value in inputs if link_constants}
    constants = {name: node for name, node in copies.items() if node is not None}
    function = _make_function(model, nodes, inputs, outputs, _name(model, nodes, number))
    _link(function.graph, constants)
    if digest is not None:
        function.metadata_props[DIGEST_KEY] = digest
    model.ir.functions[function.identifier()] = function
    model.ir.opset_imports.setdefault(DOMAIN, 1)
    call = ir.Node(
        DOMAIN,
        function.name,
        [value for value in inputs if value.name not in constants],
        outputs=[_copy(value) for value in outputs],
        name=function.name,
        metadata_props={GROUP_KEY: str(number)},
    )
    model.graph.insert_after(nodes[-1], call)
    ir.convenience.replace_all_uses_with(outputs, call.outputs, replace_graph_outputs=True)
    model.graph.remove(nodes, safe=True)
    for value in inputs:
        if value.name in constants and not value.uses() and not value.is_graph_output():
            if (producer := value.producer()) is not None:
                model.graph.remove(producer)
            else:
                model.graph.initializers.pop(value.name or "")


def _constant_node(value: ir.Value) -> ir.Node | None:
    """A new node that makes a constant, by which an initializer or a node's result can be replaced; else None."""
    producer, tensor = value.producer(), value.const_value
    if producer is not None and producer.op_type == "Constant" and producer.domain in ONNX_DOMAINS:
        attributes = tuple(producer.attributes.values())
    elif producer is None and tensor is not None and not value.is_graph_input():
        attributes = (ir.AttrTensor("value", tensor),)
    else:
        return None
    return ir.Node("", "Constant", (), attributes, outputs=[_copy(value)])


def _make_function(
    model: Model, nodes: Sequence[ir.Node], inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], name: str
) -> ir.Function:
    domains = {node.domain for node in nodes}
    versions = {d: model.opset if d in ONNX_DOMAINS else model.ir.opset_imports[d] for d in sorted(domains)}
    body = ir.GraphView(inputs, outputs, nodes=nodes, opset_imports=versions, name=name).clone()
    return ir.Function(DOMAIN, name, graph=body, attributes=())


def _link(body: ir.Graph, constants: Mapping[str | None, ir.Node]) -> None:
    """Put Constant nodes in the place of inputs of a function's body, by the names of these."""
    for value in list(body.inputs):
        value.const_value = None
        if value.name in constants:
            node = constants[value.name]
            body.inputs.remove(value)
            ir.convenience.replace_all_uses_with(value, node.outputs[0])
            body.insert_before(body[0], node)


def _name(model: Model, nodes: Sequence[ir.Node], number: int) -> str:
    """``group_12_Conv_Sigmoid_Mul``: the operators in order, of many the first few."""
    operators = [node.op_type for node in nodes]
    more = len(operators) - _NAMED_OPERATORS
    name = "_".join((f"group_{number}", *operators[:_NAMED_OPERATORS], *([f"and_{more}_more"] if more > 0 else ())))
    taken = {function.name for function in model.ir.functions.values() if function.domain == DOMAIN}
    return next(n for n in (name, *(f"{name}_{copy}" for copy in range(2, len(taken) + 3))) if n not in taken)


def _copy(value: ir.Value) -> ir.Value:
    copy = ir.Value(name=value.name, shape=value.shape, type=value.type, doc_string=value.doc_string)
    copy.metadata_props.update(value.metadata_props)
    return copy
