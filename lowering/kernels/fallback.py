"""Kernels without a lowering: each a small ONNX model, as plain C loops or, if it has none, in ONNX Runtime."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper
from onnx_ir import serde

from ...engine.bodies.inference import find_trips
from ...engine.onnx.model import Model
from ...engine.onnx.nodes import has_body, layer_nodes, outer_values
from ...engine.onnx.runtime_values import session_options
from ...engine.onnx.typing import dtype_of
from ...engine.onnx.wellformed import body_protos
from ...engine.shapes.inference import infer
from ...ir.graph import Operator, OperatorGraph
from ...ir.operators import TO_SHAPES
from ...ir.sizes import Atom, Size, floor_divide
from ...support.custom_operators import explain_refusal
from ..base.errors import LoweringError
from ..base.interface import known_type
from ..base.weights import Weights
from ..loops.instance import why_no_loop
from ..loops.program import Program, loop_program
from ..plan.plan import LOOP
from ..plan.sizes import Extent, Solution, extents_of, size_of, solve_sizes
from .map_copies import is_copy, name_in_model
from .measured import find_bounds, measured_sizes


@dataclass
class SizeNodes:
    """Nodes that compute shapes from those of `tensors`, by their names; each size once."""

    tensors: Mapping[str, Sequence[Extent]] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    _names: dict[Size, str] = field(default_factory=dict)

    def add_shape(self, name: str, shape: Iterable[Extent], dtype: str = "int64") -> None:
        """A list of sizes as the value `name`. Raises ValueError with the name of a size that no tensor tells."""
        sizes = [self._size(size_of(extent)) for extent in shape]
        joined = self._add("Concat", *sizes, axis=0)
        self.nodes.append(helper.make_node("Cast", [joined], [name], to=int(dtype_of(dtype))))

    @property
    def results(self) -> set[str]:
        """The values that the nodes compute."""
        return {node.output[0] for node in self.nodes}

    @property
    def read(self) -> tuple[str, ...]:
        """The tensors whose shapes are read."""
        return tuple(dict.fromkeys(node.input[0] for node in self.nodes if node.op_type == "Shape"))

    def _size(self, size: Size) -> str:
        if size not in self._names:
            self._names[size] = self._solve(size) if size.atom and size.atom.kind == "symbol" else self._sum(size)
        return self._names[size]

    def _sum(self, size: Size) -> str:
        if size.number is not None:
            return self._constant(size.number)
        terms = [
            reduce(lambda a, b: self._add("Mul", a, b), map(self._atom, factors), self._constant(coefficient))
            for factors, coefficient in size.terms
        ]
        return reduce(lambda a, b: self._add("Add", a, b), terms)

    def _atom(self, atom: Atom) -> str:
        if atom.kind == "symbol":
            return self._size(Size((((atom,), 1),)))
        parts = [self._size(part) for part in atom.parts]
        return self._add({"floor": "Div", "min": "Min", "max": "Max"}[atom.kind], *parts)

    def _solve(self, size: Size) -> str:
        (name,) = size.names()
        ports = list(self.tensors)
        steps = solve_sizes([self.tensors[port] for port in ports])
        found = next((step for step in steps if isinstance(step, Solution) and step.name == name), None)
        if found is None:
            raise ValueError(name)
        shape = self._add("Shape", ports[found.port])
        extent = self._add("Gather", shape, self._constant(found.axis))
        rest = self._add("Sub", extent, self._size(found.rest))
        return self._add("Div", rest, self._constant(found.factor))

    def _constant(self, number: int) -> str:
        name = f"{_PREFIX}{len(self.nodes)}"
        value = numpy_helper.from_array(np.array([number], np.int64))
        self.nodes.append(helper.make_node("Constant", [], [name], value=value))
        return name

    def _add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"{_PREFIX}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name


_PREFIX = "eqfuse.size"
"""The prefix of the names of values; a number follows."""


_NAMED_OPERATORS = 4
"""Operators in the name of a loop."""
_KEY_DIGITS = 8
"""Hexadecimal digits of a digest in the name of a loop: two of a thousand meet with a probability of 1 in 10,000."""
FOLDER = "fallback"
"""The folder of the models in a bundle; each is named by its number."""


@dataclass(frozen=True)
class Fallback:
    """Operators that ONNX Runtime runs: `members` of the graph, of which `inputs` and `outputs` are values; `reason`
    says why."""

    members: tuple[int, ...]
    operators: tuple[str, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    reason: str
    model: onnx.ModelProto


@dataclass(frozen=True)
class LoopCall:
    """The operators of a part as plain C loops: a function of the values `inputs`, constants too, and then of the
    part's outputs, with the name `symbol`."""

    symbol: str
    part: Fallback
    inputs: tuple[int, ...]
    program: Program
    bounds: Mapping[str, Size | None]
    """The names of the sizes that it computes, in the order in which its last result has them, and their bounds.
    None: the memory of a value that has the size grows with it."""
    called: tuple[str, ...] = ()
    """The kernels that it calls."""

    @property
    def members(self) -> tuple[int, ...]:
        """The numbers of its operators."""
        return self.part.members

    @property
    def operators(self) -> tuple[str, ...]:
        """The types of its operators in ONNX."""
        return self.part.operators

    @property
    def outputs(self) -> tuple[int, ...]:
        """The values that it computes."""
        return self.part.outputs

    @property
    def reason(self) -> str:
        """Why no kernel does it."""
        return self.part.reason

    @property
    def model(self) -> onnx.ModelProto:
        """The operators as a model, with its constants."""
        return self.part.model


def without_kernel(
    graph: OperatorGraph, members: Iterable[int], weights: Weights, reason: str, last: Collection[int] = ()
) -> LoopCall | Fallback:
    """How operators without a kernel run: as plain loops if all of them have one, else in ONNX Runtime.

    Values `last` are read and written with their channels last. Raises LoweringError if neither can run them.
    """
    part = _cut_out(graph, members, weights, reason, last)
    try:
        return loop_call(graph, part, find_bounds(part.model, _trips(part.model, weights.model)))
    except LoweringError as error:
        if measured_sizes(part.model.graph):
            nodes = part.model.graph.node
            culprit = next((node.name for node in nodes if why_no_loop(node.op_type, node.domain, ())), "")
            raise LoweringError(
                f"{culprit or part.operators[0]}: {error}, and ONNX Runtime cannot run it in a bundle, since a size of "
                "its result is known in a call alone; `eqfuse optimize` takes the model"
            ) from None
        _require_runnable(part.model, part.operators, reason)
        return part


def loop_call(graph: OperatorGraph, part: Fallback, bounds: Mapping[str, Size | None]) -> LoopCall:
    """The operators as loops, which read constants of the model like other values; `bounds` are those of sizes that are
    measured. Raises LoweringError."""
    model = onnx.ModelProto()
    model.CopyFrom(part.model)
    if any(_is_training(node, model) for node in model.graph.node):
        raise LoweringError("Dropout drops at random")
    inputs, inner = list(part.inputs), []
    read = dict.fromkeys(v for m in part.members for v in graph.operators[m].inputs if v is not None)
    numbers = {name_in_model(graph.values[v]): v for v in read}
    read_names = set(list_reads(model.graph))
    for tensor in model.graph.initializer:
        if tensor.name not in read_names:
            continue
        if tensor.name not in numbers:
            inner.append(tensor)
            continue
        inputs.append(numbers[tensor.name])
        model.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    del model.graph.initializer[:]
    model.graph.initializer.extend(inner)
    digest = sha256(model.SerializeToString(deterministic=True)).hexdigest()[:_KEY_DIGITS]
    operators = "_".join(re.sub(r"\W", "", operator).lower() for operator in part.operators[:_NAMED_OPERATORS])
    symbol = f"{LOOP}{digest}_{operators}"
    program = loop_program(model, symbol, list(measured_sizes(model.graph).values()))
    return LoopCall(symbol, part, tuple(inputs), program, bounds)


def _trips(part: onnx.ModelProto, model: Model) -> dict[str, Size]:
    """How often Loops of a part run at most whose limits the model computes from sizes; only if sizes are measured."""
    limits = [node.input[0] for node in part.graph.node if node.op_type == "Loop"]
    if not any(limits) or not measured_sizes(part.graph):
        return {}
    knowledge = infer(model)
    trips = {name: find_trips(knowledge, name) for name in limits}
    return {name: count for name, count in trips.items() if count is not None}


def _is_training(node: onnx.NodeProto, model: onnx.ModelProto) -> bool:
    """Whether a node is a Dropout that is told to drop, or may be told so in a call."""
    named = node.input[2] if node.op_type == "Dropout" and len(node.input) > 2 else ""
    stored = [numpy_helper.to_array(tensor).any() for tensor in model.graph.initializer if tensor.name == named]
    return bool(named) and (not stored or bool(stored[0]))


def list_reads(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that a graph and its bodies read and return."""
    yield from (output.name for output in graph.output)
    for node in graph.node:
        yield from node.input
        for body in body_protos(node):
            yield from list_reads(body)


def fallback(
    graph: OperatorGraph, members: Iterable[int], weights: Weights, reason: str, last: Collection[int] = ()
) -> Fallback:
    """The operators in ONNX Runtime, which reads and writes the values `last` with their channels last.

    Raises LoweringError if it cannot run them.
    """
    part = _cut_out(graph, members, weights, reason, last)
    _require_runnable(part.model, part.operators, reason)
    return part


def _cut_out(
    graph: OperatorGraph, members: Iterable[int], weights: Weights, reason: str, last: Collection[int]
) -> Fallback:
    """The model of operators, with its constants; it reads and writes the values `last` with their channels last."""
    inside = tuple(sorted(members))
    if any(is_copy(graph.operators[member]) for member in inside):
        return _copy(graph, inside, reason, last)
    touched = {v for m in inside for v in (*graph.operators[m].inputs, *graph.operators[m].outputs) if v is not None}
    numbers = {value.name: number for number, value in enumerate(graph.values)}
    numbers |= {name_in_model(graph.values[number]): number for number in touched}
    producers = {output.name: node for node in weights.model.graph for output in node.outputs if output.name}
    nodes = [producers[name_in_model(graph.values[graph.operators[index].outputs[0]])] for index in inside]
    computed = {output.name for node in nodes for output in node.outputs if output.name}
    sizes, protos = _compute_targets(graph, inside, nodes, weights)
    outer = [v.name or "" for node in nodes if has_body(node) for v in outer_values(node, weights.model.graph)]
    reads = (*sizes.read, *(name for proto in protos for name in proto.input), *outer)
    read = dict.fromkeys(name for name in reads if name and name not in computed | sizes.results)
    inputs = tuple(numbers[n] for n in read if n in numbers and not is_constant(graph, numbers[n], weights.model))
    leaving = (v for index in inside for v in graph.operators[index].outputs)
    outputs = tuple(
        v for v in leaving if graph.values[v].is_output or not set(graph.consumers[v]).issubset(inside)
    )
    operators = tuple(graph.operators[index].op for index in inside)
    fed = {name_in_model(graph.values[value]) for value in inputs}
    proto = onnx.ModelProto(ir_version=max(8, weights.model.ir.ir_version))
    proto.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in weights.model.ir.opset_imports.items())
    proto.graph.name = "fallback"
    proto.graph.node.extend((*sizes.nodes, *protos))
    proto.graph.initializer.extend(numpy_helper.from_array(weights[name], name) for name in read if name not in fed)
    for ports, values in ((proto.graph.input, inputs), (proto.graph.output, outputs)):
        ports.extend(_make_port(graph, value, name_in_model(graph.values[value])) for value in values)
    _store_last(proto.graph, {name_in_model(graph.values[value]) for value in last if value in touched})
    opaque = (graph.operators[index] for index in inside if graph.operators[index].op in ("Loop", "Scan", "If"))
    proto.graph.value_info.extend(
        _make_port(graph, value, name_in_model(graph.values[value]), anything=True)
        for operator in opaque
        for value in operator.outputs
    )
    return Fallback(inside, operators, inputs, outputs, reason, proto)


def _copy(graph: OperatorGraph, inside: tuple[int, ...], reason: str, last: Collection[int]) -> Fallback:
    """The model of one operator that copies a map: both of its ends have one name in the model."""
    (operator,) = (graph.operators[member] for member in inside)
    (source,), (result,) = operator.inputs, operator.outputs
    assert source is not None
    ends = [_make_port(graph, result, name) for name in ("from", "to")]
    copy = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["from"], ["to"])], "copy", ends[:1], ends[1:])
    stored = zip(("from", "to"), (source, result), strict=True)
    _store_last(copy, {name for name, value in stored if value in last})
    proto = onnx.helper.make_model(copy, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return Fallback(inside, (operator.op,), (source,), (result,), reason, proto)


def is_constant(graph: OperatorGraph, number: int, model: Model) -> bool:
    """Whether a value is known before any run; defaults that callers of the original may replace are compiled in."""
    value = graph.values[number]
    return value.is_constant or (value.producer is None and value.name in model.graph.initializers)


def _compute_targets(
    graph: OperatorGraph, inside: Sequence[int], nodes: Sequence[ir.Node], weights: Weights
) -> tuple[SizeNodes, list[onnx.NodeProto]]:
    """The nodes of operators, and those that compute what they read and kernels do not: the shapes of results."""
    model = weights.model
    given = [n for n, value in enumerate(graph.values) if value.producer is None and not is_constant(graph, n, model)]
    sizes = SizeNodes()
    protos = [serde.serialize_node(node) for node in nodes]
    for index, proto in zip(inside, protos, strict=True):
        operator, place = graph.operators[index], _TARGETS.get(proto.op_type, len(proto.input))
        is_read = operator.is_opaque or any(v is not None for v in operator.inputs[place : place + 1])
        if is_read or place >= len(proto.input) or not _is_computed(proto.input[place], model):
            continue
        proto.input[place] += f".{index}"
        sizes.tensors = sizes.tensors or {name_in_model(graph.values[n]): _extents(graph, n) for n in given}
        dtype = known_type(graph, operator.outputs[0]).dtype if proto.op_type == "Range" else "int64"
        try:
            sizes.add_shape(proto.input[place], _target(proto, graph, operator, weights), dtype)
        except ValueError as unknown:
            raise LoweringError(f"{operator.name}: its size {unknown} follows from no input") from None
    return sizes, protos


def _target(node: onnx.NodeProto, graph: OperatorGraph, operator: Operator, weights: Weights) -> list[Extent]:
    """The elements of the input that the shape of a result depends on."""
    shape = _extents(graph, operator.outputs[0])
    if node.op_type == "Tile" and operator.inputs[0] is not None:
        before = _extents(graph, operator.inputs[0])
        return [floor_divide(size_of(n), size_of(m)) for n, m in zip(shape, before, strict=True)]
    if node.op_type != "Slice":
        axes = next((a.ints for a in node.attribute if a.name == "axes"), range(len(shape)))
        return [shape[axis] for axis in axes]
    starts = weights[node.input[1]].tolist()
    axes, steps = (
        weights[node.input[n]].tolist() if len(node.input) > n and node.input[n] else other
        for n, other in ((3, range(len(starts))), (4, [1] * len(starts)))
    )
    ends = zip(starts, axes, steps, strict=True)
    return [size_of(shape[axis]).scale(step) + size_of(start) for start, axis, step in ends]


def _is_computed(name: str, model: Model) -> bool:
    """Whether a value depends on an input of the model."""
    return any(name == output.name for node in layer_nodes(model) for output in node.outputs)


def _extents(graph: OperatorGraph, value: int) -> tuple[Extent, ...]:
    return extents_of(known_type(graph, value).shape or ())


_TARGETS = {**dict.fromkeys(TO_SHAPES, 1), "Resize": 3, "Range": 1, "Slice": 2, "Tile": 1}
"""The place of the input that the shape of the result depends on; kernels do without it if it is computed. The end of
a Range is its size if it counts from 0, as it does in kernels without that input."""


def _make_port(graph: OperatorGraph, value: int, name: str, anything: bool = False) -> onnx.ValueInfoProto:
    """A value as an input or output; with `anything`, as far as its type is known."""
    type_ = graph.values[value].type if anything else None
    type_ = type_ or known_type(graph, value)
    return onnx.helper.make_tensor_value_info(name, int(dtype_of(type_.dtype)), type_.shape)


def _store_last(graph: onnx.GraphProto, names: Collection[str]) -> None:
    """Transposes those inputs, in front of all nodes, and outputs, behind them."""
    before, after = [], []
    for info in (*graph.input, *graph.output):
        dimensions = info.type.tensor_type.shape.dim
        axes = [0, *range(2, len(dimensions)), 1]
        if info.name not in names:
            continue
        shape, outer = [d.dim_param or d.dim_value for d in dimensions], f"{info.name}.channels_last"
        if any(info is given for given in graph.input):
            inverse = [0, len(axes) - 1, *range(1, len(axes) - 1)]
            before.append(onnx.helper.make_node("Transpose", [outer], [info.name], perm=inverse))
        else:
            after.append(onnx.helper.make_node("Transpose", [info.name], [outer], perm=axes))
        kind = info.type.tensor_type.elem_type
        info.CopyFrom(onnx.helper.make_tensor_value_info(outer, kind, [shape[a] for a in axes]))
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)


def _require_runnable(proto: onnx.ModelProto, operators: tuple[str, ...], reason: str) -> None:
    import onnxruntime

    options = session_options()  # optimising would run constant Loops
    try:
        onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions share no base class of their own
        text = explain_refusal(" ".join(str(error).split())[:200])
        raise LoweringError(
            f"{', '.join(operators)}: cannot be compiled ({reason}), and ONNX Runtime does not run it: {text}"
        ) from None


def store(fallbacks: Iterable[Fallback], folder: Path) -> None:
    """Write the models into the folder of a bundle."""
    for number, entry in enumerate(fallbacks):
        (folder / FOLDER).mkdir(exist_ok=True)
        (folder / FOLDER / f"{number}.onnx").write_bytes(entry.model.SerializeToString())
