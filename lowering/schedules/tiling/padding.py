"""Maps that a sum reads with zeros around them."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from ..base.blocks import BufferAccess, is_selection, is_zero, walk
from ..base.draft import Draft
from ..base.nodes import Variable
from ..base.rewriting import conjuncts
from ..base.tiled import PaddedMap


def find_padding(draft: Draft, data: BufferAccess) -> PaddedMap | None:
    """How the block in front reads the map that it pads with zeros along depth, rows and columns, for the sum alone."""
    writer = draft.producer(data)
    if writer is None or draft.is_output(writer):
        return None
    variables = tuple(i.var for i in draft.schedule.get(writer.block).iter_vars)
    plain = len(variables) in (4, 5) and all(i.same_as(v) for i, v in zip(writer.write.indices, variables, strict=True))
    if not plain or len(draft.consumers(writer)) != 1 or not is_selection(writer.value):
        return None
    condition, inside, outside = writer.value.args
    calls = any(isinstance(part, ir.Call) for part in walk(inside))
    if calls or not is_zero(outside):
        return None
    limits: dict[int, list[Any]] = {axis: [] for axis in range(1, len(variables) - 1)}
    for bound in conjuncts(condition):
        place = _find_limited_variable(bound, variables)
        if place not in limits:
            return None
        limits[place].append(bound)
    *depth, rows, columns = map(tuple, limits.values())
    buffers = tuple(read.buffer for read in writer.reads)
    return PaddedMap(data.name, variables, inside, rows, columns, buffers, data.shape, *depth)


def _find_limited_variable(bound: Any, variables: tuple[Variable, ...]) -> int | None:
    """The variable that is compared with a constant: a condition at both ends of a range then holds inside."""
    if not isinstance(bound, tirx.LT | tirx.LE | tirx.GT | tirx.GE):
        return None
    parts = [part for side in (bound.a, bound.b) for part in walk(side)]
    used = [n for part in parts for n, variable in enumerate(variables) if variable.same_as(part)]
    linear = all(isinstance(part, tirx.Var | tirx.IntImm | tirx.Add | tirx.Sub | int) for part in parts)
    return used[0] if linear and len(used) == 1 else None
