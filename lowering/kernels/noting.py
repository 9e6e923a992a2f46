"""Extremes of results, in registers beside the stores that write them, which `lowering/schedules/extremes.py` marked.

    Y[..] = noted(f(C), 0)
 => T = f(C); Y[..] = T; L0 = max(L0, T)    and behind the loop    P[task * 16 + lane] = max(P[task * 16 + lane], L0)

Several stores in a row take turns with two vectors each, for a maximum has to wait for the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ..compute.elementary import dtype_of
from ..schedules.base.rewriting import with_loop_body
from ..schedules.extremes import BEGUN, LANES, NOTED

_TURNS = 2
"""Vectors that take turns."""


@dataclass(frozen=True)
class _Numbers:
    """The extreme of a tensor for each task and lane, in memory; `function` makes one number of two."""

    tensor: int
    memory: Any
    first: Any
    function: Any


def note_extremes(body: Any) -> Any:
    """The statement with extremes of the marked stores. Raises RuntimeError if it has no such store for an extreme."""
    numbers: list[_Numbers] = []

    def begin(store: Any) -> Any:
        mark = _call_of(store.value, BEGUN)
        if mark is None:
            return store
        first, _, tensor = mark.args
        function = tirx.Max if float(first.value) < 0 else tirx.Min
        numbers.append(_Numbers(int(tensor), store.buffer, first, function))
        return tirx.BufferStore(store.buffer, first, store.indices)

    begun = tvm_ffi.structural_map(body, [(tirx.BufferStore, begin)])
    if not numbers:
        return body
    placed: list[int] = []

    def share(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        noting = _Noting(numbers, loop.loop_var - loop.min, placed)
        shared = with_loop_body(loop, noting.apply(loop.body))
        return tirx.SeqStmt([shared, *noting.join_tasks(loop.extent)]) if noting.noted else shared

    def alone(sequence: Any) -> Any:
        if not any(_begins(statement, numbers) for statement in sequence.seq):
            return sequence
        first = tirx.const(0, "int32")
        return tirx.SeqStmt([_Noting(numbers, first, placed).apply(statement) for statement in sequence.seq])

    noted = tvm_ffi.structural_map(begun, [(tirx.For, share)])
    noted = tvm_ffi.structural_map(noted, [(tirx.SeqStmt, alone)])
    if {each.tensor for each in numbers} != set(placed) or any(True for _ in _marks(noted)):
        raise RuntimeError("no loop writes what extremes are found of")
    return noted


def _call_of(value: Any, name: str) -> Any:
    """The call of the mark of that name that a value is, or that it repeats; None if it is none."""
    value = value.value if isinstance(value, tirx.Broadcast) else value
    is_call = isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and str(value.op.name) == name
    return value if is_call else None


def _marks(body: Any) -> Iterator[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(body, [(ir.Call, found.append)])
    return (call for call in found if _call_of(call, NOTED) is not None)


def _begins(statement: Any, numbers: Sequence[_Numbers]) -> bool:
    """Whether a statement, or a loop around stores alone, writes the first values of an extreme."""
    while isinstance(statement, tirx.For):
        statement = statement.body
    is_store = isinstance(statement, tirx.BufferStore)
    return is_store and any(statement.buffer.same_as(each.memory) for each in numbers)


class _Noting:
    """The vectors of one task."""

    def __init__(self, numbers: Sequence[_Numbers], task: Any, placed: list[int]) -> None:
        self._numbers, self._task, self._placed = numbers, task, placed
        self._vectors: dict[tuple[int, int], list[Any]] = {}
        """By an extreme's number and the lanes of vectors."""
        self._values: dict[str, Any] = {}
        """The element or vector that was computed last, by type."""
        self._turns = 0

    @property
    def noted(self) -> Sequence[_Numbers]:
        """The extremes that the task adds to."""
        return [self._numbers[number] for number in dict.fromkeys(number for number, _ in self._vectors)]

    def apply(self, statement: Any) -> Any:
        """The statement with its marked stores noted, from the first values of the vectors to the numbers in memory."""
        changed = tvm_ffi.structural_map(statement, [(tirx.BufferStore, self._note)])
        if not self._vectors:
            return statement
        before: list[Any] = [tirx.AllocBuffer(value) for value in self._values.values()]
        behind: list[Any] = []
        for (number, lanes), vectors in self._vectors.items():
            each = self._numbers[number]
            first = tirx.Broadcast(each.first, lanes) if lanes > 1 else each.first
            for vector in vectors:
                before += [tirx.AllocBuffer(vector), tirx.BufferStore(vector, first, [0])]
            behind.append(self._keep(each, reduce(each.function, [tirx.BufferLoad(v, [0]) for v in vectors]), lanes))
        return tirx.SeqStmt([*before, changed, *behind])

    def _note(self, store: Any) -> Any:
        mark = _call_of(store.value, NOTED)
        if mark is None:
            return store
        value, tensor = mark.args
        tensor = tensor.value if isinstance(tensor, tirx.Broadcast) else tensor
        if isinstance(store.value, tirx.Broadcast):
            value = tirx.Broadcast(value, store.value.lanes)
        if store.buffer.scope() == "local":
            raise RuntimeError("what extremes are found of goes to registers first")
        dtype, lanes = dtype_of(value), tvm_ffi.dtype(dtype_of(value)).lanes
        self._placed.append(int(tensor))
        kept = self._values.setdefault(dtype, tirx.decl_buffer((1,), dtype, "noted", scope="local"))
        load = tirx.BufferLoad(kept, [0])
        statements = [tirx.BufferStore(kept, value, [0]), tirx.BufferStore(store.buffer, load, store.indices)]
        for number, each in enumerate(self._numbers):
            if each.tensor == int(tensor):
                vectors = self._vectors.setdefault((number, lanes), [
                    tirx.decl_buffer((1,), dtype, f"extreme_{number}_{turn}", scope="local") for turn in range(_TURNS)
                ])
                vector = vectors[self._turns % _TURNS]
                statements.append(tirx.BufferStore(vector, each.function(tirx.BufferLoad(vector, [0]), load), [0]))
        self._turns += 1
        return tirx.SeqStmt(statements)

    def join_tasks(self, tasks: Any) -> Iterator[Any]:
        """Statements behind the loop of the tasks that add the numbers of all of them to those of the first."""
        for each in self.noted:
            task = tirx.Var("task", "int32")
            first, other = _lanes_of(each, tirx.const(0, "int32")), _lanes_of(each, task)
            loads = (tirx.BufferLoad(each.memory, [index]) for index in (first, other))
            joined = tirx.BufferStore(each.memory, each.function(*loads), [first])
            yield tirx.For(task, 0, tasks, tirx.ForKind.SERIAL, joined)

    def _keep(self, numbers: _Numbers, value: Any, lanes: int) -> Any:
        """The store of a vector to the task's numbers: one that has more lanes than these is folded, and the lanes of
        one that has fewer are repeated."""
        index = _lanes_of(numbers, self._task)
        if lanes == 1:
            parts = [tirx.Broadcast(value, LANES)]
        elif lanes == LANES:
            parts = [value]
        else:
            repeated = [value] * -(-LANES // lanes)
            firsts = range(0, lanes, LANES)
            places = [[min(first, lanes - LANES) + n if lanes > LANES else n for n in range(LANES)] for first in firsts]
            parts = [tirx.Shuffle(repeated, [tirx.const(n, "int32") for n in part]) for part in places]
        kept = reduce(numbers.function, parts, tirx.BufferLoad(numbers.memory, [index]))
        return tirx.BufferStore(numbers.memory, kept, [index])


def _lanes_of(numbers: _Numbers, task: Any) -> Any:
    """The index of the numbers of a task."""
    if str(numbers.memory.dtype) != "float32":
        raise RuntimeError("TVM made vectors of the numbers of extremes")
    return tirx.Ramp(task * LANES, tirx.const(1, "int32"), LANES)
