"""Recipes of conversions between numbers and integers, and of products of integers."""

from __future__ import annotations

from dataclasses import replace

from ....ir.operators.quantization import DEQUANTIZED, QUANTIZED
from .conditions import Type
from .operator_draft import Choice, Misfit, OperatorDraft
from .recipe_linear import conv, matmul

ORDER_OF_QUANTIZATION: dict[str, tuple[str, ...]] = {
    "QuantizeLinear": ("x", "axis", "y_scale", "y_zero_point"),
    "DequantizeLinear": ("x", "axis", "x_scale", "x_zero_point"),
    "ConvInteger": ("x", "kernel_shape", "group", "w", "x_zero_point", "w_zero_point", "dilations", "pads", "strides"),
}
_CONVOLVED = {"x": "X", "w": "W"}
"""The operands of Conv that those of ConvInteger are like."""


def quantization(draft: OperatorDraft, name: str) -> Choice:
    """The operands and the axis of a conversion: the axis is 1 if one scale is for all elements, as rules see it."""
    makes_integers = draft.head == "QuantizeLinear"
    if name == "x":
        types = ("float32", "float32", "float32", "float16") if makes_integers else (*QUANTIZED, *DEQUANTIZED)
        return Type(draft.wish.shape, draft.random.choice(types))
    if name == "axis":
        return draft.random.randrange(draft.rank) if draft.rank and draft.chance(0.5) else 1
    axis = draft.attributes["axis"]
    if name.endswith("scale"):
        is_listed = isinstance(axis, int) and axis < draft.rank and (axis != 1 or draft.chance(0.4))
        shape = (draft.shape[axis],) if is_listed and isinstance(axis, int) else ()
        return Type(shape, draft.operands["x"].dtype if makes_integers else _real(draft))
    scale = next((t for n, t in draft.operands.items() if n.endswith("scale")), None)
    if scale is None:
        raise Misfit
    whole = draft.operands["x"].dtype
    if draft.chance(0.2) or whole == "int32":
        return None
    return Type(scale.shape, draft.random.choice(QUANTIZED) if makes_integers else whole)


def _real(draft: OperatorDraft) -> str:
    return draft.wish.dtype if draft.wish.dtype in ("float32", "float16") else "float32"


def integer_product(draft: OperatorDraft, name: str) -> Choice:
    """The operands and attributes of a product of integers: those of the product of numbers, and zero points."""
    if name.endswith("zero_point"):
        return _zero_point(draft, name)
    if draft.head == "MatMulInteger":
        return _whole(draft, matmul(draft, name))
    operands = {_CONVOLVED[n]: t for n, t in draft.operands.items() if n in _CONVOLVED}
    return _whole(draft, conv(replace(draft, head="Conv", operands=operands), _CONVOLVED.get(name, name)))


def _whole(draft: OperatorDraft, choice: Choice) -> Choice:
    return Type(choice.shape, draft.random.choice(QUANTIZED)) if isinstance(choice, Type) else choice


def _zero_point(draft: OperatorDraft, name: str) -> Choice:
    """None, a number, or one for each filter or column."""
    is_left = name in ("x_zero_point", "a_zero_point")
    of = draft.operands[{"x_zero_point": "x", "w_zero_point": "w", "a_zero_point": "A", "b_zero_point": "B"}[name]]
    if draft.chance(0.3):
        return None
    is_listed = not is_left and len(of.shape) > 1 and draft.chance(0.4)
    size = of.shape[0 if draft.head == "ConvInteger" else -1] if is_listed else 0
    return Type((size,) if is_listed else (), of.dtype)
