"""Loops that become functions of their own, so that LLVM gives them registers of their own.

A loop of exponentials needs a dozen vectors of constants. LLVM moves them in front of all loops around it, and if
another loop in there, of the same depth, wants all registers for its accumulators, it may prefer the constants: the
accumulators then go to memory and back in every step, which takes twice as long.
"""

from __future__ import annotations

from dataclasses import replace

from tvm import ir, tirx

from ..base.nodes import Statement
from ..base.rewriting import has_annotated_loop, rebuild
from ..base.tiled import Tiled

OUTLINED = "eqfuse.apart"
"""Annotation of such a loop."""
COMPUTE_SCOPE = "compute_scope"
"""The name of TVM's code generator for a statement that it makes a function."""


def outline_loops(tiled: Tiled) -> Tiled:
    """The pass: annotated loops become functions. Nothing can be scheduled after it.

    Something has to follow such a loop where it stands: TVM's debug information is wrong otherwise.
    """
    draft = tiled.draft
    if not has_annotated_loop(draft.function.body, OUTLINED):
        return tiled
    return replace(tiled, draft=draft.with_body(_outline(draft.function.body)))


def _outline(node: Statement) -> Statement:
    if not isinstance(node, tirx.For):
        return rebuild(node, _outline)
    notes = {key: value for key, value in node.annotations.items() if key != OUTLINED}
    body = _outline(node.body)
    loop = tirx.For(node.loop_var, node.min, node.extent, node.kind, body, node.thread_binding, notes)
    if OUTLINED not in node.annotations:
        return loop
    return tirx.AttrStmt(tirx.const(0, "int32"), COMPUTE_SCOPE, ir.StringImm("rows_compute_"), loop)
