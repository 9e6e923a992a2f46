"""From a selection back to an ONNX model: ``Selection -> Model``.

Nodes of the model that were chosen again stay, with their names, doc strings and metadata; only the others are new.
Values keep their names wherever the new graph still computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import onnx_ir as ir

from ...costmodels.runtime import NO_RUNTIME, Quantised, Runtime
from ...ir.operation import VARIADIC
from ...ir.operators import OPERATORS
from ...support.errors import EqfuseError
from ..onnx.model import Model
from ..onnx.nodes import has_body, is_standard
from ..onnx.typing import dtype_name, dtype_of
from ..onnx.wellformed import body_graphs
from ..shapes.inference import Knowledge
from .emit import Emission, emit_node
from .encode import OPAQUE, Encoding
from .folding import FOLD, Array, Folder, uniform_element
from .graph import EGraph, ENode, Selection
from .kernel_types import copying_operator
from .plan import PlanStep, is_value, locate_origins, missing_value_error, plan_steps
from .spellings import Earlier, Operand

_FILL_FROM = 256
"""A uniform constant of at least this many bytes is written as a ConstantOfShape."""
_AXES_AS_INPUT = 18
"""The first opset whose ReduceMean has its axes as an input."""
_FILL_OPSET = 9
"""The first opset that has ConstantOfShape."""


@dataclass
class _Decoder:
    """Builds the new graph inside `target`, a clone of the source."""

    source: Model
    target: ir.Model
    egraph: EGraph
    encoding: Encoding
    constants: Mapping[int, Array]
    known: Mapping[str, Array]
    runtime: Runtime
    by_name: dict[str, ir.Value] = field(default_factory=dict)
    values: dict[int, ir.Value] = field(default_factory=dict)
    outputs: dict[int, tuple[ir.Value, ...]] = field(default_factory=dict)
    several: dict[int, tuple[ir.Value, ...]] = field(default_factory=dict)
    nodes: list[ir.Node] = field(default_factory=list)
    clones: list[ir.Node] = field(default_factory=list)
    lists: dict[tuple[Any, ...], ir.Value] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    names: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    apart: Mapping[int, str] = field(default_factory=dict)
    choice: Mapping[int, ENode] = field(default_factory=dict)

    @property
    def graph(self) -> ir.Graph:
        return self.target.graph

    @cached_property
    def projections(self) -> dict[tuple[int, int], list[int]]:
        """Classes whose chosen value is an output of a node with several, by that node's class and the output's number.

        Other classes may hold that output too, but their value, and its name, comes from another node.
        """
        owners: dict[tuple[int, int], list[int]] = {}
        for owner, node in self.choice.items():
            if node.op == "Out":
                owners.setdefault((node.children[0], int(node.attributes[0])), []).append(owner)  # type: ignore[arg-type]
        return owners

    def prepare(self) -> None:
        """Take the clone's nodes out; they go back in one by one."""
        self.clones = list(self.graph)
        for value in (*self.graph.inputs, *self.graph.initializers.values()):
            self.by_name[value.name or ""] = value
        for node in self.clones:
            self.by_name |= {o.name: o for o in node.outputs if o.name}
        self.taken = set(self.by_name)
        self.graph.remove(self.clones)

    # --- values

    def make(self, step: PlanStep) -> None:
        if step.node == FOLD:
            self.values[step.owner] = self.constant(step.owner)
        elif step.node.op == "Var":
            name = str(step.node.attributes[0])
            if name != OPAQUE:
                self.values[step.owner] = self.by_name[name]
        elif step.node.op == "Out":
            index = int(step.node.attributes[0])  # type: ignore[arg-type]
            self.values[step.owner] = self.outputs[step.node.children[0]][index]
        elif step.node.op != "Absent":
            self.node(step)

    def constant(self, owner: int) -> ir.Value:
        """The initializer of a constant class: the model's own if it has one."""
        names = self.names.get(owner, ())
        outputs = {o.name for o in self.graph.outputs}
        name = next((n for n in names if n not in outputs), None) or self.fresh("folded")
        for stored in names:
            if stored in self.graph.initializers and stored in self.source.stored:
                return self.graph.initializers[stored]
            if stored in self.source.stored:
                return self.initializer(name, self.source.stored[stored])
        array = self.constants[owner]
        fills = array.nbytes >= _FILL_FROM and self.source.opset >= _FILL_OPSET
        element = uniform_element(array) if fills else None
        return self.initializer(name, array) if element is None else self.fill(name, array, element)

    def initializer(self, name: str, content: Array | ir.TensorProtocol) -> ir.Value:
        value = ir.Value(name=name)
        tensor = ir.tensor(np.asarray(content, order="C"), name=name) if isinstance(content, np.ndarray) else content
        value.const_value, value.dtype, value.shape = tensor, tensor.dtype, ir.Shape(tensor.shape.numpy())
        self.graph.register_initializer(value)
        if self.target.ir_version < 4:
            self.graph.inputs.append(value)
        return value

    def fill(self, name: str, array: Array, element: Any) -> ir.Value:
        shape = self.shared_constant(np.asarray(array.shape, np.int64))
        attributes = {"value": ir.tensor(np.asarray([element], array.dtype))}
        node = ir.node("ConstantOfShape", [shape], attributes=attributes, name=self.fresh("Fill"))
        output = node.outputs[0]
        output.name, output.dtype, output.shape = name, dtype_of(array.dtype.name), ir.Shape(array.shape)
        self.nodes.append(node)
        return output

    def shared_constant(self, array: Array) -> ir.Value:
        """A small constant, one initializer for all equal ones."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.lists:
            self.lists[key] = self.initializer(self.fresh("list"), array)
        return self.lists[key]

    def fresh(self, stem: str) -> str:
        """A name that nothing in the model has."""
        number = len(self.taken)
        while f"{stem}.{number}" in self.taken:
            number += 1
        self.taken.add(f"{stem}.{number}")
        return f"{stem}.{number}"

    # --- nodes

    def node(self, step: PlanStep) -> None:
        node = self.new(step) if step.original is None else self.keep(self.clones[step.original])
        self.complete(node, step)
        if not node.attributes:  # an Add has some before opset 7
            node.op_type = self.apart.get(step.owner, node.op_type)
        self.nodes.append(node)
        self.outputs[step.owner] = tuple(node.outputs)
        if is_value(step.node):
            self.values[step.owner] = node.outputs[0]
        elif step.original is not None:
            self.several[step.owner] = tuple(node.outputs)

    def complete(self, node: ir.Node, step: PlanStep) -> None:
        """Name the outputs that are read, or may not be left out."""
        row = OPERATORS.get(step.node.op)
        node.resize_outputs(max(len(node.outputs), row.outputs if row is not None else 1))
        for index, output in enumerate(node.outputs):
            if row is not None and row.outputs > 1 and not (output.name or self._projections(step.owner, index)):
                output.name = ""
            elif not output.name:
                output.name = self._output_name(step, None if is_value(step.node) else index)
                self._annotate(output, step, index)

    def keep(self, node: ir.Node) -> ir.Node:
        """A node of the model on the new values of its operands."""
        for index, value in enumerate(node.inputs):
            if value is not None:
                node.replace_input_with(index, self.current(value))
        if has_body(node):
            self.rebind(node)
        return node

    def current(self, value: ir.Value) -> ir.Value:
        """The new value for a value of the original graph."""
        name = value.name or ""
        owner = self.egraph.terms[self.encoding.values[name]]
        if owner not in self.values:  # the e-node holds this constant list as a literal
            stored = name in self.graph.initializers
            self.values[owner] = value if stored else self.initializer(name, self.known[name])
        return self.values[owner]

    def rebind(self, node: ir.Node) -> None:
        """Point references from the bodies to the outer graph at the new values."""
        for body in body_graphs(node):
            for inner in body.all_nodes():
                for index, value in enumerate(inner.inputs):
                    if value is not None and self.by_name.get(value.name or "") is value:
                        inner.replace_input_with(index, self.current(value))
            for index, value in enumerate(body.outputs):
                if self.by_name.get(value.name or "") is value:
                    body.outputs[index] = self.current(value)

    def new(self, step: PlanStep) -> ir.Node:
        spec = self._emission(step)
        if spec.lines:
            return self.spell_out(spec, step)
        inputs = [self._input(i, step) for i in spec.inputs]
        node = ir.node(
            spec.op_type, inputs, spec.attributes, domain=spec.domain, num_outputs=spec.outputs,
            name=self.fresh(spec.op_type),
        )  # fmt: skip
        if spec.domain:
            self.target.opset_imports.setdefault(spec.domain, 1)
        return node

    def spell_out(self, spec: Emission, step: PlanStep) -> ir.Node:
        """Several nodes for one e-node: adds all but the last and returns the last, which computes the value."""
        nodes: list[ir.Node] = []

        def operand(source: Operand | Earlier | float) -> ir.Value:
            if isinstance(source, Operand):
                return self.values[step.operands[source.position]]
            if isinstance(source, Earlier):
                return nodes[source.line].outputs[0]
            return self.shared_constant(np.asarray(source, np.float32))

        is_reducing = any(line.axes for line in spec.lines)
        for line in spec.lines:
            inputs, attributes = [operand(i) for i in line.inputs], {}
            if line.axes and self.source.opset < _AXES_AS_INPUT:
                attributes["axes"] = line.axes
            elif line.axes:
                inputs.append(self.shared_constant(np.asarray(line.axes, np.int64)))
            nodes.append(ir.node(line.op_type, inputs, attributes=attributes, name=self.fresh(line.op_type)))
            nodes[-1].outputs[0].name = self.fresh("value")
            if not is_reducing:
                self._annotate(nodes[-1].outputs[0], step, 0)
        self._annotate(nodes[-1].outputs[0], step, 0)
        nodes[-1].outputs[0].name = self._output_name(step, None)
        self.nodes += nodes[:-1]
        return nodes[-1]

    def _emission(self, step: PlanStep) -> Emission:
        if step.node.op in VARIADIC:
            names = (attribute.name for attribute in OPERATORS[step.node.op].attributes)
            attributes = dict(zip(names, step.node.attributes, strict=True))
            return Emission(step.node.op, tuple(range(len(step.operands))), attributes)
        types = tuple(self.egraph.classes[c].type for c in step.operands)
        symbols = {number: name for name, number in self.encoding.symbols.items()}
        output = self.egraph.classes[step.owner].type
        spec = emit_node(
            step.node, types, output, self.source.opset, symbols, self.egraph.absent, runs=True, runtime=self.runtime
        )
        if spec is None:
            raise EqfuseError(f"internal error: {step.node.op} was chosen but cannot be written at this opset")
        return spec

    def _input(self, source: int | Array | None, step: PlanStep) -> ir.Value | None:
        if source is None:
            return None
        return self.values[step.operands[source]] if isinstance(source, int) else self.shared_constant(source)

    def _output_name(self, step: PlanStep, index: int | None) -> str:
        """The first name that a value of this class had, or a new one."""
        owners = [step.owner] if index is None else self._projections(step.owner, index)
        names = [n for o in owners for n in self.names.get(o, ())]
        return names[0] if names else self.fresh("value")

    def _projections(self, owner: int, index: int) -> list[int]:
        return self.projections.get((owner, index), [])

    def _annotate(self, output: ir.Value, step: PlanStep, index: int) -> None:
        owners = [step.owner] if is_value(step.node) else self._projections(step.owner, index)
        type_ = next((self.egraph.classes[o].type for o in owners), None)
        if type_ is not None:
            output.dtype = dtype_of(type_.dtype)
            if type_.shape is not None:
                output.shape = ir.Shape(type_.shape)
        old = self.by_name.get(output.name or "")
        if old is not None and output.shape is None:  # the model may name sizes that the analyses cannot express
            output.type, output.shape = output.type or old.type, old.shape

    # --- the graph as a whole

    def finish(self, roots: Iterable[int]) -> None:
        for owner, outputs in self.several.items():
            row = OPERATORS.get(self.choice[owner].op)
            is_optional = row is not None and row.outputs > 1  # each of them; a Split has all that it is asked for
            for index, output in enumerate(outputs):
                if output.name and not self._projections(owner, index):  # its name went to another value
                    output.name = "" if is_optional else self.fresh("unused")
        nodes = frozenset(self.nodes)
        for node in self.clones:
            if node not in nodes:
                _detach(node)
        self.graph.extend(part_units(self.nodes, self.runtime.quantised, self.fresh))
        for index, root in enumerate(roots):
            self._output(index, self.values[root])
        self._remove_unused_initializers()

    def _output(self, index: int, value: ir.Value) -> None:
        old = self.graph.outputs[index]
        names = [output.name for output in self.source.graph.outputs]
        first = names.index(names[index])
        if first < index:  # ONNX Runtime accepts an output that is listed twice
            self.graph.outputs[index] = self.graph.outputs[first]
            return
        if value is old:
            return
        free = value.producer() is not None and not value.is_graph_output()
        if not free:
            operator = copying_operator(dtype_name(old.dtype)) if old.dtype is not None else "Identity"
            attributes = {"to": int(old.dtype)} if operator == "Cast" and old.dtype is not None else {}
            copy = ir.node(operator, [value], attributes=attributes, name=self.fresh(operator))
            self.graph.append(copy)
            value = copy.outputs[0]
        type_, shape, doc = old.type, old.shape, old.doc_string
        old.name = self.fresh("replaced")
        value.name, value.type, value.shape, value.doc_string = names[index], type_, shape, doc
        self.graph.outputs[index] = value

    def _remove_unused_initializers(self) -> None:
        outputs = set(self.graph.outputs)
        overridable = self.source.overridable_initializers
        for name, value in list(self.graph.initializers.items()):
            if value.uses() or value in outputs or name in overridable:
                continue
            del self.graph.initializers[name]
            if self.target.ir_version < 4 and value in self.graph.inputs:
                self.graph.inputs.remove(value)


def _detach(node: ir.Node) -> None:
    """Remove a dropped node from the uses of its operands."""
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
    for body in body_graphs(node):
        for inner in body.all_nodes():
            for index in range(len(inner.inputs)):
                inner.replace_input_with(index, None)


def decode(
    model: Model,
    knowledge: Knowledge,
    encoding: Encoding,
    egraph: EGraph,
    selection: Selection,
    runtime: Runtime = NO_RUNTIME,
    deadline: float = inf,
) -> Model:
    """Write the selected graph as a new model, in the forms of `runtime`, for which it was selected.

    Raises ModelError if a chosen constant cannot be evaluated, OutOfRangeError if its type cannot hold it, OutOfTime
    if the constants are not evaluated before the `deadline` (time.monotonic).
    """
    origin = locate_origins(model.graph, encoding, egraph)
    plan = plan_steps(egraph, selection, origin)
    folded = [s.owner for s in plan if s.node == FOLD]
    folder = Folder(model, egraph, encoding, origin, knowledge.constants)
    missing = [c for c in folded if not model.stored.keys() & set(origin.names.get(c, ()))]
    constants = folder.values(missing, deadline)
    unknown = [c for c in missing if c not in constants]
    if unknown:
        raise missing_value_error(model, egraph, origin, unknown[0])
    decoder = _Decoder(
        model,
        model.ir.clone(),
        egraph,
        encoding,
        constants,
        knowledge.constants,
        runtime,
        names=origin.names,
        apart=other_names(plan, egraph, runtime),
        choice=selection.choice,
    )
    decoder.prepare()
    for step in plan:
        decoder.make(step)
    decoder.finish(egraph.roots)
    return Model(decoder.target)


# Operators written in forms that a runtime does not recognise, because the kernel that it would make takes longer.
#
#     DequantizeLinear, Softmax, QuantizeLinear => DequantizeLinear, Softmax, Sum, QuantizeLinear
#
# A Sum of one operand copies it: ONNX Runtime makes no QLinearSoftmax of the operators before it.

_COPY = "Sum"
_STEPS = 255
"""The steps between the least and the largest integer of 8 bits."""


def other_names(plan: Sequence[PlanStep], egraph: EGraph, runtime: Runtime) -> dict[int, str]:
    """The operators of other names as which classes are written, so that the runtime does not fuse them."""
    steps = {step.owner: step for step in plan}
    names: dict[int, str] = {}
    for step in plan:
        source = steps.get(step.operands[0]) if step.operands else None
        for apart in runtime.apart:
            if source is not None and step.node.op in apart.before and source.node.op == apart.operator:
                shapes = {None if (type_ := egraph.classes[c].type) is None else type_.shape for c in source.operands}
                if len(shapes) == 1 and None not in shapes:
                    names[source.owner] = apart.write
    return names


def part_units(nodes: Sequence[ir.Node], quantised: Quantised, name: Callable[[str], str]) -> list[ir.Node]:
    """The nodes, with copies between conversions and operators that take longer as units with them.

    `name` makes a name that nothing has.
    """
    result: list[ir.Node] = []
    for node in nodes:
        if not _is_unit(node, quantised):
            result.append(node)
            continue
        value = node.outputs[0]
        readers = list(value.uses())
        copy = ir.node(_COPY, [value], name=name(_COPY))
        output = copy.outputs[0]
        output.name, output.type, output.shape = name("value"), value.type, value.shape
        for reader in readers:
            reader.node.replace_input_with(reader.idx, output)
        result += [node, copy]
    return result


def _is_unit(node: ir.Node, quantised: Quantised) -> bool:
    parted = next((each for each in quantised.apart if each.operator == node.op_type), None)
    if parted is None or not is_standard(node) or not node.inputs:
        return False
    value, source = node.outputs[0], _dequantisation(node.inputs[0], quantised)
    if source is None or value.is_graph_output() or not _is_quantised(value, quantised):
        return False
    return math.isinf(parted.widest) or _width(source) <= parted.widest


def _width(node: ir.Node) -> float:
    """How far apart the numbers are that a DequantizeLinear makes; infinite if it is not known."""
    scale = node.inputs[1]
    tensor = None if scale is None else ir.convenience.get_const_tensor(scale)
    return math.inf if tensor is None else _STEPS * float(np.max(tensor.numpy()))


def _dequantisation(value: ir.Value | None, quantised: Quantised) -> ir.Node | None:
    """The DequantizeLinear from which a value comes, moved at most; None if there is none."""
    node = None if value is None else value.producer()
    if node is None or not is_standard(node):
        return None
    if node.op_type == "DequantizeLinear":
        return node
    return _dequantisation(node.inputs[0], quantised) if node.op_type in quantised.moving else None


def _is_quantised(value: ir.Value, quantised: Quantised) -> bool:
    return any(
        use.node.op_type == "QuantizeLinear"
        or (use.node.op_type in quantised.moving and use.idx == 0 and _is_quantised(use.node.outputs[0], quantised))
        for use in value.uses()
        if is_standard(use.node)
    )
