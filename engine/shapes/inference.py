"""The types of a model's values, and the small constants that shapes depend on.

Shape inference and constant folding feed each other (a Reshape's target is computed from a Shape), so they
alternate until neither adds anything. Weights take part by their types only. If sizes stay dynamic, the symbolic
evaluation of `engine/shapes/` takes over: results that are the same for all sizes are constants like any other.

Shape inference of a whole graph stops at a Reshape whose target is computed. Therefore folding also infers the types of
single nodes: node by node, in order, such a target is known before its Reshape comes, however many follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir import serde

from ...ir.sizes import declared_sizes
from ...ir.types import Dimension, TensorType
from ...support.errors import ModelError
from ..onnx.evaluation import Arrays, evaluate, evaluate_by_reference
from ..onnx.inference_faults import correct_window, without_delicate_nodes
from ..onnx.model import Model, elements, first_line
from ..onnx.nodes import (
    FORMAL_KEY,
    INFERRED_KEY,
    blame_node,
    branches,
    has_body,
    is_flat_if,
    is_foldable,
    is_inferable,
    is_standard,
    serialize_for_inference,
)
from ..onnx.typing import NAMELESS, constant_type, dtype_of, infer_outputs, tensor_type, type_proto
from .bounds import Bounds
from .evaluation import Declared, SymbolicShapes, evaluate_shapes
from .operand_checks import check_operands
from .other_domains import classical_dtypes, infer_by_runtime, is_classical, is_of_another_domain

SMALL = 4096
"""The most elements of a constant that is evaluated here; larger ones stay expressions until the graph is chosen."""
_LONGEST = 1 << 20
"""The most elements of a vector from which ONNX may make a list of dimensions; each takes some 50 bytes."""
_LARGEST = 1 << 36
"""The most elements of a tensor that ONNX may flatten to a vector: no machine runs a model with larger ones."""
_INTEGERS = frozenset(("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))
_GROWING = frozenset({"ConstantOfShape", "Expand", "Tile", "Range", "OneHot", "Pad", "Resize", "Upsample"})


@dataclass(frozen=True)
class Knowledge:
    """Types of the main graph's values, values of its small constants, and the names of sizes that are not fixed.

    A dimension of unknown size is a symbol of `symbols` (equal names mean equal sizes) or any other name, which has no
    meaning. Symbols are those that inputs declare, and expressions of these; `symbolic` is the evaluation that found
    them, and `products` the products of two sizes, one of them a symbol. `nonempty` are the symbols that are never 0,
    `empty` those that may be 0 although their own symbols are not.
    """

    types: Mapping[str, TensorType]
    constants: Arrays
    symbols: frozenset[str]
    symbolic: SymbolicShapes = field(default_factory=SymbolicShapes, repr=False)
    products: Mapping[tuple[Dimension, Dimension], Dimension] = field(default_factory=dict)
    nonempty: Set[str] = frozenset()
    empty: Set[str] = frozenset()

    def without_computed_sizes(self) -> Knowledge:
        """The knowledge without a meaning of sizes that are computed from those of inputs."""
        return replace(self, symbols=self.symbols & self.symbolic.declared.symbols.keys(), products={})


def check(model: Model) -> None:
    """Raise ModelError if the ONNX checker refuses the model."""
    _Skeleton(model).check(_small_constants(model))


def _small_constants(model: Model) -> dict[str, np.ndarray[Any, Any]]:
    return {
        name: elements(tensor)
        for name, tensor in model.stored.items()
        if tensor.size <= SMALL and tensor.dtype != ir.DataType.STRING
    }


def infer(model: Model) -> Knowledge:
    """Infer types and constants. Raises ModelError if the ONNX checker refuses the model, or operands do not fit."""
    constants = _small_constants(model)
    skeleton = _Skeleton(model)
    skeleton.check(constants)
    declared = Declared(declared_sizes(skeleton.symbols), Bounds(dict(model.lowest)))
    while True:
        types = skeleton.infer(constants)
        check_operands(model, types)
        if skeleton.ask_runtime(types, constants):
            continue
        if folded := _fold(model, types, constants):
            constants |= folded
            continue
        if all(type_.is_static for type_ in types.values()):
            return Knowledge(types, constants, skeleton.symbols)
        symbolic = evaluate_shapes(model.graph, types, constants, declared, model.opset)
        fixed = {name: array for name, array in symbolic.constants(types).items() if name not in constants}
        if not fixed:
            named = symbolic.types(types)
            nonempty, empty = symbolic.nonempty(), symbolic.empty()
            products = symbolic.products()
            for factors, product in products.items():
                if isinstance(product, str):
                    nonempty |= {product} if all(f in nonempty or isinstance(f, int) for f in factors) else set()
                    empty |= {product} if any(f in empty for f in factors) else set()
            shapes = (*(type_.shape or () for type_ in named.values()), products.values())
            symbols = skeleton.symbols | {d for shape in shapes for d in shape if isinstance(d, str)} - {NAMELESS}
            return Knowledge(types | named, constants, symbols, symbolic, products, nonempty, empty)
        constants |= fixed


def _serialize(node: ir.Node) -> onnx.NodeProto:
    """A node as ONNX knows it: an If whose branches are operands gets bodies that return them."""
    if not is_flat_if(node):
        return serialize_for_inference(node)
    bodies = []
    for number, values in enumerate(branches(node)):
        first = node.outputs[0].name
        names = {value.name or "": f"{value.name}/{first}/{number}" for value in values}
        copies = [onnx.helper.make_node("Identity", [name], [copy]) for name, copy in names.items()]
        results = [onnx.ValueInfoProto(name=names[value.name or ""]) for value in values]
        bodies.append(onnx.helper.make_graph(copies, "branch", [], results))
    proto = onnx.helper.make_node("If", [], [], then_branch=bodies[0], else_branch=bodies[1])
    proto.input.extend(value.name or "" for value in node.inputs[:1] if value is not None)
    proto.output.extend(output.name or "" for output in node.outputs)
    return proto


def _element_types(graph: ir.Graph) -> Iterator[onnx.ValueInfoProto]:
    """The element types of values that neither the model nor ONNX gives."""
    for node in graph:
        for output, dtype in zip(node.outputs, classical_dtypes(node) if is_classical(node) else (), strict=False):
            if output.name and output.type is None and dtype is not None:
                yield onnx.helper.make_tensor_value_info(output.name, int(dtype_of(dtype)), None)


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
            if not node.outputs or any(o.name not in self._weights for o in node.outputs):
                with blame_node(node, model.label):
                    graph.node.append(_serialize(node))
        graph.input.extend(self._inputs(model))
        graph.value_info.extend(
            serde.serialize_value(o)
            for n in model.graph
            for o in n.outputs
            if o.type and (not is_inferable(n) or INFERRED_KEY in o.metadata_props)
        )
        graph.value_info.extend(_element_types(model.graph))
        declared = {info.name: info for info in graph.value_info}
        graph.output.extend(
            declared.get(o.name or "", onnx.ValueInfoProto(name=o.name)) for o in model.graph.outputs
        )
        return proto

    def _inputs(self, model: Model) -> list[onnx.ValueInfoProto]:
        constant = frozenset(model.graph.initializers) - model.overridable_initializers
        inputs = [serde.serialize_value(i) for i in model.graph.inputs if i.name not in constant]
        symbols = set()
        for value in inputs:
            for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
                if not dimension.HasField("dim_value"):
                    if dimension.dim_param in ("", NAMELESS):
                        dimension.dim_param = f"{value.name}.{axis}"
                    symbols.add(dimension.dim_param)
        self.symbols = frozenset(symbols)
        return inputs

    def _with(self, constants: Arrays) -> onnx.ModelProto:
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        stored = constants.keys() | self._weights.keys()
        computed = [n for n in proto.graph.node if not (n.output and all(o in stored for o in n.output if o))]
        del proto.graph.node[:]
        proto.graph.node.extend(computed)
        proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in constants.items())
        proto.graph.input.extend(
            onnx.helper.make_tensor_value_info(name, int(tensor.dtype), [int(d) for d in tensor.shape.numpy()])
            for name, tensor in self._weights.items()
            if name not in constants
        )
        return proto

    def check(self, constants: Arrays) -> None:
        """Raise ModelError if the ONNX checker refuses the model. It wants a type of each input, which what bodies take
        may lack: it has seen the bodies of a model whose flat form has such inputs."""
        if any(FORMAL_KEY in each.metadata_props and each.type is None for each in self._model.graph.inputs):
            return
        proto = self._with(constants)
        for output, graph_output in zip(proto.graph.output, self._model.graph.outputs, strict=True):
            output.CopyFrom(serde.serialize_value(graph_output))
            if not output.type.WhichOneof("value"):
                where = f"{self._model.label}: output {output.name!r}"
                raise ModelError(f"{where} has no type, and none follows from the nodes; declare it in the model")
        for value in (*proto.graph.input, *proto.graph.output):
            if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
                value.type.tensor_type.shape.SetInParent()  # the checker insists on a shape, but never looks at it
        try:
            onnx.checker.check_model(proto)
        except Exception as error:
            raise ModelError(f"{self._model.label}: fails the ONNX checker: {first_line(error)}") from None

    def ask_runtime(self, types: Mapping[str, TensorType], constants: Arrays) -> bool:
        """Note the types that ONNX Runtime infers and ONNX does not, such as for operators of its own domains; returns
        whether any is new."""
        opsets, functions = self._model.ir.opset_imports, self._model.ir.functions
        others = [
            node
            for node in self._model.graph
            if (is_of_another_domain(node) and not is_inferable(node) and node.op_identifier() not in functions)
            or (is_standard(node) and _lacks_inference(node.op_type, self._model.opset))
        ]
        open_ones = {node for node in others if not all(_is_typed(types, o, self.symbols) for o in node.outputs)}
        if not open_ones:
            return False
        known, news = dict(types), dict[str, TensorType]()
        for node in self._model.graph:
            if node in open_ones:
                inferred = infer_by_runtime(serde.serialize_node(node), known, constants, opsets)
            elif is_standard(node) and not has_body(node):
                inferred = _infer_from(node, known, constants, self._model.opset)
            else:
                continue
            better = {o.name: inferred[o.name] for o in node.outputs if o.name in inferred}
            better = {n: t for n, t in better.items() if n and _says_more(t, known.get(n), self.symbols)}
            known |= better
            news |= better if node in open_ones else {}
        for name, type_ in news.items():
            self._declare(name, type_)
        return bool(news)

    def _declare(self, name: str, type_: TensorType) -> None:
        """Give the type of a value that inference does not know."""
        info = onnx.ValueInfoProto(name=name, type=type_proto(type_))
        for dimension in info.type.tensor_type.shape.dim:
            if dimension.dim_param == NAMELESS:
                dimension.Clear()
        found = [v for v in (*self._proto.graph.value_info, *self._proto.graph.output) if v.name == name]
        for declared in found:
            declared.CopyFrom(info)
        if not found:
            self._proto.graph.value_info.append(info)

    def infer(self, constants: Arrays) -> dict[str, TensorType]:
        proto = self._with(constants)
        types = self._infer_types(without_delicate_nodes(proto, {}), propagate=False)
        if not any(_is_too_long(type_) for type_ in types.values()):
            types = self._infer_types(without_delicate_nodes(proto, types), propagate=True)
        types |= self._weight_types
        types |= {name: TensorType(array.dtype.name, array.shape) for name, array in constants.items()}
        return self.infer(constants) if correct_window(self._proto.graph.node, types) else types

    def _infer_types(self, proto: onnx.ModelProto, *, propagate: bool) -> dict[str, TensorType]:
        """Types by ONNX shape inference, which may `propagate` the values of computed shapes."""
        try:
            graph = onnx.shape_inference.infer_shapes(proto, data_prop=propagate).graph
        except Exception as error:
            raise ModelError(f"{self._model.label}: shapes do not fit: {first_line(error)}") from None
        types = ((v.name, tensor_type(v.type)) for v in (*graph.input, *graph.value_info, *graph.output))
        return {name: type_ for name, type_ in types if type_ is not None}  # an output that is an input has none


def find_refused_type(model: Model) -> str:
    """ONNX's message about an operator whose schema does not allow its element type; "" if there is none."""
    try:
        proto = serde.serialize_model(model.ir)
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except Exception as error:  # inference raises several kinds, and a model may be too large for it
        return first_line(error) if "unsupported type" in str(error) else ""
    return ""


def _is_too_long(type_: TensorType) -> bool:
    """Whether data propagation, which takes any vector for a shape, could need too much memory for a tensor."""
    if type_.shape is None or not type_.is_static:
        return False
    return type_.elements() > (_LONGEST if len(type_.shape) == 1 else _LARGEST)


def _fold(model: Model, types: Mapping[str, TensorType], constants: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """Values of the nodes that became computable, all from one evaluation."""
    opsets = model.ir.opset_imports
    shapes: dict[str, np.ndarray[Any, Any]] = {}
    pending: dict[str, ir.Node] = {}
    types, numbers = dict(types), dict(constants)
    for node in model.graph:
        if any(o.name in constants for o in node.outputs):
            continue
        with blame_node(node, model.label):
            types |= infer_node_types(node, types, numbers, opsets)
            shape = _static_shape(node, types)
        if shape is not None and node.outputs[0].name:
            shapes[node.outputs[0].name] = numbers[node.outputs[0].name] = shape
        elif _is_computable(node, types, constants.keys() | shapes.keys() | pending.keys()):
            pending |= {o.name: node for o in node.outputs if o.name}
            with blame_node(node, model.label):
                numbers |= _compute_integers(node, types, numbers, opsets)
    nodes = list(dict.fromkeys(pending.values()))
    operands = {i.name for n in nodes for i in n.inputs if i is not None and i.name}
    leaves = {name: array for name, array in {**constants, **shapes}.items() if name in operands}
    values = evaluate([serde.serialize_node(n) for n in nodes], leaves, list(pending), opsets)
    return shapes | {n: a for n, a in values.items() if a.size <= SMALL and a.dtype != object}


def infer_node_types(
    node: ir.Node, types: Mapping[str, TensorType], constants: Arrays, opsets: Mapping[str, int]
) -> dict[str, TensorType]:
    """The fully known types of a node's outputs if all its operands have such types; {} if that adds nothing."""
    if not is_standard(node) or has_body(node) or all(_is_static(types, o) for o in node.outputs if o.name):
        return {}
    operands = [i for i in node.inputs if i is not None and i.name]
    if not all(_is_static(types, operand) for operand in operands):
        return {}
    protos = {i.name: type_proto(types[i.name]) for i in operands if i.name}
    # What ONNX refuses is reported by inference of the whole graph. An If that is flat is no node of ONNX.
    outputs = infer_outputs(serde.serialize_node(node), protos, constants, opsets.get("", 1)) or {}
    return {name: t for name, t in outputs.items() if t.is_static and NAMELESS not in (t.shape or ())}


@cache
def _lacks_inference(op_type: str, opset: int) -> bool:
    """Whether ONNX infers nothing for a standard operator; its function, if it has one, is not looked into."""
    if not onnx.defs.has(op_type, opset, ""):
        return False
    schema: Any = onnx.defs.get_schema(op_type, opset, "")
    return not schema.has_type_and_shape_inference_function and not schema.deprecated


def _infer_from(
    node: ir.Node, types: Mapping[str, TensorType], constants: Arrays, opset: int
) -> dict[str, TensorType]:
    """The types that ONNX infers for a node of operands whose sizes may be symbols; {} if the type of one is
    unknown."""
    names = [value.name for value in node.inputs if value is not None and value.name]
    if any(name not in types or types[name].shape is None for name in names):
        return {}
    protos = {name: type_proto(types[name]) for name in names}
    for dimension in (d for proto in protos.values() for d in proto.tensor_type.shape.dim):
        if dimension.dim_param == NAMELESS:
            dimension.Clear()
    return infer_outputs(serde.serialize_node(node), protos, constants, opset) or {}


def _is_typed(types: Mapping[str, TensorType], value: ir.Value, symbols: Set[str]) -> bool:
    """Whether all sizes of a value are numbers or symbols; an output that is left out counts as one."""
    type_ = types.get(value.name or "")
    return not value.name or (type_ is not None and type_.shape is not None and _count_open(type_, symbols) == 0)


def _says_more(type_: TensorType, known: TensorType | None, symbols: Set[str]) -> bool:
    """Whether a type gives more sizes than the known one."""
    if known is None or (known.shape is None and type_.shape is not None):
        return True
    return type_.shape is not None and _count_open(type_, symbols) < _count_open(known, symbols)


def _count_open(type_: TensorType, symbols: Set[str]) -> int:
    """How many dimensions are neither numbers nor symbols."""
    return sum(not isinstance(d, int) and d not in symbols for d in type_.shape or ())


def _is_static(types: Mapping[str, TensorType], value: ir.Value) -> bool:
    type_ = types.get(value.name or "")
    return type_ is not None and type_.is_static


def _compute_integers(
    node: ir.Node, types: Mapping[str, TensorType], constants: Arrays, opsets: Mapping[str, int]
) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs of a node of constant operands if all are integers, from which shapes are computed; else {}."""
    output_types = [types.get(o.name or "") for o in node.outputs]
    if not all(type_ is not None and type_.dtype in _INTEGERS for type_ in output_types):
        return {}
    operands = {i.name: constants[i.name] for i in node.inputs if i is not None and i.name and i.name in constants}
    return evaluate_by_reference(
        [serde.serialize_node(node)], operands, [o.name for o in node.outputs if o.name], opsets
    )


def _static_shape(node: ir.Node, types: Mapping[str, TensorType]) -> np.ndarray[Any, Any] | None:
    """The value of a Shape or Size if all dimensions of its tensor are known."""
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


def _is_computable(node: ir.Node, types: Mapping[str, TensorType], constants: Set[str]) -> bool:
    if not is_foldable(node) or node.op_type == "Constant" or not all(o.name for o in node.outputs):
        return False
    if any(i is not None and (i.name or "") not in constants for i in node.inputs):
        return False
    sizes = [types.get(o.name or "") for o in node.outputs]
    if all(t is not None and t.is_static for t in sizes):
        return all(t is not None and t.elements() <= SMALL for t in sizes)
    return node.op_type not in _GROWING
