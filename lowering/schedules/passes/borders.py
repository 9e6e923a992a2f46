"""Borders that are not copied: a window reads its map where that is, and at its edges leaves out what lies outside.

    for h, w tile: for kh, kw, w: S += (X[h + kh - 1, w + kw - 1] if inside else 0) * W[kh, kw]
 => for h: { first w tile: ...; for w tile in the middle: for kh: if row h + kh - 1 is inside:
                 for kw, w: S += X[h + kh - 1, w + kw - 1] * W[kh, kw]; last w tile: ... }

The tiles at both ends are written out, so that the compiler knows which of their elements are outside. If the
number of tiles is dynamic, each of them asks where it is:

    if all columns of the tile are inside: S += X[...] * W[...]
    else if it starts at 0 and all behind it are inside: the same, with the columns in front of the map left out
    else if it ends with the row and ...: the same at the other end; else: each column asks for itself
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.s_tir import stmt as s_stmt
from tvm_ffi import structural_equal

from ..base.blocks import FUNCTION, BlockInfo, is_selection, is_zero, uses, walk
from ..base.draft import Draft
from ..base.nodes import Expression, Statement, Variable
from ..base.rewriting import conjuncts, list_statements, rebuild, substitute, with_body, with_loop_body
from ..base.tiled import Tiled

_LOWER_BLOCKS = (
    s_tir.transform.LowerInitBlock,
    s_tir.transform.PlanAndUpdateBufferAllocationLocation,
    s_tir.transform.ConvertBlocksToOpaque,
    lambda: s_tir.transform.CompactBufferAllocation(is_strict=False),
    s_tir.transform.LowerOpaqueBlock,
    s_tir.transform.ConvertSSA,
)
"""TVM's passes from blocks to loops that allocate their buffers."""
MOST_COPIES = 4
"""Tiles that are written out at most; if more are at an edge their elements are asked for one by one."""


_Loop = tuple[Any, Any]
"""The variable and the extent of a loop."""


def find_border(draft: Draft, anchor: BlockInfo) -> BlockInfo | None:
    """The block that surrounds a parameter with zeros for this sum alone, in the order of its elements; None if
    there is none."""
    if not isinstance(anchor.value, tirx.Add):
        return None
    writers = [writer for read in anchor.reads if (writer := draft.producer(read)) is not None]
    return next((block for block in writers if len(writers) == 1 and _is_border(draft, block)), None)


def _is_border(draft: Draft, block: BlockInfo) -> bool:
    if not is_selection(block.value) or len(draft.consumers(block)) != 1 or not draft.may_inline(block):
        return False
    if not is_zero(block.value.args[2]) or len(block.reads) != 1 or draft.producer(block.reads[0]) is not None:
        return False
    return all(block.reads[0].is_unit_stride(column) for column in block.write.iterators[-1])


def lower_blocks(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled function as loops without blocks."""
    module = tvm.IRModule({FUNCTION: function})
    for each in _LOWER_BLOCKS:
        module = each()(module)
    return module[FUNCTION]


def peel_borders(tiled: Tiled) -> Tiled:
    """The pass: conditions at the edges of maps are decided for tiles and rows. The draft has no blocks any more."""
    if not tiled.has_border:
        return tiled
    draft = tiled.draft
    body = _peel(lower_blocks(draft.function).body, [])
    realize = draft.function.body
    root = with_body(realize.block, body, alloc_buffers=[])
    function = draft.function.with_body(s_stmt.SBlockRealize(realize.iter_values, realize.predicate, root))
    module = s_tir.transform.ConvertSSA()(tvm.IRModule({FUNCTION: function}))
    return replace(tiled, draft=replace(draft, schedule=s_tir.Schedule(module)))


def _peel(node: Statement, outside: Sequence[Any]) -> Statement:
    """The statement, whose serial loops over tiles are cut in three; `outside` are the variables of loops around it."""
    if _is_tile(node):
        return _skip_rows(node, outside)
    if not isinstance(node, tirx.For):
        return rebuild(node, lambda part: _peel(part, outside))
    around = [*outside, node.loop_var]
    if not _is_tile(node.body) or node.kind != tirx.ForKind.SERIAL:
        return with_loop_body(node, _peel(node.body, around))
    conditions = list(_list_conditions(node.body))
    own = [c for c in conditions if uses(c, [node.loop_var]) and not uses(c, outside)]
    if not isinstance(node.extent, tirx.IntImm):
        return with_loop_body(node, _ask_tile(node.body, own, around))
    extent = int(node.extent)
    inside = [place for place in range(extent) if _all_hold(own, node.loop_var, place, node.body)]
    first, end = (inside[0], inside[-1] + 1) if inside else (extent, extent)
    if first + extent - end > MOST_COPIES:
        return with_loop_body(node, _skip_rows(node.body, around))

    def write_out(places: Iterable[int]) -> list[Any]:
        bodies = (substitute(node.body, {node.loop_var: tirx.const(place, "int32")}) for place in places)
        return [_skip_rows(body, outside) for body in bodies]

    parts = write_out(range(first))
    if inside:
        begin, count = (tirx.const(number, "int32") for number in (first, end - first))
        body = _skip_rows(_without(node.body, own), around)
        parts.append(tirx.For(node.loop_var, begin, count, node.kind, body))
    parts += write_out(range(end, extent))
    return tirx.SeqStmt(parts) if len(parts) > 1 else parts[0]


def _ask_tile(tile: Any, own: Sequence[Any], outside: Sequence[Any]) -> Any:
    """A tile of which only a call knows whether its `own` conditions hold, in one copy for each place that it may have.

    Conditions are linear in the loops of the tile: they hold everywhere if they do at all corners.
    """
    loops = list(_list_loops(tile))
    places = list(_list_indices(tile))
    rows = [loop for loop in loops if int(loop[1]) > 1 and any(uses(index, loop[:1]) for index in places)]
    result = _skip_rows(tile, outside)
    starts = {str(part): part for c in own for part in walk(c) if isinstance(part, tirx.Min)}
    for start in starts.values() if len(starts) == 1 else ():
        for end in (start.b, tirx.const(0, "int32")):
            placed = [_replace(c, start, end) for c in own]
            asked = [c for c in placed if not _is_decided(c, loops)]
            if len(asked) < len(own) or rows:
                body = _skip_rows(_ask_last_row(_replace(tile, start, end), asked, rows), outside)
                holds = [held for c in asked for held in _at_corners(c, loops, rows)]
                result = tirx.IfThenElse(tirx.all(start.equal(end), *holds), body, result)
    inside = [held for c in own for held in _at_corners(c, loops)]
    return tirx.IfThenElse(tirx.all(*inside), _skip_rows(_without(tile, own), outside), result) if own else result


def _is_decided(condition: Expression, loops: Sequence[_Loop]) -> bool:
    """Whether a condition depends on nothing but these loops."""
    simple = sym.Analyzer().simplify(condition)
    used = [part for part in walk(simple) if isinstance(part, tirx.Var)]
    return all(any(part.same_as(variable) for variable, _ in loops) for part in used)


def _at_corners(condition: Expression, loops: Sequence[_Loop], rows: Sequence[_Loop] = ()) -> list[Expression]:
    """The condition at the first and last iterations of all loops that it depends on; before the last of `rows`."""
    corners = [condition]
    for variable, extent in loops:
        if uses(condition, [variable]):
            is_row = any(variable.same_as(row) for row, _ in rows)
            last = max(0, int(extent) - 2) if is_row else int(extent) - 1
            ends = [tirx.const(place, "int32") for place in sorted({0, last})]
            corners = [substitute(corner, {variable: end}) for corner in corners for end in ends]
    return corners


def _ask_last_row(tile: Any, conditions: Sequence[Expression], rows: Sequence[_Loop]) -> Any:
    """The tile, whose other rows fulfil the conditions."""

    def ask(condition: Expression) -> Expression:
        if not any(structural_equal(condition, other) for other in conditions):
            return condition
        own = [row for row in rows if uses(condition, row[:1])]
        return tirx.any(condition, *(variable < extent - 1 for variable, extent in own[:1]))

    def select(call: Any) -> Any:
        if not is_selection(call):
            return call
        return tirx.if_then_else(tirx.all(*map(ask, conjuncts(call.args[0]))), *call.args[1:])

    return tvm_ffi.structural_map(tile, [(ir.Call, select)])


def _replace(node: Statement, part: Any, by: Any) -> Statement:
    """The statement or expression with something else in the place of a part."""
    return tvm_ffi.structural_map(node, [(type(part), lambda each: by if structural_equal(each, part) else each)])


def _is_tile(node: Statement) -> bool:
    """Whether the statement is what is done for one tile: it makes its accumulators."""
    return isinstance(node, tirx.SeqStmt) and any(isinstance(part, tirx.AllocBuffer) for part in node.seq)


def _skip_rows(node: Statement, outside: Sequence[Any]) -> Statement:
    """The statement, in which a condition about a loop as a whole is asked once, in front of the added statements."""
    if not isinstance(node, tirx.For):
        return rebuild(node, lambda part: _skip_rows(part, outside))
    inner = [variable for variable, _ in _list_loops(node.body)]
    own = [c for c in _list_conditions(node.body) if uses(c, [node.loop_var]) and not uses(c, inner)]
    body = _skip_rows(_without(node.body, own), [*outside, node.loop_var])
    return with_loop_body(node, tirx.IfThenElse(tirx.all(*own), body, None) if own else body)


def _all_hold(conditions: Sequence[Expression], variable: Variable, place: int, body: Statement) -> bool:
    """Whether the conditions hold at one iteration of a loop, whatever the loops in its body do."""
    analyzer = sym.Analyzer()
    for inner, extent in _list_loops(body):
        analyzer.bind(inner, ir.Range(0, extent))
    at = {variable: tirx.const(place, "int32")}
    return all(analyzer.can_prove(substitute(condition, at)) for condition in conditions)


def _without(node: Statement, conditions: Sequence[Expression]) -> Statement:
    """The statement with selections by these conditions as if they held."""

    def select(call: Any) -> Any:
        if not is_selection(call):
            return call
        left = [c for c in conjuncts(call.args[0]) if not any(structural_equal(c, other) for other in conditions)]
        return tirx.if_then_else(tirx.all(*left), *call.args[1:]) if left else call.args[1]

    return tvm_ffi.structural_map(node, [(ir.Call, select)]) if conditions else node


def _list_conditions(node: Statement) -> Iterator[Any]:
    """The conditions of selections in the stores of a statement."""
    for store in list_statements(node, tirx.BufferStore):
        for part in filter(is_selection, walk(store.value)):
            yield from conjuncts(part.args[0])


def _list_indices(node: Statement) -> Iterator[Any]:
    """The indices of the elements that a statement stores if selections are in their values."""
    for store in list_statements(node, tirx.BufferStore):
        if any(map(is_selection, walk(store.value))):
            yield from store.indices


def _list_loops(node: Statement) -> Iterator[_Loop]:
    """The variables and extents of the loops in a statement."""
    for loop in list_statements(node, tirx.For):
        yield loop.loop_var, loop.extent
