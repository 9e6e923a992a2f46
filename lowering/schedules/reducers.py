"""Reducers that TVM's `rfactor` does not know by itself: maximum from -infinity, minimum from infinity."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx


@cache
def register_reducers() -> None:
    """Makes them known to this process; once is enough. TVM's own start from the type's finite bounds."""
    register = tvm.get_global_func("s_tir.schedule.RegisterReducer")
    for combine, start in ((te.max, float("-inf")), (te.min, float("inf"))):
        register(1, _immortal(_combiner(combine)), _immortal(_identity(start)))


def _combiner(combine: Any) -> Callable[[Any, Any], list[Any]]:
    return lambda left, right: [combine(left[0], right[0])]


def _identity(start: float) -> Callable[[Any], list[Any]]:
    return lambda values: [tirx.const(start, str(values[0].ty.dtype))]


def _immortal(function: Callable[..., Any]) -> Any:
    """The function for TVM, never freed: its registry outlives the interpreter, which freeing it would need."""
    converted = tvm_ffi.convert(function)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(converted))
    return converted
