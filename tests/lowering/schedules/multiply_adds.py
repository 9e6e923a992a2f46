"""How often the loops of a scheduled function multiply and add: to see that nothing is computed twice."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.s_tir import stmt as s_stmt

from eqfuse.lowering.schedules import Scheduled
from eqfuse.lowering.schedules.blocks import walk


def multiply_adds(scheduled: Scheduled) -> int:
    """Executions of `sum = sum + a * b` and of the like, whatever their guards say."""
    return _count(scheduled.schedule.mod["main"].body, 1)


def _count(node: Any, times: int) -> int:
    if isinstance(node, tirx.For):
        return _count(node.body, times * int(node.extent))
    if isinstance(node, tirx.AttrStmt):
        return _count(node.body, times)
    if isinstance(node, tirx.SeqStmt):
        return sum(_count(part, times) for part in node.seq)
    if isinstance(node, s_stmt.SBlockRealize):
        return _count(node.block.body, times)
    return times if isinstance(node, tirx.BufferStore) and _accumulates(node) else 0


def _accumulates(store: Any) -> bool:
    value = store.value
    own = any(isinstance(p, ir.TensorLoad) and p.source.same_as(store.buffer) for p in walk(value))
    return own and isinstance(value, tirx.Add) and any(isinstance(side, tirx.Mul) for side in (value.a, value.b))
