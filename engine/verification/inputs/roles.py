"""The role of an input, from the operators that read it, so that random values are realistic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np
import onnx

from ....ir.operators import MATRIX_PRODUCTS
from ..runs.structure import SHAPE_ONLY_OPERATORS, TRANSPARENT_OPERATORS, Structure, Use, operands


class Role(Enum):
    """The kind of values an input wants."""

    FREE = auto()
    MASK = auto()
    INDEX = auto()
    POSITIVE = auto()
    SCALE = auto()
    UNIT_INTERVAL = auto()
    ABOVE_ONE = auto()
    COUNT = auto()
    AXES = auto()
    NEW_SHAPE = auto()


STRUCTURAL_ROLES = frozenset({Role.COUNT, Role.AXES, Role.NEW_SHAPE})
"""Operands that determine shapes. They are not varied, since other values would make another computation."""

_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_COMPARISONS = _COMPARING | {"Max", "Min", "Clip", "ThresholdedRelu"}
_MOST_COMPARED = 16
"""Constants of a larger table are data, not limits."""


@dataclass(frozen=True)
class Purpose:
    """A role; ``bound`` is the exclusive upper bound of an INDEX if the graph determines it.

    ``compared`` are the constants that the graph compares the input with. ``wraps``: it is an integer that only
    arithmetic of integers reads, so that it may take the ends of its type, at which that wraps around.
    """

    role: Role
    bound: int | None = None
    compared: tuple[float, ...] = ()
    wraps: bool = False


FREE = Purpose(Role.FREE)

_INTEGERS = frozenset(
    {onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.INT16, onnx.TensorProto.UINT16}
    | {onnx.TensorProto.UINT32, onnx.TensorProto.UINT64}
)
_BYTES = frozenset({onnx.TensorProto.UINT8, onnx.TensorProto.INT8})
_INDEX_OPERANDS = {
    ("Gather", 1): 0,
    ("GatherElements", 1): 0,
    ("GatherND", 1): 0,
    ("ScatterElements", 1): 0,
    ("Scatter", 1): 0,
    ("ScatterND", 1): 0,
    ("TensorScatter", 2): 0,
}
"""Operand position of indices, and of the tensor they point into."""

_FLOAT_ROLES = {
    ("Sqrt", 0): Role.POSITIVE,
    ("Log", 0): Role.POSITIVE,
    ("Pow", 0): Role.POSITIVE,
    ("Reciprocal", 0): Role.POSITIVE,
    ("BatchNormalization", 4): Role.SCALE,
    ("QuantizeLinear", 1): Role.SCALE,
    ("DequantizeLinear", 1): Role.SCALE,
    ("Resize", 2): Role.SCALE,
    ("Upsample", 1): Role.SCALE,
    ("Acos", 0): Role.UNIT_INTERVAL,
    ("Asin", 0): Role.UNIT_INTERVAL,
    ("Atanh", 0): Role.UNIT_INTERVAL,
    ("Bernoulli", 0): Role.UNIT_INTERVAL,
    ("Acosh", 0): Role.ABOVE_ONE,
}
_INTEGER_ROLES = {
    ("Div", 1): Role.POSITIVE,
    ("Mod", 1): Role.POSITIVE,
    ("Reshape", 1): Role.NEW_SHAPE,
    ("Squeeze", 1): Role.AXES,
    ("Unsqueeze", 1): Role.AXES,
    ("Slice", 1): Role.AXES,
    ("Slice", 3): Role.AXES,
    ("CumSum", 1): Role.AXES,
    ("CumProd", 1): Role.AXES,
    ("Range", 0): Role.AXES,
    ("DFT", 2): Role.AXES,
    ("Pad", 3): Role.AXES,
    **{((f"Reduce{kind}"), 1): Role.AXES for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum")},
    **{((f"Reduce{kind}"), 1): Role.AXES for kind in ("LogSumExp", "SumSquare")},
    **{(operator, 1): Role.COUNT for operator in ("Expand", "Tile", "TopK", "Pad", "Range", "CenterCropPad", "Trilu")},
    **{(operator, 4): Role.COUNT for operator in ("RNN", "GRU", "LSTM", "Slice")},
    ("ConstantOfShape", 0): Role.COUNT,
    ("Loop", 0): Role.COUNT,
    ("Slice", 2): Role.COUNT,
    ("Range", 2): Role.COUNT,
    ("Resize", 3): Role.COUNT,
}
_INTEGER_ARITHMETIC = frozenset(
    {"Add", "Sub", "Mul", "Abs", "Neg", "Sign", "Min", "Max", "Clip", "Where", *MATRIX_PRODUCTS}
    | {"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"}
)
"""Operators that may take any integers, from which they compute others."""
_WRAPPING_OPERANDS = frozenset(
    (operator, 0)
    for operator in ("BitShift", "CumSum", "ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin")
)
"""Operators that may take any integers as that operand."""
_SIZE_OPERANDS = frozenset({("OneHot", 1), ("Resize", 2), ("Upsample", 1)})
_MASKING_OPERATORS = frozenset({"Mul", "Sub", "Where", "Not", "And", "Or"})


def purpose_of(structure: Structure, name: str, element_type: int) -> Purpose:
    """The purpose of the input ``name``: its first use with a known role decides, then its name."""
    integer = element_type in _INTEGERS
    if element_type == onnx.TensorProto.BOOL:
        return Purpose(Role.MASK)
    purpose = _purpose_by_use(structure, name, integer)
    is_byte = element_type in _BYTES
    if purpose is None and "mask" in name.lower() and not is_byte:
        purpose = Purpose(Role.MASK)
    wraps = purpose is None and (integer or is_byte) and _meets_only_integers(structure, name)
    return replace(purpose or FREE, compared=_compared_constants(structure, name), wraps=wraps)


def _purpose_by_use(structure: Structure, name: str, integer: bool) -> Purpose | None:
    for use, converted in _uses_through(structure, name):
        purpose = _index_purpose(structure, use) if integer else None
        role = (_INTEGER_ROLES if integer else _FLOAT_ROLES).get((use.node.op_type, use.index))
        purpose = purpose or (Purpose(role) if role else None)
        if purpose is None and integer and converted and use.node.op_type in _MASKING_OPERATORS:
            purpose = Purpose(Role.MASK)
        if purpose is not None:
            return purpose
    return None


def _meets_only_integers(structure: Structure, name: str) -> bool:
    """Whether arithmetic and comparisons of integers alone use a value, and values that are made of it."""
    pending, seen = [name], {name}
    while pending:
        for use in structure.uses.get(pending.pop(), ()):
            if use.node.op_type in _COMPARING:
                continue  # a truth value is no integer
            if not _is_integer_arithmetic(structure, use):
                return False
            fresh = [output for output in use.node.output if output and output not in seen]
            seen.update(fresh)
            pending.extend(fresh)
    return True


def _is_integer_arithmetic(structure: Structure, use: Use) -> bool:
    operator = use.node.op_type
    if operator == "Cast":
        return any(item.name == "to" and item.i in _INTEGERS | _BYTES for item in use.node.attribute)
    if operator in ("Div", "Mod"):
        divisor = structure.constant(use.node.input[1])  # a processor stops if the least number is divided by -1
        return use.index == 0 and divisor is not None and not np.isin(divisor, (0, -1)).any()
    is_moved = operator in TRANSPARENT_OPERATORS and (use.index == 0 or operator == "Concat")
    return is_moved or operator in _INTEGER_ARITHMETIC or (operator, use.index) in _WRAPPING_OPERANDS


def _compared_constants(structure: Structure, name: str) -> tuple[float, ...]:
    """The constants on the other side of the comparisons that the elements of an input meet."""
    constants: dict[float, None] = {}
    for use, _ in _uses_through(structure, name):
        if use.node.op_type in _COMPARISONS:
            attributes = [item.f for item in use.node.attribute if item.name in ("min", "max", "alpha")]
            others = [structure.constant(other) for i, other in enumerate(use.node.input) if i != use.index]
            small = [array for array in others if array is not None and array.size <= _MOST_COMPARED]
            numbers = [float(n) for array in small if array.dtype.kind in "fiu" for n in array.reshape(-1)]
            constants.update(dict.fromkeys([*attributes, *numbers]))
    return tuple(constants)


def steering_values(structure: Structure, *, divisors: bool) -> frozenset[str]:
    """Values that determine shapes or the iterations of a loop; with `divisors`, also integer divisors.

    An integer division by zero ends the process.
    """
    roles = STRUCTURAL_ROLES | ({Role.POSITIVE} if divisors else set())
    positions = {position for position, role in _INTEGER_ROLES.items() if role in roles} | _SIZE_OPERANDS
    steering: set[str] = set()
    for node in reversed(structure.graph.node):
        leads = node.op_type not in SHAPE_ONLY_OPERATORS and not steering.isdisjoint(node.output)
        if leads or node.op_type == "Loop":
            steering.update(operands(node))
        else:
            steering.update(name for index, name in enumerate(node.input) if (node.op_type, index) in positions)
    return frozenset(steering)


def _uses_through(structure: Structure, name: str) -> Iterator[tuple[Use, bool]]:
    """The uses of a value, looking through transparent operators; the flag tells whether a Cast lay between."""
    pending = [(name, False)]
    seen = {name}
    while pending:
        value, converted = pending.pop(0)
        for use in structure.uses.get(value, ()):
            yield use, converted
            chosen = use.node.op_type == "Where" and use.index > 0
            is_shape = use.index > 0 and use.node.op_type != "Concat"
            if not chosen and (use.node.op_type not in TRANSPARENT_OPERATORS or is_shape):
                continue
            fresh = [output for output in use.node.output if output and output not in seen]
            seen.update(fresh)
            pending.extend((output, converted or use.node.op_type == "Cast") for output in fresh)


def _index_purpose(structure: Structure, use: Use) -> Purpose | None:
    operator = use.node.op_type
    if operator == "OneHot" and use.index == 0:
        depth = structure.constant(use.node.input[1])
        return Purpose(Role.INDEX, None if depth is None else int(depth.reshape(-1)[0]))
    if operator == "EmbedLayerNormalization" and use.index in (0, 1):
        return Purpose(Role.INDEX, _axis_size(structure, use.node.input[use.index + 2], 0))
    target = _INDEX_OPERANDS.get((operator, use.index))
    if target is None:
        return None
    return Purpose(Role.INDEX, _indexed_size(structure, use.node, use.node.input[target]))


def _indexed_size(structure: Structure, node: onnx.NodeProto, target: str) -> int | None:
    """Size of the indexed axis; of the smallest axis if an index names several axes at once."""
    if not node.op_type.endswith("ND"):
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        return _axis_size(structure, target, axis)
    shape = structure.shapes.get(target)
    sizes = [size for size in (shape.dims or ()) if size] if shape else []
    return min(sizes, default=None)


def _axis_size(structure: Structure, name: str, axis: int) -> int | None:
    tensor = structure.initializers.get(name)
    dims: tuple[int | None, ...] | None
    if tensor is not None:
        dims = tuple(tensor.dims)
    else:
        shape = structure.shapes.get(name)
        dims = shape.dims if shape else None
    return dims[axis] if dims and -len(dims) <= axis < len(dims) else None
