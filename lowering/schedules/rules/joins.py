"""Joined and cut tensors: Concat, Slice, Split, padding along one axis, with the point-wise operators around them.

    for p, c: Y[p, c] = f(A[p, c] if c < 64 else B[p, c - 64])
 => parallel p: { for c in 64: Y[p, c] = f(A[p, c]); for c in 32: Y[p, 64 + c] = f(B[p, c]) }

The loop over the joined axis is cut where another operand begins; each part works on whole vectors. If channels of
several groups alternate (a channel shuffle), the code generator makes interleaved stores of one step of all groups:

    for c: Y[c] = X[c % 2 * 58 + c // 2]    =>    for k: { Y[2 k] = X[k]; Y[2 k + 1] = X[58 + k] }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any

import tvm
from tvm import ir, s_tir, sym, tirx
from tvm.s_tir import stmt as s_stmt

from ..base.blocks import FUNCTION, BlockInfo, is_selection, walk
from ..base.draft import Draft
from ..base.nodes import Expression, Statement, Variable
from ..base.preparation import PARALLEL_ELEMENTS
from ..base.rewriting import conjuncts, point, rebuild, with_body
from ..base.tiled import Tiled
from .pointwise import (
    count_contiguous_axes,
    count_vector_axes,
    inline_pointwise,
    schedule_pointwise,
    vector_width,
)

MOST_INTERLEAVED = 8
"""Groups of a shuffle that are stored in one step; no processor interleaves more than four vectors by itself."""


@dataclass(frozen=True)
class _Join:
    """How a block takes its elements from several places: the iterator that decides, and the bounds of its parts."""

    iterator: int
    bounds: tuple[int, ...]


def joins(draft: Draft) -> Iterator[Tiled]:
    """The rule: matches a function without reductions that joins tensors, or reads one from the middle of an axis. Not
    one that puts pairs side by side, which is a transposition."""
    if any(map(draft.is_paired, draft.blocks())):
        return
    if all(_is_along(block, draft.device.lanes) for block in draft.blocks()) or not inline_pointwise(draft):
        return
    blocks = draft.blocks()
    joined = {block.name: join for block in blocks if (join := _find_join(draft, block)) is not None}
    others = {block.name for block in blocks if _is_shifted(block, draft.device.lanes) or _count_groups(block) > 1}
    if not joined and not others:
        return
    draft, shared = _cut_joins(draft, joined)
    for block in draft.blocks():
        loops = draft.loops(block)
        if (groups := _count_groups(block)) > 1:  # one step of all groups: the code generator makes vectors of it
            *outer, last = loops
            _, group = draft.schedule.split(last, [None, groups])
            _share(draft, block, outer)
            draft.schedule.unroll(group)
        elif block.name in joined.keys() | others:
            _vectorise(draft, block, loops[shared.get(block.name, 0) :])
        else:
            schedule_pointwise(draft, block, loops)
    yield Tiled(draft, "joins")


# --- which blocks


def _find_join(draft: Draft, block: BlockInfo) -> _Join | None:
    """How the block joins, if one of its iterators, compared with constants, decides every selection."""
    variables = [i.var for i in draft.schedule.get(block.block).iter_vars]
    selections = (part for part in walk(block.value) if is_selection(part))
    conditions = [condition for selection in selections for condition in conjuncts(selection.args[0])]
    places = [_find_bound(condition, variables) for condition in conditions]
    iterators = {iterator for iterator, _ in places}
    if len(iterators) != 1 or None in iterators:
        return None
    (iterator,) = (iterator for iterator in iterators if iterator is not None)
    inside = {place for _, place in places if 0 < place < block.extents[iterator]}
    return _Join(iterator, (0, *sorted(inside), block.extents[iterator])) if inside else None


def _find_bound(condition: Expression, variables: Sequence[Variable]) -> tuple[int | None, int]:
    """The iterator, None if the condition is of another form, and the place where the comparison changes."""
    if isinstance(condition, tirx.LT | tirx.GE):
        index, bound = condition.a, condition.b
    elif isinstance(condition, tirx.GT | tirx.LE):
        bound, index = condition.a, condition.b
    else:
        return None, 0
    if not isinstance(bound, tirx.IntImm):
        return None, 0
    place = int(bound)
    if isinstance(index, tirx.Add | tirx.Sub) and isinstance(index.b, tirx.IntImm):
        place += int(index.b) if isinstance(index, tirx.Sub) else -int(index.b)
        index = index.a
    return next((n for n, variable in enumerate(variables) if variable.same_as(index)), None), place


def _is_along(block: BlockInfo, lanes: int) -> bool:
    """Whether it selects nothing and reads along the last axis from its begin: inlining blocks that do so gives another
    one, and would take most of the time of a long chain."""
    indices = (index for read in block.reads for index in read.indices)
    is_plain = all(isinstance(index, tirx.Var | tirx.IntImm) for index in indices)
    return is_plain and not block.is_selective() and count_contiguous_axes(block, lanes) > 0


def _is_shifted(block: BlockInfo, lanes: int) -> bool:
    """Whether it reads from the middle of an axis, but along it: vectors that begin anywhere."""
    if block.is_selective() or count_contiguous_axes(block, lanes):
        return False
    return _runs_along_last(block)


def _count_groups(block: BlockInfo) -> int:
    """The number of groups that alternate along the last axis; 1 if none do."""
    last = len(block.extents) - 1
    for part in (part for read in block.operands(last) for index in read.indices for part in walk(index)):
        is_modulus = isinstance(part, tirx.FloorMod) and isinstance(part.b, tirx.IntImm)
        if is_modulus and part.a.same_as(block.variables[last]):
            groups = int(part.b)
            if last in block.write.steps[-1] and groups <= MOST_INTERLEAVED and block.extents[last] % groups == 0:
                return groups
    return 1


def _runs_along_last(block: BlockInfo) -> bool:
    last = len(block.extents) - 1
    reads = block.operands(last)
    return last >= 0 and bool(reads) and all(access.is_unit_stride(last) for access in (*reads, block.write))


# --- cutting the loops into parts


def _cut_joins(draft: Draft, joined: Mapping[str, _Join]) -> tuple[Draft, dict[str, int]]:
    """A draft with joins in parts, and by the name of the output of each the number of loops that its parts share."""
    shared: dict[str, int] = {}
    for block in draft.blocks():
        if block.name in joined:
            outer = draft.loops(block)[: joined[block.name].iterator]
            shared[block.name] = 1 if _share(draft, block, outer) else len(outer)
    cut = draft.function.with_body(rebuild(draft.function.body, lambda body: _cut_loops(body, joined)))
    module = s_tir.transform.ConvertSSA()(tvm.IRModule({FUNCTION: cut}))
    return replace(draft, schedule=s_tir.Schedule(module)), shared


def _share(draft: Draft, block: BlockInfo, loops: list[Any]) -> bool:
    """Share the loops among threads, fused to one; False if they have not enough to do."""
    if draft.threads == 1 or prod(map(draft.extent, loops)) == 1 or prod(block.extents) < PARALLEL_ELEMENTS:
        return False
    draft.schedule.parallel(draft.fuse(loops))
    return True


def _cut_loops(node: Statement, joined: Mapping[str, _Join]) -> Statement:
    """The loops with those over a joined axis once for each part."""
    if isinstance(node, tirx.SeqStmt):
        return rebuild(node, lambda part: _cut_loops(part, joined))
    loops, leaf = [], node
    while isinstance(leaf, tirx.For):
        loops.append(leaf)
        leaf = leaf.body
    join = joined.get(str(leaf.block.body.buffer.name))
    if join is None or not loops:
        return node
    if node.loop_var.same_as(leaf.iter_values[join.iterator]):
        return tirx.SeqStmt([_cut_part(loops, leaf, join.iterator, *bounds) for bounds in pairwise(join.bounds)])
    return rebuild(node, lambda body: _cut_loops(body, joined))


def _cut_part(loops: list[Any], leaf: Statement, iterator: int, low: int, high: int) -> Any:
    """The loops for one part of the joined axis, which is that of the outermost; its selections are decided."""
    fresh = [tirx.Var(str(loop.loop_var.name), loop.loop_var.ty) for loop in loops]
    renamed = {loop.loop_var: variable for loop, variable in zip(loops, fresh, strict=True)}
    values = [renamed.get(value, value) for value in leaf.iter_values]
    values[iterator] = values[iterator] + low if low else values[iterator]
    node: Statement = s_stmt.SBlockRealize(values, leaf.predicate, _narrow_block(leaf.block, iterator, low, high))
    for loop, variable in zip(reversed(loops), reversed(fresh), strict=True):
        extent = high - low if loop is loops[0] else loop.extent
        node = tirx.For(variable, loop.min, extent, loop.kind, node, loop.thread_binding, loop.annotations)
    return node


def _narrow_block(block: Any, iterator: int, low: int, high: int) -> Any:
    """The block with iterators of its own, and its value simplified for that range of one of them."""
    analyzer = sym.Analyzer()
    fresh = [tirx.IterVar(i.dom, tirx.Var(str(i.var.name), i.var.ty), i.iter_type) for i in block.iter_vars]
    for number, (old, new) in enumerate(zip(block.iter_vars, fresh, strict=True)):
        if number == iterator:
            analyzer.bind(new.var, ir.Range(low, high))
        analyzer.bind(old.var, new.var)
    store = block.body
    value = analyzer.simplify(store.value)
    indices = [analyzer.simplify(index) for index in store.indices]
    reads = [point(p.source, p.indices) for p in walk(value) if isinstance(p, ir.TensorLoad)]
    body = tirx.BufferStore(store.buffer, value, indices)
    name = f"{block.name_hint}_{low}"
    return with_body(block, body, iter_vars=fresh, reads=reads, writes=[point(store.buffer, indices)], name_hint=name)


def _vectorise(draft: Draft, block: BlockInfo, loops: list[Any]) -> None:
    """Make vectors of the contiguous ones among the last of these loops; share the others if no loop around is."""
    count = min(count_vector_axes(draft, block) or int(_runs_along_last(block)), len(loops))
    outer, inner = (loops[:-count], loops[-count:]) if count else (loops[:-1], loops[-1:])
    loop, vector = draft.fuse(inner), None
    width = vector_width(draft.extent(loop), draft.device) if count else 1
    if count > 1 and draft.extent(loop) % width:
        width = 1  # a tail of fused loops cannot be moved back; LLVM makes vectors of a plain loop
    if width > 1:
        loop, vector = draft.schedule.split(loop, [None, width])
    if all(draft.schedule.get(around).kind == tirx.ForKind.SERIAL for around in draft.loops(block)):
        _share(draft, block, [*outer, loop])
    if vector is not None:
        draft.schedule.vectorize(vector)
