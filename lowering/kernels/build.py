"""Machine code of scheduled functions: TVM's passes, with accumulators on the stack.

TVM takes local buffers of 1024 bytes and more from a workspace on the heap. LLVM knows little of such memory: it sets
the 17 and more accumulators of a tile of 512-bit vectors to zero by a call of memset, and writes all of them back. From
the stack they go to registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

LARGEST_LOCAL = 4096
"""Bytes of a local buffer on the stack: twice the vector registers of any processor."""
_PIPELINE = "eqfuse"
_ON_STACK = "disable_lower_builtin"
"""TVM's annotation of a buffer that stays where it is declared."""


def build(module: tvm.IRModule, target: tvm.target.Target) -> Any:
    """The module compiled: TVM's executable. Raises what TVM raises."""
    _register_pipeline()
    with tvm.transform.PassContext(config={"tirx.disable_cse_tir": True}):  # LLVM does it again anyway
        return tvm.compile(module, target=target, tir_pipeline=_PIPELINE)


@cache
def _register_pipeline() -> None:
    def factory() -> tuple[Callable[[tvm.IRModule], tvm.IRModule], Any, Any]:
        lower, finish_host, finish_device = tirx.get_tir_pipeline("default")
        return lambda module: _keep_on_stack(lower(module)), finish_host, finish_device

    tirx.register_tir_pipeline(_PIPELINE, factory)


def _keep_on_stack(module: tvm.IRModule) -> tvm.IRModule:
    functions = {
        name: function.with_body(tvm_ffi.structural_map(function.body, (tirx.AllocBuffer, _annotate)))
        for name, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _annotate(allocation: Any) -> Any:
    buffer = allocation.buffer
    is_fixed = all(isinstance(extent, tirx.IntImm) for extent in buffer.shape)
    if buffer.scope() != "local" or not is_fixed or _bytes(buffer) > LARGEST_LOCAL:
        return allocation
    return tirx.AllocBuffer(buffer, annotations={_ON_STACK: tirx.const(True, "bool")})


def _bytes(buffer: Any) -> int:
    element = tvm_ffi.dtype(str(buffer.dtype))
    return prod(int(extent) for extent in buffer.shape) * element.bits * element.lanes // 8
