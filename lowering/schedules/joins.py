"""Joined and cut tensors: Concat, Slice, Split, padding along one axis, with what is computed around them.

    for p, c: Y[p, c] = f(A[p, c] if c < 64 else B[p, c - 64])
 => parallel p: { for c in 64: Y[p, c] = f(A[p, c]); for c in 32: Y[p, 64 + c] = f(B[p, c]) }

The loop over the joined axis is cut where another operand begins; each part copies whole vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import tvm
from tvm import ir, s_tir, sym, tirx
from tvm.s_tir import stmt as s_stmt

from ...costmodels.device import Device
from .packing import Scheduled
from .pointwise import contiguous_axes, inline_all, schedule_pointwise, vector_width
from .preparation import PARALLEL_ELEMENTS
from .rewriting import with_body
from .stages import FUNCTION, Stage, is_unit_stride, stage, stages, walk
from .tails import overlap_tails


@dataclass(frozen=True)
class _Join:
    """A block that takes its elements from several places: the iterator that decides, and where to cut its range."""

    stage: Stage
    iterator: int
    cuts: tuple[int, ...]

    @property
    def name(self) -> str:
        """The buffer it writes; no other block does."""
        return self.stage.write.name


def joins(function: tirx.PrimFunc, device: Device, threads: int = 1) -> Scheduled | None:
    """The rule: matches a function without reductions that joins tensors, or reads them from the middle of an axis."""
    schedule = s_tir.Schedule(function)
    if not all(s.is_pointwise() for s in stages(schedule)):
        return None
    inline_all(schedule)
    found = {join.name: join for s in stages(schedule) if (join := _join(s)) is not None}
    if not found and not any(_is_moved(s, device) for s in stages(schedule)):
        return None
    schedule = _cut(schedule, found)
    outer: dict[str, list[Any]] = {}
    for current in stages(schedule):
        join = found.get(current.write.name)
        if join is None and not _is_moved(current, device):
            schedule_pointwise(schedule, current, schedule.get_loops(current.block), device, threads)
            continue
        shared = 0 if join is None else join.iterator
        loops = schedule.get_loops(current.block)
        outer.setdefault(current.write.name, loops[:shared])
        _schedule_part(schedule, current, loops[shared:], device, threads)
    for loops in outer.values():
        _share(schedule, loops, threads)
    return Scheduled(overlap_tails(schedule), (), "joins")


def _join(current: Stage) -> _Join | None:
    """What the block joins, if one of its iterators, compared with constants, decides about every selection."""
    variables = [i.var for i in _statement(current).iter_vars]
    found: list[tuple[int, int] | None] = []
    for part in walk(current.value):
        if isinstance(part, ir.Call) and "if_then_else" in str(part.op):
            found += [_boundary(c, variables) for c in _conjuncts(part.args[0])]
    known = [boundary for boundary in found if boundary is not None]
    if not known or len(known) != len(found) or len({iterator for iterator, _ in known}) != 1:
        return None
    iterator, extent = known[0][0], current.extents[known[0][0]]
    cuts = sorted({cut for _, cut in known if 0 < cut < extent})
    return _Join(current, iterator, (0, *cuts, extent)) if cuts else None
