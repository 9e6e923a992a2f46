"""Operands and attributes that fit an operator, chosen at random: one small recipe per kind of operator.

A recipe chooses one argument at a time, in an order that lets later choices depend on earlier ones. For an operand it
gives the wished type (a leaf will have it; a term may have another one), for an attribute the value.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from ....ir.operators import OPERATORS
from ....ir.operators.quantization import DEQUANTIZED, QUANTIZED
from .conditions import Type, Value
from .left_side import LEAVES
from .operator_draft import (
    FACTORS,
    Choice,
    Misfit,
    OperatorDraft,
    Recipe,
    image,
    narrowed,
    one_axis,
    random_shape,
    some_axes,
)
from .recipe_layout import layout, split
from .recipe_linear import (
    ORDER_OF_CONTRIBUTED,
    ORDER_OF_RECURRENCES,
    contributed,
    conv,
    gemm,
    image_before,
    matmul,
    recurrence,
    window,
)
from .types import TYPES, operand_types, result_types

ORDER_OF_QUANTIZATION: dict[str, tuple[str, ...]] = {
    "QuantizeLinear": ("x", "axis", "y_scale", "y_zero_point"),
    "DequantizeLinear": ("x", "axis", "x_scale", "x_zero_point"),
    "ConvInteger": ("x", "kernel_shape", "group", "w", "x_zero_point", "w_zero_point", "dilations", "pads", "strides"),
}
_ZERO_POINTS: dict[str, tuple[str, int | None]] = {
    "x_zero_point": ("x", None), "w_zero_point": ("w", 0), "a_zero_point": ("A", -2), "b_zero_point": ("B", -1),
}  # fmt: skip
"""By zero point its operand, and the axis that may have one for each position."""
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
        shape = (draft.shape[axis],) if is_listed and isinstance(axis, int) else _one_number(draft)
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
    """None, a number, or one for each filter, row or column: ONNX Runtime has none for rows, but ONNX has."""
    operand, axis = draft.operands[_ZERO_POINTS[name][0]], _ZERO_POINTS[name][1]
    if draft.chance(0.3):
        return None
    is_listed = axis is not None and len(operand.shape) > 1 and draft.chance(0.4)
    return Type((operand.shape[axis or 0],) if is_listed else _one_number(draft), operand.dtype)


def _one_number(draft: OperatorDraft) -> tuple[int, ...]:
    """The shape of an operand of one number: ONNX Runtime takes a list of one for it, too."""
    return (1,) if draft.chance(0.2) else ()


def order(head: str) -> tuple[str, ...]:
    """The arguments of an operator in the order in which they are chosen."""
    if head in _ORDER:
        return _ORDER[head]
    return tuple(a.name for a in OPERATORS[head].arguments)


_ORDER: dict[str, tuple[str, ...]] = {
    **ORDER_OF_RECURRENCES,
    **ORDER_OF_CONTRIBUTED,
    **ORDER_OF_QUANTIZATION,
    "Gemm": ("transA", "transB", "A", "B", "C", "alpha", "beta"),
    "Conv": ("X", "kernel_shape", "group", "W", "B", "dilations", "pads", "strides"),
    "ConvTranspose": ("X", "kernel_shape", "group", "W", "B", "dilations", "pads", "strides", "output_padding"),
    "GroupNormalization": ("X", "num_groups", "scale", "bias", "epsilon", "stash_type"),
    "LayerNormalization": ("X", "axis", "Scale", "B", "epsilon", "stash_type"),
    "RMSNormalization": ("X", "axis", "scale", "epsilon", "stash_type"),
    "Slice": ("data", "axes", "starts", "ends", "steps"),
    "Split": ("input", "axis", "split"),
    "Pad": ("data", "mode", "pads", "constant_value"),
    "Concat": ("A", "axis", "B"),
    "DepthToSpace": ("blocksize", "input", "mode"),
    "SpaceToDepth": ("blocksize", "input"),
    "Resize": ("X", "mode", "config"),
    "AveragePool": ("X", "kernel_shape", "dilations", "pads", "strides", "ceil_mode", "count_include_pad"),
    "MaxPool": ("X", "kernel_shape", "dilations", "pads", "strides", "ceil_mode", "storage_order"),
}


# --- element-wise


def _broadcast_shape(shape: tuple[int, ...], random: Random) -> tuple[int, ...]:
    """A shape that broadcasts with this one, in one of the ways that models use."""
    rank = len(shape)
    kind = random.random()
    if kind < 0.35 or not rank:
        return shape if rank else random_shape(random, random.choice((0, 0, 1)))
    if kind < 0.47:
        return () if random.random() < 0.8 else (1,) * random.choice((1, rank))
    if kind < 0.57 and rank >= 2:
        return (shape[1], *(1,) * (rank - 2))
    if kind < 0.67:
        return shape[-1:] if random.random() < 0.6 else (*(1,) * (rank - 1), shape[-1])
    if kind < 0.72 and rank >= 2:
        return (1, shape[1], *(1,) * (rank - 2))
    if kind < 0.8:
        return tuple(d if random.random() < 0.6 else 1 for d in shape)
    turned = shape[::-1]
    if kind < 0.84 and turned != shape and all(a == b or 1 in (a, b) for a, b in zip(shape, turned, strict=True)):
        return turned  # as many elements
    if kind < 0.88:  # each widens the other
        sizes = tuple(random.choice((1, 2, 3)) if size == 1 else random.choice((1, size)) for size in shape)
        return random.choice((sizes, sizes[1:], (random.choice((1, 2, 3)), *sizes) if rank < 5 else sizes))
    if kind < 0.95 and rank < 5:
        filled = (random.choice((2, 3)) if d == 1 and random.random() < 0.75 else d for d in shape)
        return (random.choice((1, 2, 2, 3)), *filled)  # one rank more, so that axes from the front move
    return _wider(shape, random)


def _shape_beside(shape: tuple[int, ...], draft: OperatorDraft) -> tuple[int, ...]:
    """The shape of an operand that is combined with one of this shape."""
    return narrowed(shape) if draft.is_narrow else _broadcast_shape(shape, draft.random)


def _wider(shape: tuple[int, ...], random: Random) -> tuple[int, ...]:
    """A shape that this one is broadcast to, if it can be."""
    grown = tuple(random.choice((2, 3)) if d == 1 else d for d in shape)
    return grown if grown != shape or len(shape) >= 4 else (2, *grown)


def _unwiden(draft: OperatorDraft) -> tuple[int, ...]:
    """The wished shape for the first operand, at times a smaller one that the other may widen."""
    shape = draft.wish.shape
    if draft.is_narrow or len(OPERATORS[draft.head].operands) < 2 or draft.chance(0.8):
        return shape
    return shape[1:] if draft.chance(0.5) else tuple(d if draft.chance(0.5) else 1 for d in shape)


def _elementwise(draft: OperatorDraft, name: str) -> Choice:
    others = [t.shape for t in draft.operands.values()]
    wished = draft.wish.dtype if result_types(draft.head) else draft.dtype
    dtype = next((t.dtype for t in draft.operands.values()), wished)
    shape = _shape_beside(np.broadcast_shapes(*others), draft) if others else _unwiden(draft)
    if draft.head == "Cast" and draft.chance(0.5):  # from any type, whatever the wished one is
        return Type(shape, draft.random.choice(TYPES))
    allowed = operand_types(draft.head, name)
    usual = (dtype, draft.dtype, "float32", "int32", "uint8", "bool")
    return Type(shape, next(each for each in usual if each in allowed))


def _where(draft: OperatorDraft, name: str) -> Choice:
    values = [t for n, t in draft.operands.items() if n != "condition"]
    base = np.broadcast_shapes(*(t.shape for t in draft.operands.values())) if draft.operands else draft.wish.shape
    if name == "condition":
        return Type(_shape_beside(base, draft), "bool")
    dtype = values[0].dtype if values else draft.wish.dtype
    if draft.is_narrow:
        return Type(narrowed(base), dtype)
    kind = draft.random.random()
    if kind < 0.2:  # a choice that is never taken widens the result all the same
        return Type(_wider(base, draft.random), dtype)
    return Type(base if kind < 0.6 else _broadcast_shape(base, draft.random), dtype)


def _if(draft: OperatorDraft, name: str) -> Choice:
    """Branches of one type, and sometimes of two shapes."""
    if name == "cond":
        return Type((), "bool")
    is_other = name == "else_branch" and draft.chance(0.2)
    return Type(draft.random_shape(), draft.wish.dtype) if is_other else draft.wish


def _clip(draft: OperatorDraft, name: str) -> Choice:
    if name == "input":
        return Type(draft.wish.shape, draft.wish.dtype)
    dtype = draft.operands["input"].dtype if draft.operands else draft.wish.dtype
    return None if draft.chance(0.2) else Type(_one_number(draft), dtype)


_EPSILONS = (1e-5, 1e-5, 1e-6, 1e-3, 0.1)
"""With a smaller one, the rounding of a variance near zero would show as a difference between two ways to compute
it."""


def _number(draft: OperatorDraft, name: str) -> Value:
    """A number for an attribute: ONNX's default, or any other."""
    if name == "epsilon":
        return draft.random.choice(_EPSILONS)
    usual = next(a.default for a in OPERATORS[draft.head].attributes if a.name == name)
    return usual if usual is not None and draft.chance(0.15) else draft.random.choice(FACTORS)


def _unary(draft: OperatorDraft, name: str) -> Choice:
    if name == "X":
        return _elementwise(draft, name)
    if name == "to":
        return draft.random.choice(TYPES)
    return draft.random.choice(("none", "tanh")) if name == "approximate" else _number(draft, name)


def _binary(draft: OperatorDraft, name: str) -> Choice:
    if name == "direction":
        return draft.random.choice(("LEFT", "RIGHT"))
    if name == "fmod":
        return 1 if any(t.dtype.startswith("float") for t in draft.operands.values()) else draft.random.choice((0, 1))
    choice = _elementwise(draft, name)
    if draft.head == "Pow" and name == "Y" and isinstance(choice, Type) and draft.chance(0.4):
        return Type(choice.shape, draft.random.choice(("float32", "int32", "int64", "float64")))
    return choice


# --- normalization, reduction, pooling


STASH_TYPES = (1, 1, 10, 11)
"""ONNX's numbers of the types that a normalization computes in: float32, float16 and float64."""


def _normalization(draft: OperatorDraft, name: str) -> Choice:
    random = draft.random
    if name in ("X", "input"):
        shape = draft.wish.shape if len(draft.wish.shape) >= 2 else random_shape(random, random.choice((2, 3, 4)))
        if draft.head in ("InstanceNormalization", "GroupNormalization") and len(shape) < 3:
            shape = (*shape, 3)
        return Type(shape, draft.wish.dtype)
    if name == "epsilon":
        return _number(draft, name)
    if name == "stash_type":
        return random.choice(STASH_TYPES)
    if name == "axis":
        return random.randrange(draft.rank) if draft.chance(0.3) else draft.rank - 1
    if name == "num_groups":
        channels = draft.shape[1] if draft.rank > 1 else 1
        return random.choice([g for g in range(1, channels + 1) if channels % g == 0] or [1])
    if draft.head in ("LayerNormalization", "RMSNormalization"):
        axis = draft.attributes["axis"]
        if name == "B" and draft.chance(0.15):
            return None
        return Type(_scale_shape(draft, axis) if isinstance(axis, int) else (), draft.wish.dtype)
    return Type(draft.shape[1:2], draft.wish.dtype)


def _scale_shape(draft: OperatorDraft, axis: int) -> tuple[int, ...]:
    """The shape of a scale: the normalized axes, at times fewer or none, or some of size 1, since a scale broadcasts
    to them."""
    shape = draft.shape[axis if draft.chance(0.8) else draft.random.randrange(axis, draft.rank + 1) :]
    return tuple(draft.random.choice((1, size)) for size in shape) if draft.chance(0.3) else shape


def _reduction(draft: OperatorDraft, name: str) -> Choice:
    random = draft.random
    if name in ("data", "x"):
        return Type(_shape_before_reduction(draft) or draft.random_shape(), draft.wish.dtype)
    if name == "keepdims":
        return random.choice((0, 1))
    if name == "axes":
        return some_axes(draft)
    if name == "axis" and draft.rank:
        axis = random.randrange(draft.rank)
        kinds = {a.name: a.kind for a in OPERATORS[draft.head].attributes}
        return (axis,) if kinds["axis"] == "Ints" else axis
    return random.choice((0, 0, 1))


def _shape_before_reduction(draft: OperatorDraft) -> tuple[int, ...]:
    """The wished shape, with the axes that the reduction drops."""
    shape = list(draft.wish.shape)
    if draft.attributes.get("keepdims") == 0 and "axes" in draft.attributes:
        for axis in draft.integers("axes"):
            shape.insert(axis, draft.random.choice((2, 3)))
    return tuple(shape)


def _pooling(draft: OperatorDraft, name: str) -> Choice:
    if name == "X":
        return Type(image_before(draft) or image(draft), draft.wish.dtype)
    if name in ("ceil_mode", "count_include_pad"):
        return draft.random.choice((0, 0, 1))
    return draft.random.choice((0, 0, 1)) if name == "storage_order" else window(draft, name)


def _full(draft: OperatorDraft, name: str) -> Choice:
    if name == "0":
        return draft.wish.shape
    return draft.random.choice((0.5, 2.0, -1.5, 1.0, 0.0, 3.0, 2.5, -2.0, 100.0)) if name == "1" else draft.wish.dtype


# --- which recipe

_BY_OPERATOR: dict[str, Recipe] = {
    "Where": _where,
    "If": _if,
    "Clip": _clip,
    "MatMul": matmul,
    "Gemm": gemm,
    "Conv": conv,
    "ConvTranspose": conv,
    "ConvInteger": integer_product,
    "MatMulInteger": integer_product,
    "Softmax": one_axis,
    "LogSoftmax": one_axis,
    "Hardmax": one_axis,
    "Full": _full,
}
_BY_CATEGORY: dict[str, Recipe] = {
    "elementwise.unary": _unary,
    "elementwise.binary": _binary,
    "elementwise.quantization": quantization,
    "normalization": _normalization,
    "reduction": _reduction,
    "pooling": _pooling,
    "recurrent": recurrence,
    "layout": layout,
    "multiple-output": split,
    "contributed": contributed,
}


def recipe(head: str) -> Recipe:
    """The recipe of an operator."""
    if head in _BY_OPERATOR or head in LEAVES:
        return _BY_OPERATOR[head]
    return _BY_CATEGORY[OPERATORS[head].category]
