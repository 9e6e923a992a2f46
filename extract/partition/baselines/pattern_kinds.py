"""How an operator's output elements depend on its inputs', as TVM classifies operators for fusion.

Source: TVM's ``OpPatternKind`` (Chen et al., OSDI 2018, section 3), as ``relax.transform.AnnotateTIROpPattern`` of TVM
0.27 finds it in the loops to which an operator legalises. Here it is derived from the operator's index maps, which say
the same of these loops. Where the operators of Relay, the earlier IR, were annotated by hand, the loops sometimes say
otherwise:

- softmax and the normalisations are OUT_ELEMENTWISE_FUSABLE (a reduction, then element-wise loops), not OPAQUE;
- so is a mean, which divides after it sums; only the other reductions are COMM_REDUCE;
- Squeeze and Unsqueeze are BROADCAST (an index dropped or added), not INJECTIVE;
- Gather is OPAQUE (it reads indices from memory), not INJECTIVE.

The kinds depart from 0.27 in four places, for the sake of the operators as ONNX has them:

- BatchNormalization is BROADCAST, as what ``DecomposeOpsForInference`` makes of it; by itself it comes out INJECTIVE;
- Slice is always INJECTIVE; 0.27 calls one that keeps a prefix of each axis element-wise, its indices being equal;
- Min, Max, Clip, Gemm, the activations and reductions that the ONNX front end writes as several calls have the kind of
  one loop nest that computes all of it;
- binary operators are BROADCAST and each edge is looked at (`edge_kind`); 0.27 calls the operator element-wise as soon
  as one operand has the output's shape, and that for all of its edges.
"""

from __future__ import annotations

from enum import IntEnum

from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.index_maps import ZERO, Axis, IndexMaps, OperandMap, Shape, Sum, Unknown, loops_of
from ....ir.operators import OPERATORS, OperatorSchema
from ....ir.operators.graph_maps import index_maps_of


class PatternKind(IntEnum):
    """TVM's kinds and their numbers; the larger of two describes both together."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMENTWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


_WITHOUT_LOOPS = frozenset({"CumSum", "Hardmax"})
"""Operators that TVM does not legalise to plain loops."""

_FLAT = frozenset({"Reshape", "Flatten", "Transpose"})
"""Operators whose loops TVM finds INJECTIVE even where only axes of one element come, go or move."""

_NOT_ONLY_REDUCTIONS = frozenset(
    {
        "ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ArgMax", "ArgMin",
        "GlobalAveragePool", "AveragePool", "MaxPool",
    }
)  # fmt: skip
"""Operators that pad before they reduce, reduce pairs, or compute something from what they have reduced."""


def pattern_kind(graph: OperatorGraph, operator: Operator) -> PatternKind:
    """The kind of an operator; OPAQUE, so never fused, where rules cannot look into it or its shapes are unknown."""
    schema = OPERATORS.get(operator.op)
    if schema is None or operator.is_opaque or operator.op in _WITHOUT_LOOPS:
        return PatternKind.OPAQUE
    if schema.is_elementwise:
        is_unary = sum(operand.optional is False for operand in schema.operands) == 1
        return PatternKind.ELEMENTWISE if is_unary else PatternKind.BROADCAST
    maps = index_maps_of(graph, operator)
    return PatternKind.OPAQUE if maps is None else _kind_of_maps(schema, maps)


def _kind_of_maps(schema: OperatorSchema, maps: IndexMaps) -> PatternKind:
    read = [(operand, shape) for operand, shape in zip(maps.operands, maps.shapes, strict=False) if operand]
    indices = [index for operand, _ in read for index in operand]
    if any(isinstance(index, Unknown) and index.is_data for index in indices):
        return PatternKind.OPAQUE
    if maps.reductions or schema.category == "pooling":
        beside = any(loop.beside is not None for loop in maps.reductions)
        sums = len(read) == 1 and not beside and all(len(list(loops_of(index))) == 1 for index in indices)
        is_reduction = sums and schema.name not in _NOT_ONLY_REDUCTIONS
        return PatternKind.COMM_REDUCE if is_reduction else PatternKind.OUT_ELEMENTWISE_FUSABLE
    is_in_order = schema.name not in _FLAT and all(_is_broadcast(operand, shape or ()) for operand, shape in read)
    return PatternKind.BROADCAST if is_in_order else PatternKind.INJECTIVE


def _is_broadcast(operand: OperandMap, shape: Shape) -> bool:
    """Whether an operand is read whole, along axes of the result in their order, or repeated."""
    axes = [index.number for index in operand if isinstance(index, Axis)]
    whole = all(
        index == ZERO if isinstance(index, Sum) else isinstance(index, Axis) and index.extent == extent
        for index, extent in zip(operand, shape, strict=True)
    )
    return whole and axes == sorted(axes)


def edge_kind(kind: PatternKind, operand: Value, result: Value) -> PatternKind:
    """The kind of an edge into an operator of `kind`: element-wise where a broadcast leaves the operand's shape alone.

    Shapes that are not known to be equal count as different.
    """
    if kind is not PatternKind.BROADCAST or operand.type is None or result.type is None:
        return kind
    is_same = operand.type.shape is not None and operand.type.shape == result.type.shape
    return PatternKind.ELEMENTWISE if is_same else kind
