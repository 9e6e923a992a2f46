"""Bytes that a kernel makes and reads itself: their integers of 32 bits go on as they are.

    int32(uint8(round(min(max(x, -z), 255 - z)) + z)) - z    =>    round(min(max(x, -z), 255 - z))

Without vectors of 32-bit integers that are narrowed to bytes and widened again, two roundings in a row take half of the
instructions. LLVM knows no limits of a rounded number.

Bytes that leave the kernel are written by two vectors at once, as numbers that saturate, for which x86-64 has
instructions: four in place of eight.

    Y[n..n + 7] = uint8(a); Y[n + 8..n + 15] = uint8(b)    =>    Y[n..n + 15] = uint8(min(max(a b, 0), 255))
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ...ir.types import BYTES
from ..compute.elementary import round_to_integer
from ..schedules.base.blocks import walk
from .dot_products import distance

_BYTE = 8
_JOINED = (4, 8)
"""Lanes of the vectors whose bytes are stored together: AVX-512 has an instruction that narrows its own."""


@dataclass(frozen=True)
class _Limits:
    """The least and the largest number that an expression has."""

    least: int
    largest: int


def keep_integers(node: Any) -> Any:
    """The statement without conversions to bytes of integers that are read as integers of 32 bits."""
    return tvm_ffi.structural_map(node, [(tirx.Cast, _keep_wide), (tirx.Add, _drop_offsets), (tirx.Sub, _drop_offsets)])


def _keep_wide(cast: Any) -> Any:
    """The integer of 32 bits that is made a byte and widened again, if all of its values are bytes."""
    byte = cast.value
    if not isinstance(byte, tirx.Cast) or not _is_integer(byte, _BYTE) or not _is_integer(byte.value, 32):
        return cast
    if not _is_within(byte.value, str(byte.ty.dtype)):
        return cast
    if _is_integer(cast, 32) and str(cast.ty.dtype).startswith("int"):
        return byte.value
    return _saturate(byte.value, str(byte.ty.dtype), str(cast.ty.dtype)) if _is_integer(cast, 16) else cast


def join_bytes(sequence: Any) -> Any:
    """The statements with one store of bytes in the place of two, of vectors of rounded numbers, that follow each
    other in memory."""
    joined: list[Any] = []
    for statement in sequence.seq:
        both = _join(joined[-1], statement) if joined else None
        if both is None:
            joined.append(statement)
        else:
            joined[-1] = both
    return tirx.SeqStmt(joined) if len(joined) > 1 else joined[0]


def _join(first: Any, second: Any) -> Any:
    """The store that writes what two stores of bytes write; None for other statements."""
    if not all(map(_stores_rounded, (first, second))) or not first.buffer.same_as(second.buffer):
        return None
    (start,), (end,) = first.indices, second.indices
    lanes, dtype = int(start.lanes), str(first.buffer.dtype)
    if int(end.lanes) != lanes or distance(start.base, end.base) != lanes:
        return None
    loads = (part for part in walk(second.value) if isinstance(part, ir.TensorLoad))
    if any(load.source.same_as(first.buffer) for load in loads):
        return None
    numbers = tirx.Shuffle([first.value.value, second.value.value], [tirx.const(n, "int32") for n in range(2 * lanes)])
    both = _saturate(numbers, dtype, f"{dtype}x{2 * lanes}")
    return tirx.BufferStore(first.buffer, both, [tirx.Ramp(start.base, start.stride, 2 * lanes)])


def _saturate(numbers: Any, dtype: str, result: str) -> Any:
    """Numbers within the limits of a type of bytes as the type `result`: LLVM learns the limits, and saturates."""
    limits, lanes = _limits_of(dtype), tvm_ffi.dtype(str(numbers.ty.dtype)).lanes
    least, largest = (tirx.const(n, "int32") for n in (limits.least, limits.largest))
    if lanes > 1:
        least, largest = (tirx.Broadcast(each, lanes) for each in (least, largest))
    return tirx.Cast(result, tirx.Min(tirx.Max(numbers, least), largest))


def _stores_rounded(statement: Any) -> bool:
    """Whether a statement stores a vector of bytes, of integers of 32 bits that are all bytes, in a row."""
    if not isinstance(statement, tirx.BufferStore) or len(statement.indices) != 1:
        return False
    value, index, dtype = statement.value, statement.indices[0], str(statement.buffer.dtype)
    if not isinstance(value, tirx.Cast) or not isinstance(index, tirx.Ramp) or int(index.lanes) not in _JOINED:
        return False
    is_row = int(index.stride) == 1 and dtype in BYTES and str(value.value.ty.dtype) == f"int32x{int(index.lanes)}"
    return is_row and _is_within(value.value, dtype)


def _is_within(value: Any, dtype: str) -> bool:
    """Whether all values of an integer, or of a vector of them, are known to be of a type of bytes."""
    limits, own = _find_limits(value), _limits_of(dtype)
    return limits is not None and own.least <= limits.least and limits.largest <= own.largest


def _limits_of(dtype: str) -> _Limits:
    """The limits of a type of bytes, or of vectors of them."""
    return _Limits(-128, 127) if dtype.startswith("int") else _Limits(0, 255)


def _is_integer(value: Any, bits: int) -> bool:
    return str(value.ty.dtype).startswith(("int", "uint")) and tvm_ffi.dtype(str(value.ty.dtype)).bits == bits


def _find_limits(value: Any) -> _Limits | None:
    """The limits of a rounded number that has some, with a constant added to it; None of other expressions."""
    if isinstance(value, tirx.Add | tirx.Sub):
        limits, number = _find_limits(value.a), _constant(value.b)
        if limits is None or number is None:
            return None
        offset = number if isinstance(value, tirx.Add) else -number
        return _Limits(limits.least + offset, limits.largest + offset)
    if not isinstance(value, ir.Call) or not _is_rounding(value):
        return None
    upper = value.args[-1]
    lower = upper.a if isinstance(upper, tirx.Min) else None
    if not isinstance(lower, tirx.Max):
        return None
    least, largest = _constant(lower.b), _constant(upper.b)
    if least is None or largest is None or least > largest or least != int(least) or largest != int(largest):
        return None
    return _Limits(int(least), int(largest))


def _is_rounding(call: Any) -> bool:
    rounding = _rounding()
    return bool(call.op.same_as(rounding.op) and tvm_ffi.structural_equal(call.args[0], rounding.args[0]))


@cache
def _rounding() -> Any:
    """The rounding of some number, whose first argument is the number of LLVM's function."""
    return round_to_integer(tirx.const(0.0, "float32"), "int32")


def _constant(value: Any) -> Any:
    """The number that an expression, or each element of a vector, is; None if it is no constant."""
    number = value.value if isinstance(value, tirx.Broadcast) else value
    return number.value if isinstance(number, tirx.IntImm | tirx.FloatImm) else None


def _drop_offsets(sum: Any) -> Any:
    """What a constant was added to, if it is subtracted again."""
    inner = sum.a
    if not isinstance(inner, tirx.Add | tirx.Sub) or type(inner) is type(sum) or not _is_integer(sum, 32):
        return sum
    numbers = _constant(inner.b), _constant(sum.b)
    return inner.a if numbers[0] is not None and numbers[0] == numbers[1] and _find_limits(inner) is not None else sum
