"""Grouped convolutions: the output channel becomes two axes, the group and the channel in it.

   for n, p, c, k: C[n, p, c] += X[n, p, c // 34 * 12 + k] * W[c, k]
=> for n, p, g, o, k: C[n, p, g, o] += X[n, p, g * 12 + k] * W[g * 34 + o, k]

Both operands share the group; the channels of a group are the columns of a product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import s_tir, tirx

from .rewriting import map_blocks, simplified
from .stages import FUNCTION, Stage, index_map, walk


def with_groups(schedule: s_tir.Schedule, anchor: Stage, epilogue: Stage) -> s_tir.Schedule | None:
    """The function with the channel split in the sum and in the block after it; None where there are no groups.

    The block after it reads the sum at plain indices.
    """
    found = _grouped(schedule, anchor)
    if found is None or len(epilogue.extents) != len(anchor.spatial):
        return None
    iterator, size = found
    dimension = next(d for d, used in enumerate(anchor.write.iterators) if used == {iterator})
    read = next(r for r in epilogue.reads if r.name == anchor.write.name)
    (place,) = read.iterators[dimension]
    reduced = [i for i in sorted(anchor.reduced) if anchor.extents[i] > 1]
    if not reduced or list(anchor.spatial) != list(range(len(anchor.spatial))):
        return None
    kept = [*anchor.spatial, *reduced]
    schedule.transform_block_layout(anchor.block, index_map(_split(kept, iterator, size), len(anchor.extents)))
    schedule.transform_layout(anchor.block, ("write", 0), _split(range(len(anchor.spatial)), dimension, size))
    after = _split(range(len(epilogue.extents)), place, size)
    schedule.transform_block_layout(epilogue.block, index_map(after, len(epilogue.extents)))
    function = schedule.mod[FUNCTION]
    body = map_blocks(function.body, simplified)  # TVM itself leaves (g * 34 + o) // 34 in the blocks
    return s_tir.Schedule(tvm.IRModule({FUNCTION: function.with_body(body)}))


def _grouped(schedule: s_tir.Schedule, anchor: Stage) -> tuple[int, int] | None:
    """The iterator of the output channel, which both operands have, and the channels of a group."""
    shared = frozenset.intersection(*(read.used() for read in anchor.reads)) & set(anchor.spatial)
    variables = [i.var for i in schedule.get(anchor.block).iter_vars]
    for read in anchor.reads:
        for part in (p for index in read.indices for p in walk(index)):
            if isinstance(part, tirx.FloorDiv) and isinstance(part.a, tirx.Var) and isinstance(part.b, tirx.IntImm):
                iterator = next(n for n, v in enumerate(variables) if v.same_as(part.a))
                size = int(part.b)
                if iterator in shared and anchor.extents[iterator] % size == 0 and size > 1:
                    return iterator, size
    return None


def _split(kept: Any, place: int, size: int) -> Callable[..., list[Any]]:
    def split(*indices: Any) -> list[Any]:
        parts = [[indices[i] // size, indices[i] % size] if i == place else [indices[i]] for i in kept]
        return [index for part in parts for index in part]

    return split
