"""Eight and sixteen bits: numbers to integers and back, and products of integers, added up in 32 bits that wrap around.

QuantizeLinear divides by the scale, rounds half to even, adds the zero point and stays within its type;
DequantizeLinear computes (x - zero point) * scale. A scale of 1 that is known divides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tvm import te, tirx

from ...ir.operators.quantization import QUANTIZED
from .call import Expr, Immediate, Lowering, NotLowered, Operand, TensorCall, sizes
from .elementary import dtype_of, round_to_integer
from .extents import are_unequal
from .products import Multiply, convolve, multiply_matrices
from .windows import Windows, pad_around

_ACCUMULATOR = "int32"


def _quantize(call: TensorCall) -> te.Tensor:
    x, scale, zero = call.source(0), call.source(1), call.optional(2)
    if call.dtype not in QUANTIZED:
        raise NotLowered(f"a result of {call.dtype}")
    at = _places(call, scale)

    def element(*indices: Expr) -> Expr:
        value, by = x(*indices), scale(*at(*indices))
        quotient = value if _is_known(by, 1) else value / by
        offset = tirx.const(0, _ACCUMULATOR) if zero is None else zero(*at(*indices)).astype(_ACCUMULATOR)
        low, high = ((end(call.dtype).astype(_ACCUMULATOR) - offset) for end in (te.min_value, te.max_value))
        # NaN becomes the least number, as in ONNX Runtime: of two operands that do not compare the second is taken
        least = tirx.Max(quotient, low.astype(dtype_of(value)))
        limited = tirx.Min(least, high.astype(dtype_of(value)))
        return (round_to_integer(limited, _ACCUMULATOR) + offset).astype(call.dtype)

    return call.stage(call.shape, element)


def _is_known(value: Expr, number: int) -> bool:
    """Whether an element is a constant of this value."""
    return isinstance(value, tirx.IntImm | tirx.FloatImm) and value.value == number


def _dequantize(call: TensorCall) -> te.Tensor:
    x, scale, zero = call.source(0), call.source(1), call.optional(2)
    at = _places(call, scale)

    def element(*indices: Expr) -> Expr:
        value = x(*indices).astype(_ACCUMULATOR)
        if zero is not None and not _is_known(offset := zero(*at(*indices)), 0):
            value = value - offset.astype(_ACCUMULATOR)
        return value.astype(call.dtype) * scale(*at(*indices))

    return call.stage(call.shape, element)


def _places(call: TensorCall, scale: Operand) -> Callable[..., list[Expr]]:
    """The indices of the scale, and of the zero point, for those of the result: one for all, or one for each place on
    the attribute `axis`."""
    shape = sizes(scale)
    if shape in ((), (1,)):
        return lambda *indices: [0] * len(shape)
    axis = call.integer("axis", 1)
    if len(shape) > 1 or are_unequal(shape[0], call.shape[axis]):
        raise NotLowered("scales of blocks")
    return lambda *indices: [indices[axis]]


def _matmul_integer(call: TensorCall) -> te.Tensor:
    """Zero points are one of an operand, or one for each row on the left and for each column on the right."""
    ranks = [len(call.source(place).shape) for place in (0, 1)]
    call = _without_listed_zeros(_without_listed_zeros(call, 0, max(0, ranks[0] - 2)), 1, ranks[1] - 1)
    return multiply_matrices(call, call.source(0), call.source(1), _multiplication(call))


def _conv_integer(call: TensorCall) -> te.Tensor:
    """The border has the zero point, which stands for 0. Filters may have one each."""
    call = _without_listed_zeros(call, 1, 0)
    windows, x, zero = Windows.of(call), call.source(0), call.optional(2)
    fill = tirx.const(0, dtype_of(x(*[0] * len(x.shape)))) if zero is None else zero(*[0] * len(zero.shape))
    shape = windows.padded_shape(sizes(x), call.shape)
    padded = pad_around(call, x, windows.begins(call), windows.after, fill, shape)
    return convolve(call, padded, windows, _multiplication(call))


def _without_listed_zeros(call: TensorCall, place: int, axis: int) -> TensorCall:
    """The call with integers of 32 bits in place of an operand that has a zero point for each position of an axis."""
    zero = call.optional(place + 2)
    if zero is None or sizes(zero) in ((), (1,)):
        return call
    x = call.source(place)
    if len(sizes(zero)) > 1 or are_unequal(sizes(zero)[0], sizes(x)[axis]):
        raise NotLowered("zero points of a matrix each")

    def element(*indices: Expr) -> Expr:
        return x(*indices).astype(_ACCUMULATOR) - zero(indices[axis]).astype(_ACCUMULATOR)

    sources = [*call.sources, *[None] * (4 - len(call.sources))]
    sources[place], sources[place + 2] = call.stage(sizes(x), element, f"centered_{place}"), None
    return replace(call, sources=tuple(sources))


def _multiplication(call: TensorCall) -> Multiply:
    """The product of an element of each operand, in 32 bits, without their zero points."""

    def widen(zero: Operand | None) -> Callable[[Expr], Expr]:
        if zero is None or (isinstance(zero, Immediate) and _is_known(zero.value, 0)):
            return lambda x: x.astype(_ACCUMULATOR)
        return lambda x: x.astype(_ACCUMULATOR) - zero(*[0] * len(zero.shape)).astype(_ACCUMULATOR)

    left, right = widen(call.optional(2)), widen(call.optional(3))
    return lambda a, b: left(a) * right(b)


LOWERINGS: Mapping[str, Lowering] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "MatMulInteger": _matmul_integer,
    "ConvInteger": _conv_integer,
}
