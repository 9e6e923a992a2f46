"""How an operator's output elements depend on its inputs', as TVM classifies operators for fusion.

Source: TVM's ``OpPatternKind`` (Chen et al., OSDI 2018, section 3). The kind of each ONNX operator is what
``relax.transform.AnnotateTIROpPattern`` of TVM 0.27 finds in the loops to which the operator legalises. Where the
operators of Relay, the earlier IR, were annotated by hand, the loops sometimes say otherwise:

- softmax and the normalisations are OUT_ELEMENTWISE_FUSABLE (a reduction, then element-wise loops), not OPAQUE;
- so is a mean, which divides after it sums; only the other reductions are COMM_REDUCE;
- Squeeze and Unsqueeze are BROADCAST (an index dropped or added), not INJECTIVE;
- Gather is OPAQUE (it reads indices from memory), not INJECTIVE.

The table departs from 0.27 in four places, for the sake of the operators as ONNX has them:

- BatchNormalization is BROADCAST, as what ``DecomposeOpsForInference`` makes of it; by itself it comes out INJECTIVE;
- Slice is always INJECTIVE; 0.27 calls one that keeps a prefix of each axis element-wise, its indices being equal;
- Min, Max, Clip, Gemm, the activations and reductions that the ONNX front end writes as several calls have the kind of
  one loop nest that computes all of it;
- binary operators are BROADCAST and each edge is looked at (`edge_kind`); 0.27 calls the operator element-wise as soon
  as one operand has the output's shape, and that for all of its edges.
"""

from __future__ import annotations

from enum import IntEnum

from ....ir.graph import Operator, Value


class PatternKind(IntEnum):
    """TVM's kinds and their numbers; the larger of two describes both together."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMENTWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


_OPERATORS = {
    PatternKind.ELEMENTWISE: """
        Abs Neg Exp Log Sqrt Reciprocal Relu Sigmoid Tanh Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh
        Floor Ceil Round Sign Not BitwiseNot Softplus Softsign HardSwish Mish IsNaN Elu Celu Selu LeakyRelu
        ThresholdedRelu HardSigmoid Swish Gelu Cast Clip""",
    PatternKind.BROADCAST: """
        Add Sub Mul Div Pow PRelu Min Max Mod Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor BitwiseAnd
        BitwiseOr BitwiseXor BitShift Where Expand Squeeze Unsqueeze BatchNormalization""",
    PatternKind.INJECTIVE: """
        Reshape Flatten Transpose Slice Split Concat Pad Tile DepthToSpace SpaceToDepth Resize""",
    PatternKind.COMM_REDUCE: "ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceSumSquare GlobalMaxPool",
    PatternKind.OUT_ELEMENTWISE_FUSABLE: """
        Conv ConvTranspose MatMul Gemm AveragePool MaxPool GlobalAveragePool ReduceMean ReduceL2 ReduceLogSum
        ReduceLogSumExp Softmax LogSoftmax LayerNormalization RMSNormalization InstanceNormalization
        GroupNormalization""",
}
_KINDS = {name: kind for kind, names in _OPERATORS.items() for name in names.split()}


def pattern_kind(operator: Operator) -> PatternKind:
    """The kind of an operator; OPAQUE, so never fused, where it is not in the table."""
    return PatternKind.OPAQUE if operator.is_opaque else _KINDS.get(operator.op, PatternKind.OPAQUE)


def edge_kind(kind: PatternKind, operand: Value, result: Value) -> PatternKind:
    """The kind of an edge into an operator of `kind`: element-wise where a broadcast leaves the operand's shape alone.

    Shapes that are not known to be equal count as different.
    """
    if kind is PatternKind.BROADCAST and _same_shape(operand, result):
        return PatternKind.ELEMENTWISE
    return kind


def _same_shape(operand: Value, result: Value) -> bool:
    if operand.type is None or result.type is None:
        return False
    return operand.type.shape is not None and operand.type.shape == result.type.shape
