"""Machine code of scheduled functions: TVM's passes, with accumulators on the stack, and Arm's larger and smaller ones.

TVM takes local buffers of 1024 bytes and more from a workspace on the heap. LLVM knows little of such memory: it sets
the 17 and more accumulators of a tile of 512-bit vectors to zero by a call of memset, and writes all of them back. From
the stack they go to registers.

TVM compares and selects for the larger of two numbers. For x86 LLVM makes one instruction of that. Arm's has another
result if numbers do not compare, so LLVM makes two for Arm, and four of a Clip.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from graphlib import TopologicalSorter
from math import ceil, prod
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx

from ...support.processor import ARM
from ..compute.elementary import dtype_of
from ..compute.integers import define_functions
from ..compute.statements import sequence
from ..schedules.base.blocks import is_selection, walk
from ..schedules.base.draft import BOOLEANS, EXACT_PAIRS
from .dot_products import OPTIONS, WORD_PRODUCTS, WordProduct, combine_products, dot_products_of
from .messages import Part
from .narrowing import join_bytes, keep_integers
from .noting import note_extremes

_Callbacks = list[tuple[Any, Any]]
"""Kinds of nodes, and what replaces one of a kind."""
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
    module = tvm.IRModule({name: _take_booleans(each) for name, each in module.functions.items()}, attrs=module.attrs)
    with tvm.transform.PassContext(config={"tirx.disable_cse_tir": True}):  # LLVM does it again anyway
        return tvm.compile(module, target=target, tir_pipeline=pipeline)


def _take_booleans(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function whose caller gives booleans, in whose memory it finds bytes."""
    params, body = list(function.params), function.body
    for place in map(int, (function.attrs or {}).get(BOOLEANS, ())):
        stored = params[place]
        params[place] = tirx.decl_buffer(stored.shape, "bool", str(stored.name))
        body = tirx.SeqStmt([tirx.DeclBuffer(stored, data=tirx.buffer_data(params[place])), body])
    return tirx.PrimFunc(params, body, function.ret_type, function.attrs)


@cache
def _register_pipelines() -> None:
    keep = (tirx.AllocBuffer, _annotate)

    def factory_of(
        callbacks: _Callbacks, of_exact_pairs: _Callbacks
    ) -> Callable[[], tuple[Callable[[tvm.IRModule], tvm.IRModule], Any, Any]]:
        def factory() -> tuple[Callable[[tvm.IRModule], tvm.IRModule], Any, Any]:
            lower, finish_host, finish_device = tirx.get_tir_pipeline("default")

            def finish_with_workspaces() -> Callable[[tvm.IRModule], tvm.IRModule]:
                return lambda module: _bound_workspaces(finish_host()(module))

            def lower_bodies(module: tvm.IRModule) -> tvm.IRModule:
                return _finish_bodies(lower(module), callbacks, of_exact_pairs)

            return lower_bodies, finish_with_workspaces, finish_device

        return factory

    extremes = [(kind, _call_extreme) for kind in _EXTREMES]
    callbacks: dict[str, list[tuple[Any, Any]]] = {
        _PIPELINE: [keep, (tirx.SeqStmt, join_bytes)], _FOR_ARM: [keep, *extremes, (tirx.SeqStmt, load_lanes)],
    }  # fmt: skip
    for name, own in callbacks.items():
        tirx.register_tir_pipeline(name, factory_of(own, own))
        for kind, dot_products in WORD_PRODUCTS.items():
            kept = [each for each in own if each[0] is not tirx.SeqStmt]
            then = dict(own).get(tirx.SeqStmt)
            usual, exact = (
                [*kept, (tirx.SeqStmt, partial(_combine_then, each, then))]
                for each in (dot_products, WORD_PRODUCTS.get(f"exact_{kind}", dot_products))
            )
            tirx.register_tir_pipeline(f"{name}_{kind}", factory_of(usual, exact))


def _combine_then(dot_products: Sequence[WordProduct], then: Callable[[Any], Any] | None, sequence: Any) -> Any:
    """The statements with dot products, and with what the other callback for sequences makes of them."""
    combined = combine_products(sequence, dot_products)
    return combined if then is None or not isinstance(combined, tirx.SeqStmt) else then(combined)


def _finish_bodies(module: tvm.IRModule, callbacks: _Callbacks, of_exact_pairs: _Callbacks) -> tvm.IRModule:
    """The functions with the callbacks applied; those marked EXACT_PAIRS have callbacks of their own."""

    def finish(function: Any) -> Any:
        own = of_exact_pairs if (function.attrs or {}).get(EXACT_PAIRS) else callbacks
        body = keep_numbers(keep_in_memory(note_extremes(function.body)))
        return define_functions(tvm_ffi.structural_map(keep_integers(body), own))

    functions = {name: function.with_body(finish(function)) for name, function in module.functions.items()}
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


# Factors of register tiles on Arm: four numbers of a row are loaded at once, and each is taken from its lane.
#
#     C0 += broadcast(A[k]) * B[k..]; ...; C0 += broadcast(A[k + 3]) * B[k + 3..]
#  => V = A[k..k + 3]; C0 += broadcast(V[0]) * B[k..]; ...; C0 += broadcast(V[3]) * B[k + 3..]
#
# Arm multiplies by a lane of a register; x86 loads and broadcasts in one instruction. LLVM loads every number by
# itself: 56 times in place of 14 in eight steps of a tile of 7 x 3 vectors.

LANES = 4
"""Numbers of a vector."""
REGISTERS = 32
"""Vector registers, which hold accumulators, vectors of factors, and the vectors that these multiply."""


def load_lanes(sequence: Any) -> Any:
    """The statements with consecutive numbers that they broadcast as lanes of vectors, if the registers hold these.

    All numbers of a vector were loaded by statements of the sequence, so none is out of bounds.
    """
    stores = list(filter(_is_unconditional_store, sequence.seq))
    lanes = _number_lanes(_list_factors(stores))
    accumulators = len({_key(store.buffer, store.indices) for store in stores})
    rows = ceil(len(lanes) * accumulators / len(stores)) if stores else 0  # each step stores every accumulator
    if not rows or accumulators + rows + ceil(accumulators / rows) > REGISTERS:
        return sequence

    def take_lane(broadcast: Any) -> Any:
        factor = _Factor.of(broadcast)
        if factor is None or factor not in lanes:
            return broadcast
        load, lane = broadcast.value, lanes[factor]
        (index,) = load.indices
        ramp = tirx.Ramp(index - lane, tirx.const(1, str(index.ty.dtype)), LANES)
        vector = tirx.BufferLoad(load.source, [ramp])
        return tirx.Shuffle([vector], [tirx.const(lane, "int32")] * int(broadcast.lanes))  # of an element LLVM loads it

    def change(each: Any) -> Any:
        return tvm_ffi.structural_map(each, (tirx.Broadcast, take_lane)) if _is_unconditional_store(each) else each

    return tirx.SeqStmt(list(map(change, sequence.seq)))


def _is_unconditional_store(statement: Any) -> bool:
    return isinstance(statement, tirx.BufferStore) and not any(map(is_selection, walk(statement.value)))


@dataclass(frozen=True)
class _Factor:
    """A number in memory: what its index is besides a constant, and the constant."""

    row: tvm_ffi.StructuralKey
    constant: int

    @staticmethod
    def of(broadcast: Any) -> _Factor | None:
        """The factor of the number that is broadcast, if that is in memory and has 32 bits."""
        load = broadcast.value
        if not isinstance(load, ir.TensorLoad) or len(load.indices) != 1 or str(load.ty.dtype) != "float32":
            return None
        (index,) = load.indices
        is_sum = isinstance(index, tirx.Add) and isinstance(index.b, tirx.IntImm)
        base, constant = (index.a, int(index.b)) if is_sum else (index, 0)
        return _Factor(_key(load.source, [base]), constant)


def _key(source: Any, indices: Iterable[Any]) -> Any:
    """Equal for equal elements."""
    key: Any = tvm_ffi.StructuralKey  # whose second field it fills in itself, unlike its stub says
    return key(tirx.BufferLoad(source, list(indices)))


def _list_factors(stores: Iterable[Any]) -> Iterator[_Factor]:
    for store in stores:
        for part in walk(store.value):
            factor = _Factor.of(part) if isinstance(part, tirx.Broadcast) else None
            if factor is not None:
                yield factor


def _number_lanes(factors: Iterable[_Factor]) -> dict[_Factor, int]:
    """The lanes of those that are consecutive, by fours; the others have none."""
    rows: dict[tvm_ffi.StructuralKey, set[int]] = defaultdict(set)
    for factor in factors:
        rows[factor.row].add(factor.constant)
    lanes: dict[_Factor, int] = {}
    for row, constants in rows.items():
        for first in sorted(constants):
            four = [_Factor(row, first + lane) for lane in range(LANES)]
            if all(factor.constant in constants and factor not in lanes for factor in four):
                lanes |= {factor: lane for lane, factor in enumerate(four)}
    return lanes


# Bound values that are kept in memory if they are bound inside each other too often.
#
# TVM's code generator tells its simplifier the value of each variable that a `Let` binds, and the simplifier writes
# this value wherever the variable is read: of n LeakyRelu inside each other, each of which reads its operand three
# times, it writes the innermost one 3^n times. An element of memory is no variable. LLVM keeps it in a register.
#
#     Y = let t = (let s = X in f(s, s)) in g(t, t)    =>    let s = X; T = f(s, s); Y = g(T, T)

MOST_READS = 500
"""Reads of variables in a value whose variables are written out: it takes the simplifier a tenth of a second."""
_IF_THEN_ELSE = ir.Op.get("prim.if_then_else")


def keep_in_memory(body: Any) -> Any:
    """The statement with those bound values in memory of which the simplifier would make more than MOST_READS."""
    return tvm_ffi.structural_map(body, [(tirx.BufferStore, _keep_values)])


def keep_numbers(body: Any) -> Any:
    """The statement with numbers of floating point that it binds, and vectors of such, in memory.

    TVM's code generator would write out and simplify each of them, which takes half the time of compiling a convolution
    by Winograd's filters. That gains nothing: only what depends on integers, such as places in memory, gets simpler.
    """
    loads: dict[Any, Any] = {}

    def keep(bind: Any) -> Any:
        if not str(bind.var.ty).startswith("float"):  # pointers have no element type
            return bind
        buffer = tirx.decl_buffer((1,), dtype_of(bind.var), str(bind.var.name), scope="local")
        loads[bind.var] = tirx.BufferLoad(buffer, [0])
        return tirx.SeqStmt([tirx.AllocBuffer(buffer), tirx.BufferStore(buffer, bind.value, [0])])

    def flatten(sequence: Any) -> Any:
        parts = (each.seq if isinstance(each, tirx.SeqStmt) else [each] for each in sequence.seq)
        return tirx.SeqStmt([statement for part in parts for statement in part])

    changes = [(tirx.Bind, keep), (tirx.SeqStmt, flatten), (tirx.Var, lambda variable: loads.get(variable, variable))]
    return tvm_ffi.structural_map(body, changes)


def _keep_values(store: Any) -> Any:
    conditionals = _Conditionals()
    value = tvm_ffi.structural_map(store.value, [(ir.Call, conditionals.replace)])
    flat = _Flat.of(value, conditionals)
    if not flat.kept:
        return store
    return tirx.SeqStmt([*flat.statements, tirx.BufferStore(store.buffer, flat.value, store.indices)])


class _Conditionals:
    """Values of which one of two is computed, by the variables that stand for them: what either binds stays in it."""

    def __init__(self) -> None:
        self.sides: dict[Any, tuple[_Flat, _Flat]] = {}

    def replace(self, call: Any) -> Any:
        """A value that binds nothing, or whose sides are short, is left alone."""
        if call.op != _IF_THEN_ELSE:
            return call
        condition, *values = call.args
        first, second = (_Flat.of(value, self) for value in values)
        if not first.kept and not second.kept:
            return call
        variable = tirx.Var("t", dtype_of(call))
        self.sides[variable] = first, second
        return tirx.Let(variable, tirx.if_then_else(condition, first.value, second.value), variable)


class _Flat:
    """A value that binds nothing, and the statements that come before it."""

    def __init__(self, statements: list[Any], value: Any, kept: Mapping[Any, Any]) -> None:
        self.statements, self.value, self.kept = statements, value, kept

    @staticmethod
    def of(value: Any, conditionals: _Conditionals) -> _Flat:
        """`kept` are the buffers of the variables that are in memory."""
        values: dict[Any, Any] = {}

        def bind(let: Any) -> Any:
            values[let.var] = let.value
            return let.body

        value = tvm_ffi.structural_map(value, [(tirx.Let, bind)])
        used = {variable: _reads(each) for variable, each in values.items()}
        for variable in values.keys() & conditionals.sides.keys():
            for side in conditionals.sides[variable]:
                for part in (*side.statements, side.value):
                    used[variable].update(_reads(part))
        order = TopologicalSorter({v: [r for r in reads if r in values] for v, reads in used.items()}).static_order()
        statements: list[Any] = []
        kept: dict[Any, Any] = {}
        written: dict[Any, int] = {}

        def load(part: Any) -> Any:
            return tvm_ffi.structural_map(
                part, [(tirx.Var, lambda v: tirx.BufferLoad(kept[v], [0]) if v in kept else v)]
            )

        for variable in order:
            written[variable] = sum(times * written.get(read, 1) for read, times in used[variable].items())
            if written[variable] <= MOST_READS and variable not in conditionals.sides:
                statements.append(tirx.Bind(variable, load(values[variable])))
                continue
            written[variable] = 1
            buffer = tirx.decl_buffer((1,), dtype_of(variable), str(variable.name), scope="local")
            kept[variable] = buffer
            statements.append(tirx.AllocBuffer(buffer))
            if variable not in conditionals.sides:
                statements.append(tirx.BufferStore(buffer, load(values[variable]), [0]))
                continue
            first, second = (
                load(sequence([*side.statements, tirx.BufferStore(buffer, side.value, [0])]))
                for side in conditionals.sides[variable]
            )
            statements.append(tirx.IfThenElse(load(values[variable].args[0]), first, second))
        return _Flat(statements, load(value), kept)


def _reads(part: Any) -> Counter[Any]:
    """How often each variable is read."""
    seen: list[Any] = []
    tvm_ffi.structural_walk(part, [(tirx.Var, seen.append)])
    return Counter(seen)
