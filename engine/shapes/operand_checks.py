"""Operands that do not fit their node: types that ONNX wants alike, scales, zero points, and channels.

    Conv(float[1, 3, 8, 8], float[4, 5, 3, 3])  ->  its data has 3 channels, and its weights take 5
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import onnx
import onnx_ir as ir

from ...ir.operators import FILTERS
from ...ir.operators.quantization import CONVERSIONS, INTEGER_OPERANDS, INTEGER_PRODUCTS
from ...ir.types import Dimension, TensorType
from ...support.errors import ModelError
from ..onnx.model import Model
from ..onnx.nodes import is_standard, title

Operands = Sequence[TensorType | None]


def check_operands(model: Model, types: Mapping[str, TensorType]) -> None:
    """Raise ModelError about the first operands whose types ONNX wants alike and are not, or the first scale or zero
    point that does not fit. Unknown types and sizes fit everything."""
    for node in model.graph:
        operands = [types.get(value.name or "") if value else None for value in node.inputs]
        found, advice = "", "quantise it again"
        if is_standard(node) and node.op_type in CONVERSIONS:
            found = _conversion_fault(node, operands)
        elif is_standard(node) and node.op_type in INTEGER_PRODUCTS:
            found = _product_fault(node, operands)
        elif node.op_type in INTEGER_OPERANDS:
            found = _integer_operand_fault(node, operands)
        if not found and is_standard(node) and node.op_type in _WEIGHTS:
            found, advice = _channel_fault(node, operands), "export it again"
        if not found and is_standard(node):
            found, advice = _mixed_types(node, operands, model.opset), "cast one of them"
        if found:
            raise ModelError(f"{model.label}: {title(node)}: {found}; mend the model or {advice}")


def _mixed_types(node: ir.Node, operands: Operands, opset: int) -> str:
    """Two operands that have one type parameter in ONNX's schema and not one element type; "" if there are none."""
    first: dict[str, tuple[str, str]] = {}
    parameters = _type_parameters(node.op_type, opset)
    for place, (value, type_) in enumerate(zip(node.inputs, operands, strict=True)):
        parameter = parameters[min(place, len(parameters) - 1)] if parameters else ""
        if not parameter or value is None or type_ is None:
            continue
        name, dtype = first.setdefault(parameter, (str(value.name), type_.dtype))
        if dtype != type_.dtype:
            return f"{name!r} is of {dtype} and {value.name!r} of {type_.dtype}: they need the same type"
    return ""


@cache
def _type_parameters(op_type: str, opset: int) -> tuple[str, ...]:
    """The type parameter of each operand, the last for all behind it; "" if every operand may have its own type."""
    if not onnx.defs.has(op_type, opset, ""):
        return ()
    return tuple(
        "" if each.option == onnx.defs.OpSchema.FormalParameterOption.Variadic and not each.is_homogeneous
        else each.type_str
        for each in onnx.defs.get_schema(op_type, opset, "").inputs
    )  # fmt: skip


_WEIGHTS = {**FILTERS, "ConvTranspose": 1}
"""Which operand of a convolution is the weights."""


def _channel_fault(node: ir.Node, operands: Operands) -> str:
    """What is wrong with the groups and channels of a convolution; "" if nothing."""
    groups, place = node.attributes.get_int("group", 1), _WEIGHTS[node.op_type]
    data, weights = operands[0], operands[place] if place < len(operands) else None
    if groups is None or groups < 1:
        return f"it has {groups} groups"
    if data is None or weights is None or data.shape is None or weights.shape is None:
        return ""
    if min(len(data.shape), len(weights.shape)) < 2:
        return f"its data is {_describe(data)}, its weights {_describe(weights)}: both have channels"
    given, taken = data.shape[1], weights.shape[0 if node.op_type == "ConvTranspose" else 1]
    wanted = taken * groups if isinstance(taken, int) and node.op_type != "ConvTranspose" else taken
    if isinstance(given, int) and isinstance(wanted, int) and given != wanted:
        return f"its data has {given} channels, and its weights take {wanted}"
    return ""


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


def _integer_operand_fault(node: ir.Node, operands: Operands) -> str:
    """What is wrong with the scales and zero points of an operator on integers (QLinearConv); "" if nothing.

    Each operand has one scale, or weights one for each of their channels.
    """
    for place in INTEGER_OPERANDS[node.op_type]:
        operand, scale, zero = (*operands[place : place + 3], None, None, None)[:3]
        if operand is None or operand.shape is None or scale is None or scale.shape is None:
            continue
        if zero is not None and zero.dtype != operand.dtype:
            return f"the zero point of its operand {place} is of {zero.dtype}, the integers of {operand.dtype}"
        axis = _channel_axis(node) if place == 3 else None
        size = None if axis is None or not operand.shape else operand.shape[axis]
        is_listed = size is not None and len(scale.shape) == 1 and _may_be_equal(scale.shape, (size,))
        if is_listed or _is_single(scale.shape):
            continue
        rule = "one" if size is None else f"one, or {size}"
        return f"the scale of its operand {place}, {_describe(operand)}, is {_describe(scale)}: there is {rule}"
    return ""


def _channel_axis(node: ir.Node) -> int | None:
    """The axis of its weights along which a product of integers may have scales; None for others than products."""
    if node.op_type == "QLinearConv":
        return 0
    if node.op_type == "QGemm":
        return 0 if node.attributes.get_int("transB", 0) else -1
    return -1 if node.op_type == "QLinearMatMul" else None


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
