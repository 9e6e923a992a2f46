"""Joined and cut tensors: Concat, Slice, Split, padding along one axis, with what is computed around them.

    for p, c: Y[p, c] = f(A[p, c] if c < 64 else B[p, c - 64])
 => parallel p: { for c in 64: Y[p, c] = f(A[p, c]); for c in 32: Y[p, 64 + c] = f(B[p, c]) }

The loop over the joined axis is cut where another operand begins; each part works on whole vectors. Where channels of
several groups alternate (a channel shuffle), the code generator makes interleaved stores of one step of all groups:

    for c: Y[c] = X[c % 2 * 58 + c // 2]    =>    for k: { Y[2 k] = X[k]; Y[2 k + 1] = X[58 + k] }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import tvm
from tvm import ir, s_tir, sym, tirx
from tvm.s_tir import stmt as s_stmt

from ....costmodels.device import Device
from ..packing import Scheduled
from ..pointwise import contiguous_axes, inline_all, is_selective, schedule_pointwise, vector_width
from ..preparation import PARALLEL_ELEMENTS
from ..rewriting import with_body, with_loop_body
from ..stages import FUNCTION, Stage, is_unit_stride, stages, walk
from ..tails import overlap_tails

MOST_INTERLEAVED = 8
"""Groups of a shuffle that are stored in one step; no processor interleaves more than four vectors by itself."""


@dataclass(frozen=True)
class _Join:
    """How a block takes its elements from several places: the iterator that decides, and the bounds of its parts."""

    iterator: int
    bounds: tuple[int, ...]


def joins(function: tirx.PrimFunc, device: Device, threads: int = 1) -> Scheduled | None:
    """The rule: matches a function without reductions that joins tensors, or reads one from the middle of an axis."""
    schedule = s_tir.Schedule(function)
    if not all(s.is_pointwise() for s in stages(schedule)):
        return None
    inline_all(schedule)
    found = {s.write.name: join for s in stages(schedule) if (join := _join(schedule, s)) is not None}
    others = {s.write.name for s in stages(schedule) if _is_moved(s, device) or _groups(s) > 1}
    if not found and not others:
        return None
    schedule, shared = _in_parts(schedule, found, threads)
    for current in stages(schedule):
        loops = schedule.get_loops(current.block)
        if (groups := _groups(current)) > 1:
            _interleave(schedule, current, groups, loops, threads)
        elif current.write.name in found.keys() | others:
            _vectorise(schedule, current, loops[shared.get(current.write.name, 0) :], device, threads)
        else:
            schedule_pointwise(schedule, current, loops, device, threads)
    return Scheduled(overlap_tails(schedule), (), "joins")


# --- what is joined


def _join(schedule: s_tir.Schedule, current: Stage) -> _Join | None:
    """What the block joins, if one of its iterators, compared with constants, decides about every selection."""
    variables = [i.var for i in schedule.get(current.block).iter_vars]
    found = [_place(condition, variables) for condition in _conditions(current.value)]
    known = [place for place in found if place is not None]
    if not known or len(known) != len(found) or len({iterator for iterator, _ in known}) != 1:
        return None
    iterator = known[0][0]
    inside = {place for _, place in known if 0 < place < current.extents[iterator]}
    return _Join(iterator, (0, *sorted(inside), current.extents[iterator])) if inside else None


def _conditions(value: Any) -> Iterator[Any]:
    for part in walk(value):
        if isinstance(part, ir.Call) and "if_then_else" in str(part.op):
            yield from _conjuncts(part.args[0])


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _place(condition: Any, variables: list[Any]) -> tuple[int, int] | None:
    """The iterator, and from where on the comparison says something else; None where it is of another form."""
    if isinstance(condition, tirx.LT | tirx.GE):
        index, bound = condition.a, condition.b
    elif isinstance(condition, tirx.GT | tirx.LE):
        bound, index = condition.a, condition.b
    else:
        return None
    if not isinstance(bound, tirx.IntImm):
        return None
    place = int(bound)
    if isinstance(index, tirx.Add | tirx.Sub) and isinstance(index.b, tirx.IntImm):
        place += int(index.b) if isinstance(index, tirx.Sub) else -int(index.b)
        index = index.a
    return next(((n, place) for n, variable in enumerate(variables) if variable.same_as(index)), None)


def _is_moved(current: Stage, device: Device) -> bool:
    """Whether it reads from the middle of an axis, but along it: vectors that begin anywhere."""
    if current.has_booleans() or is_selective(current) or contiguous_axes(current, device.lanes):
        return False
    return _runs_along_last(current)


def _groups(current: Stage) -> int:
    """How many groups alternate along the last axis; 1 where none do."""
    last = len(current.extents) - 1
    indices = (index for read in current.reads for index in read.indices if last in read.used())
    for part in (part for index in indices for part in walk(index) if isinstance(part, tirx.FloorMod)):
        if isinstance(part.a, tirx.Var) and isinstance(part.b, tirx.IntImm) and last in current.write.steps[-1]:
            groups = int(part.b)
            if groups <= MOST_INTERLEAVED and current.extents[last] % groups == 0:
                return groups
    return 1


def _runs_along_last(current: Stage) -> bool:
    last = len(current.extents) - 1
    reads = [read for read in current.reads if last in read.used()]
    return last >= 0 and bool(reads) and all(is_unit_stride(access, last) for access in (*reads, current.write))


# --- in parts


def _in_parts(
    schedule: s_tir.Schedule, found: Mapping[str, _Join], threads: int
) -> tuple[s_tir.Schedule, dict[str, int]]:
    """The function with joins in parts, and by the name of what each writes how many loops its parts share."""
    shared: dict[str, int] = {}
    for current in stages(schedule):
        if current.write.name in found:
            outer = schedule.get_loops(current.block)[: found[current.write.name].iterator]
            shared[current.write.name] = 1 if _parallel(schedule, outer, current, threads) else len(outer)
    function = schedule.mod[FUNCTION]
    root = function.body
    block = with_body(root.block, _cut(root.block.body, found))
    cut = function.with_body(s_stmt.SBlockRealize(root.iter_values, root.predicate, block))
    return s_tir.Schedule(s_tir.transform.ConvertSSA()(tvm.IRModule({FUNCTION: cut}))), shared


def _parallel(schedule: s_tir.Schedule, loops: list[Any], current: Stage, threads: int) -> bool:
    """Shares the loops among threads, fused to one, where they have enough to do."""
    count = prod(int(schedule.get(loop).extent) for loop in loops)
    if threads == 1 or count == 1 or prod(current.extents) < PARALLEL_ELEMENTS:
        return False
    schedule.parallel(schedule.fuse(*loops) if len(loops) > 1 else loops[0])
    return True


def _cut(node: Any, found: Mapping[str, _Join]) -> Any:
    """The loops with those over a joined axis once for each part."""
    if isinstance(node, tirx.SeqStmt):
        return tirx.SeqStmt([_cut(part, found) for part in node.seq])
    *loops, leaf = _nest(node)
    join = found.get(str(leaf.block.body.buffer.name))
    if join is None or not loops:
        return node
    if node.loop_var.same_as(leaf.iter_values[join.iterator]):
        return tirx.SeqStmt([_part(loops, leaf, join.iterator, *bounds) for bounds in pairwise(join.bounds)])
    return with_loop_body(node, _cut(node.body, found))


def _nest(node: Any) -> list[Any]:
    return [node, *_nest(node.body)] if isinstance(node, tirx.For) else [node]


def _part(loops: list[Any], leaf: Any, iterator: int, low: int, high: int) -> Any:
    """The loops for one part of the joined axis, which is that of the outermost; its selections are decided."""
    fresh = [tirx.Var(str(loop.loop_var.name), loop.loop_var.ty) for loop in loops]
    renamed = {loop.loop_var: variable for loop, variable in zip(loops, fresh, strict=True)}
    values = [renamed.get(value, value) for value in leaf.iter_values]
    values[iterator] = values[iterator] + low if low else values[iterator]
    node: Any = s_stmt.SBlockRealize(values, leaf.predicate, _block(leaf.block, iterator, low, high))
    for loop, variable in zip(reversed(loops), reversed(fresh), strict=True):
        extent = high - low if loop is loops[0] else loop.extent
        node = tirx.For(variable, loop.min, extent, loop.kind, node, loop.thread_binding, loop.annotations)
    return node


def _block(block: Any, iterator: int, low: int, high: int) -> Any:
    """The block with iterators of its own and the value of that range of one of them."""
    analyzer = sym.Analyzer()
    fresh = [tirx.IterVar(i.dom, tirx.Var(str(i.var.name), i.var.ty), i.iter_type) for i in block.iter_vars]
    for number, (old, new) in enumerate(zip(block.iter_vars, fresh, strict=True)):
        if number == iterator:
            analyzer.bind(new.var, ir.Range(low, high))
        analyzer.bind(old.var, new.var)
    store = block.body
    value = analyzer.simplify(store.value)
    indices = [analyzer.simplify(index) for index in store.indices]
    reads = [_point(p.source, p.indices) for p in walk(value) if isinstance(p, ir.TensorLoad)]
    body = tirx.BufferStore(store.buffer, value, indices)
    name = f"{block.name_hint}_{low}"
    return with_body(block, body, iter_vars=fresh, reads=reads, writes=[_point(store.buffer, indices)], name_hint=name)


def _point(buffer: Any, indices: Any) -> Any:
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(index, 1) for index in indices])


# --- vectors


def _vectorise(schedule: s_tir.Schedule, current: Stage, loops: list[Any], device: Device, threads: int) -> None:
    """Vectors along what is contiguous of the last of these loops; the others are shared where none outside is."""
    count = min(_vectorised_axes(current, device), len(loops))
    outer, inner = (loops[:-count], loops[-count:]) if count else (loops[:-1], loops[-1:])
    loop = schedule.fuse(*inner) if count > 1 else inner[0]
    extent = int(schedule.get(loop).extent)
    width = vector_width(extent, device) if count else 1
    if count > 1 and extent % width:
        width = 1  # a tail of fused loops cannot be moved back; LLVM makes vectors of a plain loop
    chunk, vector = schedule.split(loop, [None, width]) if width > 1 else (loop, None)
    _parallel_inside(schedule, [*outer, chunk], current, threads)
    if vector is not None:
        schedule.vectorize(vector)


def _vectorised_axes(current: Stage, device: Device) -> int:
    if current.has_booleans():
        return 0
    return contiguous_axes(current, device.lanes) or int(_runs_along_last(current))


def _parallel_inside(schedule: s_tir.Schedule, loops: list[Any], current: Stage, threads: int) -> None:
    """Shares the loops of a part that stands in no shared loop."""
    around = schedule.get_loops(current.block)
    if all(schedule.get(loop).kind == tirx.ForKind.SERIAL for loop in around):
        _parallel(schedule, loops, current, threads)


def _interleave(schedule: s_tir.Schedule, current: Stage, groups: int, loops: list[Any], threads: int) -> None:
    """One step of all groups after the other, in which the code generator finds vectors."""
    *outer, last = loops
    _, group = schedule.split(last, [None, groups])
    _parallel(schedule, outer, current, threads)
    schedule.unroll(group)
