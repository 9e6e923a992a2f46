"""Loops in tiles that end with their axis, if that has a dynamic extent and nothing need overlap.

    for o: for i in 5: if o*5 + i < h: Y[o*5 + i]    =>    for o: for i in min(5, h - o*5): Y[o*5 + i]
"""

from __future__ import annotations

from dataclasses import replace

from tvm import sym, tirx
from tvm.s_tir import stmt as s_stmt

from ..base.blocks import uses
from ..base.nodes import Expression, Statement
from ..base.rewriting import conjuncts, has_annotated_loop, list_statements, rebuild
from ..base.tiled import Tiled

BOUNDED = "eqfuse.bounded"
"""Annotation of a loop that ends with its axis; it is neither unrolled nor vectorised."""


def end_with_axes(tiled: Tiled) -> Tiled:
    """The pass: annotated loops end with their axes, if these are no whole number of tiles for every call."""
    draft = tiled.draft
    if not has_annotated_loop(draft.function.body, BOUNDED):
        return tiled

    def rewrite(node: Statement) -> Statement:
        rebuilt = rebuild(node, rewrite)
        if not isinstance(rebuilt, tirx.For) or BOUNDED not in rebuilt.annotations:
            return rebuilt
        blocks = list_statements(rebuilt.body, s_stmt.SBlockRealize)
        guards = (guard for block in blocks for guard in conjuncts(block.predicate))
        each = ((str(guard), _find_end(guard, rebuilt)) for guard in guards)
        ends = {guard: end for guard, end in each if end is not None}
        extent, body = rebuilt.extent, rebuilt.body
        for end in {str(end): end for end in ends.values()}.values():
            extent = tirx.min(extent, end)
        return tirx.For(rebuilt.loop_var, rebuilt.min, extent, rebuilt.kind, _without(body, set(ends)))

    return replace(tiled, draft=draft.with_body(rewrite(draft.function.body)))


def _find_end(guard: Expression, loop: Statement) -> Expression | None:
    """What the variable of a loop has to stay below so that a guard `sum < extent` holds; None if the guard is none
    of that variable and of loops around it."""
    if not isinstance(guard, tirx.LT) or isinstance(guard.b, tirx.IntImm):
        return None
    end = sym.Analyzer().simplify(guard.b - (guard.a - loop.loop_var))
    inner = [loop.loop_var, *(each.loop_var for each in list_statements(loop.body, tirx.For))]
    return end if uses(guard.a, [loop.loop_var]) and not uses(end, inner) else None


def _without(node: Statement, guards: set[str]) -> Statement:
    """The statement without these guards of its blocks."""
    rebuilt = rebuild(node, lambda part: _without(part, guards))
    if not isinstance(rebuilt, s_stmt.SBlockRealize):
        return rebuilt
    kept = [guard for guard in conjuncts(rebuilt.predicate) if str(guard) not in guards]
    predicate = tirx.all(*kept) if kept else tirx.const(True, "bool")
    return s_stmt.SBlockRealize(rebuilt.iter_values, predicate, rebuilt.block)
