"""Figures of a graph for people to compare: layers, FLOPs, intermediate bytes, file size, predicted time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import onnx_ir as ir

from ..costmodels.flops import flops
from ..costmodels.model import CostModel
from ..costmodels.runtime import NO_RUNTIME, Runtime
from ..ir.operation import Operation
from ..ir.operators import VIEWS
from ..ir.sizes import assume_sizes, dimension_size
from ..ir.types import TensorType
from .bodies.inference import infer_form
from .egraph.canonical import canonical
from .egraph.spellings import find_spelled
from .onnx.model import Model, elements
from .onnx.nodes import BODY_DOMAIN, FORMAL_KEY, blame_node, has_body, layer_nodes
from .onnx.typing import constant_type, dtype_name
from .shapes.inference import SMALL, Knowledge


@dataclass(frozen=True)
class GraphSummary:
    """Figures of one graph.

    `layers` counts the nodes that depend on an input of the graph; `operators` counts those by type;
    `intermediate_bytes` adds up their outputs, views apart; `weight_bytes` are those of initializers and of Constant
    nodes. `predicted` is in `unit`, of the cost model. `assumed_sizes` are the sizes that all of these figures assume
    for symbolic dimensions of inputs. They count each node in the bodies of `counted_bodies` (If, Loop, Scan) once, and
    none in those of `uncounted_bodies`.
    """

    nodes: int
    layers: int
    operators: Mapping[str, int]
    flops: float
    intermediate_bytes: int
    weight_bytes: int
    predicted: float
    unit: str
    assumed_sizes: Mapping[str, int] = field(default_factory=dict)
    counted_bodies: Mapping[str, int] = field(default_factory=dict)
    uncounted_bodies: Mapping[str, int] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """Lines on the figures' meaning, assumptions and omissions; [] if all nodes are layers, all sizes are known and
        no operator has a body."""
        names: dict[int, list[str]] = {}
        for name, size in self.assumed_sizes.items():
            names.setdefault(size, []).append(name)
        sizes = "; ".join(f"{', '.join(each)} = {size}" for size, each in names.items())
        counted, uncounted = (
            ", ".join(f"{count} {op}" for op, count in bodies.items())
            for bodies in (self.counted_bodies, self.uncounted_bodies)
        )
        constant = self.nodes - self.layers
        return [
            *([f"layers: nodes that depend on an input; computed once: {constant} other(s)"] if constant else []),
            *([f"assumed sizes: {sizes} (--input-shapes fixes them)"] if sizes else []),
            *([f"counted as run once each: the bodies of {counted}"] if counted else []),
            *([f"not counted: the bodies of {uncounted}"] if uncounted else []),
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `assumed_sizes` and the counts of bodies only if there are any."""
        content = asdict(self)
        for name in ("assumed_sizes", "counted_bodies", "uncounted_bodies"):
            if not content[name]:
                del content[name]
        return content


def summarize(
    model: Model, knowledge: Knowledge, cost_model: CostModel, runtime: Runtime = NO_RUNTIME
) -> GraphSummary:
    """Measure the main graph, which holds the nodes of bodies if the model is flat; shapes come from `knowledge`.

    The predicted cost is that of what the `runtime` runs: nodes that it fuses to one operator cost what that does.
    """
    layers = list(layer_nodes(model))
    inputs = [value.name or "" for value in model.graph.inputs if FORMAL_KEY not in value.metadata_props]
    sizes = assume_sizes(type_.shape or () for name in inputs if (type_ := knowledge.types.get(name)) is not None)
    knowledge = replace(knowledge, types={name: _assume(type_, sizes) for name, type_ in knowledge.types.items()})
    operations = [_operation(n, model, knowledge) for n in layers]
    initializers = model.graph.initializers  # `stored` has Constant nodes, too
    outputs = [knowledge.types.get(o.name or "") for n in layers if n.op_type not in VIEWS for o in n.outputs]
    return GraphSummary(
        nodes=model.graph.num_nodes(),
        layers=len(layers),
        operators=dict(Counter(n.op_type for n in layers).most_common()),
        flops=sum(flops(o) for o in operations),
        intermediate_bytes=sum(t.bytes() for t in outputs if t is not None),
        weight_bytes=model.weight_bytes + sum(t.nbytes for n, t in model.stored.items() if n not in initializers),
        predicted=_predict(model, knowledge, layers, operations, cost_model, runtime),
        unit=cost_model.unit,
        assumed_sizes=_name_sizes(model, sizes),
        counted_bodies=dict(Counter(n.op_type for n in layers if n.domain == BODY_DOMAIN)),
        uncounted_bodies=dict(Counter(n.op_type for n in layers if has_body(n))),
    )


def _predict(
    model: Model, knowledge: Knowledge, layers: Sequence[ir.Node], operations: Sequence[Operation],
    cost_model: CostModel, runtime: Runtime,
) -> float:  # fmt: skip
    def number(name: str) -> float | None:
        value = knowledge.constants.get(name)
        return float(value.flat[0]) if value is not None and value.size == 1 else None

    costs = {node: cost_model.cost(operation) for node, operation in zip(layers, operations, strict=True)}
    for spelled in find_spelled(layers, runtime, model.opset, number):
        operands = tuple(knowledge.types.get(name) for name in spelled.operands)
        output = knowledge.types.get(spelled.nodes[-1].outputs[0].name or "")
        costs |= dict.fromkeys(spelled.nodes, 0.0)
        costs[spelled.nodes[-1]] = cost_model.cost(Operation.of(spelled.op, spelled.attributes, operands, output))
    for node in layers:
        before = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        if before is not None and not before.domain and len(before.outputs[0].uses()) == 1:
            costs[node] *= runtime.operators_fused_into(before.op_type).get(node.op_type, 1.0)
    return sum(costs.values())


def _assume(type_: TensorType, sizes: Mapping[str, int]) -> TensorType:
    """The type with a number for each dimension."""
    if type_.shape is None or type_.is_static:
        return type_
    return TensorType(type_.dtype, tuple(dimension_size(d, sizes) for d in type_.shape))


def _name_sizes(model: Model, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes by the names that the inputs give to their dimensions; the others share one name."""
    named = {str(d.value) for i in model.graph.inputs for d in i.shape or () if not isinstance(d, int) and d.value}
    return {
        name if name in named else "unnamed batches" if size == 1 else "unnamed dimensions": size
        for name, size in sizes.items()
    }


def _operation(node: ir.Node, model: Model, knowledge: Knowledge) -> Operation:
    """A node as cost models see it."""
    with blame_node(node, model.label):
        call = canonical(node, knowledge, model.opset)
        attributes: dict[str, Any] = {}
        names = [i.name if i is not None else None for i in node.inputs]
        if call is not None:
            attributes = dict(zip((a.name for a in call.operator.attributes), call.attributes, strict=True))
            if node.op_type != "Concat":
                names = list(call.operands)
        operands = tuple(knowledge.types.get(n) if n else None for n in names)
        output = knowledge.types.get(node.outputs[0].name or "")
        op = node.op_type if call is None else call.operator.like
        constant = tuple(name is not None and name in model.stored for name in names)
        return Operation.of(op, attributes, operands, output, constant)


def knowledge_of_result(result: Model, knowledge: Knowledge) -> Knowledge:
    """The knowledge of a rewritten model: values with old names have their old types, new values carry theirs.

    A size that only new values have, such as that of a part that rules pad apart, is known if it follows from declared
    ones. Types that a value does not carry, since a budget ended the rewriting before they were derived, are inferred.
    """
    types = dict(knowledge.types)
    constants = dict(knowledge.constants)
    for node in result.graph:
        for output in node.outputs:
            if output.name and output.name not in types and output.dtype and output.shape is not None:
                dimensions = tuple(d if isinstance(d, int) else str(d.value) for d in output.shape)
                types[output.name] = TensorType(dtype_name(output.dtype), dimensions)
    for name, value in result.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and name not in types:
            types[name] = constant_type(tensor)
        if tensor is not None and name not in constants and tensor.size <= SMALL:
            constants[name] = elements(tensor)
    if any(output.name and output.name not in types for node in result.graph for output in node.outputs):
        types = {**infer_form(result)[1].types, **types}
    new = {d for name in types.keys() - knowledge.types.keys() for d in types[name].shape or () if isinstance(d, str)}
    declared = knowledge.symbolic.declared
    symbols = knowledge.symbols | {dimension for dimension in new if declared.size_of(dimension) is not None}
    return replace(knowledge, types=types, constants=constants, symbols=symbols)
