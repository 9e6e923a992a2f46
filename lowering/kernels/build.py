"""Machine code of scheduled functions: TVM's passes, with accumulators on the stack, and Arm's larger and smaller ones.

TVM takes local buffers of 1024 bytes and more from a workspace on the heap. LLVM knows little of such memory: it sets
the 17 and more accumulators of a tile of 512-bit vectors to zero by a call of memset, and writes all of them back. From
the stack they go to registers.

TVM compares and selects for the larger of two numbers. For x86 LLVM makes one instruction of that. Arm's has another
result where numbers do not compare, so there it makes two, and of a Clip four.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from ...support.processor import ARM
from .lanes import load_lanes

LARGEST_LOCAL = 4096
"""Bytes of a local buffer on the stack: twice the vector registers of any processor."""
_PIPELINE = "eqfuse"
_FOR_ARM = f"{_PIPELINE}_arm"
_EXTREMES = {tirx.Max: "llvm.maximum", tirx.Min: "llvm.minimum"}
"""LLVM's functions for operators of TVM: NaN where an operand is NaN."""
_ON_STACK = "disable_lower_builtin"
"""TVM's annotation of a buffer that stays where it is declared."""


def build(module: tvm.IRModule, target: tvm.target.Target) -> Any:
    """The module compiled: TVM's executable. Raises what TVM raises."""
    pipeline = _FOR_ARM if str(target.attrs.get("mtriple", "")).startswith(ARM) else _PIPELINE
    _register_pipelines()
    with tvm.transform.PassContext(config={"tirx.disable_cse_tir": True}):  # LLVM does it again anyway
        return tvm.compile(module, target=target, tir_pipeline=pipeline)


@cache
def _register_pipelines() -> None:
    keep = (tirx.AllocBuffer, _annotate)

    def factory_of(*callbacks: Any) -> Callable[[], tuple[Callable[[tvm.IRModule], tvm.IRModule], Any, Any]]:
        def factory() -> tuple[Callable[[tvm.IRModule], tvm.IRModule], Any, Any]:
            lower, finish_host, finish_device = tirx.get_tir_pipeline("default")
            return lambda module: _map_bodies(lower(module), callbacks), finish_host, finish_device

        return factory

    tirx.register_tir_pipeline(_PIPELINE, factory_of(keep))
    extremes = ((kind, _call_extreme) for kind in _EXTREMES)
    tirx.register_tir_pipeline(_FOR_ARM, factory_of(keep, *extremes, (tirx.SeqStmt, load_lanes)))


def _map_bodies(module: tvm.IRModule, callbacks: tuple[Any, ...]) -> tvm.IRModule:
    functions = {
        name: function.with_body(tvm_ffi.structural_map(function.body, callbacks))
        for name, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _annotate(allocation: Any) -> Any:
    buffer = allocation.buffer
    is_fixed = all(isinstance(extent, tirx.IntImm) for extent in buffer.shape)
    if buffer.scope() != "local" or not is_fixed or _bytes(buffer) > LARGEST_LOCAL:
        return allocation
    return tirx.AllocBuffer(buffer, annotations={_ON_STACK: tirx.const(True, "bool")})


def _call_extreme(extreme: Any) -> Any:
    dtype = str(extreme.ty.dtype)
    if not dtype.startswith(("float32", "float64")):
        return extreme
    return tirx.call_llvm_pure_intrin(dtype, _EXTREMES[type(extreme)], extreme.a, extreme.b)


def _bytes(buffer: Any) -> int:
    element = tvm_ffi.dtype(str(buffer.dtype))
    return prod(int(extent) for extent in buffer.shape) * element.bits * element.lanes // 8
