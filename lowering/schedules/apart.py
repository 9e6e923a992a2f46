"""Loops that become functions of their own, so that LLVM gives them registers of their own.

A loop of exponentials needs a dozen vectors of constants. LLVM moves them in front of all loops around it, and where
another loop in there, of the same depth, wants all registers for its accumulators, it may prefer the constants: the
accumulators then go to memory and back in every step, which takes twice as long.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, s_tir, tirx
from tvm.s_tir import stmt as s_stmt

from .rewriting import with_body
from .stages import FUNCTION

APART = "eqfuse.apart"
"""Annotation of such a loop."""
_COMPUTE_SCOPE = "compute_scope"
"""What TVM's code generator for processors calls a statement that it makes a function."""


def split_off(schedule: s_tir.Schedule) -> s_tir.Schedule:
    """The same schedule with the annotated loops as functions. Nothing can be scheduled after it.

    Something has to follow such a loop where it stands: TVM's debug information is wrong otherwise.
    """
    function = schedule.mod[FUNCTION]
    return s_tir.Schedule(tvm.IRModule({FUNCTION: function.with_body(_rewrite(function.body))}))


def _rewrite(node: Any) -> Any:
    if isinstance(node, tirx.For):
        return _loop(node)
    if isinstance(node, tirx.SeqStmt):
        return tirx.SeqStmt([_rewrite(part) for part in node.seq])
    if isinstance(node, s_stmt.SBlockRealize):
        block = with_body(node.block, _rewrite(node.block.body))
        return s_stmt.SBlockRealize(node.iter_values, node.predicate, block)
    return node


def _loop(node: Any) -> Any:
    notes = {key: value for key, value in node.annotations.items() if key != APART}
    body = _rewrite(node.body)
    loop = tirx.For(node.loop_var, node.min, node.extent, node.kind, body, node.thread_binding, notes)
    if APART not in node.annotations:
        return loop
    return tirx.AttrStmt(tirx.const(0, "int32"), _COMPUTE_SCOPE, ir.StringImm("rows_compute_"), loop)
