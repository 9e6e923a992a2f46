"""Bound values that are kept in memory if they are bound inside each other too often.

TVM's code generator tells its simplifier the value of each variable that a `Let` binds, and the simplifier writes this
value wherever the variable is read: of n LeakyRelu inside each other, each of which reads its operand three times, it
writes the innermost one 3^n times. An element of memory is no variable. LLVM keeps it in a register.

    Y = let t = (let s = X in f(s, s)) in g(t, t)    =>    let s = X; T = f(s, s); Y = g(T, T)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ..compute.elementary import dtype_of
from ..compute.statements import sequence

MOST_READS = 500
"""Reads of variables in a value whose variables are written out: it takes the simplifier a tenth of a second."""
_IF_THEN_ELSE = ir.Op.get("prim.if_then_else")


def keep_in_memory(body: Any) -> Any:
    """The statement with those bound values in memory of which the simplifier would make more than MOST_READS."""
    return tvm_ffi.structural_map(body, [(tirx.BufferStore, _keep_values)])


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
