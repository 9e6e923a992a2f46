"""Kernels inside of plain loops: what the bodies of Loop and Scan compute, and what follows sizes that values decide.

    for i: { A = f(X, A) as loops }  =>  for i: { A = kernel(X, A) }
    n = NonZero(X); Y = f(Z, n) as loops  =>  n = NonZero(X); Y = kernel(Z, n)

Each graph of a program of loops is cut like a model of its own: what it reads from the graphs around it are its inputs,
and constants of these are known. A kernel stands in it as one node of the domain `KERNEL_DOMAIN`. If an operator
decides a size by values, whatever meets this size is a model of its own, of which the size is a dynamic dimension.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic

import onnx
from onnx import helper, numpy_helper
from onnx_ir import serde

from ...engine.bodies.flatten import flatten
from ...engine.bodies.inference import infer_flat
from ...engine.bodies.nest import nest
from ...engine.onnx.model import Model, graph_protos, read
from ...engine.onnx.typing import NAMELESS, dtype_of
from ...engine.onnx.wellformed import body_protos
from ...engine.operator_graph import operator_graph
from ...engine.shapes.inference import infer
from ...extract.partition.search.methods import search_partition
from ...extract.partition.templates.kernels import KernelModel
from ...extract.partition.templates.operator_set import Members
from ...ir.graph import OperatorGraph, Value
from ...ir.operators import PRODUCTS, RECURRENT
from ...ir.operators.graph_relations import find_relations
from ...ir.sizes import ZERO, Monomial, Size, dimension_as_size, size_as_dimension, symbol
from ...ir.types import TensorType
from ...support.errors import EqfuseError
from ..base.interface import known_type
from ..base.target import Target
from ..base.weights import Weights
from ..compute import has_lowering, lowerable
from ..plan.kernel_nodes import KERNEL_DOMAIN, KernelSignature, make_kernel_node
from ..plan.plan import Requirement
from ..plan.sizes import extents_of
from .channels_last import channels_last_values, last_shape
from .fallback import LoopCall, loop_call
from .measured import is_open, measured_sizes, reach
from .messages import Answer
from .prim_funcs import DistinctKernels, KernelCall, KernelFunction
from .steps import Kernel, steps

SEARCH_SECONDS = 5.0
"""Seconds that the search for the kernels of one body takes at most: a model may have many bodies."""
_SMALLEST = 32
"""Elements of the largest tensor of a kernel without products: what touches fewer is as fast as a plain loop."""
_BODIES = frozenset({"If", "Loop", "Scan"})


@dataclass(frozen=True)
class GraphKernels:
    """The kernels of one graph, and all of its operators in running order: those of a kernel together."""

    graph: OperatorGraph
    weights: Weights
    last: frozenset[int]
    groups: tuple[Members, ...]
    calls: Mapping[Members, KernelCall]

    def nodes(self, nodes: Sequence[onnx.NodeProto], answers: Mapping[str, Answer]) -> Iterator[onnx.NodeProto]:
        """The nodes with kernels in the place of those that they compute; packed constants come first."""
        if self.last and any(answers[call.symbol].problem for call in self.calls.values()):
            yield from nodes  # what reads a map that has its channels last is a kernel, or none is
            return
        numbers = {value.name: number for number, value in enumerate(self.graph.values)}
        members: dict[int, onnx.NodeProto] = {}
        for node in nodes:
            made = (self.graph.values[numbers[name]].producer for name in node.output if name in numbers)
            place = next((maker for maker in made if maker is not None), None)
            if place is None:
                yield node
            else:
                members[place] = node
        for group in self.groups:
            call = self.calls.get(group)
            if call is None or answers[call.symbol].problem:
                yield from (members[member] for member in group)
            else:
                yield from self._kernel(call, answers[call.symbol])

    def _kernel(self, call: KernelCall, answer: Answer) -> Iterator[onnx.NodeProto]:
        """The node of a kernel, behind those of its packed constants."""
        inputs = []
        for position, value in enumerate(call.inputs):
            name = self.graph.values[value].name
            packing = [repack for repack in answer.repack if repack.parameter == position]
            if packing and self.graph.values[value].is_constant:
                array = self.weights[name]
                for repack in packing:
                    array = repack(array)
                name = f"{name}.packed.{call.symbol}.{position}"
                yield helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
            inputs.append(name)
        results = [self.graph.values[value].name for value in call.outputs]
        yield make_kernel_node(call.symbol, inputs, results, _signature(self.graph, self.last, call.members, call))


@dataclass(frozen=True)
class Stage:
    """Nodes of a graph, by their places in it, and their kernels if they have some."""

    places: tuple[int, ...]
    kernels: GraphKernels | None = None

    def nodes(self, nodes: Sequence[onnx.NodeProto], answers: Mapping[str, Answer]) -> Iterator[onnx.NodeProto]:
        """Its nodes, of all `nodes` of the graph, with kernels in the place of those that they compute."""
        own = [nodes[place] for place in self.places]
        return iter(own) if self.kernels is None else self.kernels.nodes(own, answers)


@dataclass(frozen=True)
class LoopKernels:
    """A program of loops as a model, and each of its graphs (`_graphs`) in stages."""

    model: onnx.ModelProto
    graphs: tuple[tuple[Stage, ...], ...]

    @property
    def symbols(self) -> tuple[str, ...]:
        """The kernels that the program calls."""
        kernels = (stage.kernels for stages in self.graphs for stage in stages if stage.kernels is not None)
        return tuple(dict.fromkeys(call.symbol for each in kernels for call in each.calls.values()))

    def with_answers(self, answers: Mapping[str, Answer]) -> onnx.ModelProto:
        """The model with a node for each kernel that could be compiled."""
        result = onnx.ModelProto()
        result.CopyFrom(self.model)
        pairs = list(zip(graph_protos(result.graph), self.graphs, strict=True))
        for graph, stages in reversed(pairs):  # inner ones first: the nodes of a graph are copied with their bodies
            nodes = [node for stage in stages for node in stage.nodes(graph.node, answers)]
            copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
            del graph.node[:]
            graph.node.extend(copies)
        return result


def _signature(
    graph: OperatorGraph, last: frozenset[int], members: Members, call: KernelCall | KernelFunction
) -> KernelSignature:
    """The operands and results of a kernel. Constants may be packed: no size follows from their shapes."""

    def extents(value: int) -> tuple[int | Size, ...]:
        shape = known_type(graph, value).shape or ()
        return extents_of(last_shape(shape) if value in last else shape)

    inputs, outputs = tuple(map(extents, call.inputs)), tuple(map(extents, call.outputs))
    own = {name for shape in inputs for size in shape if isinstance(size, Size) for name in size.names()}
    required = tuple(
        Requirement(relation, graph.operators[operator or members[0]].name)
        for operator, relation in find_relations(graph)
        if operator in members or (operator is None and relation.names() <= own)
    )
    return KernelSignature(inputs, outputs, tuple(known_type(graph, v).dtype for v in call.outputs), required)


def _is_solvable(graph: OperatorGraph, last: frozenset[int], members: Members, function: KernelFunction) -> bool:
    """Whether the sizes of a kernel follow from the shapes of its operands."""
    try:
        _signature(graph, last, members, function).solve()
    except ValueError:
        return False
    return True


def find_kernels(step: LoopCall, distinct: DistinctKernels, target: Target) -> LoopKernels | None:
    """The kernels of a program with bodies or measured sizes, as functions of `distinct`; None if it has none.

    Types are inferred for all bodies at once, and what these decide is taken out.
    """
    has_bodies = any(node.op_type in _BODIES for node in step.model.graph.node)
    if not has_bodies and not measured_sizes(step.model.graph):
        return None
    with suppress(EqfuseError):
        flat = flatten(read(step.model))
        infer_flat(flat)
        nested = nest(flat.model, flat)
        typed = flatten(nested)
        knowledge = infer_flat(typed)
        types = {name: _known_sizes(type_, knowledge.symbols) for name, type_ in knowledge.types.items()}
        model = serde.serialize_model(nested.ir)
        for own, given in ((model.graph.input, step.model.graph.input), (model.graph.output, step.model.graph.output)):
            del own[:]
            own.extend(given)
        graphs = tuple(
            tuple(_find_stages(graph, constants, types, model, distinct, target))
            for graph, constants in _with_constants(model.graph, {})
        )
        kernels = LoopKernels(model, graphs)
        return kernels if kernels.symbols else None
    return None


def call_kernels(
    step: LoopCall, kernels: LoopKernels, answers: Mapping[str, Answer], graph: OperatorGraph
) -> LoopCall:
    """The program of loops with the kernels that could be compiled."""
    model = kernels.with_answers(answers)
    called = (n.op_type for inner in graph_protos(model.graph) for n in inner.node if n.domain == KERNEL_DOMAIN)
    part = replace(step.part, model=model)
    return replace(loop_call(graph, part, step.bounds), called=tuple(dict.fromkeys(called)))


def _with_constants(
    graph: onnx.GraphProto, outer: Mapping[str, onnx.TensorProto]
) -> Iterator[tuple[onnx.GraphProto, Mapping[str, onnx.TensorProto]]]:
    """A graph and those within, each with the constants that it can read."""
    constants = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    yield graph, constants
    for node in graph.node:
        for body in body_protos(node):
            yield from _with_constants(body, constants)


def _reads(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """The values that nodes read, those of their bodies, too."""
    for node in nodes:
        yield from filter(None, node.input)
        for body in body_protos(node):
            own = {name for inner in body.node for name in inner.output}
            own |= {port.name for port in body.input} | {tensor.name for tensor in body.initializer}
            yield from (name for name in (*_reads(body.node), *(o.name for o in body.output)) if name not in own)


def _as_model(
    graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto], types: Mapping[str, TensorType],
    model: onnx.ModelProto,
) -> Model:  # fmt: skip
    """A graph as a model of its own: its inputs are what it reads of others."""
    computed = {name for node in graph.node for name in node.output}
    read_names = dict.fromkeys((*_reads(graph.node), *(o.name for o in graph.output)))
    outside = [name for name in read_names if name not in computed and name not in constants]
    stored = []
    for name in read_names:
        if name in constants and name not in computed:
            stored.append(onnx.TensorProto())
            stored[-1].CopyFrom(constants[name])
            stored[-1].name = name
    ports = [_port(name, types) for name in outside]
    results = [_port(o.name, types) for o in graph.output]
    named = [_port(name, types) for name in computed if name in types]
    whole = helper.make_graph(graph.node, "body", ports, results, stored, value_info=named)
    return read(helper.make_model(whole, opset_imports=model.opset_import, ir_version=model.ir_version))


def _port(name: str, types: Mapping[str, TensorType]) -> onnx.ValueInfoProto:
    if name not in types:
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, int(dtype_of(types[name].dtype)), types[name].shape)


def _known_sizes(type_: TensorType, symbols: Collection[str]) -> TensorType:
    """The type without names of sizes that are no symbols: these mean nothing."""
    if type_.shape is None:
        return type_
    return replace(type_, shape=tuple(d if isinstance(d, int) or d in symbols else NAMELESS for d in type_.shape))


def _find_stages(
    graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto], types: Mapping[str, TensorType],
    model: onnx.ModelProto, distinct: DistinctKernels, target: Target,
) -> Iterator[Stage]:  # fmt: skip
    """The nodes of a graph in running order: each stage has known sizes, or decides some that the next ones meet."""
    left: Sequence[int] = range(len(graph.node))
    while left:
        part = _take_nodes(graph, left)
        own = _as_model(part, constants, types, model)
        operators = operator_graph(own, infer(own), distinct.graph.sizes)
        deciding = _find_deciding(operators)
        beyond = reach({after for n in deciding for after in operators.successors[n]}, operators.successors)
        producers = {operators.values[v].name: n for n, o in enumerate(operators.operators) for v in o.outputs}
        makers = {place: producers.get(next(filter(None, graph.node[place].output), "")) for place in left}
        first = tuple(place for place in left if makers[place] not in deciding | beyond)
        if first and len(first) < len(left):
            own = _as_model(_take_nodes(graph, first), constants, types, model)
            operators = operator_graph(own, infer(own), distinct.graph.sizes)
        if first:
            yield Stage(first, _find(own, operators, distinct, target))
        yield Stage(tuple(place for place in left if makers[place] in deciding - beyond))
        left = [place for place in left if makers[place] in beyond]


def _find_deciding(graph: OperatorGraph) -> set[int]:
    """The operators with a result whose size does not follow from the shapes of their operands."""
    unknown = {number for number, value in enumerate(graph.values) if is_open(value)}
    return {
        number for number, operator in enumerate(graph.operators)
        if unknown.isdisjoint(operator.inputs) and not unknown.isdisjoint(operator.outputs)
    }  # fmt: skip


def _take_nodes(graph: onnx.GraphProto, places: Sequence[int]) -> onnx.GraphProto:
    """Some nodes of a graph, which returns what others read of them or it returns itself."""
    if len(places) == len(graph.node):
        return graph
    taken = set(places)
    part, others = onnx.GraphProto(), [node for place, node in enumerate(graph.node) if place not in taken]
    part.node.extend(graph.node[place] for place in places)
    read_names = {*_reads(others), *(output.name for output in graph.output)}
    made = dict.fromkeys(name for node in part.node for name in node.output if name in read_names)
    part.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    return part


def _find(own: Model, typical: OperatorGraph, distinct: DistinctKernels, target: Target) -> GraphKernels | None:
    """The kernels of one graph; None if it has none."""
    weights = Weights(own)
    operators = _name_broadcasts(typical.at_call)
    alone = [n for n, operator in enumerate(operators.operators) if not has_lowering(operator, operators)]
    if len(alone) == len(operators):
        return None
    costs = KernelModel(typical, target.device, intensive=False, threads=target.threads, alone=alone)
    groups = search_partition(typical, costs, monotonic() + SEARCH_SECONDS).partition.members
    candidates = [
        step.members for step in steps(operators, groups)
        if isinstance(step, Kernel) and _is_worthwhile(operators, typical, step.members)
    ]  # fmt: skip
    while candidates:
        kept = set(candidates)
        plain = (v for group in groups if tuple(sorted(group)) not in kept for v in _touched(operators, group))
        last = channels_last_values(operators, tuple(steps(operators, groups))) - frozenset(plain)
        lowering = distinct.within(operators, weights, last)
        functions = {group: lowering.lower(Kernel(group)) for group in candidates}
        candidates = [
            group for group, function in functions.items()
            if isinstance(function, KernelFunction) and _is_solvable(operators, last, group, function)
        ]  # fmt: skip
        if len(candidates) < len(functions):
            continue
        calls = {group: lowering.call(group, f) for group, f in functions.items() if isinstance(f, KernelFunction)}
        return GraphKernels(operators, weights, last, tuple(tuple(sorted(group)) for group in groups), calls)
    return None


def _name_broadcasts(graph: OperatorGraph) -> OperatorGraph:
    """The graph with a name for each size that broadcasts unknown ones, as max(a, b)*min(1, a, b): neither a nor b
    follows from the shape of a result, which is all that most kernels get of them."""
    names: dict[Monomial, str] = {}

    def named(size: Size) -> Size:
        total = ZERO
        for factors, count in size.terms:
            extremes = tuple(factor for factor in factors if factor.kind in ("max", "min"))
            others = Size(((tuple(factor for factor in factors if factor not in extremes), count),))
            if any(len(Size((((factor,), 1),)).names()) > 1 for factor in extremes):
                others *= symbol(names.setdefault(extremes, f"broadcast_{len(names)}"))
            else:
                others = Size(((factors, count),))
            total += others
        return total

    def of_value(value: Value) -> Value:
        if value.type is None or value.type.shape is None:
            return value
        sizes = ((extent, dimension_as_size(extent)) for extent in value.type.shape)
        shape = tuple(extent if size is None else size_as_dimension(named(size)) for extent, size in sizes)
        return replace(value, type=replace(value.type, shape=shape))

    return replace(graph, values=tuple(map(of_value, graph.values)))


def _touched(graph: OperatorGraph, members: Iterable[int]) -> Iterator[int]:
    operators = (graph.operators[member] for member in members)
    return (value for o in operators for value in (*o.inputs, *o.outputs) if value is not None)


def _is_worthwhile(graph: OperatorGraph, typical: OperatorGraph, members: Collection[int]) -> bool:
    """Whether operators have a lowering, and enough to do at the sizes that are optimised for."""
    if any(lowerable(graph.operators[member], graph) for member in members):
        return False
    if any(graph.operators[member].op in PRODUCTS | RECURRENT for member in members):
        return True
    return max((typical.values[v].extent.elements for v in _touched(graph, members)), default=0) >= _SMALLEST
