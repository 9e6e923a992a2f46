"""How many cycles scheduled loops take, roughly: enough to tell code that runs off a cliff from code that does not.

    vectorised j: Y[i, j] = f(X[i, j])  =>  iterations / lanes * (instructions of f, a load, a store)

Loops that no vector runs along cost their iterations; a vector whose elements lie apart is loaded element by element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import stmt as s_stmt

from ...costmodels.device import MOST_NEIGHBOURS, WIDE, Device
from ...costmodels.register_tiles import EVICTED_LOAD, EVICTED_STORE, LATENCY
from ...ir.types import BYTES
from .base.blocks import is_selection, uses, walk
from .base.extents import at_typical_sizes, estimate_extent
from .base.nodes import Expression, Statement
from .base.rewriting import substitute
from .tiling.tiles import FLOAT_BYTES

DIVISION = 4.0
"""Cycles of a division of vectors."""
SELECTION = 2.0
"""Cycles of a selection, and of each condition of one."""
SHUFFLED = 0.25
"""Cycles of an element that is moved by a transposition in registers."""
_SERIAL = 3.0
"""The factor by which loops take longer if the compiler looks for vectors by itself than with the schedule's own."""
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max)
_NEAREST = 8
"""Elements between two accesses up to which the compiler makes vectors of several, by shuffles."""
_REGISTERS = "local"
"""The scope of buffers that loops are unrolled for."""


def estimate_cycles(function: tirx.PrimFunc, device: Device) -> float:
    """Cycles of a function on one thread of a device, whatever it waits for memory."""
    return sum(_cycles(store, device) for store in _list_stores(at_typical_sizes(function.body, function), (), {}))


def least_cycles(function: tirx.PrimFunc, device: Device) -> float:
    """Cycles of a function before it is scheduled, if vectors ran along all of its loops and all loads were shared."""
    stores = list(_list_stores(at_typical_sizes(function.body, function), (), {}))
    arithmetic = sum(
        prod(int(loop.extent) for loop in s.loops) * _count_instructions(s.statement.value, device) for s in stores
    )
    moved = sum(prod(estimate_extent(extent, function) for extent in p.shape) for p in function.params)
    return (arithmetic + moved / device.load_ports) / device.lanes


@dataclass(frozen=True)
class _Store:
    """A store in its loops, from the outermost; `iteration` gives the block's variables by those of the loops."""

    statement: Statement
    loops: tuple[Statement, ...]
    iteration: Mapping[Any, Any]


def _list_stores(node: Statement, loops: tuple[Statement, ...], iteration: Mapping[Any, Any]) -> Iterator[_Store]:
    if isinstance(node, tirx.For):
        yield from _list_stores(node.body, (*loops, node), iteration)
    elif isinstance(node, tirx.SeqStmt):
        for part in node.seq:
            yield from _list_stores(part, loops, iteration)
    elif isinstance(node, s_stmt.SBlockRealize):
        names = [each.var for each in node.block.iter_vars]
        inner = {**iteration, **dict(zip(names, node.iter_values, strict=True))}
        yield from _list_stores(node.block.body, loops, inner)
    elif isinstance(node, tirx.IfThenElse):  # what holds for the usual sizes
        yield from _list_stores(node.then_case, loops, iteration)
    elif isinstance(node, tirx.BufferStore):
        yield _Store(node, loops, iteration)


def _cycles(store: _Store, device: Device) -> float:
    iterations = prod(int(loop.extent) for loop in store.loops)
    if not store.loops:
        return 1.0
    last = next(reversed(store.statement.indices), None)
    if isinstance(last, tirx.Ramp):
        return iterations * int(last.lanes) * SHUFFLED
    unrolled = [loop for loop in store.loops if loop.kind == tirx.ForKind.UNROLLED]
    lanes = next((loop for loop in store.loops if loop.kind == tirx.ForKind.VECTORIZED), None)
    if lanes is not None:  # behind it stand only the neighbours of a word
        return iterations / int(lanes.extent) * _vector_cycles(store, lanes, unrolled, device)
    along = next((loop for loop in reversed(store.loops) if loop not in unrolled), store.loops[-1])
    value = _unroll(store, unrolled)
    loads = [part for part in walk(value) if isinstance(part, ir.TensorLoad)]
    steps = _list_steps((store.statement, *loads), along, store)
    is_sum = steps[0][1] == 0 and any(load.source.same_as(store.statement.buffer) for load in loads)
    work = _count_instructions(value, device) + len(steps) / device.load_ports
    is_apart = any(step is None or not 0 <= step <= _NEAREST for _, step in steps)
    if is_sum or is_apart or int(along.extent) < device.lanes or any(map(is_selection, walk(value))):
        evicted = sum(_evicted_cycles(access, step, device) for access, step in steps)
        return iterations * (max(work, LATENCY if is_sum else 0.0) + evicted)
    return iterations / device.lanes * _SERIAL * work


def _vector_cycles(store: _Store, along: Any, unrolled: Sequence[Any], device: Device) -> float:
    """Cycles of one vector, whose loop is `along`; what unrolled loops load again is in a register."""
    statement = store.statement
    accesses = (statement, *(part for part in walk(statement.value) if isinstance(part, ir.TensorLoad)))
    cycles = _count_instructions(statement.value, device)
    in_memory = [access for access in accesses if _buffer(access).scope() != _REGISTERS]
    for access, step in _list_steps(in_memory, along, store):
        elements = 1.0 if step in (0, 1) else float(int(along.extent))
        if step is not None and 1 < step <= MOST_NEIGHBOURS and _is_of_words(access) and device.integer_products:
            elements = 1.0 / step  # a dot product loads the neighbours of all lanes at once
        each = 1.0 / device.load_ports + _evicted_cycles(access, step, device)
        cycles += elements * each / _count_sharers(access, unrolled, store.iteration)
    return cycles


def _is_of_words(access: Any) -> bool:
    """Whether an access is to elements that a dot product takes several of in a lane."""
    return str(_buffer(access).dtype) in (*BYTES, WIDE)


def _evicted_cycles(access: Any, step: int | None, device: Device) -> float:
    """Cycles that an element waits for its line if all along the axis of this step evict each other."""
    if step is None or step <= 1:
        return 0.0
    stride = 1  # elements from one place of a dimension to the next
    for extent in reversed(_buffer(access).shape):
        if not isinstance(extent, tirx.IntImm):
            return 0.0
        if step < stride * int(extent):
            lines = stride * int(extent) // step
            is_store = isinstance(access, tirx.BufferStore)
            evicted = EVICTED_STORE if is_store else EVICTED_LOAD
            return 0.0 if device.caches[0].holds(lines, step * FLOAT_BYTES) else evicted
        stride *= int(extent)
    return 0.0


def _unroll(store: _Store, unrolled: Sequence[Statement]) -> Expression:
    """The value for the first iteration of unrolled loops, which may decide its selections."""
    first = {loop.loop_var: tirx.const(0, "int32") for loop in unrolled}
    value = substitute(substitute(store.statement.value, store.iteration), first)
    return _bind_loops(store.loops).simplify(value) if unrolled else value


def _count_instructions(value: Any, device: Device) -> float:
    """Cycles of the arithmetic of an expression; named parts once."""
    cycles = 0.0
    for part in walk(value):
        if isinstance(part, _ARITHMETIC) and str(part.ty.dtype).startswith("float"):
            fused = isinstance(part, tirx.Add) and any(isinstance(side, tirx.Mul) for side in (part.a, part.b))
            cycles += 0.0 if fused else 1.0 / device.fma_ports
        elif isinstance(part, tirx.Div):
            cycles += DIVISION
        elif is_selection(part) or isinstance(part, tirx.Select):
            cycles += SELECTION
        elif isinstance(part, ir.Call):
            cycles += 1.0
    return cycles


def _count_sharers(access: Any, unrolled: Sequence[Any], iteration: Mapping[Any, Any]) -> int:
    """The iterations of unrolled loops that load the same element, which is in a register then."""
    parts = (part for index in access.indices for part in walk(substitute(index, iteration)))
    used = [part for part in parts if isinstance(part, tirx.Var)]
    return prod(int(u.extent) for u in unrolled if not any(part.same_as(u.loop_var) for part in used))


def _buffer(access: Any) -> Any:
    return access.buffer if isinstance(access, tirx.BufferStore) else access.source


def _bind_loops(loops: Sequence[Statement]) -> sym.Analyzer:
    """An analyzer that knows the ranges of the loops."""
    analyzer = sym.Analyzer()
    for loop in loops:
        analyzer.bind(loop.loop_var, ir.Range(0, int(loop.extent)))
    return analyzer


def _list_steps(accesses: Sequence[Any], along: Any, store: _Store) -> list[tuple[Any, int | None]]:
    """Each access with its step; equal places are looked at once, for inlined expressions read them again and again."""
    steps: dict[Any, int | None] = {}
    rows = []
    key_of: Any = tvm_ffi.StructuralKey  # whose second field it fills in itself, unlike its stub says
    for access in accesses:
        key = key_of(tirx.BufferLoad(_buffer(access), list(access.indices)))
        if key not in steps:
            steps[key] = _step(access, along, store)
        rows.append((access, steps[key]))
    return rows


def _step(access: Any, along: Any, store: _Store) -> int | None:
    """Elements in memory from the place of one iteration of a loop to that of the next; None if they differ."""
    place: Any = tirx.const(0, "int32")
    for index, extent in zip(access.indices, _buffer(access).shape, strict=True):
        place = place * extent + index
    place = substitute(place, store.iteration)
    if any(isinstance(part, ir.TensorLoad) and uses(part, [along.loop_var]) for part in walk(place)):
        return None  # it is read from memory: TVM would take long to find that out
    first = substitute(place, {along.loop_var: tirx.const(0, "int32")})
    second = substitute(place, {along.loop_var: tirx.const(1, "int32")})
    step = _bind_loops(store.loops).simplify(second - first)
    return int(step) if isinstance(step, tirx.IntImm) else None
