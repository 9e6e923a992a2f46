"""How the elements of an operator's output come from those of its operands: DNNFusion's mapping types.

DNNFusion (Niu et al., PLDI 2021), section 3.1 and Table 2. The type is decided per pair of operand and output, and that
of the operator is the most complex one. A constant operand does not count: it is never fused as a producer.

The table below gives each operator a rule per operand. The rules look at shapes and attributes where the index map
depends on them, so some calls are simpler than Table 2 says of the operator (an Expand that changes nothing), and a
Resize that interpolates is Many-to-Many: each output element needs several of the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from ....ir.graph import Operator, OperatorGraph
from ....ir.operation import Attributes
from ....ir.types import Dimension, TensorType


class MappingType(IntEnum):
    """In DNNFusion's order of complexity (its footnote 1)."""

    ONE_TO_ONE = 0
    REORGANIZE = 1
    SHUFFLE = 2
    ONE_TO_MANY = 3
    MANY_TO_MANY = 4


_ONE = MappingType.ONE_TO_ONE
_REORGANIZE = MappingType.REORGANIZE
_SHUFFLE = MappingType.SHUFFLE
_COPIED = MappingType.ONE_TO_MANY
_MANY = MappingType.MANY_TO_MANY

Shape = tuple[Dimension, ...]


@dataclass(frozen=True, slots=True)
class _Pair:
    """One operand (number `position`) and the first output of a call; a shape is None where it is not known."""

    operator: Operator
    shapes: tuple[Shape | None, ...]
    position: int
    target: Shape | None

    @property
    def attributes(self) -> Attributes:
        return self.operator.attributes

    @property
    def source(self) -> Shape | None:
        return self.shapes[self.position]

    def integer(self, name: str, default: int) -> int:
        """An attribute that is one integer, alone or in a list (the axis of CumSum)."""
        value = self.attributes.get(name, default)
        if isinstance(value, tuple) and len(value) == 1:
            return value[0]
        return value if isinstance(value, int) else default

    def integers(self, name: str) -> tuple[int, ...]:
        value = self.attributes.get(name, ())
        return value if isinstance(value, tuple) else ()


_Rule = Callable[[_Pair], MappingType]


def mapping_type(operator: Operator, graph: OperatorGraph) -> MappingType | None:
    """The type of an operator of `graph`; None where it is opaque or unknown, so that nothing may be fused with it."""
    if not _is_known(operator):
        return None
    given = [p for p, value in enumerate(operator.inputs) if value is not None]
    varying = [p for p in given if not _is_constant(graph, operator.inputs[p])]
    return max((_pair_type(operator, graph, p) for p in varying or given), default=_ONE)


def mapping_types(graph: OperatorGraph) -> tuple[MappingType | None, ...]:
    """The type of each operator."""
    return tuple(mapping_type(operator, graph) for operator in graph.operators)


def edge_mapping_type(graph: OperatorGraph, value: int, consumer: int) -> MappingType | None:
    """How operator number `consumer` maps the elements of value number `value`; None as for `mapping_type`.

    Raises ValueError where the operator does not read the value.
    """
    operator = graph.operators[consumer]
    positions = [p for p, v in enumerate(operator.inputs) if v == value]
    if not positions:
        raise ValueError(f"{operator.name} does not read {graph.values[value].name}")
    if not _is_known(operator):
        return None
    return max(_pair_type(operator, graph, p) for p in positions)


def _is_known(operator: Operator) -> bool:
    return operator.op in RULES and not operator.is_opaque


def _is_constant(graph: OperatorGraph, value: int | None) -> bool:
    return value is not None and graph.values[value].is_constant


def _pair_type(operator: Operator, graph: OperatorGraph, position: int) -> MappingType:
    shapes = tuple(None if v is None else _shape(graph.values[v].type) for v in operator.inputs)
    target = _shape(graph.values[operator.outputs[0]].type) if operator.outputs else None
    rules = RULES[operator.op]
    return rules[min(position, len(rules) - 1)](_Pair(operator, shapes, position, target))


def _shape(type_: TensorType | None) -> Shape | None:
    return None if type_ is None else type_.shape


# Rules that need no shapes.


def _elementwise(pair: _Pair) -> MappingType:
    return _ONE


def _permuted(pair: _Pair) -> MappingType:
    return _SHUFFLE


def _copied(pair: _Pair) -> MappingType:
    return _COPIED


def _mixed(pair: _Pair) -> MappingType:
    return _MANY


# Rules that compare the shapes of operand and output.


def _broadcast(pair: _Pair) -> MappingType:
    """Aligned from the last axis; an operand that is smaller on any is copied."""
    if pair.source is None or pair.target is None:
        return _COPIED
    padded = (1,) * (len(pair.target) - len(pair.source)) + pair.source
    return _ONE if padded == pair.target else _COPIED


def _spread(pair: _Pair) -> MappingType:
    """An operand whose elements serve a whole row, channel or tensor each."""
    return _ONE if _is_same_size(pair.source, pair.target) else _COPIED


def _reorganized(pair: _Pair) -> MappingType:
    return _ONE if pair.source is not None and pair.source == pair.target else _REORGANIZE


def _repeated(pair: _Pair) -> MappingType:
    return _reorganized(pair) if _is_same_size(pair.source, pair.target) else _COPIED


def _reduced(pair: _Pair) -> MappingType:
    """A reduction of axes of size 1 combines nothing."""
    return _reorganized(pair) if _is_same_size(pair.source, pair.target) else _MANY


def _resized(pair: _Pair) -> MappingType:
    if pair.source is not None and pair.source == pair.target:
        return _ONE
    return _COPIED if pair.attributes.get("mode", "nearest") == "nearest" else _MANY


def _is_same_size(first: Shape | None, second: Shape | None) -> bool:
    """Whether both certainly have as many elements."""
    if first is None or second is None:
        return False
    return _factors(first) == _factors(second)


def _factors(shape: Shape) -> tuple[int, list[str]]:
    """The product of the known dimensions, and the symbolic ones."""
    known = 1
    for dimension in shape:
        known *= dimension if isinstance(dimension, int) else 1
    return known, sorted(d for d in shape if isinstance(d, str))


# Rules that look at one axis, or at attributes.


def _along_axis(pair: _Pair) -> MappingType:
    """Each output element sees the elements along `axis`."""
    if not pair.source:
        return _MANY
    return _ONE if pair.source[pair.integer("axis", -1) % len(pair.source)] == 1 else _MANY


def _from_axis(pair: _Pair) -> MappingType:
    """Each output element sees the elements along `axis` and all later axes."""
    if not pair.source:
        return _MANY
    return _ONE if _is_single(pair.source[pair.integer("axis", -1) % len(pair.source) :]) else _MANY


def _spatial(pair: _Pair) -> MappingType:
    """Each output element sees all of its channel."""
    return _ONE if pair.source is not None and _is_single(pair.source[2:]) else _MANY


def _windowed(pair: _Pair) -> MappingType:
    """Each output element sees a window of the input."""
    kernel = pair.integers("kernel_shape")
    return _ONE if kernel and _is_single(kernel) else _MANY


def _is_single(dimensions: Shape) -> bool:
    return all(d == 1 for d in dimensions)


def _contracted(pair: _Pair) -> MappingType:
    """A matrix product; one of depth 1 (an outer product) adds nothing up."""
    left = pair.shapes[0]
    if not left:
        return _MANY
    depth = left[0 if pair.integer("transA", 0) else -1]
    return _spread(pair) if depth == 1 else _MANY


def _transposed(pair: _Pair) -> MappingType:
    """Moving axes of size 1 leaves the elements in their order."""
    perm = pair.integers("perm")
    if pair.source is None:
        return _SHUFFLE
    perm = perm or tuple(reversed(range(len(pair.source))))
    moved = [axis for axis in perm if pair.source[axis] != 1]
    return _reorganized(pair) if moved == sorted(moved) else _SHUFFLE


def _blocked(pair: _Pair) -> MappingType:
    return _ONE if pair.integer("blocksize", 0) == 1 else _SHUFFLE


def _padded(pair: _Pair) -> MappingType:
    """Padding by a constant keeps the elements, any other mode repeats some."""
    if pair.attributes.get("mode", "constant") == "constant":
        return _ONE
    return _ONE if all(p <= 0 for p in pair.integers("pads")) else _COPIED


def _picked(pair: _Pair) -> MappingType:
    """An element is copied for each index that names it; one index alone is a slice."""
    indices = pair.shapes[1] if len(pair.shapes) > 1 else None
    return _ONE if indices is not None and _is_single(indices) else _COPIED


def _picking(pair: _Pair) -> MappingType:
    """Tuples of indices along the last axis; each decides on one output element or more."""
    return _spread(pair) if pair.source and pair.source[-1] == 1 else _MANY


def _joined(pair: _Pair) -> MappingType:
    """A value that is joined to itself is copied."""
    value = pair.operator.inputs[pair.position]
    return _COPIED if pair.operator.inputs.count(value) > 1 else _ONE


def _scattered(pair: _Pair) -> MappingType:
    """Updates replace elements one by one, unless several are combined into one."""
    return _ONE if pair.attributes.get("reduction", "none") == "none" else _MANY


_UNARY = """
Abs Neg Exp Log Sqrt Reciprocal Relu Sigmoid Tanh Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh
Floor Ceil Round Sign Not BitwiseNot Softplus Softsign HardSwish Mish IsNaN IsInf Elu Celu Selu LeakyRelu Shrink
ThresholdedRelu HardSigmoid Swish Gelu Cast CastLike Identity Dropout Slice Split Trilu
"""
_BROADCAST = """
Add Sub Mul Div Pow PRelu Min Max Sum Mean Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor
BitwiseAnd BitwiseOr BitwiseXor BitShift Mod Where
"""
_REDUCTIONS = """
ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp
ArgMax ArgMin GlobalAveragePool GlobalMaxPool GlobalLpPool
"""
_MIXING = """
ConvInteger Einsum MatMulInteger QLinearConv QLinearMatMul DynamicQuantizeLinear LRN LpNormalization
MeanVarianceNormalization TopK
"""

RULES: dict[str, tuple[_Rule, ...]] = {
    **dict.fromkeys(_UNARY.split(), (_elementwise,)),
    **dict.fromkeys(_BROADCAST.split(), (_broadcast,)),
    **dict.fromkeys(_REDUCTIONS.split(), (_reduced,)),
    **dict.fromkeys(_MIXING.split(), (_mixed,)),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "CumSum"), (_along_axis,)),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), (_from_axis, _spread)),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), (_windowed,)),
    **dict.fromkeys(("Conv", "ConvTranspose"), (_mixed, _mixed, _spread)),
    **dict.fromkeys(("MatMul", "Gemm"), (_contracted, _contracted, _spread)),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), (_reorganized,)),
    **dict.fromkeys(("Expand", "Tile"), (_repeated,)),
    **dict.fromkeys(("Resize", "Upsample"), (_resized,)),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), (_blocked,)),
    **dict.fromkeys(("BatchNormalization", "QuantizeLinear", "DequantizeLinear"), (_elementwise, _spread)),
    "Clip": (_elementwise, _broadcast),
    "InstanceNormalization": (_spatial, _spread),
    "GroupNormalization": (_mixed, _spread),
    "Transpose": (_transposed,),
    "ReverseSequence": (_permuted, _spread),
    "Pad": (_padded, _spread),
    "Concat": (_joined,),
    "Gather": (_picked, _spread),
    "GatherElements": (_copied, _spread),
    "GatherND": (_copied, _picking),
    "ScatterElements": (_elementwise, _mixed, _scattered),
    "ScatterND": (_elementwise, _mixed, _scattered),
    "OneHot": (_spread,),
}
"""Per operator, the rule of each operand; the last one holds for those that follow. Operators that are missing read
only shapes, or give an output whose shape depends on the data: they are never fused."""
