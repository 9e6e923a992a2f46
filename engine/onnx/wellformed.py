"""Checks of every ONNX file before anything else reads it: types that exist, dimensions, sizes of data; and the order
of its nodes, which ONNX demands, but ONNX Runtime does not, and tools beside it write models in any order.

Libraries and runtimes assume that these hold, and otherwise fail far from the cause. The ONNX checker and shape
inference check the graph as a whole (names, operators, shapes).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from graphlib import CycleError, TopologicalSorter

import onnx
import onnx.defs
import onnx_ir as ir
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import AttributeProto, TensorProto

from ...support.errors import ModelError

_FIELDS = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTOS: "type_protos",
}
_SINGLE = frozenset({"f", "i", "s", "t", "g", "sparse_tensor", "tp"})
_TYPE_NUMBERS = frozenset({"to", "dtype", "output_dtype", "output_datatype"})
"""Attributes of standard operators whose number is an element type; 0 means none in operators that allow this."""
_ELEMENT_TYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
_BITS: dict[int, int] = {
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT64, TensorProto.COMPLEX64), 64),
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT32), 32),
    **dict.fromkeys((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.UINT4, TensorProto.INT4, TensorProto.FLOAT4E2M1), 4),
    TensorProto.COMPLEX128: 128,
} | {getattr(TensorProto, name): 2 for name in ("INT2", "UINT2") if hasattr(TensorProto, name)}
"""Bits of an element in raw data; 8 for types that are not listed."""
_LISTS: dict[int, str] = {
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.COMPLEX64), "float_data"),
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.COMPLEX128), "double_data"),
    **dict.fromkeys((TensorProto.UINT32, TensorProto.UINT64), "uint64_data"),
    TensorProto.INT64: "int64_data",
    TensorProto.STRING: "string_data",
}
"""The field that holds elements of a type without raw data; int32_data for types that are not listed."""
ONNX_DOMAINS = ("", "ai.onnx")
_EQUATION = re.compile(r"(?:[A-Za-z\s,]|\.{3})*(?:->(?:[A-Za-z\s]|\.{3})*)?")
"""Equations of an Einsum. Shape inference goes on forever for some that are none."""
_BODIES = frozenset({"If", "Loop", "Scan"})
"""Operators whose results are those of the graphs that they have as attributes."""
_SCAN_OF_BATCHES = 8
"""The opset in which the first operand of a Scan is not for its body."""
UNKNOWN_SIZE = -1
"""Some exporters write this for an unknown dimension, which ONNX leaves out."""
_MOST_NODES = 1 << 20
"""The most nodes that calls may stand for: each function of a small file may call the one before it twice."""
_MOST_BYTES = 1 << 62
"""Larger tensors fit into no memory, and their sizes not into 64 bits."""


def check_well_formed(model: onnx.ModelProto, label: str) -> None:
    """Raise ModelError, which names the place, for the first violation of the ONNX format."""
    if not model.HasField("graph") or not model.ir_version or not (model.graph.node or model.graph.output):
        raise ModelError(f"{label}: not an ONNX model: it holds no graph")
    if not model.graph.output:
        raise ModelError(f"{label}: the graph has no outputs, so there is nothing to compute; name some")
    opset = next((each.version for each in model.opset_import if each.domain in ONNX_DOMAINS), None)
    _Check(label, "", opset=opset).graph(model.graph)
    if model.functions:
        _check_calls(model, label)
    for function in model.functions:
        check = _Check(label, f"function {function.name!r}: ", in_function=True)
        check.within(function.input, function.node).nodes(function.node)
        for attribute in function.attribute_proto:
            check.attribute(attribute, "", f"default of attribute {attribute.name!r}")
    _check_text(model, label, "")


def _check_calls(model: onnx.ModelProto, label: str) -> None:
    """Raise ModelError if functions call each other in a circle, or calls stand for too many nodes."""
    bodies = {_function_name(each.domain, each.name): list(all_nodes(each.node)) for each in model.functions}
    calls = {
        name: Counter(called for node in nodes if (called := _function_name(node.domain, node.op_type)) in bodies)
        for name, nodes in {**bodies, "": list(all_nodes(model.graph.node))}.items()
    }
    try:
        order = list(TopologicalSorter(calls).static_order())
    except CycleError as circle:
        raise ModelError(f"{label}: functions call each other in a circle: {' -> '.join(circle.args[1])}") from None
    sizes: dict[str, int] = {}
    for name in order:
        sizes[name] = len(bodies.get(name, ())) + sum(sizes[called] * count for called, count in calls[name].items())
    if sizes[""] > _MOST_NODES:
        count = f"{sizes['']:.3g} nodes, more than {_MOST_NODES:,}"
        raise ModelError(f"{label}: the calls of its functions stand for {count}")


def _function_name(domain: str, name: str) -> str:
    return f"{domain}::{name}"


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, each before those in its bodies, at any depth."""
    for node in nodes:
        yield node
        for body in body_protos(node):
            yield from all_nodes(body.node)


def body_protos(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node has as attributes, such as the branches of an If."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _check_text(message: Message, label: str, place: str) -> None:
    """Raise ModelError for any text that is not UTF-8, which protobuf gives as bytes.

    It is the last check, since the checks of names before give a better place for most of a model's text.
    """
    for field, content in message.ListFields():
        if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE):
            continue
        for item in (content,) if isinstance(content, (str, bytes, Message)) else content:
            if isinstance(item, Message):
                _check_text(item, label, f"{place}{field.name}.")
            elif not isinstance(item, str):
                where = f"{label}: {place}{field.name}"
                raise ModelError(f"{where}: {item[:40]!r} is no text in UTF-8; mend the model or export it again")


@cache
def _fewest_operands(op_type: str, opset: int | None) -> int:
    """How many operands an operator of ONNX has at least; 0 if it is unknown."""
    try:
        return onnx.defs.get_schema(op_type, opset or 0, "").min_input
    except (onnx.defs.SchemaError, TypeError):
        return 0


@dataclass(frozen=True)
class _Check:
    """Checks of one graph or function; `scope` is the path of the nodes and attributes around it, `made` are the names
    of the values that its nodes may read, those of the graphs around it among them, and `opset` says how many operands
    ONNX's operators take; None in functions, which may have their own."""

    label: str
    scope: str
    in_function: bool = False
    made: frozenset[str] = frozenset()
    opset: int | None = None

    def fail(self, where: str, what: str) -> None:
        raise ModelError(f"{self.label}: {self.scope}{where}: {what}; mend the model or export it again")

    def graph(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self.names([tensor.name], "initializer")
            self.tensor(tensor, f"initializer {tensor.name!r}")
        for sparse in graph.sparse_initializer:
            self.sparse(sparse, f"initializer {sparse.values.name!r}")
        for kind, values in (("input", graph.input), ("output", graph.output), ("value", graph.value_info)):
            for value in values:
                where = f"{kind} {value.name!r}"
                self.names([value.name, *(d.dim_param for d in value.type.tensor_type.shape.dim)], where)
                self.type(value.type, where)
        inputs = {value.name: value for value in graph.input}
        untyped = [v.name for v in graph.input if v.type.HasField("tensor_type") and not v.type.tensor_type.elem_type]
        if untyped and not self.scope:  # the inputs of a body have the types of the values that its node gives them
            self.fail(f"input {untyped[0]!r}", "has no element type")
        for output in graph.output:
            if output.name in inputs and _contradict(inputs[output.name].type, output.type):
                self.fail(f"output {output.name!r}", "is an input that is declared with another type or shape")
        stored = {tensor.name: tensor.dims for tensor in graph.initializer}
        stored |= {sparse.values.name: sparse.dims for sparse in graph.sparse_initializer}
        for name in inputs.keys() & stored.keys():
            type_ = onnx.helper.make_tensor_type_proto(inputs[name].type.tensor_type.elem_type, stored[name])
            if _contradict(inputs[name].type, type_):
                shape = "x".join(map(str, stored[name]))
                self.fail(f"initializer {name!r}", f"has the shape {shape}, and the input of this name another one")
        self.within([*inputs, *stored], graph.node).nodes(graph.node)

    def within(self, given: Iterable[str], nodes: Iterable[onnx.NodeProto]) -> _Check:
        """The checks of nodes that may read what is given, and each other's results."""
        makers = dict.fromkeys(given, "an input or a weight")
        for node in nodes:
            title = node_title(node.name, node.op_type, node.output)
            for name in filter(None, node.output):
                if name in makers:
                    self.fail(title, f"makes {name!r}, which is {makers[name]} already")
                makers[name] = f"a result of {title}"
        return replace(self, made=self.made.union(makers))

    def names(self, names: Iterable[object], where: str) -> None:
        """Names must be UTF-8, otherwise protobuf gives bytes."""
        wrong = next((name for name in names if not isinstance(name, str)), None)
        if wrong is not None:
            self.fail(where, f"the name {wrong!r} is no text in UTF-8")

    def nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            title = node_title(node.name, node.op_type, node.output)
            self.names((node.name, node.op_type, node.domain, *node.input, *node.output), title)
            if not any(node.output):
                self.fail(title, "has no outputs")
            needed = _fewest_operands(node.op_type, self.opset) if node.domain in ("", "ai.onnx") else 0
            if len(node.input) < needed:
                self.fail(title, f"has {len(node.input)} operands and needs {needed}")
            lost = next((name for name in node.input if name and name not in self.made), None)
            if lost is not None:
                self.fail(title, f"reads {lost!r}, which nothing makes")
            seen = set()
            for attribute in node.attribute:
                where = f"{title}: attribute {attribute.name!r}"
                if attribute.name in seen:
                    self.fail(where, "is given twice")
                seen.add(attribute.name)
                self.attribute(attribute, node.domain, where)
                if node.op_type == "Einsum" and not _EQUATION.fullmatch(text := attribute.s.decode(errors="replace")):
                    self.fail(where, f"{text!r} is no equation")
                if attribute.type == AttributeProto.GRAPH and node.op_type in _BODIES:
                    self._ends(node, attribute.g, where)

    def _ends(self, node: onnx.NodeProto, body: onnx.GraphProto, where: str) -> None:
        """The body of an If, Loop or Scan must take what its node gives, and give the results of its node."""
        given = len(body.output) - (node.op_type == "Loop")  # its body says whether to go on, too
        if given < len(node.output):
            self.fail(where, f"the graph gives {given} results, and the node has {len(node.output)}")
        operands = {"If": 0, "Loop": max(2, len(node.input)), "Scan": len(node.input)}[node.op_type]
        if len(body.input) != operands and self.opset != _SCAN_OF_BATCHES:
            self.fail(where, f"the graph takes {len(body.input)} values, and the node gives it {operands}")
        scanned = next((each.i for each in node.attribute if each.name == "num_scan_inputs"), 0)
        if scanned > len(node.input):
            self.fail(where, f"the node scans {scanned} operands and has {len(node.input)}")

    def attribute(self, attribute: AttributeProto, domain: str, where: str) -> None:
        if attribute.ref_attr_name:
            if not self.in_function:
                self.fail(where, f"refers to attribute {attribute.ref_attr_name!r} of a function, but is in none")
            return
        field = _FIELDS.get(attribute.type)
        if field is None:
            self.fail(where, "has no type" if not attribute.type else f"has the unknown type {attribute.type}")
            return
        if field in _SINGLE and not attribute.HasField(field):
            self.fail(where, f"is of type {AttributeProto.AttributeType.Name(attribute.type)}, but has no such value")
        if field in ("f", "floats", "ints"):  # any number is valid
            return
        content = getattr(attribute, field)
        is_standard = domain in ("", "ai.onnx")
        for item in (content,) if field in _SINGLE else content:
            match item:
                case int() if is_standard and attribute.name in _TYPE_NUMBERS:
                    if item != TensorProto.UNDEFINED and item not in _ELEMENT_TYPES:
                        self.fail(where, f"{item} is no element type")
                case bytes() if is_standard:  # strings of other domains may hold binary data
                    try:
                        item.decode()
                    except UnicodeDecodeError:
                        self.fail(where, f"{item[:40]!r} is no text in UTF-8")
                case TensorProto():
                    self.tensor(item, where)
                case onnx.SparseTensorProto():
                    self.sparse(item, where)
                case onnx.GraphProto():
                    replace(self, scope=f"{self.scope}{where}: ").graph(item)
                case onnx.TypeProto():
                    self.type(item, where)

    def type(self, type_: onnx.TypeProto, where: str) -> None:
        """The element type must exist and sizes may not be negative, also inside sequences. Nothing reads maps."""
        kind = type_.WhichOneof("value")
        if kind in ("tensor_type", "sparse_tensor_type"):
            tensor = getattr(type_, kind)
            if tensor.elem_type and tensor.elem_type not in _ELEMENT_TYPES:
                self.fail(where, f"{tensor.elem_type} is no element type")
            sizes = [d.dim_value for d in tensor.shape.dim if d.HasField("dim_value") and d.dim_value != UNKNOWN_SIZE]
            self._sizes(sizes, where, tensor.elem_type)
        elif kind in ("sequence_type", "optional_type"):
            self.type(getattr(type_, kind).elem_type, where)
        elif kind == "map_type":
            advice = "skl2onnx writes tensors with options={'zipmap': False}"
            self.fail(where, f"is a map, and only outputs that a ZipMap makes may be; {advice}")

    def _sizes(self, sizes: list[int], where: str, element_type: int) -> None:
        negative = next((size for size in sizes if size < 0), None)
        if negative is not None:
            self.fail(where, f"a dimension is {negative}; one that is not known has a name or nothing")
        if math.prod(size for size in sizes if size) * _BITS.get(element_type, 8) > 8 * _MOST_BYTES:
            self.fail(where, f"the shape {'x'.join(map(str, sizes))} is larger than any memory")

    def sparse(self, sparse: onnx.SparseTensorProto, where: str) -> None:
        self.tensor(sparse.values, f"{where}: values")
        self.tensor(sparse.indices, f"{where}: indices")
        self._sizes(list(sparse.dims), where, sparse.values.data_type)

    def tensor(self, tensor: TensorProto, where: str) -> None:
        """The element type must exist and the amount of data must match the shape."""
        if tensor.data_type not in _ELEMENT_TYPES:
            self.fail(where, f"{tensor.data_type} is no element type")
        self._sizes(list(tensor.dims), where, tensor.data_type)
        if tensor.data_location == TensorProto.EXTERNAL:
            if tensor.data_type == TensorProto.STRING:
                self.fail(where, "strings as external data")
            self._location({entry.key: entry.value for entry in tensor.external_data}, where)
            return
        elements = math.prod(tensor.dims)
        if tensor.HasField("raw_data"):
            size, wanted, unit = len(tensor.raw_data), _raw_bytes(tensor.data_type, elements), "bytes"
            if tensor.data_type == TensorProto.STRING:
                self.fail(where, "strings as raw data")
        else:
            entries = getattr(tensor, _LISTS.get(tensor.data_type, "int32_data"))
            size, wanted, unit = len(entries), _list_entries(tensor.data_type, elements), "elements"
        if size != wanted:
            self.fail(where, f"holds {size} {unit} of data, but its shape wants {wanted}")

    def _location(self, entries: dict[str, str], where: str) -> None:
        location = entries.get("location", "")
        if not location or "\0" in location:
            self.fail(where, f"external data in the file {location!r}, which is no name of a file")
        for key in ("offset", "length"):
            text = entries.get(key, "0")
            if not (text.isascii() and text.isdecimal() and int(text[:20]) < _MOST_BYTES):
                self.fail(where, f"external data of {key} {text[:40]!r}, which is no number of bytes")


def _contradict(one: onnx.TypeProto, other: onnx.TypeProto) -> bool:
    """Whether no tensor is of both types."""
    if not (one.HasField("tensor_type") and other.HasField("tensor_type")):
        return bool(one.WhichOneof("value") != other.WhichOneof("value"))
    left, right = one.tensor_type, other.tensor_type
    if left.elem_type != right.elem_type:
        return True
    if not (left.HasField("shape") and right.HasField("shape")):
        return False
    if len(left.shape.dim) != len(right.shape.dim):
        return True
    pairs = zip(left.shape.dim, right.shape.dim, strict=True)
    known = ((a.dim_value, b.dim_value) for a, b in pairs if a.HasField("dim_value") and b.HasField("dim_value"))
    return any(a != b for a, b in known if UNKNOWN_SIZE not in (a, b))


def _raw_bytes(element_type: int, elements: int) -> int:
    return -(-elements * _BITS.get(element_type, 8) // 8)


def _list_entries(element_type: int, elements: int) -> int:
    """Entries of a tensor's list: a complex number takes two, several numbers of the smallest types share one."""
    if element_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        return 2 * elements
    return _raw_bytes(element_type, elements) if _BITS.get(element_type, 8) < 8 else elements


def node_title(name: str | None, operator: str, outputs: Iterable[str | None]) -> str:
    """The name of a node for messages, or else the names of its outputs."""
    if name:
        return f"node {name!r} ({operator})"
    return f"node of {', '.join(repr(output) for output in outputs if output) or 'nothing'} ({operator})"


def body_graphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The node's own subgraphs, not those nested in them."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def sort_nodes(model: ir.Model, label: str) -> bool:
    """Sort the nodes of all graphs and functions of a model, in place; returns whether any was in the wrong place.

    Raises ModelError for nodes that read each other's results in a circle.
    """
    scopes: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    unsorted = [scope for scope in scopes if not _is_sorted(scope, set())]
    for scope in unsorted:
        try:
            scope.sort()
        except ValueError:
            raise ModelError(f"{label}: {_describe_circle(scope)}; mend the model or export it again") from None
    return bool(unsorted)


def _is_sorted(scope: ir.Graph | ir.Function, made: set[ir.Node]) -> bool:
    """Whether each node, in bodies too, reads only results of nodes in front of it: those in `made`, which grows."""
    for node in scope:
        if any(producer not in made for producer in _read_from(node)):
            return False
        if not all(_is_sorted(body, made) for body in body_graphs(node)):
            return False
        made.add(node)
    return True


def _read_from(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes whose results a node reads by itself, not in its bodies."""
    producers = (value.producer() for value in node.inputs if value is not None)
    return (producer for producer in producers if producer is not None)


def _describe_circle(scope: ir.Graph | ir.Function) -> str:
    """The nodes of a circle of a scope that has one; reads in bodies count as reads of the node itself."""
    needed: dict[ir.Node, set[ir.Node]] = {}
    for node in scope.all_nodes():
        inner = (n for body in body_graphs(node) for n in body.all_nodes())
        needed[node] = {producer for reader in (node, *inner) for producer in _read_from(reader)}
    left = dict(needed)
    while ready := [node for node, read in left.items() if not read & left.keys()]:
        for node in ready:
            del left[node]
    path = [next(iter(left))]
    while path[-1] not in path[:-1]:
        path.append(next(iter(needed[path[-1]] & left.keys())))
    circle = path[path.index(path[-1]) :][::-1]
    titles = [node_title(node.name, node.op_type, [output.name for output in node.outputs]) for node in circle]
    if len(circle) == 2:
        return f"{titles[0]} reads its own result"
    return f"nodes read each other's results in a circle: {' -> '.join(titles)}"
