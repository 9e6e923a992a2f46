"""What is known of a model before rewriting: the type of every value, and the small constants that shapes hang on.

Shape inference and constant folding feed each other (a Reshape's target is computed from a Shape), so they
alternate until nothing new is known. Weights take no part: they enter as types only.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper
from onnx_ir import serde

from ...errors import ModelError
from ...ir.types import TensorType
from . import ceil_pools
from .delicate import without_delicate_nodes
from .evaluation import evaluate
from .local_inference import compute_integers, infer_node_types
from .model import Model, elements, first_line
from .nodes import blame_node, is_foldable, is_standard
from .typing import constant_type, tensor_type

SMALL = 4096
"""Elements up to which a constant is evaluated here; larger ones stay expressions until the graph is chosen."""
_LONGEST = 1 << 20
"""Elements of the longest vector of which ONNX may make a list of dimensions; each takes some 50 bytes."""
_LARGEST = 1 << 36
"""Elements of the largest tensor that may turn up as a vector: no machine runs a model with larger ones."""
_GROWING = frozenset({"ConstantOfShape", "Expand", "Tile", "Range", "OneHot", "Pad", "Resize", "Upsample"})


@dataclass(frozen=True)
class Knowledge:
    """Types of the main graph's values, values of its small constants, and the symbols its inputs declare.

    Dimensions whose size is not known carry either a symbol of `symbols` (equal name, equal size) or another name
    that says nothing.
    """

    types: Mapping[str, TensorType]
    constants: Mapping[str, np.ndarray[Any, Any]]
    symbols: frozenset[str]


def infer(model: Model) -> Knowledge:
    """All that can be known. Raises ModelError where the ONNX checker refuses the model."""
    constants = _stored_constants(model)
    skeleton = _Skeleton(model)
    skeleton.check(constants)
    types = skeleton.infer(constants)
    while folded := _fold(model, types, constants):
        constants |= folded
        types = skeleton.infer(constants)
    return Knowledge(types, constants, skeleton.symbols)


def _stored_constants(model: Model) -> dict[str, np.ndarray[Any, Any]]:
    return {
        name: elements(tensor)
        for name, tensor in model.stored.items()
        if tensor.size <= SMALL and tensor.dtype != ir.DataType.STRING
    }


class _Skeleton:
    """The model without its weights, for the ONNX checker and shape inference."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.symbols: frozenset[str] = frozenset()
        self._weights = model.stored
        self._weight_types = {name: constant_type(tensor) for name, tensor in self._weights.items()}
        self._proto = self._build(model)

    def _build(self, model: Model) -> onnx.ModelProto:
        proto = onnx.ModelProto(ir_version=max(model.ir.ir_version, 4))
        proto.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in model.ir.opset_imports.items())
        proto.functions.extend(serde.serialize_function(f) for f in model.ir.functions.values())
        graph = proto.graph
        graph.name = "skeleton"
        for node in model.graph:
            if not self._is_stored(node):
                with blame_node(node, model.label):
                    graph.node.append(serde.serialize_node(node))
        graph.input.extend(self._inputs(model))
        graph.output.extend(onnx.ValueInfoProto(name=o.name) for o in model.graph.outputs)
        graph.value_info.extend(
            serde.serialize_value(o) for n in model.graph if not is_standard(n) for o in n.outputs if o.type
        )
        return proto

    def _is_stored(self, node: ir.Node) -> bool:
        return bool(node.outputs) and all(o.name in self._weights for o in node.outputs)

    def _inputs(self, model: Model) -> list[onnx.ValueInfoProto]:
        constant = frozenset(model.graph.initializers) - model.overridable_initializers
        inputs = [serde.serialize_value(i) for i in model.graph.inputs if i.name not in constant]
        symbols = set()
        for value in inputs:
            for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
                if not dimension.HasField("dim_value"):
                    dimension.dim_param = dimension.dim_param or f"{value.name}.{axis}"
                    symbols.add(dimension.dim_param)
        self.symbols = frozenset(symbols)
        return inputs

    def _with(self, constants: Mapping[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        stored = constants.keys() | self._weights.keys()
        kept = [n for n in proto.graph.node if not (n.output and all(o in stored for o in n.output if o))]
        del proto.graph.node[:]
        proto.graph.node.extend(kept)
        proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in constants.items())
        proto.graph.input.extend(_typed_input(n, t) for n, t in self._weights.items() if n not in constants)
        return proto

    def check(self, constants: Mapping[str, np.ndarray[Any, Any]]) -> None:
        proto = self._with(constants)
        for output, value in zip(proto.graph.output, self._model.graph.outputs, strict=True):
            output.CopyFrom(serde.serialize_value(value))
        for value_info in (*proto.graph.input, *proto.graph.output):
            _allow_unknown_rank(value_info)
        try:
            onnx.checker.check_model(proto)
        except Exception as error:
            raise ModelError(f"{self._model.label}: fails the ONNX checker: {first_line(error)}") from None

    def infer(self, constants: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, TensorType]:
        proto = self._with(constants)
        types = self._inferred(without_delicate_nodes(proto, {}), propagate=False)
        if not any(_is_too_long(type_) for type_ in types.values()):
            types = self._inferred(without_delicate_nodes(proto, types), propagate=True)
        types |= self._weight_types
        types |= {name: TensorType(array.dtype.name, array.shape) for name, array in constants.items()}
        return self.infer(constants) if ceil_pools.correct(self._proto.graph.node, types) else types

    def _inferred(self, proto: onnx.ModelProto, *, propagate: bool) -> dict[str, TensorType]:
        """Types by ONNX shape inference, which may `propagate` the values of shapes that are calculated with."""
        try:
            graph = onnx.shape_inference.infer_shapes(proto, data_prop=propagate).graph
        except Exception as error:
            raise ModelError(f"{self._model.label}: shapes do not fit: {first_line(error)}") from None
        types = {v.name: tensor_type(v.type) for v in (*graph.input, *graph.value_info, *graph.output)}
        return {name: type_ for name, type_ in types.items() if type_ is not None}


def find_refused_type(model: Model) -> str:
    """Which operator of a model has an element type that its schema does not allow, in ONNX's words; "" for none."""
    try:
        proto = serde.serialize_model(model.ir)
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except Exception as error:  # of several kinds, and a model may be too large to look at
        return first_line(error) if "unsupported type" in str(error) else ""
    return ""


def _is_too_long(type_: TensorType) -> bool:
    """Whether propagation of values, which takes any vector for a shape, could need too much memory with this one."""
    if type_.shape is None or not type_.is_static:
        return False
    return type_.elements() > (_LONGEST if len(type_.shape) == 1 else _LARGEST)


def _allow_unknown_rank(value: onnx.ValueInfoProto) -> None:
    """The checker insists on a shape where runtimes do not, and never looks at it."""
    if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
        value.type.tensor_type.shape.SetInParent()


def _typed_input(name: str, tensor: ir.TensorProtocol) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, int(tensor.dtype), [int(d) for d in tensor.shape.numpy()])


def _fold(
    model: Model, types: Mapping[str, TensorType], constants: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    """Values of the nodes that became computable: one evaluation for all of them.

    On the way, types of single nodes become known that inference of the whole graph did not find.
    """
    opsets = model.ir.opset_imports
    found: dict[str, np.ndarray[Any, Any]] = {}
    pending: dict[str, ir.Node] = {}
    types, numbers = dict(types), dict(constants)
    for node in model.graph:
        if any(o.name in constants for o in node.outputs):
            continue
        with blame_node(node, model.label):
            types |= infer_node_types(node, types, numbers, opsets)
            shape = _static_shape(node, types)
        if shape is not None and node.outputs[0].name:
            found[node.outputs[0].name] = numbers[node.outputs[0].name] = shape
        elif _is_computable(node, types, constants.keys() | found.keys() | pending.keys()):
            pending |= {o.name: node for o in node.outputs if o.name}
            with blame_node(node, model.label):
                numbers |= compute_integers(node, types, numbers, opsets)
    nodes = list(dict.fromkeys(pending.values()))
    known = {**constants, **found}
    needed = {i.name: known[i.name] for n in nodes for i in n.inputs if i is not None and i.name in known}
    protos = [serde.serialize_node(n) for n in nodes]
    values = evaluate(protos, needed, list(pending), opsets)
    return found | {n: a for n, a in values.items() if a.size <= SMALL and a.dtype != object}


def _static_shape(node: ir.Node, types: Mapping[str, TensorType]) -> np.ndarray[Any, Any] | None:
    """The value of a Shape or Size of a tensor whose dimensions are all known."""
    if node.op_type not in ("Shape", "Size") or not is_standard(node) or node.inputs[0] is None:
        return None
    type_ = types.get(node.inputs[0].name or "")
    if type_ is None or type_.shape is None or not type_.is_static:
        return None
    if node.op_type == "Size":
        return np.asarray(type_.elements(), np.int64)
    rank = len(type_.shape)
    start = node.attributes.get_int("start", 0)
    end = node.attributes.get_int("end", rank)
    return np.asarray(type_.shape[start:end], np.int64)


def _is_computable(node: ir.Node, types: Mapping[str, TensorType], known: Set[str]) -> bool:
    if not is_foldable(node) or node.op_type == "Constant" or not all(o.name for o in node.outputs):
        return False
    if any(i is not None and (i.name or "") not in known for i in node.inputs):
        return False
    sizes = [types.get(o.name or "") for o in node.outputs]
    if all(t is not None and t.is_static for t in sizes):
        return all(t is not None and t.elements() <= SMALL for t in sizes)
    return node.op_type not in _GROWING
