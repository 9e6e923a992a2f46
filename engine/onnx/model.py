"""ONNX files in and out.

A `Model` is read by path and loads only the parts that it needs: weights in external data stay memory-mapped,
and a result is written to a temporary file beside its destination and moved there when it is complete.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnx_ir as ir
from google.protobuf.message import DecodeError, EncodeError
from onnx import numpy_helper
from onnx_ir import external_data, serde

from ...support.errors import ModelError
from ...support.files import check_destination
from ...support.scratch import staging_folder
from .map_outputs import map_outputs, note_map_outputs, return_maps, take_map_outputs
from .output_types import infer_output_types
from .runtime_operators import define_runtime_operators
from .wellformed import ONNX_DOMAINS, UNKNOWN_SIZE, body_protos, check_well_formed, sort_nodes

_MOST_ELEMENTS = 1 << 29
"""The most elements of a dense tensor, 2 GiB of float32: a few bytes of a file must not fill the memory."""


def with_dense_constants(model: onnx.ModelProto, label: str) -> onnx.ModelProto:
    """The model with dense initializers and attributes for sparse ones; itself if it has none.

    Raises ModelError for a sparse tensor that is too large, or whose indices make no sense.
    """
    if not any(graph.sparse_initializer or any(_sparse_constants(graph)) for graph in graph_protos(model.graph)):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for graph in graph_protos(result.graph):
        graph.initializer.extend(_dense(sparse, label) for sparse in graph.sparse_initializer)
        del graph.sparse_initializer[:]
        for attribute in _sparse_constants(graph):
            tensor = _dense(attribute.sparse_tensor, label)
            attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))
    return result


def graph_protos(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and those within it at any depth, each after the one that it is in."""
    yield graph
    for node in graph.node:
        for body in body_protos(node):
            yield from graph_protos(body)


def _sparse_constants(graph: onnx.GraphProto) -> Iterator[onnx.AttributeProto]:
    return (a for node in graph.node if node.op_type == "Constant" for a in node.attribute if a.name == "sparse_value")


def _dense(sparse: onnx.SparseTensorProto, label: str) -> onnx.TensorProto:
    name, shape = sparse.values.name, tuple(sparse.dims)
    where = f"{label}: sparse constant {name!r}"
    if math.prod(shape) > _MOST_ELEMENTS:
        size = "x".join(map(str, shape))
        raise ModelError(f"{where}: its shape {size} is too large for a dense tensor; store it in another way")
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(shape, values.dtype)
    if indices.shape == (len(values), len(shape)) and indices.ndim == 2:
        places = tuple(indices.T)
    elif indices.shape == values.shape:
        places = np.unravel_index(indices, shape) if _are_within(indices, dense.size) else ()
    else:
        places = ()
    if len(places) != len(shape) or not all(map(_are_within, places, shape)):
        raise ModelError(f"{where}: its indices do not fit its shape and values; mend the model or export it again")
    dense[places] = values
    return numpy_helper.from_array(dense, name)


def _are_within(indices: np.ndarray[tuple[int, ...], np.dtype[np.int64]], size: int) -> bool:
    return bool(((indices >= 0) & (indices < size)).all())


_PROTOBUF_LIMIT = 1_900_000_000
"""Bytes of weights above which a file needs external data (protobuf ends at 2 GiB)."""
_CONSTANT_ATTRIBUTES: Mapping[str, tuple[ir.AttributeType, type[np.generic] | None]] = {
    "value": (ir.AttributeType.TENSOR, None),
    "value_float": (ir.AttributeType.FLOAT, np.float32),
    "value_floats": (ir.AttributeType.FLOATS, np.float32),
    "value_int": (ir.AttributeType.INT, np.int64),
    "value_ints": (ir.AttributeType.INTS, np.int64),
}
"""The type of each attribute that a Constant node may hold, and of its elements if it is no tensor."""


@dataclass(frozen=True)
class Model:
    """An ONNX model. Invariant: nothing in eqfuse changes `ir` once a Model holds it.

    `path` is the file it was read from, None for a model from memory; `is_changed`: the file has other input shapes or
    outputs than the user asked for, or unsorted nodes; `lowest` are bounds that the user gives for dimensions. Runtimes
    run `executed` in the place of `ir`, if there is one: `ir` may have operators that only eqfuse knows.
    """

    ir: onnx_ir.Model = field(repr=False)
    path: Path | None = None
    is_changed: bool = False
    lowest: tuple[tuple[str, int], ...] = ()
    executed: onnx_ir.Model | None = field(default=None, repr=False)

    @property
    def source(self) -> Path | onnx_ir.Model:
        """The model for a runtime: its file, unless that holds another model."""
        if self.executed is not None:
            return self.executed
        is_another = self.is_changed or bool(map_outputs(self.graph))
        return self.ir if self.path is None or is_another else self.path

    @property
    def graph(self) -> onnx_ir.Graph:
        """The main graph."""
        return self.ir.graph

    @property
    def opset(self) -> int:
        """Version of the standard domain; 1 if the model imports none."""
        imports = self.ir.opset_imports
        return next((imports[d] for d in ONNX_DOMAINS if d in imports), 1)

    @property
    def label(self) -> str:
        """The name of this model in messages."""
        return str(self.path) if self.path else (self.graph.name or "model")

    @property
    def weight_bytes(self) -> int:
        """Bytes of all initializers of the main graph."""
        tensors = (v.const_value for v in self.graph.initializers.values())
        return sum(t.nbytes for t in tensors if t is not None)

    @property
    def file_bytes(self) -> int:
        """About how many bytes nodes and weights of the main graph take in a file."""
        nodes = sum(int(serde.serialize_node(n).ByteSize()) for n in self.graph)
        return nodes + sum(len(n) + 24 for n in self.graph.initializers) + self.weight_bytes

    @property
    def has_external_data(self) -> bool:
        """Whether any weight lies outside the ONNX file."""
        return any(_external_tensors(self.ir))

    @cached_property
    def stored(self) -> Mapping[str, onnx_ir.TensorProtocol]:
        """Every constant that the main graph stores: Constant nodes, and initializers that no caller may replace."""
        tensors = {
            name: value.const_value
            for name, value in self.graph.initializers.items()
            if name not in self.overridable_initializers and value.const_value is not None
        }
        for node in self.graph:
            tensor = _constant_node_tensor(node) if node.op_type == "Constant" else None
            if tensor is not None and node.outputs[0].name:
                tensors[node.outputs[0].name] = tensor
        return tensors

    @cached_property
    def overridable_initializers(self) -> frozenset[str]:
        """Initializers that are also graph inputs: defaults that a caller may replace.

        Before IR version 4 every initializer had to be listed as an input; there they are constants.
        """
        if self.ir.ir_version < 4:
            return frozenset()
        return frozenset(i.name or "" for i in self.graph.inputs) & frozenset(self.graph.initializers)


def _constant_node_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    if node.domain not in ONNX_DOMAINS or len(node.attributes) != 1:
        return None
    ((name, attribute),) = node.attributes.items()
    type_, dtype = _CONSTANT_ATTRIBUTES.get(name, (None, None))
    if attribute.type != type_:  # left to the ONNX checker
        return None
    if dtype is None:
        tensor: ir.TensorProtocol = attribute.value
        return tensor
    return ir.tensor(np.asarray(attribute.value, dtype))


def read(source: str | os.PathLike[str] | onnx.ModelProto | ir.Model | Model) -> Model:
    """Read a model by path, or copy one from memory. A `Model` is returned unchanged.

    Raises ModelError if the file is missing, a folder, empty or not ONNX, or if external data is missing.
    """
    if isinstance(source, Model):
        return source
    if isinstance(source, ir.Model):
        model = Model(source.clone())
    else:
        proto, path = _load(source)
        proto, maps = take_map_outputs(proto)
        label = str(path) if path is not None else proto.graph.name or "model"
        check_well_formed(proto, label)
        try:
            model = Model(serde.deserialize_model(with_dense_constants(proto, label)), path)
        except ModelError:
            raise
        except Exception as error:  # onnx-ir raises many kinds on malformed graphs
            raise ModelError(f"{label}: malformed ONNX graph: {first_line(error)}") from error
        note_map_outputs(model.graph, maps)
        has_types = _unite_declarations(model.graph, proto.graph)
        model = replace(model, is_changed=has_types)
        _forget_unknown_sizes(model)
        if path is not None:
            external_data.set_base_dir(model.graph, path.parent)
        else:
            _protect_names(model)
    has_moved = sort_nodes(model.ir, model.label)
    has_more_types = infer_output_types(model.ir)
    define_runtime_operators(model.ir)
    _check_external_files(model)
    return replace(model, is_changed=has_moved or has_more_types or model.is_changed)


def is_same_graph(one: ir.Model, other: ir.Model) -> bool:
    """Whether two models have the same nodes, weights, inputs and outputs by name, and import the same opsets."""
    if one.opset_imports != other.opset_imports or set(one.functions) != set(other.functions):
        return False
    functions = ((function, other.functions[key]) for key, function in one.functions.items())
    if any(serde.serialize_function(a) != serde.serialize_function(b) for a, b in functions):
        return False
    ends = [[serde.serialize_value(value) for value in (*m.graph.inputs, *m.graph.outputs)] for m in (one, other)]
    nodes = [list(map(serde.serialize_node, model.graph)) for model in (one, other)]
    return ends[0] == ends[1] and nodes[0] == nodes[1] and _is_same_data(one.graph, other.graph)


def _is_same_data(one: ir.Graph, other: ir.Graph) -> bool:
    tensors = [{name: value.const_value for name, value in g.initializers.items()} for g in (one, other)]
    if tensors[0].keys() != tensors[1].keys():
        return False
    pairs = [(tensor, tensors[1][name]) for name, tensor in tensors[0].items()]
    return all(
        a is b or (a is not None and b is not None and a.dtype == b.dtype and np.array_equal(elements(a), elements(b)))
        for a, b in pairs
    )


def _load(source: str | os.PathLike[str] | onnx.ModelProto) -> tuple[onnx.ModelProto, Path | None]:
    """The message of a model, without external data, and the file that it comes from."""
    if isinstance(source, onnx.ModelProto):
        return source, None
    if not isinstance(source, (str, os.PathLike)):
        raise ModelError(f"a model is a path, an onnx.ModelProto or an onnx_ir.Model, not {type(source).__name__}")
    path = Path(source)
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    if path.is_dir():
        raise ModelError(f"{path}: is a folder, not an ONNX file")
    if not path.is_file():
        raise ModelError(f"{path}: is a device or a pipe, not an ONNX file")
    if path.stat().st_size == 0:
        raise ModelError(f"{path}: the file is empty")
    try:
        return onnx.load(path, load_external_data=False), path
    except DecodeError:
        raise ModelError(f"{path}: not an ONNX file, cut short or nested too deep for protobuf") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or first_line(error)}") from None
    except Exception as error:  # each text format that onnx takes by its extension has an error of its own
        raise ModelError(f"{path}: cannot be read: {first_line(error)}") from None


def _forget_unknown_sizes(model: Model) -> None:
    """Leave sizes open that are written as `UNKNOWN_SIZE`."""
    scopes: list[onnx_ir.Graph | onnx_ir.Function] = [model.graph, *model.ir.functions.values()]
    for scope in scopes:
        inputs = (value for graph in (scope, *scope.subgraphs()) for value in graph.inputs)
        outputs = (value for node in scope.all_nodes() for value in node.outputs)
        for value in (*inputs, *outputs):
            if value.shape is not None and UNKNOWN_SIZE in value.shape.dims:
                value.shape = ir.Shape([None if size == UNKNOWN_SIZE else size for size in value.shape])


def _unite_declarations(graph: ir.Graph, declared: onnx.GraphProto) -> bool:
    """Give inputs that are outputs, too, what their two declarations say of each dimension: sizes before names.

    Whether that is more than an input's own declaration says.
    """
    own = {value.name: serde.deserialize_type_proto_for_shape(value.type) for value in declared.input}
    says_more = False
    for value in {*graph.inputs} & {*graph.outputs}:  # its shape is that of the output
        shape = own[value.name or ""]
        if value.shape is None:
            value.shape = shape
        elif shape is not None:
            value.shape = ir.Shape(map(_size_or_name, shape, value.shape))
        says_more |= value.shape != shape
    return says_more


def _size_or_name(one: int | ir.SymbolicDim, other: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
    """What is known of a dimension that is declared twice."""
    named = [each for each in (one, other) if each not in (UNKNOWN_SIZE, ir.SymbolicDim(None))]
    return next((each for each in named if isinstance(each, int)), (*named, one)[0])


class _ForeignTensor(serde.TensorProtoTensor):
    """A tensor of a caller's message, which must not change: onnx-ir writes a new name into the message itself."""

    @property
    def name(self) -> str:
        return super().name

    @name.setter
    def name(self, value: str | None) -> None:
        if value != super().name:
            copy = onnx.TensorProto()
            copy.CopyFrom(self.raw)
            copy.name = value or ""
            self.__init__(copy)  # type: ignore[misc]


def _protect_names(model: Model) -> None:
    """Let the tensors of a caller's message get new names without a change to the message."""
    for graph in model.ir.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, serde.TensorProtoTensor):
                value.const_value = _ForeignTensor(value.const_value.raw)
        for node in graph:
            for name, attribute in node.attributes.items():
                if isinstance(attribute.value, serde.TensorProtoTensor):
                    node.attributes[name] = ir.AttrTensor(name, _ForeignTensor(attribute.value.raw))


def _check_external_files(model: Model) -> None:
    for name, tensor in _external_tensors(model.ir):
        file = Path(tensor.path)
        if not file.exists():
            remedy = "" if model.path else "; give the path of the model, or one whose weights are in memory"
            raise ModelError(f"{model.label}: external data file {file} of weight {name} is missing{remedy}")
        if not file.is_file():
            raise ModelError(f"{model.label}: external data {file} of weight {name} is no file")
        length = tensor.nbytes if tensor.length is None else tensor.length
        if length < tensor.nbytes:
            raise ModelError(
                f"{model.label}: weight {name} has {length} bytes of external data, and its shape takes {tensor.nbytes}"
            )
        end = (tensor.offset or 0) + length
        if file.stat().st_size < end:
            raise ModelError(f"{model.label}: external data file {file} is cut short: weight {name} ends at {end}")


def external_files(model: Model) -> frozenset[Path]:
    """The files that weights lie in beside the model's own."""
    return frozenset(Path(tensor.path) for _, tensor in _external_tensors(model.ir))


def _external_tensors(model: ir.Model) -> Iterator[tuple[str, ir.ExternalTensor]]:
    """Initializers and attributes of all graphs whose elements lie in another file, by name."""
    for graph in model.graphs():
        stored = [(v.name, v.const_value) for v in graph.initializers.values()]
        stored += [
            (node.outputs[0].name, attribute.value)
            for node in graph
            for attribute in node.attributes.values()
            if attribute.type == ir.AttributeType.TENSOR
        ]
        yield from ((name or "", t) for name, t in stored if isinstance(t, ir.ExternalTensor))


def elements(tensor: ir.TensorProtocol) -> np.ndarray[Any, Any]:
    """The elements of a stored tensor, for reading only. Raises ModelError if the file cannot be read.

    External data is mapped anew: the array keeps this map open, while writing the model closes the tensor's own. Text
    is an array of objects, as onnx takes it.
    """
    if isinstance(tensor, ir.ExternalTensor):
        tensor = ir.ExternalTensor(
            tensor.location, tensor.offset, tensor.length, tensor.dtype, shape=tensor.shape, name=tensor.name,
            base_dir=tensor.base_dir,
        )  # fmt: skip
    try:
        array = tensor.numpy()
        return array.astype(object) if array.dtype.kind in "SU" else array
    except (OSError, ValueError) as error:
        place = f" in {tensor.path}" if isinstance(tensor, ir.ExternalTensor) else ""
        raise ModelError(f"weight {tensor.name}{place} cannot be read: {first_line(error)}") from error


def reads(model: Model, path: Path) -> bool:
    """Whether the model or weights of it lie in the file at `path`."""
    files = external_files(model) | ({model.path} if model.path is not None else set())
    return path.exists() and any(path.samefile(file) for file in files)


def first_line(error: BaseException) -> str:
    """The innermost message of an exception, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def external_name(path: Path) -> str:
    """Name of the external data file beside the model at `path`."""
    return f"{path.name}.data"


def write(model: Model, path: str | os.PathLike[str], *, external: bool = False) -> Model:
    """Write a model. If that fails, `path` still holds its old contents.

    Weights go to ``<name>.data`` beside it if `external` asks for it or one file cannot hold them.
    Returns the same model with its new path. Raises UsageError on an unusable destination, ModelError on a full disk.
    """
    path = Path(path)
    check_destination(path)
    external = external or model.has_external_data or model.weight_bytes > _PROTOBUF_LIMIT
    try:
        with staging_folder(path) as folder:
            staged = folder / path.name
            ir.save(model.ir, staged, external_data=external_name(path) if external else None)
            if maps := map_outputs(model.graph):
                message = onnx.load(staged, load_external_data=False)
                return_maps(message, maps)
                onnx.save(message, staged)
            staged_data = folder / external_name(path)
            if external and staged_data.exists() and staged_data.stat().st_size:
                os.replace(staged_data, path.with_name(staged_data.name))
            os.replace(staged, path)
    except OSError as error:
        raise ModelError(f"{path}: cannot be written: {error.strerror or error}") from None
    except (EncodeError, ValueError) as error:
        raise ModelError(f"{path}: cannot be written: {first_line(error)}") from error
    return replace(model, path=path, is_changed=False)
