"""Row-wise functions: reductions over trailing axes, soft-max, layer normalisation, global pooling.

    for i, k: M = max(M, X); for i, k: E = exp(X - M); for i, k: S += E; for i, k: Y = E / S
 => parallel i: { for k_o: vectorised k_i: M' = max(M', X); for k_i: M = max(M, M'); vectorised E; S the same; Y }

All blocks of a row run while it is in the first cache; a reduction keeps vectors of partial results.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from math import log2, prod
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx

from .blocks import BlockInfo
from .draft import Draft, Scheduled
from .extents import is_symbolic
from .pointwise import schedule_pointwise
from .tails import MASKED_EXTENT, MASKED_TILE, finish
from .tiling.tiles import largest_divisor

PARTIAL_VECTORS = 4
"""Independent partial results of a reduction: the latency of an addition over its throughput, halved."""
PARALLEL_ELEMENTS = 1 << 13
"""One thread takes fewer steps than this, of all blocks: waking the others takes as long."""
LEAST_STEPS = 4
"""Fewer steps of a reduction by vectors are not worth the reduction of the vector at the end."""


def rows(draft: Draft) -> Scheduled | None:
    """The rule: matches when all blocks share leading axes, and every reduction is over all axes behind them.

    A reduction whose last vector is masked cannot compute everything that it reads: then it reads a row of that.
    """
    register_reducers()
    with suppress(RuntimeError):
        return _try_rows(draft.copy(), into_reductions=True)
    return _try_rows(draft, into_reductions=False)


def _try_rows(draft: Draft, *, into_reductions: bool) -> Scheduled | None:
    for block in draft.blocks():
        if draft.may_inline(block):
            users = draft.consumers(block)
            alone = len(users) == 1 and users[0].extents == block.extents
            if any(user.reduced for user in users) and not into_reductions:
                alone, block = False, draft.inspect(block.block)  # with what was inlined into it
            if block.is_cheap() or alone:
                draft.inline(block)
    blocks = draft.blocks()
    reductions = [block for block in blocks if block.reduced]
    shared = min((min(block.reduced) for block in reductions), default=0)
    last = blocks[-1]
    if shared == 0 or not draft.is_output(last):
        return None
    if any(block.extents[:shared] != last.extents[:shared] for block in blocks):
        return None
    if any(not _is_trailing(block, shared) or block.has_booleans() for block in reductions):
        return None
    copies = [
        draft.schedule.cache_write(block.block, 0, "global", [user.block for user in draft.consumers(block)])
        for block in blocks[:-1]
        if draft.is_output(block)
    ]
    _schedule(draft, draft.blocks() if copies else blocks, shared, copies)
    return finish(draft, "rows")


def _is_trailing(block: BlockInfo, shared: int) -> bool:
    """Whether all iterators behind the shared ones are reduced or of extent 1, and some operand has rows in memory."""
    along = any(read.iterators and read.iterators[-1] & block.reduced for read in block.reads)
    return along and all(i in block.reduced or block.extents[i] == 1 for i in range(shared, len(block.extents)))


def _schedule(draft: Draft, blocks: list[BlockInfo], shared: int, copies: Sequence[Any]) -> None:
    """`copies` are the blocks that write outputs besides the last one: TVM moves no output to a later block's loop."""
    partial = [result for block in blocks if block.reduced for result in split_reduction(draft, block)]
    names = {draft.schedule.get(copy).name_hint for copy in copies}
    last = next(block for block in reversed(blocks) if draft.schedule.get(block.block).name_hint not in names)
    names.add(draft.schedule.get(last.block).name_hint)
    row, *others = (draft.fuse(draft.schedule.get_loops(block)[:shared]) for block in (last.block, *copies))
    if others:
        row = draft.schedule.merge(*others, row)
    if draft.threads > 1:
        usual = sum(prod(block.extents) for block in blocks) >= PARALLEL_ELEMENTS
        if draft.trace.decide_flag("parallel", usual):
            draft.schedule.parallel(row)
    for block in reversed(draft.blocks()):
        if draft.schedule.get(block.block).name_hint not in names:
            draft.compute_at(block.block, row)
    for block in draft.blocks():
        loops = draft.loops(block)[1:]
        if not block.reduced and loops and len(loops) <= len(block.extents) and all(map(draft.extent, loops)):
            schedule_pointwise(draft.serial(), block, loops)
    for result in partial:
        vectorise_partial_result(draft, result)


def split_reduction(draft: Draft, block: BlockInfo) -> list[Any]:
    """Split the reduction into one of vectors, whose blocks are returned, and one over the lanes of the last vector.

    There are several blocks where the lanes are split again, and none where no width divides.
    """
    loops, schedule = draft.loops(block), draft.schedule
    if any(is_symbolic(block.extents[i]) for i in block.reduced):
        return []  # a call may have fewer elements than a vector
    loop = draft.fuse([loops[i] for i in sorted(block.reduced)])
    results = []
    while (width := _partial_width(draft, extent := draft.extent(loop))) > 1:
        _, loop = schedule.split(loop, [None, width])
        results.append(schedule.rfactor(loop, len(block.write.shape)))
        if extent % width:
            schedule.annotate(results[-1], MASKED_EXTENT, extent)
            schedule.annotate(results[-1], MASKED_TILE, width)
        loop = draft.loops(block)[-1]
    return results


def _partial_width(draft: Draft, extent: int) -> int:
    """Elements of partial results: whole vectors if they divide the extent, else a part of a vector that does.

    One vector (with a tail that is masked, see tails) where that is less than half of one; 1 for few elements.
    """
    lanes = draft.device.lanes
    widths = [v * lanes for v in range(PARTIAL_VECTORS, 0, -1)]
    if whole := [w for w in widths if extent % w == 0 and extent >= LEAST_STEPS * w]:
        return draft.trace.decide_number("partial", whole, lambda width: 1.0 + log2(widths[0] / width))
    divisor = largest_divisor(extent, min(lanes, extent // LEAST_STEPS)) if extent >= 2 * LEAST_STEPS else 1
    return lanes if extent >= LEAST_STEPS * lanes and divisor < lanes // 2 else divisor


def vectorise_partial_result(draft: Draft, block: Any) -> None:
    """Make vectors of the last dimension of a partial result, inside of the steps that add to it."""
    result, schedule = draft.inspect(block), draft.schedule
    loops = draft.loops(result)[-len(result.extents) :]
    if len(result.reduced) != 1:  # axes that are fused to one loop, but are no one axis in memory
        raise RuntimeError(f"block {result.name}: a partial result over several axes")
    (steps,), (lane,) = result.reduced, result.write.iterators[-1]
    others = [loops[i] for i in result.spatial if i != lane]
    vectors, lanes = schedule.split(loops[lane], [None, largest_divisor(result.extents[lane], draft.device.lanes)])
    schedule.reorder(*others, loops[steps], vectors, lanes)
    schedule.unroll(vectors)
    schedule.vectorize(lanes)
    initial = schedule.decompose_reduction(block, loops[steps])
    schedule.vectorize(schedule.get_loops(initial)[-1])


@cache
def register_reducers() -> None:
    """Tell TVM's `rfactor` of the maximum from -infinity and the minimum from infinity; its own start at finite bounds.

    Its registry outlives the interpreter, which freeing a function would need: a reference too many keeps them.
    """
    register = tvm.get_global_func("s_tir.schedule.RegisterReducer")
    for combine, start in ((te.max, float("-inf")), (te.min, float("inf"))):
        combiner = tvm_ffi.convert(lambda left, right, combine=combine: [combine(left[0], right[0])])
        identity = tvm_ffi.convert(lambda values, start=start: [tirx.const(start, str(values[0].ty.dtype))])
        for function in (combiner, identity):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
        register(1, combiner, identity)
