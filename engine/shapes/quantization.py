"""Whether scales and zero points fit the operands that they belong to: ONNX's own inference does not look at them.

    QuantizeLinear(x[4, 8], scale[8], zero[8], axis=1)  fits: one scale for each position of axis 1
    QuantizeLinear(x[4, 8], scale[3], zero[3], axis=1)  fits neither this nor the other axis
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ...ir.operators.quantization import CONVERSIONS, INTEGER_PRODUCTS
from ...ir.types import Dimension, TensorType
from ...support.errors import ModelError
from ..onnx.nodes import is_standard, title

Operands = Sequence[TensorType | None]


def check_parameters(graph: ir.Graph, types: Mapping[str, TensorType], label: str) -> None:
    """Raise ModelError about the first scale or zero point that does not fit. Unknown sizes fit everything."""
    for node in graph:
        if not is_standard(node):
            continue
        operands = [types.get(value.name or "") if value else None for value in node.inputs]
        if node.op_type in CONVERSIONS:
            found = _conversion_fault(node, operands)
        elif node.op_type in INTEGER_PRODUCTS:
            found = _product_fault(node, operands)
        else:
            continue
        if found:
            raise ModelError(f"{label}: {title(node)}: {found}; mend the model or quantise it again")


def _conversion_fault(node: ir.Node, operands: Operands) -> str:
    """What is wrong with the parameters of a QuantizeLinear or DequantizeLinear; "" if nothing."""
    x, scale, zero = (*operands, None)[:3]
    if scale is None or scale.shape is None:
        return ""
    if zero is not None and zero.shape is not None:
        if not _are_alike(scale.shape, zero.shape):
            return f"its scale is {_describe(scale)}, its zero point {_describe(zero)}: they need the same shape"
        if node.op_type == "DequantizeLinear" and x is not None and x.dtype != zero.dtype:
            return f"its zero point is of {zero.dtype}, its integers of {x.dtype}: they need the same type"
    if x is None or x.shape is None or _is_single(scale.shape):
        return ""
    axis = node.attributes.get_int("axis", 1)
    if not -len(x.shape) <= axis < len(x.shape):
        return f"it has no axis {axis}: its operand is {_describe(x)}"
    block = node.attributes.get_int("block_size", 0)
    if block:
        wanted = tuple(
            -(-size // block) if place == axis % len(x.shape) and isinstance(size, int) else size
            for place, size in enumerate(x.shape)
        )
        rule = f"one for each block of {block} on axis {axis}"
    else:
        wanted, rule = (x.shape[axis],), f"one, or one for each position of axis {axis}"
    if len(scale.shape) == len(wanted) and _may_be_equal(scale.shape, wanted):
        return ""
    return f"its scale is {_describe(scale)}, its operand {_describe(x)}: there is {rule}"


def _product_fault(node: ir.Node, operands: Operands) -> str:
    """What is wrong with the zero points of a product of integers; "" if nothing."""
    is_matrix = node.op_type == "MatMulInteger"
    for place, name in ((0, "data"), (1, "weights")):
        operand, zero = (*operands, None, None)[place], (*operands, None, None)[place + 2]
        if operand is None or zero is None or operand.shape is None or zero.shape is None:
            continue
        if operand.dtype != zero.dtype:
            return f"the zero point of its {name} is of {zero.dtype}, these are of {operand.dtype}"
        if _is_single(zero.shape) or len(zero.shape) > 1:
            continue
        if is_matrix:
            size = operand.shape[-2 if place == 0 else -1] if len(operand.shape) > 1 else 1
        else:
            size = 1 if place == 0 else operand.shape[0]
        if not _may_be_equal(zero.shape, (size,)):
            rule = f"one, or {size}" if size != 1 else "one"
            return f"it has {zero.shape[0]} zero points for its {name}, {_describe(operand)}: there is {rule}"
    return ""


def _is_single(shape: Sequence[Dimension]) -> bool:
    return len(shape) <= 1 and set(shape) <= {1}


def _are_alike(scale: Sequence[Dimension], zero: Sequence[Dimension]) -> bool:
    """Whether a zero point has the shape of the scale, or both are one number."""
    return (_is_single(scale) and _is_single(zero)) or (len(scale) == len(zero) and _may_be_equal(scale, zero))


def _may_be_equal(shape: Sequence[Dimension], other: Sequence[Dimension]) -> bool:
    """Whether no two sizes are known and differ."""
    return all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in zip(shape, other, strict=True))


def _describe(type_: TensorType) -> str:
    shape = type_.shape or ()
    return f"{type_.dtype}[{', '.join(map(str, shape))}]" if shape else f"a number of {type_.dtype}"
