"""Floating-point operations of one operator: the metric of DNNFusion (PLDI 2021, section 4.2 and table 4).

A multiplication, an addition and a transcendental function each count 1; moving data counts 0; a reduction counts
its input. Operators that stand for a formula count as much as the formula written out (LayerNormalization 7 per
element, Gelu 5), so that naming an idiom neither gains nor loses FLOPs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ..ir.operation import LIMIT, Operation

_MOVEMENT = """
Reshape Flatten Squeeze Unsqueeze Identity Dropout Transpose Expand Tile Slice Gather GatherElements GatherND Pad
DepthToSpace SpaceToDepth Concat Split Cast CastLike Shape Size Range ConstantOfShape EyeLike OneHot Compress
ScatterND ScatterElements
"""
_ONE_PER_OUTPUT = """
Abs Neg Exp Log Sqrt Reciprocal Relu Sigmoid Tanh Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh
Floor Ceil Round Sign Not BitwiseNot Softplus Softsign IsNaN IsInf Elu Celu Selu LeakyRelu ThresholdedRelu
HardSigmoid Add Sub Mul Div Pow PRelu Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor
BitwiseAnd BitwiseOr BitwiseXor BitShift Mod Where Clip
"""
_ONE_PER_INPUT = """
ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceLogSum CumSum GlobalAveragePool GlobalMaxPool
Hardmax ArgMax ArgMin
"""

MOVEMENT = frozenset(_MOVEMENT.split())
"""Operators that compute nothing."""

_PER_OUTPUT = dict.fromkeys(_ONE_PER_OUTPUT.split(), 1) | {"HardSwish": 2, "Swish": 2, "Mish": 3}
"""FLOPs per output element."""

_PER_INPUT = dict.fromkeys(_ONE_PER_INPUT.split(), 1) | {
    "ReduceL1": 2,
    "ReduceL2": 2,
    "ReduceSumSquare": 2,
    "ReduceLogSumExp": 2,
    "BatchNormalization": 2,
    "RMSNormalization": 4,
    "Softmax": 5,
    "LogSoftmax": 5,
    "InstanceNormalization": 7,
    "LayerNormalization": 7,
    "GroupNormalization": 7,
}
"""FLOPs per element of the first operand. BatchNormalization is a scale and a shift, both known beforehand."""

_TAPS = {"linear": 2, "cubic": 4}


def window(operation: Operation) -> int:
    """Input elements that one output element of a pooling sees: a kernel larger than the input sees the input."""
    kernel = operation.integers("kernel_shape")
    sides = operation.operand(0).dimensions[2:]
    if len(sides) == len(kernel):
        kernel = tuple(map(min, kernel, sides))
    return min(max(1, prod(kernel)), LIMIT)


def depth(operation: Operation) -> int:
    """Length of the sum behind one output element of a MatMul, Gemm or Conv."""
    if operation.op == "Conv":
        weight = operation.operand(1)
        return max(1, weight.elements // max(1, weight.dimensions[0])) if weight.dimensions else 1
    dimensions = operation.operand(0).dimensions
    if not dimensions:
        return 1
    return max(1, dimensions[0] if operation.integer("transA", 0) else dimensions[-1])


def _product(operation: Operation) -> int:
    bias = 1 if operation.operand(2).elements else 0
    scaled = 1 if operation.attributes.get("alpha", 1.0) != 1.0 else 0
    return operation.output.elements * (2 * depth(operation) + bias + scaled)


def _conv_transpose(operation: Operation) -> int:
    weight = operation.operand(1)
    taps = weight.elements // max(1, weight.dimensions[0]) if weight.dimensions else 1
    bias = operation.output.elements if operation.operand(2).elements else 0
    return 2 * operation.operand(0).elements * taps + bias


def _variadic(operation: Operation) -> int:
    return operation.output.elements * max(1, len(operation.operands) - 1)


def _pool(operation: Operation) -> int:
    return operation.output.elements * window(operation)


def _resize(operation: Operation) -> int:
    taps = _TAPS.get(str(operation.attributes.get("mode", "nearest")), 0)
    before, after = operation.operand(0).dimensions, operation.output.dimensions
    axes = sum(a != b for a, b in zip(before, after, strict=False))
    return 2 * taps**axes * operation.output.elements if taps and axes else 0


def _gelu(operation: Operation) -> int:
    return operation.output.elements * (8 if operation.attributes.get("approximate") == "tanh" else 5)


_COUNTS: dict[str, Callable[[Operation], int]] = {
    "MatMul": _product,
    "Gemm": _product,
    "Conv": _product,
    "ConvTranspose": _conv_transpose,
    "Sum": _variadic,
    "Mean": _variadic,
    "Min": _variadic,
    "Max": _variadic,
    "AveragePool": _pool,
    "MaxPool": _pool,
    "LpPool": _pool,
    "Resize": _resize,
    "Upsample": _resize,
    "Gelu": _gelu,
}


def is_counted(op: str) -> bool:
    """Whether `op` has its own count; any other one counts 1 per element of its operands and output."""
    return op in _COUNTS or op in _PER_OUTPUT or op in _PER_INPUT or op in MOVEMENT


def flops(operation: Operation) -> float:
    """Floating-point operations of one run of `operation`, finite and at least 0."""
    op = operation.op
    if op in _COUNTS:
        return float(_COUNTS[op](operation))
    if op in _PER_OUTPUT:
        return float(_PER_OUTPUT[op] * operation.output.elements)
    if op in MOVEMENT:
        return 0.0
    if op in _PER_INPUT:
        return float(_PER_INPUT[op] * operation.operand(0).elements)
    return float(operation.output.elements + sum([o.elements for o in operation.operands]))
