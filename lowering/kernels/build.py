"""Machine code of scheduled functions: TVM's passes, with accumulators on the stack, and Arm's larger and smaller ones.

TVM takes local buffers of 1024 bytes and more from a workspace on the heap. LLVM knows little of such memory: it sets
the 17 and more accumulators of a tile of 512-bit vectors to zero by a call of memset, and writes all of them back. From
the stack they go to registers.

TVM compares and selects for the larger of two numbers. For x86 LLVM makes one instruction of that. Arm's has another
result if numbers do not compare, so LLVM makes two for Arm, and four of a Clip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx

from ...support.processor import ARM
from ..compute.integers import define_functions
from .bindings import keep_in_memory
from .dot_products import OPTIONS, WORD_PRODUCTS, WordProduct, combine_products, dot_products_of
from .lanes import load_lanes
from .messages import Part
from .narrowing import join_bytes, keep_integers

LARGEST_LOCAL = 4096
"""Bytes of a local buffer on the stack: twice the vector registers of any processor."""
_PIPELINE = "eqfuse"
_FOR_ARM = f"{_PIPELINE}_arm"
_EXTREMES = {tirx.Max: "llvm.maximum", tirx.Min: "llvm.minimum"}
"""LLVM's functions for operators of TVM: NaN if an operand is NaN."""
_ON_STACK = "disable_lower_builtin"
"""TVM's annotation of a buffer that stays where it is declared."""


def place_parts(function: tirx.PrimFunc, parts: Iterable[Part]) -> tirx.PrimFunc:
    """The function with whole tensors in the place of the dense parameters that are `parts` of them.

    Y[n, h, w, c]    =>    J[n, h, w, c + first]

    Raises RuntimeError if the function takes such a parameter otherwise than by loads and stores.
    """
    params, shifts = list(function.params), []
    for part in parts:
        dense = params[part.parameter]
        shape = [*dense.shape[: part.axis], part.extent, *dense.shape[part.axis + 1 :]]
        params[part.parameter] = tirx.decl_buffer(shape, str(dense.dtype), str(dense.name))
        shifts.append((dense, params[part.parameter], part))

    def find(buffer: Any) -> tuple[Any, Part] | None:
        return next(((whole, part) for dense, whole, part in shifts if dense.same_as(buffer)), None)

    def shift(indices: Any, part: Part) -> list[Any]:
        return [index + part.first if axis == part.axis else index for axis, index in enumerate(indices)]

    def place_load(load: Any) -> Any:
        found = find(load.source)
        return load if found is None else tirx.BufferLoad(found[0], shift(load.indices, found[1]))

    def place_store(store: Any) -> Any:
        found = find(store.buffer)
        return store if found is None else tirx.BufferStore(found[0], store.value, shift(store.indices, found[1]))

    def place_region(region: Any) -> Any:
        found = find(region.source)
        if found is None:
            return region
        firsts = shift([each.min for each in region.region], found[1])
        ranges = map(ir.Range.from_min_extent, firsts, (each.extent for each in region.region))
        return tirx.BufferRegion(found[0], list(ranges))

    changes = [(ir.TensorLoad, place_load), (tirx.BufferStore, place_store), (ir.TensorRegion, place_region)]
    body = tvm_ffi.structural_map(function.body, changes)
    seen: list[Any] = []
    tvm_ffi.structural_walk(body, [(tirx.Var, seen.append)])
    if any(find(variable) for variable in seen):
        raise RuntimeError("a parameter that is a part of a tensor is no place for single elements")
    return tirx.PrimFunc(params, body, function.ret_type, function.attrs)


def build(module: tvm.IRModule, target: tvm.target.Target) -> Any:
    """The module compiled: TVM's executable. Raises what TVM raises."""
    pipeline = _FOR_ARM if str(target.attrs.get("mtriple", "")).startswith(ARM) else _PIPELINE
    own = dot_products_of(target)
    if own:
        pipeline += f"_{own}"
        target = tvm.target.Target({**target.export(), "cl-opt": list(OPTIONS.get(own, ()))})
    _register_pipelines()
    with tvm.transform.PassContext(config={"tirx.disable_cse_tir": True}):  # LLVM does it again anyway
        return tvm.compile(module, target=target, tir_pipeline=pipeline)


@cache
def _register_pipelines() -> None:
    keep = (tirx.AllocBuffer, _annotate)

    def factory_of(*callbacks: Any) -> Callable[[], tuple[Callable[[tvm.IRModule], tvm.IRModule], Any, Any]]:
        def factory() -> tuple[Callable[[tvm.IRModule], tvm.IRModule], Any, Any]:
            lower, finish_host, finish_device = tirx.get_tir_pipeline("default")

            def finish_with_workspaces() -> Callable[[tvm.IRModule], tvm.IRModule]:
                return lambda module: _bound_workspaces(finish_host()(module))

            return lambda module: _finish_bodies(lower(module), callbacks), finish_with_workspaces, finish_device

        return factory

    extremes = [(kind, _call_extreme) for kind in _EXTREMES]
    callbacks: dict[str, list[tuple[Any, Any]]] = {
        _PIPELINE: [keep, (tirx.SeqStmt, join_bytes)], _FOR_ARM: [keep, *extremes, (tirx.SeqStmt, load_lanes)],
    }  # fmt: skip
    for name, own in callbacks.items():
        tirx.register_tir_pipeline(name, factory_of(*own))
        for kind, dot_products in WORD_PRODUCTS.items():
            combine = partial(_combine_then, dot_products, dict(own).get(tirx.SeqStmt))
            kept = [each for each in own if each[0] is not tirx.SeqStmt]
            tirx.register_tir_pipeline(f"{name}_{kind}", factory_of(*kept, (tirx.SeqStmt, combine)))


def _combine_then(dot_products: Sequence[WordProduct], then: Callable[[Any], Any] | None, sequence: Any) -> Any:
    """The statements with dot products, and with what the other callback for sequences makes of them."""
    combined = combine_products(sequence, dot_products)
    return combined if then is None or not isinstance(combined, tirx.SeqStmt) else then(combined)


def _finish_bodies(module: tvm.IRModule, callbacks: tuple[Any, ...]) -> tvm.IRModule:
    def finish(body: Any) -> Any:
        return define_functions(tvm_ffi.structural_map(keep_integers(keep_in_memory(body)), callbacks))

    functions = {name: function.with_body(finish(function.body)) for name, function in module.functions.items()}
    return tvm.IRModule(functions, attrs=module.attrs)


def _bound_workspaces(module: tvm.IRModule) -> tvm.IRModule:
    """The functions, with buffers on the heap whose sizes are defined if tensors are empty.

    A function takes its buffers before it looks at sizes, and TVM computes some of them by divisions by how many tiles
    an axis has: an empty one has none, which ended the process, or gave a size below zero.
    """
    functions = {
        name: function.with_body(tvm_ffi.structural_map(function.body, [(ir.Call, _bound_workspace)]))
        for name, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _bound_workspace(call: Any) -> Any:
    if not call.op.same_as(_ALLOCATE):
        return call
    callbacks = [(tirx.Div, _divide_by_one_or_more), (tirx.Mod, _divide_by_one_or_more), (tirx.Cast, _bound_below)]
    arguments = list(call.args)
    arguments[_SIZE] = tvm_ffi.structural_map(arguments[_SIZE], callbacks)
    return ir.Call(call.op, arguments, call.attrs, ret_ty=call.ty)


_ALLOCATE = ir.Op.get("tirx.TVMBackendAllocWorkspace")
_SIZE = 2
"""The place of the number of bytes among its arguments."""


def _divide_by_one_or_more(quotient: Any) -> Any:
    return type(quotient)(quotient.a, tirx.max(quotient.b, 1))


def _bound_below(cast: Any) -> Any:
    return tirx.Cast(cast.ty, tirx.max(cast.value, 0))


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
