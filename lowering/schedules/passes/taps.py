"""Elements of a window that add nothing are left out.

Windows of single pixels that reach beyond a small map leave out what is outside of it, with its weights:

    for kh, kw: for c: S += P[h + kh, w + kw, c] * W[...]
 => for kh, kw: if 1 <= h + kh < height + 1 and ...: for c: S += P[h + kh, w + kw, c] * W[...]

A 3x3 window over a map of one pixel then reads a ninth of its weights. Phases of a transposed convolution whose strides
do not divide its kernel leave out elements that are behind the kernel:

    for r, h, w: for kh, kw: for c: S += P[...] * (W[kh * 2 + r, ...] if kh * 2 + r < 3 and ... else 0)
 => for r, h, w: for kh, kw: if kh * 2 + r < 3 and ...: for c: S += P[...] * W[kh * 2 + r, ...]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tvm import ir, tirx
from tvm.s_tir import stmt as s_stmt

from ..base.blocks import REDUCTION, BlockInfo, is_selection, is_zero, uses, walk
from ..base.draft import Draft
from ..base.nodes import Expression, Statement
from ..base.rewriting import conjuncts, list_statements, rebuild, substitute, with_loop_body
from ..base.tiled import PaddedMap, Tiled
from ..tiling.padding import find_padding

_PLANE = 4
"""Axes of a map of planes: image, row, column and channel."""


def find_outside(draft: Draft, anchor: BlockInfo) -> PaddedMap | None:
    """The map with a border of zeros that a sum reads; None if it reads none."""
    maps = (find_padding(draft, read) for read in anchor.reads if not draft.is_constant(read))
    return next((each for each in maps if each is not None and len(each.variables) == _PLANE), None)


def list_taps(anchor: BlockInfo) -> tuple[int, ...]:
    """The reduced iterators of the window of a sum over a map: those that move a row or a column."""
    moved = (used for read in anchor.reads for used in read.iterators if used - anchor.reduced)
    return tuple(sorted({i for used in moved for i in used & anchor.reduced if anchor.extents[i] > 1}))


def list_gaps(value: Expression) -> Iterator[Expression]:
    """The conditions without which a sum adds nothing: those of factors that are 0 elsewhere."""
    for addend in (value.a, value.b) if isinstance(value, tirx.Add) else ():
        for factor in (addend.a, addend.b) if isinstance(addend, tirx.Mul) else ():
            if is_selection(factor) and is_zero(factor.args[2]):
                yield from conjuncts(factor.args[0])


def leave_out_taps(tiled: Tiled) -> Tiled:
    """The pass: loops over a window, which are in front of others, leave out products with zeros.

    TVM then drops what a selection asks inside of them.
    """
    outside, draft = tiled.outside, tiled.draft
    if outside is None and not tiled.has_gaps:
        return tiled

    def rewrite(node: Statement) -> Statement:
        rebuilt = rebuild(node, rewrite)
        if not isinstance(node, tirx.For):
            return rebuilt
        conditions = list(_list_conditions(node.body, outside))
        if not any(uses(condition, [node.loop_var]) for condition in conditions):
            return rebuilt
        if any(uses(c, [inner.loop_var]) for inner in _list_loops(node.body) for c in conditions):
            return rebuilt
        return with_loop_body(rebuilt, tirx.IfThenElse(tirx.likely(tirx.all(*conditions)), rebuilt.body, None))

    return replace(tiled, draft=draft.with_body(rewrite(draft.function.body)))


def _list_conditions(node: Statement, outside: PaddedMap | None) -> Iterator[Any]:
    """When the sums in a statement read the map and not the zeros around it, and weights and not the zeros behind them,
    by the loops around them."""
    single = {loop.loop_var: loop.min for loop in _list_loops(node, single=True)}
    for block in list_statements(node, s_stmt.SBlockRealize):
        iterators, store = block.block.iter_vars, block.block.body
        if not isinstance(store, tirx.BufferStore) or not any(each.iter_type == REDUCTION for each in iterators):
            continue
        at = {each.var: substitute(value, single) for each, value in zip(iterators, block.iter_values, strict=True)}
        yield from (substitute(condition, at) for condition in list_gaps(store.value))
        for part in walk(store.value):
            if outside is not None and isinstance(part, ir.TensorLoad) and str(part.source.name) == outside.name:
                places = dict(zip(outside.variables, (substitute(i, at) for i in part.indices), strict=True))
                yield from (substitute(condition, places) for condition in (*outside.rows, *outside.columns))


def _list_loops(node: Statement, *, single: bool = False) -> list[Any]:
    """The loops in a statement, those of one iteration or all others."""
    loops = list_statements(node, tirx.For)
    return [loop for loop in loops if (isinstance(loop.extent, tirx.IntImm) and int(loop.extent) == 1) == single]
