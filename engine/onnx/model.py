"""ONNX files in and out.

A `Model` is read by path and never loads what it does not need: weights in external data stay memory-mapped,
and a result is written to a temporary file beside its destination and moved there when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnx_ir as ir
from google.protobuf.message import DecodeError, EncodeError
from onnx_ir import external_data, serde

from ...errors import ModelError
from ...support.scratch import staging_folder
from .wellformed import UNKNOWN_SIZE, check_well_formed

ONNX_DOMAINS = ("", "ai.onnx")
_PROTOBUF_LIMIT = 1_900_000_000
"""Bytes of weights above which a file needs external data (protobuf ends at 2 GiB)."""
_CONSTANT_ATTRIBUTES: Mapping[str, tuple[ir.AttributeType, type[np.generic] | None]] = {
    "value": (ir.AttributeType.TENSOR, None),
    "value_float": (ir.AttributeType.FLOAT, np.float32),
    "value_floats": (ir.AttributeType.FLOATS, np.float32),
    "value_int": (ir.AttributeType.INT, np.int64),
    "value_ints": (ir.AttributeType.INTS, np.int64),
}
"""What a Constant node may hold: the type of the attribute, and that of its elements where it is no tensor."""


@dataclass(frozen=True)
class Model:
    """An ONNX model. Invariant: nothing in eqfuse changes `ir` once a Model holds it.

    `path` is where it was read from (None: made in memory).
    """

    ir: onnx_ir.Model = field(repr=False)
    path: Path | None = None

    @property
    def graph(self) -> onnx_ir.Graph:
        """The main graph."""
        return self.ir.graph

    @property
    def opset(self) -> int:
        """Version of the standard domain; 1 where the model imports none."""
        imports = self.ir.opset_imports
        return next((imports[d] for d in ONNX_DOMAINS if d in imports), 1)

    @property
    def label(self) -> str:
        """How messages call this model."""
        return str(self.path) if self.path else (self.graph.name or "model")

    @property
    def weight_bytes(self) -> int:
        """Bytes of all initializers of the main graph."""
        tensors = (v.const_value for v in self.graph.initializers.values())
        return sum(t.nbytes for t in tensors if t is not None)

    @property
    def file_bytes(self) -> int:
        """Bytes that nodes and weights of the main graph take in a file, near enough."""
        nodes = sum(int(serde.serialize_node(n).ByteSize()) for n in self.graph)
        return nodes + sum(len(n) + 24 for n in self.graph.initializers) + self.weight_bytes

    @property
    def has_external_data(self) -> bool:
        """Whether any weight lies outside the ONNX file."""
        return any(_external_tensors(self.ir))

    @cached_property
    def stored(self) -> Mapping[str, onnx_ir.TensorProtocol]:
        """Every constant the main graph stores: initializers that no caller may replace, and Constant nodes."""
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
    """Read a model by path, or take one from memory (which is left unchanged); one that was read is itself.

    Raises ModelError where the file is missing, a folder, empty or not ONNX, and where external data is missing.
    """
    if isinstance(source, Model):
        return source
    if isinstance(source, (onnx.ModelProto, ir.Model)):
        found = _from_memory(source)
    elif isinstance(source, (str, os.PathLike)):
        found = _from_file(Path(source))
    else:
        raise ModelError(f"a model is a path, an onnx.ModelProto or an onnx_ir.Model, not {type(source).__name__}")
    _check_external_files(found)
    return found


def _from_memory(source: onnx.ModelProto | ir.Model) -> Model:
    if isinstance(source, ir.Model):
        return Model(source.clone())
    return Model(_deserialize(source, source.graph.name or "model"))


def _from_file(path: Path) -> Model:
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    if path.is_dir():
        raise ModelError(f"{path}: is a folder, not an ONNX file")
    if not path.is_file():
        raise ModelError(f"{path}: is a device or a pipe, not an ONNX file")
    if path.stat().st_size == 0:
        raise ModelError(f"{path}: the file is empty")
    try:
        proto = onnx.load(path, load_external_data=False)
    except DecodeError:
        raise ModelError(f"{path}: not an ONNX file, cut short or nested too deep for protobuf") from None
    except Exception as error:  # each text format that onnx takes by its extension has an error of its own
        raise ModelError(f"{path}: cannot be read: {first_line(error)}") from None
    model = _deserialize(proto, str(path))
    external_data.set_base_dir(model.graph, path.parent)
    return Model(model, path)


def _deserialize(proto: onnx.ModelProto, label: str) -> ir.Model:
    if not proto.HasField("graph") or not proto.ir_version or not (proto.graph.node or proto.graph.output):
        raise ModelError(f"{label}: not an ONNX model: it holds no graph")
    if not proto.graph.output:
        raise ModelError(f"{label}: the graph has no outputs, so there is nothing to compute; name some")
    check_well_formed(proto, label)
    try:
        model = serde.deserialize_model(proto)
    except Exception as error:  # onnx-ir raises many kinds on malformed graphs
        raise ModelError(f"{label}: malformed ONNX graph: {first_line(error)}") from error
    _leave_out_unknown_sizes(model.graph)
    for function in model.functions.values():
        _leave_out_unknown_sizes(function)
    return model


def _leave_out_unknown_sizes(graph: onnx_ir.Graph | onnx_ir.Function) -> None:
    for value in (*graph.inputs, *(output for node in graph for output in node.outputs)):
        if value.shape is not None and UNKNOWN_SIZE in value.shape.dims:
            value.shape = ir.Shape([None if size == UNKNOWN_SIZE else size for size in value.shape])
    for attribute in (a for node in graph for a in node.attributes.values()):
        bodies: Sequence[onnx_ir.Graph] = ()
        if attribute.type == ir.AttributeType.GRAPH:
            bodies = (attribute.as_graph(),)
        elif attribute.type == ir.AttributeType.GRAPHS:
            bodies = attribute.as_graphs()
        for body in bodies:
            _leave_out_unknown_sizes(body)


def _check_external_files(model: Model) -> None:
    for name, tensor in _external_tensors(model.ir):
        file = Path(tensor.path)
        if not file.exists():
            raise ModelError(f"{model.label}: external data file {file} of weight {name} is missing")
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
    """The elements of a stored tensor, to be read only.

    Those of external data lie in a map of the file that nobody closes while they are used. The tensor's own map is
    closed when it is written. Raises ModelError where the file may not be read.
    """
    if isinstance(tensor, ir.ExternalTensor):
        tensor = ir.ExternalTensor(
            tensor.location, tensor.offset, tensor.length, tensor.dtype, shape=tensor.shape, name=tensor.name,
            base_dir=tensor.base_dir,
        )  # fmt: skip
    try:
        return tensor.numpy()
    except (OSError, ValueError) as error:
        place = f" in {tensor.path}" if isinstance(tensor, ir.ExternalTensor) else ""
        raise ModelError(f"weight {tensor.name}{place} cannot be read: {first_line(error)}") from error


def reads(model: Model, path: Path) -> bool:
    """Whether weights of the model lie in the file at `path`."""
    return path.exists() and any(path.samefile(t.path) for _, t in _external_tensors(model.ir))


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
    """Write a model so that `path` holds either the whole result or what it held before.

    Weights go to ``<name>.data`` beside it where `external` asks for it or one file cannot hold them.
    Returns the same model with its new path. Raises ModelError on an unusable destination or a full disk.
    """
    path = Path(path)
    check_destination(path)
    external = external or model.has_external_data or model.weight_bytes > _PROTOBUF_LIMIT
    try:
        with staging_folder(path) as folder:
            ir.save(model.ir, folder / path.name, external_data=external_name(path) if external else None)
            _publish(folder / path.name, path, external)
    except OSError as error:
        raise ModelError(f"{path}: cannot be written: {error.strerror or error}") from None
    except (EncodeError, ValueError) as error:
        raise ModelError(f"{path}: cannot be written: {first_line(error)}") from error
    return replace(model, path=path)


def _publish(staged: Path, path: Path, external: bool) -> None:
    data = staged.with_name(external_name(path))
    if external and data.exists():
        os.replace(data, path.with_name(data.name))
    os.replace(staged, path)


def check_destination(path: Path) -> None:
    """Raise ModelError where `path` cannot be a file to write."""
    if path.is_dir():
        raise ModelError(f"{path}: is a folder; name the file to write, such as {path / 'out.onnx'}")
    if path.exists() and not path.is_file():
        raise ModelError(f"{path}: is a device or a pipe; name a file to write")
    if not path.parent.exists():
        raise ModelError(f"{path}: the folder {path.parent} does not exist")
