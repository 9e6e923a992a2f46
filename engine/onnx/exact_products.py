"""ONNX Runtime's products of bytes without saturation.

On x86-64 without VNNI its kernels for uint8 by int8 add up two products in 16 bits (vpmaddubsw): 255 * 127 + 255 * 127
is 32,767 there. Those for uint8 by uint8 are exact. So an operand of int8 becomes one of uint8: 128 is added to its
elements and to its zero points, which changes no difference between the two.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

import numpy as np
import onnx
from onnx import TensorProto, helper, inliner, numpy_helper

from ...ir.operators.quantization import ROUNDED_RESULTS
from ...support.processor import X86, has_vnni
from .model import graph_protos
from .wellformed import body_protos

_HALF = 128
"""The distance between the ranges of int8 and uint8."""


@dataclass(frozen=True)
class _SignedOperand:
    """The places of an operand that saturates if it is of int8 and the `other` of uint8, and of their zero points.

    Without an `other` the operator rounds numbers to uint8 itself.
    """

    place: int
    zero: int
    other: int | None
    other_zero: int = -1


_OPERANDS: Mapping[str, tuple[_SignedOperand, ...]] = {
    "MatMulInteger": (_SignedOperand(1, 3, 0, 2),),
    "ConvInteger": (_SignedOperand(0, 2, 1, 3),),
    "QLinearMatMul": (_SignedOperand(3, 5, 0, 2),),
    "QLinearConv": (_SignedOperand(3, 5, 0, 2),),
    "QGemm": (_SignedOperand(3, 5, 0, 2),),
    "MatMulIntegerToFloat": (_SignedOperand(1, 5, 0, 4),),
    "DynamicQuantizeMatMul": (_SignedOperand(1, 3, None),),
    "DynamicQuantizeLSTM": (_SignedOperand(1, 9, None), _SignedOperand(2, 11, None)),
    "QAttention": (_SignedOperand(1, 7, 0, 6),),
}
"""Operators of ONNX and ONNX Runtime whose kernels saturate. The filters of ConvInteger are the left operand of its
product, so there it is the map of int8 by filters of uint8."""
SATURATING = frozenset(_OPERANDS)
"""Their names."""
_KEEPING_TYPES = frozenset({
    "Clip", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Max",
    "MaxPool", "Min", "Pad", "Relu", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
})  # fmt: skip
"""Operators whose first result has the type of their first operand."""


def products_saturate() -> bool:
    """Whether ONNX Runtime's products of uint8 by int8 saturate on this processor."""
    return platform.machine() == X86 and not has_vnni()


def may_saturate(model: onnx.ModelProto) -> bool:
    """Whether this processor has such products, and the model operators that take them."""
    return products_saturate() and any(node.op_type in SATURATING for node in _nodes(model))


def make_products_exact(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with operands of uint8 in place of int8 where ONNX Runtime's kernels saturate; itself where none may.

    Values keep their names. Weights stay where they are, and are converted in the run.
    """
    if not may_saturate(model):
        return model
    if any(node.op_type in SATURATING for function in model.functions for node in function.node):
        model = inliner.inline_local_functions(model)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    _Rewriting().rewrite(result.graph, {})
    return result


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for graph in graph_protos(model.graph):
        yield from graph.node
    for function in model.functions:
        yield from function.node


class _Rewriting:
    """Gives each conversion of a model a name of its own."""

    def __init__(self) -> None:
        self._numbers = count()

    def rewrite(self, graph: onnx.GraphProto, outer: Mapping[str, int]) -> None:
        """Rewrite a graph and its bodies, which see the element types of the `outer` values."""
        types = {**outer, **dict(_declared_types(graph))}
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            for body in body_protos(node):
                self.rewrite(body, types)
            for signed in _OPERANDS.get(node.op_type, ()):
                if _saturates(node, signed, types):
                    nodes.extend(self._unsign(node, signed))
            nodes.append(node)
            types.update(_result_types(node, types))
        del graph.node[:]
        graph.node.extend(nodes)

    def _unsign(self, node: onnx.NodeProto, signed: _SignedOperand) -> Iterable[onnx.NodeProto]:
        """Make the node read uint8, and give the nodes that convert its operand and its zero point."""
        node.input.extend([""] * (signed.zero + 1 - len(node.input)))
        half = self._name("half")
        yield _constant(half, np.array(_HALF, np.int32))
        for place in (signed.place, signed.zero):
            moved = self._name("unsigned")
            if not node.input[place]:
                yield _constant(moved, np.array(_HALF, np.uint8))
            else:
                wide, total = self._name("wide"), self._name("sum")
                yield helper.make_node("Cast", [node.input[place]], [wide], to=TensorProto.INT32)
                yield helper.make_node("Add", [wide, half], [total])
                yield helper.make_node("Cast", [total], [moved], to=TensorProto.UINT8)
            node.input[place] = moved

    def _name(self, role: str) -> str:
        return f"exact products: {role} {next(self._numbers)}"


def _constant(name: str, array: np.ndarray[tuple[()], np.dtype[np.integer]]) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))


def _saturates(node: onnx.NodeProto, signed: _SignedOperand, types: Mapping[str, int]) -> bool:
    def kind(place: int, zero: int) -> int | None:
        names = [node.input[at] for at in (zero, place) if 0 <= at < len(node.input)]
        return next((types[name] for name in names if name in types), None)

    other = TensorProto.UINT8 if signed.other is None else kind(signed.other, signed.other_zero)
    return other == TensorProto.UINT8 and kind(signed.place, signed.zero) == TensorProto.INT8


def _declared_types(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.elem_type:
            yield value.name, value.type.tensor_type.elem_type
    for tensor in graph.initializer:
        yield tensor.name, tensor.data_type


def _result_types(node: onnx.NodeProto, types: Mapping[str, int]) -> Mapping[str, int]:
    """The element types of results that a node or its operands tell."""
    results = [name for name in node.output if name]
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if not results:
        return {}
    if node.op_type == "DynamicQuantizeLinear":
        return dict.fromkeys((*node.output[:1], *node.output[2:]), TensorProto.UINT8)
    if node.op_type == "Constant" and "value" in attributes:
        return {results[0]: attributes["value"].t.data_type}
    if node.op_type == "Cast":
        return {results[0]: attributes["to"].i} if "to" in attributes else {}
    if node.op_type in ROUNDED_RESULTS:
        place = ROUNDED_RESULTS[node.op_type] + 1
        if zero := node.input[place] if len(node.input) > place else "":
            return {results[0]: types[zero]} if zero in types else {}
        if node.op_type == "QuantizeLinear":
            stated = attributes["output_dtype"].i if "output_dtype" in attributes else 0
            return {results[0]: stated or TensorProto.UINT8}
        return {}
    if node.op_type in _KEEPING_TYPES and node.input and node.input[0] in types:
        return dict.fromkeys(results, types[node.input[0]])
    return {}
