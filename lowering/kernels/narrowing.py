"""Bytes that a kernel makes and reads itself: their integers of 32 bits go on as they are.

    int32(uint8(round(min(max(x, -z), 255 - z)) + z)) - z    =>    round(min(max(x, -z), 255 - z))

Without vectors of 32-bit integers that are narrowed to bytes and widened again, two roundings in a row take half of the
instructions. LLVM knows no limits of a rounded number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ..compute.elementary import round_to_integer

_BYTE = 8


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
    if not isinstance(byte, tirx.Cast) or not _is_integer(cast, 32) or not _is_integer(byte, _BYTE):
        return cast
    limits = _find_limits(byte.value) if byte.value.ty.dtype == cast.ty.dtype else None
    low, high = (-128, 127) if str(byte.ty.dtype).startswith("int") else (0, 255)
    return byte.value if limits is not None and low <= limits.least and limits.largest <= high else cast


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
