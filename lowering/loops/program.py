"""A graph of loops as C: its nodes in order, branches and iterations as those of C.

    If(c, then, else), Loop(n, c, body), Scan(body)
 => if (c) { then } else { else }, for (i < n && c) { body }, for (i < length) { slices; body; slices }

Every value is a tensor of a context, in which it keeps its memory from run to run.

The element types of all values, in bodies too, are inferred here: ``model -> names to element types``. Loops need no
shapes, and shape inference stops at a shape that depends on data; element types never depend on any.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper
from onnx_ir import serde

from ...engine.shapes.other_domains import CLASSICAL, classical_dtypes
from ..base.elements import ELEMENT_TYPES
from ..base.errors import LoweringError
from ..base.linking import Linker
from ..plan.kernel_nodes import KERNEL_DOMAIN, signature_of
from ..plan.size_code import holds
from ..plan.sizes import Demand, c_expression
from ..plan.templates import literal
from .instance import MINIMUM_INPUTS, LoopInstance, loop_instance
from .source_files import control_flow, header, packed

Types = MutableMapping[str, str]

_BY_ATTRIBUTE = ("to", "dtype", "output_datatype", "output_dtype")


def type_name(elem_type: int) -> str:
    """numpy's name of an element type of ONNX; ``string`` of text."""
    return "string" if elem_type == onnx.TensorProto.STRING else str(helper.tensor_dtype_to_np_dtype(elem_type).name)


def graph_types(graph: onnx.GraphProto, opsets: Mapping[str, int], outer: Mapping[str, str]) -> Types:
    """The element types of a graph's values, on top of those of the graphs around it.

    Raises LoweringError for a value that is no tensor, or of which ONNX does not say what it is.
    """
    types: Types = ChainMap({}, dict(outer))
    for port in graph.input:
        if port.type.HasField("tensor_type") and port.type.tensor_type.elem_type:
            types[port.name] = type_name(port.type.tensor_type.elem_type)
    types.update({tensor.name: type_name(tensor.data_type) for tensor in graph.initializer})
    for node in graph.node:
        named = zip(node.output, node_types(node, opsets, types), strict=False)
        types.update({name: dtype for name, dtype in named if name})
    return types


def node_types(node: onnx.NodeProto, opsets: Mapping[str, int], types: Mapping[str, str]) -> list[str]:
    """The element types of the outputs of a node."""
    if node.domain == KERNEL_DOMAIN:
        return list(signature_of(node).dtypes)
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in ("If", "Loop", "Scan") and node.domain == "":
        body = attributes.get("body") or attributes["then_branch"]
        if node.op_type != "If":
            skipped = 2 if node.op_type == "Loop" else int(opsets[""] < 9)
            given = node.input[skipped:]
            body_inputs = body.input[2 if node.op_type == "Loop" else 0 :]
            given_types = {i.name: types[g] for i, g in zip(body_inputs, given, strict=True)}
            types = {**types, **given_types}
        inner = graph_types(body, opsets, types)
        results = [_lookup(inner, o.name) for o in body.output]
        return results[1:] if node.op_type == "Loop" else results
    if node.op_type == "Constant":
        return [_constant_type(attributes)]
    for name in _BY_ATTRIBUTE:
        if attributes.get(name):
            return [type_name(attributes[name])] * len(node.output)
    if node.op_type == "ConstantOfShape":
        value = attributes.get("value")
        return [type_name(value.data_type) if value is not None else "float32"]
    if node.op_type.endswith("Like") and node.domain == "" and node.op_type != "CastLike":
        return [_lookup(types, node.input[0])]
    opset = opsets.get(node.domain, 1)
    if not defs.has(node.op_type, opset, node.domain):
        raise LoweringError(f"{node.op_type} has no plain loop")
    schema = defs.get_schema(node.op_type, opset, node.domain)
    bound: dict[str, str] = {}
    for position, name in enumerate(node.input):
        if name:
            formal = schema.inputs[min(position, len(schema.inputs) - 1)]
            bound.setdefault(formal.type_str, _lookup(types, name))
    told = _told_by_attributes(node) if node.domain == CLASSICAL else []
    results = []
    for position, known in zip_longest(range(len(node.output)), told[: len(node.output)]):
        formal = schema.outputs[min(position, len(schema.outputs) - 1)]
        results.append(known or bound.get(formal.type_str) or _only_type(formal))
    return results


def _told_by_attributes(node: onnx.NodeProto) -> list[str | None]:
    """The types of the results of an operator of classical machine learning, as far as its attributes tell."""
    alone = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    alone.attribute.extend(each for each in node.attribute if not each.name.startswith("nodes_"))
    return classical_dtypes(serde.deserialize_node(alone))


def _lookup(types: Mapping[str, str], name: str) -> str:
    if name not in types:
        raise LoweringError(f"{name!r} is no tensor")
    return types[name]


def _constant_type(attributes: Mapping[str, Any]) -> str:
    (name, value), *_ = attributes.items()
    if name == "value":
        return type_name(value.data_type)
    return "float32" if "float" in name else "int64" if "int" in name else "string"


def _only_type(formal: defs.OpSchema.FormalParameter) -> str:
    """The type of an output that has one by its schema, or float32 if it may choose."""
    names: Iterable[str] = formal.types
    tensors = {name[len("tensor(") : -1] for name in names if name.startswith("tensor(")}
    if not tensors:
        raise LoweringError(f"{formal.name} is no tensor")
    if len(tensors) == 1:
        (name,) = tensors
        return {"float": "float32", "double": "float64"}.get(name, name)
    return "float32"


Array = np.ndarray[Any, Any]

CONSTANTS = "constants.bin"
"""The file from which the assembler takes the constants; it is beside the C file, and not needed afterwards."""
_ALIGNMENT = 64
"""Bytes, at a multiple of which every constant begins."""
_TEXT = """\
{headers}
{constants}
{functions}
static const char *run_{symbol}(tensor *v, const char **place) {{
    (void)v, (void)place;
{run}
    return NULL;
}}

__attribute__((visibility("default"))) int __tvm_ffi_{symbol}(void *self, const packed_argument *arguments,
                                                              int32_t count, packed_argument *result) {{
    (void)self, (void)arguments, (void)count, (void)result;
    tensor *v = calloc({count}, sizeof *v);
    const char *place = "the model";
    if (v == NULL) return finish("out of memory", place, NULL, 0);
{given}
{stored}
    const char *problem = run_{symbol}(v, &place);
{results}
    return finish(problem, place, v, {count});
}}
"""
_CONSTANTS = """\
__asm__(".section .rodata\\n.balign 64\\n{symbol}_constants:\\n.incbin \\"{file}\\"\\n.previous\\n");
extern const unsigned char {symbol}_constants[] __attribute__((visibility("hidden")));
"""


@dataclass(frozen=True)
class Program:
    """The C text of a model as loops, its constants, and the element types of its inputs and outputs.

    The text defines one packed function, as TVM's kernels are, of the inputs and then the outputs. It includes the
    bytes of the constants from the file `CONSTANTS`.
    """

    text: str
    constants: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def compile(self, linker: Linker, compiled: Path) -> Path:
        """Write the object file. Raises LoweringError with what the compiler says."""
        source, constants = compiled.with_suffix(".c"), compiled.with_suffix(".bin")
        constants.write_bytes(self.constants)
        source.write_text(self.text.replace(CONSTANTS, str(constants.absolute())), encoding="utf-8")
        return linker.compile(source, compiled)


def loop_program(
    model: onnx.ModelProto, symbol: str, measured: Sequence[tuple[int, int]] = ()
) -> Program:
    """The whole model as loops, a function of that name. Raises LoweringError for what has none.

    Outputs and axes that are `measured` may be smaller than the memory for them: a last result says how large they are.
    """
    opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
    writer = _Writer(opsets)
    scope: Scope = ChainMap()
    types = graph_types(model.graph, opsets, {})
    initialised = {i.name for i in model.graph.initializer}
    inputs = [writer.define(scope, i.name, types) for i in model.graph.input if i.name not in initialised]
    lines = list(writer.graph(model.graph, scope, types))
    taken = {*inputs, *writer.constants}
    outputs: list[int] = []
    for source in (scope[o.name] for o in model.graph.output):
        outputs.append(writer.add(writer.dtypes[source]) if source in taken else source)
        taken.add(outputs[-1])
        if outputs[-1] != source:
            lines.append(writer.copy(outputs[-1], source))
    blob, places = _lay_out(writer.constants, symbol)
    ports = [*inputs, *outputs]
    text = _TEXT.format(
        headers="\n".join([header(), control_flow(), packed()]),
        constants=_CONSTANTS.format(file=CONSTANTS, symbol=symbol) if blob else "",
        functions="\n".join(
            [
                *(f"packed_function __tvm_ffi_{kernel};" for kernel in writer.kernels),
                *(instance.text(name) for instance, name in writer.functions.values()),
            ]
        ),
        symbol=symbol,
        run=_join(lines),
        count=len(writer.dtypes) or 1,
        given=_join(f"v[{n}] = unpack(arguments + {i});" for i, n in enumerate(ports)),
        stored=_join(f"v[{n}] = {place};" for n, place in places.items()),
        results=_join(_hand_over(number, n, len(inputs), measured) for number, n in enumerate(outputs))
        + ("\n" + _join(_measure(outputs, len(ports), measured)) if measured else ""),
    )
    dtypes = writer.dtypes
    return Program(text, blob, tuple(dtypes[n] for n in inputs), tuple(dtypes[n] for n in outputs))


def _hand_over(number: int, value: int, inputs: int, measured: Sequence[tuple[int, int]]) -> str:
    is_measured = str(any(number == output for output, _ in measured)).lower()
    return f"if (!problem) problem = hand_over(arguments + {inputs + number}, v + {value}, {is_measured});"


def _measure(outputs: Sequence[int], last: int, measured: Sequence[tuple[int, int]]) -> Iterator[str]:
    """The lines that fill the last result."""
    yield f"int64_t *sizes = (int64_t *)unpack(arguments + {last}).data;"
    for place, (output, axis) in enumerate(measured):
        yield f"if (!problem) sizes[{place}] = v[{outputs[output]}].shape[{axis}];"


def _join(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _lay_out(constants: Mapping[int, Array], symbol: str) -> tuple[bytes, dict[int, str]]:
    """The bytes of the constants, and each as a tensor in C."""
    parts: list[bytes] = []
    size, places = 0, {}
    for number, array in constants.items():
        shape = ", ".join(map(str, array.shape)) or "0"
        data = f"(void *)({symbol}_constants + {size})"
        places[number] = f"(tensor){{{data}, {array.ndim}, {{{shape}}}, {array.nbytes}, 0}}"
        content = np.ascontiguousarray(array).tobytes()
        parts.append(content + bytes(-len(content) % _ALIGNMENT))
        size += len(parts[-1])
    return b"".join(parts), places


Scope = ChainMap[str, int]


@dataclass
class _Writer:
    """Writes nodes; tensors are numbered, and loops shared by all nodes that can."""

    opsets: Mapping[str, int]
    dtypes: list[str] = field(default_factory=list)
    constants: dict[int, Array] = field(default_factory=dict)
    functions: dict[object, tuple[LoopInstance, str]] = field(default_factory=dict)
    kernels: dict[str, None] = field(default_factory=dict)

    def add(self, dtype: str) -> int:
        """The number of another tensor."""
        self.dtypes.append(dtype)
        return len(self.dtypes) - 1

    def define(self, scope: MutableMapping[str, int], name: str, types: Mapping[str, str]) -> int:
        """The number of another tensor with a name."""
        if name not in types:
            raise LoweringError(f"{name!r} is no tensor")
        scope[name] = self.add(types[name])
        return scope[name]

    def constant(self, array: Array) -> int:
        """The number of a constant."""
        number = self.add("string" if array.dtype.kind in "OUS" else array.dtype.name)
        self.constants[number] = array
        return number

    def graph(self, graph: onnx.GraphProto, scope: Scope, types: Types) -> Iterator[str]:
        """The lines of a graph; its inputs are defined already."""
        for tensor in graph.initializer:
            scope[tensor.name] = self.constant(numpy_helper.to_array(tensor))
        for node in graph.node:
            yield from self.node(node, scope, types)

    def node(self, node: onnx.NodeProto, scope: Scope, types: Types) -> Iterator[str]:
        """The lines of a node."""
        if node.op_type == "Constant":
            scope[node.output[0]] = self.constant(_constant_value(node))
            return
        inputs = [scope[name] if name else None for name in node.input]
        outputs = [self.define(scope, name, types) if name else None for name in node.output]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.domain == "" and node.op_type == "If":
            yield from self._branch(attributes, inputs, outputs, scope, types)
        elif node.domain == "" and node.op_type == "Loop":
            yield from self._loop(attributes["body"], inputs, outputs, scope, types)
        elif node.domain == "" and node.op_type == "Scan":
            yield from self._scan(attributes, inputs, outputs, scope, types)
        elif node.domain == KERNEL_DOMAIN:
            yield from self._call_kernel(node, inputs, outputs)
        else:
            yield self._call(node, inputs, outputs)

    def _call_kernel(
        self, node: onnx.NodeProto, inputs: Sequence[int | None], outputs: Sequence[int | None]
    ) -> Iterator[str]:
        """The lines of a compiled kernel: the sizes of its results follow from the shapes of its operands."""
        tensors = [n for n in (*inputs, *outputs) if n is not None]
        elements = [ELEMENT_TYPES[self.dtypes[n]] for n in tensors]
        signature = signature_of(node)
        variables: dict[str, str] = {}
        wrong = "the shapes of tensors do not fit a kernel of a body"
        yield "{"
        for step in signature.solve():
            extent = f"v[{inputs[step.port]}].shape[{step.axis}]"
            if isinstance(step, Demand):
                yield f'    if ({extent} != {c_expression(step.extent, variables)}) return "{wrong}";'
                continue
            place = f"size_{len(variables)}"
            yield f"    const int64_t {place} = ({extent} - {c_expression(step.rest, variables)}) / {step.factor};"
            variables[step.name] = place
        for required in signature.requirements:
            yield f"    if (!({holds(required.relation, variables)})) return {literal(required.text)};"
        for to, shape in zip(outputs, signature.outputs, strict=True):
            if to is not None:
                text = ", ".join(c_expression(extent, variables) for extent in shape) or "0"
                yield f"    TRY(allocate(&v[{to}], {len(shape)}, (int64_t[]){{{text}}}, {self._item(to)}));"
        self.kernels[node.op_type] = None
        places = ", ".join(f"&v[{n}]" for n in tensors)
        kinds = ", ".join(f"{{{e.code}, {e.bits}}}" for e in elements)
        given = f"(const tensor *const[]){{{places}}}, (const uint8_t[][2]){{{kinds}}}, {len(tensors)}"
        yield f"    TRY(call_kernel(__tvm_ffi_{node.op_type}, {given}));"
        yield "}"

    def _call(self, node: onnx.NodeProto, inputs: Sequence[int | None], outputs: Sequence[int | None]) -> str:
        def dtypes(numbers: Sequence[int | None]) -> list[str | None]:
            return [None if n is None else self.dtypes[n] for n in numbers]

        instance = loop_instance(node, self.opsets.get(node.domain, 1), dtypes(inputs), dtypes(outputs))
        name = f"loop_{len(self.functions)}_{node.op_type.lower()}"
        _, name = self.functions.setdefault(instance.key, (instance, name))
        arguments = [*inputs, *[None] * (MINIMUM_INPUTS - len(inputs))]
        for position, array in instance.operands.items():
            arguments[position] = self.constant(array)
        text = ", ".join("NULL" if n is None else f"&v[{n}]" for n in arguments)
        results = ", ".join("NULL" if n is None else f"&v[{n}]" for n in outputs)
        called = f"{name}((const tensor *const[]){{{text}}}, (tensor *const[]){{{results}}})"
        place = node.name or f"{node.op_type} of {next(filter(None, node.output), '')}"
        return f"TRY_AT({literal(place)}, {called});"

    def copy(self, to: int, source: int) -> str:
        """The statement that copies a tensor."""
        return f"TRY(copy_tensor(&v[{to}], &v[{source}], {self._item(to)}));"

    def _copy_some(self, outputs: Sequence[int | None], sources: Sequence[int]) -> Iterator[str]:
        pairs = zip(outputs, sources, strict=False)
        return (self.copy(to, source) for to, source in pairs if to is not None)

    def _item(self, number: int) -> int:
        return np.dtype(self.dtypes[number]).itemsize

    def _body(self, body: onnx.GraphProto, scope: Scope, types: Types) -> tuple[list[str], list[int]]:
        """The lines of a body, and the numbers of the values that it returns."""
        inner = graph_types(body, self.opsets, types)
        lines = [f"    {line}" for line in self.graph(body, scope, inner)]
        return lines, [scope[o.name] for o in body.output]

    def _branch(
        self, attributes: Mapping[str, Any], inputs: Sequence[int | None], outputs: Sequence[int | None],
        scope: Scope, types: Types,
    ) -> Iterator[str]:  # fmt: skip
        yield f'if (!has_elements(&v[{inputs[0]}], 1)) return "the condition of an If is no single value";'
        for head, name in ((f"if (*(const bool *)v[{inputs[0]}].data) {{", "then_branch"), ("} else {", "else_branch")):
            lines, results = self._body(attributes[name], scope.new_child(), types)
            yield head
            yield from lines
            yield from (f"    {line}" for line in self._copy_some(outputs, results))
        yield "}"

    def _loop(
        self, body: onnx.GraphProto, inputs: Sequence[int | None], outputs: Sequence[int | None],
        scope: Scope, types: Types,
    ) -> Iterator[str]:  # fmt: skip
        trips, condition, *initial = [*inputs, None, None][: max(2, len(inputs))]
        inner = scope.new_child()
        number, goes_on, *states = [i.name for i in body.input]
        counter, flag = self.define(inner, number, {number: "int64"}), self.define(inner, goes_on, {goes_on: "bool"})
        numbers = []
        for name, source in zip(states, initial, strict=True):
            assert source is not None
            numbers.append(self.define(inner, name, {name: self.dtypes[source]}))
            yield self.copy(numbers[-1], source)
        formal = {name: self.dtypes[inner[name]] for name in (number, goes_on, *states)}
        lines, (result, *others) = self._body(body, inner, {**types, **formal})
        finals, scanned = others[: len(states)], list(zip(outputs[len(states) :], others[len(states) :], strict=False))
        yield "{"
        most = "INT64_MAX" if trips is None else f"*(const int64_t *)v[{trips}].data"
        goes = "true" if condition is None else f"*(const bool *)v[{condition}].data"
        wrong = "the limit or condition of a Loop is no single value"
        for given in (n for n in (trips, condition) if n is not None):
            yield f'    if (!has_elements(&v[{given}], 1)) return "{wrong}";'
        yield f"    int64_t i_{counter} = 0, trips_{counter} = {most};"
        yield f"    bool goes_{counter} = {goes};"
        for to, source in scanned:
            if to is not None:
                yield f"    {self._empty(to, self._static_shape(body, others.index(source) + 1))}"
        yield f"    for (; i_{counter} < trips_{counter} && goes_{counter}; ++i_{counter}) {{"
        yield f"        TRY(allocate(&v[{counter}], 0, NULL, 8));"
        yield f"        *(int64_t *)v[{counter}].data = i_{counter};"
        yield f"        TRY(allocate(&v[{flag}], 0, NULL, 1));"
        yield f"        *(bool *)v[{flag}].data = goes_{counter};"
        yield from (f"    {line}" for line in lines)
        yield f"        goes_{counter} = *(const bool *)v[{result}].data;"
        for to, source in scanned:
            if to is not None:
                yield f"        TRY(append_slice(&v[{to}], &v[{source}], i_{counter}, {self._item(to)}));"
        yield from (f"        {line}" for line in self._advance(numbers, finals))
        yield "    }"
        yield "}"
        yield from self._copy_some(outputs, numbers)

    def _advance(self, states: Sequence[int], finals: Sequence[int]) -> Iterator[str]:
        """The results of an iteration become the states of the next one; they may be states themselves."""
        kept = [self.add(self.dtypes[state]) for state in states]
        yield from (self.copy(to, source) for to, source in zip(kept, finals, strict=True))
        yield from (f"swap_tensors(&v[{a}], &v[{b}]);" for a, b in zip(states, kept, strict=True))

    def _empty(self, to: int, inner: Sequence[int]) -> str:
        shape = ", ".join(map(str, (0, *inner)))
        return f"TRY(allocate(&v[{to}], {len(inner) + 1}, (int64_t[]){{{shape}}}, {self._item(to)}));"

    @staticmethod
    def _static_shape(body: onnx.GraphProto, position: int) -> list[int]:
        return [d.dim_value for d in body.output[position].type.tensor_type.shape.dim]

    def _scan(
        self, attributes: Mapping[str, Any], inputs: Sequence[int | None], outputs: Sequence[int | None],
        scope: Scope, types: Types,
    ) -> Iterator[str]:  # fmt: skip
        if self.opsets[""] < 9:
            raise LoweringError("Scan of opset 8 has no plain loop")
        body: onnx.GraphProto = attributes["body"]
        count = attributes["num_scan_inputs"]
        given = [number for number in inputs if number is not None]
        initial, scanned = given[: len(given) - count], given[len(given) - count :]
        inner = scope.new_child()
        names = [i.name for i in body.input]
        formal = {name: self.dtypes[source] for name, source in zip(names, given, strict=True)}
        numbers = [self.define(inner, name, formal) for name in names]
        states, slices = numbers[: len(initial)], numbers[len(initial) :]
        yield from self._copy_some(states, initial)
        lines, results = self._body(body, inner, {**types, **formal})
        collected = list(zip(outputs[len(states) :], results[len(states) :], strict=False))
        axes_in = attributes.get("scan_input_axes") or [0] * count
        axes_out = attributes.get("scan_output_axes") or [0] * len(collected)
        back_in = attributes.get("scan_input_directions") or [0] * count
        back_out = attributes.get("scan_output_directions") or [0] * len(collected)
        i, length, first = f"i_{numbers[0]}", f"length_{numbers[0]}", scanned[0]
        yield "{"
        axes = [str(axis) if axis >= 0 else f"v[{n}].rank + {axis}" for n, axis in zip(scanned, axes_in, strict=True)]
        yield f"    const int64_t {length} = v[{first}].shape[{axes[0]}];"
        wrong = "the sequences of a Scan have different lengths"
        for whole, axis in zip(scanned[1:], axes[1:], strict=True):
            yield f'    if (v[{whole}].shape[{axis}] != {length}) return "{wrong}";'
        for to, source in collected:
            if to is not None:
                yield f"    {self._empty(to, self._static_shape(body, results.index(source)))}"
        yield f"    for (int64_t {i} = 0; {i} < {length}; ++{i}) {{"
        for part, whole, axis, back in zip(slices, scanned, axes, back_in, strict=True):
            at = f"{length} - 1 - {i}" if back else i
            yield f"        TRY(take_slice(&v[{part}], &v[{whole}], {axis}, {at}, {self._item(part)}));"
        yield from (f"    {line}" for line in lines)
        for (to, source), axis_out, back in zip(collected, axes_out, back_out, strict=True):
            if to is not None:
                axis = str(axis_out) if axis_out >= 0 else f"v[{source}].rank + 1 + {axis_out}"
                at = f"{length} - 1 - {i}" if back else i
                place = f"{axis}, {at}, {length}, {i} == 0, {self._item(to)}"
                yield f"        TRY(put_slice(&v[{to}], &v[{source}], {place}));"
        yield from (f"        {line}" for line in self._advance(states, results[: len(states)]))
        yield "    }"
        yield "}"
        yield from self._copy_some(outputs, states)


def _constant_value(node: onnx.NodeProto) -> Array:
    (attribute,) = node.attribute
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if "string" in attribute.name:
        raise LoweringError("text has no plain loop")
    return np.asarray(value, "float32" if "float" in attribute.name else "int64")
