"""Structural facts of a graph: uses of values, dependence on the inputs, randomness, and its interface."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import inliner, numpy_helper, shape_inference

from ....ir.operators import CONVOLUTIONS, POOLS, RECURRENT, VIEWS
from ....ir.operators.quantization import ROUNDED_RESULTS
from ...onnx.inference_faults import without_delicate_nodes
from ...onnx.nodes import RANDOM_OPERATORS
from ...onnx.wellformed import all_nodes, body_protos
from .skim import has_data

SHAPE_ONLY_OPERATORS = frozenset({"Shape", "Size", "EyeLike"})
TRANSPARENT_OPERATORS = VIEWS | {"Cast", "Transpose", "Expand", "Slice", "Concat", "Split"}
"""Operators whose results are elements of their operands, up to type and place."""

_CHOOSING_OPERATORS = frozenset({"ArgMax", "ArgMin", "NonMaxSuppression", "NonZero", "TopK", "Unique"})
"""Operators that give indices or the number of elements of their results by comparing numbers."""

_COARSE_TYPES = {
    onnx.TensorProto.BFLOAT16: "bfloat16",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.FLOAT: "float32",
}
"""Float types below double, the coarsest first."""
_RECURRENT = RECURRENT | {"DynamicQuantizeLSTM"}


@dataclass(frozen=True)
class Use:
    """An operand position: ``node.input[index]``."""

    node: onnx.NodeProto
    index: int


@dataclass(frozen=True)
class TensorShape:
    """Element type (TensorProto code) and dims of a value; an unknown dim is None."""

    element_type: int
    dims: tuple[int | None, ...] | None


class Structure:
    """Facts about one model, with its local functions inlined. Everything costly is computed on first use."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        if model.functions:
            with suppress(Exception):  # C++ raises several types; calls then count as opaque operators
                self.model = inliner.inline_local_functions(model)
        self.graph = self.model.graph

    @cached_property
    def initializers(self) -> dict[str, onnx.TensorProto]:
        """The initializers of the main graph by name."""
        return {tensor.name: tensor for tensor in self.graph.initializer}

    @cached_property
    def inputs(self) -> tuple[onnx.ValueInfoProto, ...]:
        """The inputs that must be fed: before IR version 4 the initializers are listed as inputs too."""
        return fed_inputs(self.graph)

    @cached_property
    def uses(self) -> dict[str, list[Use]]:
        """The places where each value is read in the main graph, by its name."""
        table: dict[str, list[Use]] = defaultdict(list)
        for node in self.graph.node:
            for index, name in enumerate(node.input):
                if name:
                    table[name].append(Use(node, index))
        return table

    @cached_property
    def producers(self) -> dict[str, onnx.NodeProto]:
        """The node of the main graph that computes each value, by the value's name."""
        return {name: node for node in self.graph.node for name in node.output if name}

    @cached_property
    def has_windows(self) -> bool:
        """Whether the main graph has convolutions or pools."""
        return any(node.op_type in CONVOLUTIONS | POOLS for node in self.graph.node)

    @cached_property
    def input_dependent(self) -> frozenset[str]:
        """Values that depend on the values (not merely the shapes) of the inputs."""
        return _propagate(self.graph.node, {value.name for value in self.inputs}, lambda node: False)

    @cached_property
    def random(self) -> frozenset[str]:
        """Values that depend on a random operator."""
        return _propagate(self.graph.node, set(), lambda node: any(map(self._draws, all_nodes([node]))))

    @cached_property
    def collected(self) -> frozenset[str]:
        """Values that depend on rows that a Loop collects, of which there may be none."""
        loops = (node for node in self.graph.node if node.op_type == "Loop")
        rows = {name for node in loops for name in node.output[len(node.input) - 2 :]}
        return _propagate(self.graph.node, rows, lambda node: node.op_type != "Loop" and _has((node,), {"Loop"}))

    @cached_property
    def is_recurrent(self) -> bool:
        """Whether it has an RNN, GRU or LSTM, maybe in a body."""
        return _has(self.graph.node, _RECURRENT)

    @cached_property
    def chooses(self) -> bool:
        """Whether it chooses elements by their values, maybe in a body: nearly equal ones may change places."""
        return _has(self.graph.node, _CHOOSING_OPERATORS)

    @cached_property
    def casts_to_uint32(self) -> bool:
        """Whether it makes unsigned numbers of 32 bits from others, maybe in a body: ONNX leaves open the results
        for floats that these cannot hold."""
        return any(map(_casts_to_uint32, all_nodes(self.graph.node)))

    @cached_property
    def shapes(self) -> dict[str, TensorShape]:
        """Types of the tensor values, as far as ONNX shape inference knows them."""
        graph = self.graph
        with suppress(Exception):  # inference raises several types; without it, only the declared types are known
            graph = shape_inference.infer_shapes(without_delicate_nodes(self.model, {})).graph
        values = [*graph.input, *graph.value_info, *graph.output]
        shapes = {value.name: _tensor_shape(value) for value in values if value.type.HasField("tensor_type")}
        for tensor in self.graph.initializer:
            shapes[tensor.name] = TensorShape(tensor.data_type, tuple(tensor.dims))
        return shapes

    @cached_property
    def coarsest_type(self) -> str | None:
        """The coarsest float type below double in which values that depend on the inputs are computed."""
        if not self._mixes_float_types():
            return None
        types = {self.shapes[name].element_type for name in self.input_dependent if name in self.shapes}
        return next((name for code, name in _COARSE_TYPES.items() if code in types), None)

    def constant(self, name: str) -> NDArray[Any] | None:
        """The value of a small initializer or Constant node, or None."""
        tensor = self.initializers.get(name)
        if tensor is None:
            tensor = _constant_tensor(self.producers.get(name))
        if tensor is None or not has_data(tensor):
            return None
        return np.asarray(numpy_helper.to_array(tensor))

    def origin(self, name: str) -> onnx.NodeProto | None:
        """The node whose elements a value holds, looking through transparent operators."""
        node = self.producers.get(name)
        while node is not None and node.op_type in TRANSPARENT_OPERATORS and node.input:
            node = self.producers.get(node.input[0])
        return node

    @cached_property
    def has_loop(self) -> bool:
        """Whether a Loop may decide how long a run takes."""
        return _has(self.graph.node, {"Loop"})

    def _draws(self, node: onnx.NodeProto) -> bool:
        return node.op_type in RANDOM_OPERATORS or (node.op_type == "Dropout" and self._trains(node))

    def _trains(self, node: onnx.NodeProto) -> bool:
        """Whether a Dropout drops: its third operand (since opset 12) says so; a computed flag counts as set."""
        if len(node.input) < 3 or not node.input[2]:
            return False
        flag = self.constant(node.input[2])
        return flag is None or bool(flag)

    def _mixes_float_types(self) -> bool:
        """Whether any 16-bit or double type occurs; if not, shape inference is unnecessary."""
        declared = [*self.graph.input, *self.graph.output, *self.graph.value_info]
        codes = {value.type.tensor_type.elem_type for value in declared}
        codes.update(tensor.data_type for tensor in self.graph.initializer)
        codes.update(item.i for node in self.graph.node if node.op_type == "Cast" for item in node.attribute)
        return not codes.isdisjoint((onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE))


def rounds_result(node: onnx.NodeProto) -> bool:
    """Whether the first result of a node is rounded to integers."""
    if node.op_type == "DynamicQuantizeLinear":
        return True
    place = ROUNDED_RESULTS.get(node.op_type)
    return place is not None and len(node.input) > place and bool(node.input[place])


def fed_inputs(graph: onnx.GraphProto) -> tuple[onnx.ValueInfoProto, ...]:
    """The graph inputs that have no initializer."""
    initialized = {tensor.name for tensor in graph.initializer}
    initialized.update(tensor.values.name for tensor in graph.sparse_initializer)
    return tuple(value for value in graph.input if value.name not in initialized)


def interface_difference(original: onnx.GraphProto, candidate: onnx.GraphProto) -> str | None:
    """One line on the first difference that a caller would notice, or None. The runs compare the shapes."""
    wanted, given = [value.name for value in original.output], [value.name for value in candidate.output]
    if wanted != given:
        return f"the outputs are {given} instead of {wanted}"
    required = {value.name: value for value in fed_inputs(original)}
    declared = {value.name: value for value in candidate.input}
    missing = [name for name in required if name not in declared]
    if missing:
        return f"the candidate lacks the input(s) {missing}"
    added = [value.name for value in fed_inputs(candidate) if value.name not in required]
    if added:
        return f"the candidate needs the additional input(s) {added}"
    for name, value in required.items():
        before, after = value.type.tensor_type.elem_type, declared[name].type.tensor_type.elem_type
        if before != after:
            type_name = onnx.TensorProto.DataType.Name
            return f"input {name!r} is of type {type_name(after)} instead of {type_name(before)}"
    return None


def _propagate(
    nodes: Iterable[onnx.NodeProto], sources: set[str], starts: Callable[[onnx.NodeProto], bool]
) -> frozenset[str]:
    """The sources and all values whose elements depend on them or on a node that `starts`."""
    reached = set(sources)
    for node in nodes:
        flows = node.op_type not in SHAPE_ONLY_OPERATORS and not reached.isdisjoint(operands(node))
        if flows or starts(node):
            reached.update(name for name in node.output if name)
    return frozenset(reached)


def operands(node: onnx.NodeProto) -> Iterator[str]:
    """Every name a node reads, also from inside its subgraphs."""
    for each in all_nodes([node]):
        yield from each.input
        for body in body_protos(each):
            yield from (value.name for value in body.output)


def _has(nodes: Iterable[onnx.NodeProto], operators: Collection[str]) -> bool:
    """Whether one of the nodes, or of those in their bodies, is one of these operators."""
    return any(node.op_type in operators for node in all_nodes(nodes))


def _casts_to_uint32(node: onnx.NodeProto) -> bool:
    types = [item.i for item in node.attribute if item.name == "to"]
    return node.op_type == "CastLike" or (node.op_type == "Cast" and types == [onnx.TensorProto.UINT32])


def _constant_tensor(node: onnx.NodeProto | None) -> Any:
    if node is None or node.op_type != "Constant" or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.name == "value":
        return attribute.t
    if attribute.name in ("value_int", "value_ints"):
        values = np.asarray(attribute.i if attribute.name == "value_int" else list(attribute.ints), dtype=np.int64)
        return numpy_helper.from_array(values)
    return None


def _tensor_shape(value: onnx.ValueInfoProto) -> TensorShape:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return TensorShape(tensor.elem_type, None)
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
    return TensorShape(tensor.elem_type, dims)
