"""Operators on integers that stand for real numbers: (integer - zero point) * scale.

Rounding goes to the nearest integer, of two to the even one; an integer that its type cannot hold becomes the nearest
one that it can; what is no number becomes the least one, as in ONNX Runtime. Sums of products have 32 bits and wrap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..index_maps import ZERO, Axis, IndexMaps, OperandMap, OperatorCall, Shape, aligned_map
from ..operation import Operation
from ..types import BYTES
from .arithmetic import Arithmetic, Array, Unsupported
from .linear import convolution_maps, convolve, depth, matmul, matmul_maps
from .numbers import full
from .schema import Family, per_output

Ints = tuple[int, ...]
CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Operators that are no constants even if their operands are: small integer weights would become large float ones."""
INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger"})
"""Products of integers, which have zero points behind their operands and sums of 32 bits."""
QUANTIZED = (*BYTES, "int16", "uint16")
"""The types of the integers that QuantizeLinear makes here."""
ROUNDED_RESULTS: Mapping[str, int] = {
    "QuantizeLinear": 1, "QLinearConv": 6, "QLinearMatMul": 6, "QGemm": 7, "QLinearAdd": 6, "QLinearMul": 6,
    "QLinearConcat": 0, "QLinearSoftmax": 3, "QLinearSigmoid": 3, "QLinearLeakyRelu": 3, "QLinearAveragePool": 3,
    "QLinearGlobalAveragePool": 3, "QLinearWhere": 7,
}  # fmt: skip
"""Operators of ONNX and of ONNX Runtime whose result is rounded to integers, and the place of its scale among their
operands; its zero point follows. A QGemm without them makes numbers."""
INTEGER_OPERANDS: Mapping[str, tuple[int, ...]] = {
    "QLinearConv": (0, 3), "QLinearMatMul": (0, 3), "QGemm": (0, 3), "QLinearAdd": (0, 3), "QLinearMul": (0, 3),
    "QLinearSoftmax": (0,), "QLinearSigmoid": (0,), "QLinearLeakyRelu": (0,), "QLinearAveragePool": (0,),
    "QLinearGlobalAveragePool": (0,), "QLinearWhere": (1, 4),
}  # fmt: skip
"""The places of integers among the operands of such operators; a scale and a zero point follow each."""
ROUNDED_OPERANDS = frozenset({"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})
"""Operators that round their first operand by its range."""
REAL = ("float32", "float16")
"""The types of the numbers that integers stand for."""
DEQUANTIZED = (*QUANTIZED, "int32")
"""The types of the integers that DequantizeLinear reads here; those of 32 bits have no zero point but 0."""


def _along(parameter: Array, x: Array, axis: int) -> Array:
    """A scale or zero point, one for all elements of `x` or one for each position of an axis, as it broadcasts."""
    if parameter.size == 1:
        return parameter.reshape(())
    if parameter.ndim != 1 or not -x.ndim <= axis < x.ndim or parameter.shape[0] != x.shape[axis]:
        raise Unsupported("there is one scale, or one for each position of the axis")
    return parameter.reshape((-1, *(1,) * (x.ndim - 1 - axis % x.ndim)))


def _require_zero_of(scale: Array | None, zero: Array | None) -> None:
    """ONNX wants zero points of the shape of their scales; runtimes take a list of one for a scalar."""
    if scale is not None and zero is not None and zero.size > scale.size:
        raise Unsupported("one scale has one zero point")


def _quantize(arithmetic: Arithmetic, x: Array, scale: Array | None, zero: Array | None, axis: int) -> Array:
    """Without a scale it is 1, which ONNX writes as a constant: costs then know that nothing is divided."""
    target = "uint8" if zero is None else zero.dtype.name
    if target not in QUANTIZED or x.dtype.kind != "f":
        raise Unsupported(f"QuantizeLinear of {x.dtype} to {target}")
    _require_zero_of(scale, zero)
    quotient = x if scale is None else arithmetic.apply("divide", x, _along(scale, x, axis))
    quotient = arithmetic.apply("round", quotient)
    offset = arithmetic.cast(full((), 0, target) if zero is None else _along(zero, x, axis), x.dtype.name)
    ends = [float(end) for end in (np.iinfo(target).min, np.iinfo(target).max)]
    # The type of x may not hold the sum of a zero point and a large quotient: it is limited before.
    low, high = (
        arithmetic.apply("subtract", arithmetic.constant(limit, offset), offset) for limit in ends
    )
    quotient = arithmetic.apply("where", arithmetic.apply("isnan", quotient), low, quotient)
    quotient = arithmetic.apply("minimum", arithmetic.apply("maximum", quotient, low), high)
    return arithmetic.cast(arithmetic.apply("add", quotient, offset), target)


def _dequantize(arithmetic: Arithmetic, x: Array, scale: Array, zero: Array | None, axis: int) -> Array:
    if x.dtype != object and x.dtype.name not in DEQUANTIZED:
        raise Unsupported(f"DequantizeLinear of {x.dtype}")
    _require_zero_of(scale, zero)
    number = arithmetic.cast(x, "int32")
    if zero is not None:
        number = arithmetic.apply("subtract", number, arithmetic.cast(_along(zero, x, axis), "int32"))
    dtype = "float32" if scale.dtype == object else scale.dtype.name
    return arithmetic.apply("multiply", arithmetic.cast(number, dtype), _along(scale, x, axis))


def _centered(arithmetic: Arithmetic, x: Array, zero: Array | None, axis: int) -> Array:
    """The integers without their zero point, in 32 bits."""
    if x.dtype != object and x.dtype.name not in BYTES:
        raise Unsupported(f"a product of integers of {x.dtype}")
    number = arithmetic.cast(x, "int32")
    if zero is None:
        return number
    return arithmetic.apply("subtract", number, arithmetic.cast(_along(zero, x, axis), "int32"))


def _conv_integer(
    arithmetic: Arithmetic, x: Array, w: Array, zero: Array | None, w_zero: Array | None, kernel: Ints, pads: Ints,
    strides: Ints, dilations: Ints, group: int,
) -> Array:  # fmt: skip
    """Padding has the zero point's value, the number 0."""
    if zero is not None and zero.size != 1:
        raise Unsupported("the data have one zero point")
    data, weights = _centered(arithmetic, x, zero, 1), _centered(arithmetic, w, w_zero, 0)
    return convolve(arithmetic, data, weights, kernel, pads, strides, dilations, group)


def _matmul_integer(arithmetic: Arithmetic, a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    """Zero points are scalars, or lists for the rows on the left and for the columns on the right."""
    return matmul(
        arithmetic,
        _centered(arithmetic, a, a_zero, max(0, a.ndim - 2)),
        _centered(arithmetic, b, b_zero, b.ndim - 1),
    )


def _quantization_maps(call: OperatorCall) -> IndexMaps:
    """Scale and zero point are scalars, or lists along the attribute ``axis``."""
    axes = call.axes
    along = axes[call.axis(1) :][:1]
    return IndexMaps(axes, (axes, *(_listed(shape, along) for shape in call.operands[1:])))


def _listed(shape: Shape | None, along: Sequence[Axis]) -> OperandMap | None:
    """The map of a scale or zero point. Raises ValueError if it is longer than the axis it is along."""
    if shape is None or set(shape) <= {1}:
        return None if shape is None else (ZERO,) * len(shape)
    return aligned_map(shape, along)


def _conv_integer_maps(call: OperatorCall) -> IndexMaps:
    maps = convolution_maps(call)
    return IndexMaps(
        maps.result,
        (*maps.operands[:2], _listed(call.operand(2), ()), _listed(call.operand(3), maps.result[1:2])),
    )


def _matmul_integer_maps(call: OperatorCall) -> IndexMaps:
    maps, columns = matmul_maps(call), len(call.operand(1) or ()) > 1
    rows = maps.result[: len(maps.result) - columns][-1:]
    beside = (_listed(call.operand(2), rows), _listed(call.operand(3), maps.result[-1:] if columns else ()))
    return IndexMaps(maps.result, (*maps.operands[:2], *beside))


def _product_flops(operation: Operation) -> float:
    return float(2 * operation.output.elements * depth(operation))


_quantization = Family("elementwise.quantization", _quantization_maps, is_total=True)
_linear = Family("linear", flops=_product_flops, is_total=True)

OPERATORS = (
    _quantization("QuantizeLinear", "x y_scale? y_zero_point? | axis:i64=1", _quantize, flops=per_output(3)),
    _quantization("DequantizeLinear", "x x_scale x_zero_point? | axis:i64=1", _dequantize, flops=per_output(2)),
    _linear("MatMulInteger", "A B a_zero_point? b_zero_point?", _matmul_integer, index_maps=_matmul_integer_maps,
            takes_stacks=True),
    _linear(
        "ConvInteger",
        "x w x_zero_point? w_zero_point? | kernel_shape:Ints pads:Ints strides:Ints dilations:Ints group:i64=1",
        _conv_integer,
        index_maps=_conv_integer_maps,
        weights_at=1,
    ),
)
