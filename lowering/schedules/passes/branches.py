"""Functions with two bodies: one for extents that a call decides about and that fit a tile, and one for smaller ones.

    if n >= 16: { for o: for i in 16: Y[min(o*16, n - 16) + i] } else: { for o: for i in 4: ... }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import stmt as s_stmt
from tvm_ffi import structural_equal

from ..base.blocks import FUNCTION
from ..base.draft import Draft
from ..base.rewriting import rebuild, substitute, with_body


def branch(large: Draft, conditions: Sequence[Any], small: Draft) -> Draft:
    """A draft that does what `large` does where all conditions hold, and elsewhere what `small` does.

    Both have the same parameters, in the same layouts. Loops and blocks of neither are valid in it.
    """
    realized, little = large.function.body, small.function.body.block
    buffers = {buffer: tirx.Var(f"{buffer.name}_small", buffer.ty) for buffer in little.alloc_buffers}
    parameters = zip(small.function.params, large.function.params, strict=True)
    names = buffers | {own: other for own, other in parameters if not own.same_as(other)}
    distinct = [c for n, c in enumerate(conditions) if not any(structural_equal(c, d) for d in conditions[:n])]
    root = realized.block
    other = _rename_blocks(substitute(little.body, names))
    body = tirx.IfThenElse(tirx.all(*distinct), root.body, other)
    block = with_body(root, body, alloc_buffers=[*root.alloc_buffers, *buffers.values()])
    function = large.function.with_body(s_stmt.SBlockRealize(realized.iter_values, realized.predicate, block))
    module = s_tir.transform.ConvertSSA()(tvm.IRModule({FUNCTION: function}))
    return replace(large, schedule=s_tir.Schedule(module))


def _rename_blocks(node: Any) -> Any:
    """The statement with other names of its blocks: those of a function are unique."""
    rebuilt = rebuild(node, _rename_blocks)
    if not isinstance(rebuilt, s_stmt.SBlockRealize):
        return rebuilt
    block = with_body(rebuilt.block, rebuilt.block.body, name_hint=f"{rebuilt.block.name_hint}_small")
    return s_stmt.SBlockRealize(rebuilt.iter_values, rebuilt.predicate, block)
