"""Row-wise functions: reductions over trailing axes, soft-max, layer normalisation, global pooling.

    for i, k: M = max(M, X); for i, k: E = exp(X - M); for i, k: S += E; for i, k: Y = E / S
 => parallel i: { for k_o: vectorised k_i: M' = max(M', X); for k_i: M = max(M, M'); vectorised E; S the same; Y }

All blocks of a row run while it is in the first cache; a reduction keeps vectors of partial results.
If the length of a row is dynamic, the function has branches for rows of at least four vectors, of one, and
for shorter ones.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import log2, prod
from typing import Any, Literal

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import stmt as s_stmt

from ...base.decisions import Trace
from ..base.blocks import BlockInfo, BufferAccess, index_map
from ..base.draft import Draft
from ..base.extents import is_symbolic
from ..base.nodes import Statement
from ..base.rewriting import join_pixels, with_body
from ..base.tiled import Tiled
from ..passes.tails import MASKED_EXTENT, MASKED_TILE
from ..tiling.tiles import largest_divisor
from .pointwise import schedule_pointwise

PARTIAL_VECTORS = 4
"""Independent partial results of a reduction: the latency of an addition over its throughput, halved."""
PARALLEL_ELEMENTS = 1 << 13
"""One thread takes fewer steps than this, of all blocks: waking the others takes as long."""
LEAST_STEPS, LEAST_PART_STEPS = 2, 4
"""Fewer steps of a reduction by vectors, or by parts of one, are not worth the reduction of the vector at the end. Two
masked vectors are worth it: of 17 elements a soft-max takes 43 us by these, 62 us by parts of four (Zen 5)."""


def rows(draft: Draft) -> Iterator[Tiled]:
    """The rule: matches when all blocks share leading axes, and every reduction is over all axes behind them; or when
    one element is left of everything.

    A reduction whose last vector is masked cannot compute everything that it reads: then it reads a row of that.
    """
    register_reducers()
    is_free = any(is_symbolic(block.extents[i]) for block in draft.blocks() for i in block.reduced)
    for widest in (PARTIAL_VECTORS * draft.device.lanes, 1) if is_free else (1,):
        for into_reductions in (True, False):
            with suppress(RuntimeError):
                tiled = _tile(draft.copy(), into_reductions=into_reductions, widest=widest)
                if tiled is None:
                    return
                yield tiled


def _tile(draft: Draft, *, into_reductions: bool, widest: int, is_smaller: bool = False) -> Tiled | None:
    """Tile by vectors of partial results of `widest` elements if the length of the row is dynamic, and by shorter ones
    for shorter rows; 1: by no vectors. `is_smaller`: longer rows have longer vectors elsewhere."""
    smaller = None
    if widest > 1:
        own = replace(draft.copy(), trace=Trace())
        narrow = draft.device.lanes if widest > draft.device.lanes else 1
        smaller = _tile(own, into_reductions=into_reductions, widest=narrow, is_smaller=True)
    for block in draft.blocks_in_turn():
        if draft.may_inline(block):
            users = draft.consumers(block)
            alone = len(users) == 1 and users[0].extents == block.extents
            if any(user.reduced for user in users) and not into_reductions:
                alone = False
            if block.is_cheap() or alone:
                draft.inline(block)
    for block in draft.blocks():
        _turn(draft, block)
    blocks = draft.blocks()
    reductions = [block for block in blocks if block.reduced]
    shared, last = _count_shared(draft, blocks), blocks[-1]
    is_one_row = all(block.extents[i] == 1 for block in blocks for i in block.spatial)
    if (shared == 0 and not is_one_row) or not reductions or not draft.is_output(last):
        return None
    if not all(_is_trailing(block, shared) for block in reductions):
        return None
    copies = [
        draft.schedule.cache_write(block.block, 0, "global", [user.block for user in draft.consumers(block)])
        for block in blocks[:-1]
        if draft.is_output(block)
    ]
    draft = _schedule(draft, draft.blocks() if copies else blocks, shared, widest)
    draft = draft.with_body(join_pixels(draft.function.body, draft.parameters_outside()))
    tails: Literal["overlap", "guard"] = "guard" if is_smaller and widest == 1 else "overlap"
    return Tiled(draft, "rows", tails=tails, smaller=smaller)


def _turn(draft: Draft, block: BlockInfo) -> None:
    """Give a point-wise block that reads what another one sums up with other axes first the order of that one's axes.

    for i, j: S[i, j] = sum of X[j, i, k]; for j, i, k: Y[j, i, k] = f(X[j, i, k], S[i, j])
 => for i, j: S[i, j] = sum of X[j, i, k]; for i, j, k: Y[j, i, k] = f(X[j, i, k], S[i, j])
    """
    producers = [(read, producer) for read in block.reads if (producer := draft.producer(read)) is not None]
    sums = [(read, each) for read, each in producers if any(each.extents[i] != 1 for i in each.reduced)]
    orders = (_order_of(read, each) for read, each in sums if block.is_pointwise())
    order = next((order for order in orders if order != sorted(order) and len(set(order)) == len(order)), None)
    if order is None:
        return
    others = [i for i in range(len(block.extents)) if i not in order]
    first = [i for i in others if i < max(order) and block.extents[i] == 1]
    turned = [*first, *order, *(i for i in others if i not in first)]
    draft.schedule.transform_block_layout(block.block, index_map(lambda *i: [i[n] for n in turned], len(turned)))


def _order_of(read: BufferAccess, producer: BlockInfo) -> list[int]:
    """The iterators that read what a block computes, in the order of those of its axes that have several elements."""
    pairs = (
        (made, own)
        for written, used in zip(producer.write.iterators, read.iterators, strict=True)
        for made in written
        for own in used
        if producer.extents[made] != 1
    )
    return [own for _, own in sorted(pairs)]


def _count_shared(draft: Draft, blocks: Sequence[BlockInfo]) -> int:
    """The leading axes that all blocks share, in front of all that a block reduces; 0 if there are none.

    An axis that a reduction keeps with one element in place of a row is none of them; nothing is, if a block reads
    another row than its own of what a block before it computes.
    """
    reductions, last = [block for block in blocks if block.reduced], blocks[-1]
    shared = min((min(block.reduced) for block in reductions), default=0)
    while any(block.extents[:shared] != last.extents[:shared] for block in blocks):
        if any(block.extents[shared - 1] != 1 for block in reductions):
            return 0
        shared -= 1
    rows = {i for i in range(shared) if last.extents[i] != 1}
    for block in blocks:
        for read in block.reads:
            producer = draft.producer(read)
            written = () if producer is None else producer.write.iterators
            if any(made & rows != used & rows for made, used in zip(written, read.iterators, strict=False)):
                return 0
    return shared


def _is_trailing(block: BlockInfo, shared: int) -> bool:
    """Whether all iterators behind the shared ones are reduced or of extent 1, and some operand has rows in memory."""
    along = any(read.iterators and read.iterators[-1] & block.reduced for read in block.reads)
    return along and all(i in block.reduced or block.extents[i] == 1 for i in range(shared, len(block.extents)))


def _schedule(draft: Draft, blocks: list[BlockInfo], shared: int, widest: int) -> Draft:
    nests = []
    for block in blocks:
        if block.reduced:
            for result in split_reduction(draft, block, widest):
                info = draft.inspect(result)
                *_, elements = loops = draft.loops(info)
                # a row of everything may have no loop over an axis of one element
                _vectorise(draft, result, loops[max(0, len(loops) - 1 - len(info.reduced))], elements)
                nests.append(result)
            draft.start_reduction(block, draft.loops(block)[shared])
        elif own := draft.loops(block)[shared:]:
            schedule_pointwise(draft.serial(), block, own)
        nests.append(block.block)
    row = []
    for depth in range(shared):
        loops = [draft.schedule.get_loops(nest)[depth] for nest in nests]
        row.append(draft.schedule.merge(*loops) if len(loops) > 1 else loops[0])
    usual = sum(prod(block.extents) for block in blocks) >= PARALLEL_ELEMENTS
    if not row or draft.threads == 1 or not draft.trace.decide_flag("parallel", usual):
        return draft
    draft.fuse(row)
    return draft.with_body(_share(draft.function.body))


def _share(root: Statement) -> Statement:
    """The function with its only outermost loop shared by threads: TVM does not share one around what it has moved."""
    loop = root.block.body
    shared = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.PARALLEL, loop.body)
    return s_stmt.SBlockRealize(root.iter_values, root.predicate, with_body(root.block, shared))


def split_reduction(draft: Draft, block: BlockInfo, widest: int = 1) -> list[Any]:
    """Split the reduction into one of vectors, whose blocks are returned, and one over the lanes of the last vector.

    Of axes that are not one in memory the outer ones stay loops. There are several blocks if the lanes are split
    again, and none if no width divides. If the length is dynamic, there are vectors of `widest`
    elements, which a shorter row does not have.
    """
    loops, schedule, results = draft.loops(block), draft.schedule, []
    axes = _last_in_memory(block)
    outside = prod(block.extents[i] for i in block.reduced.difference(axes))

    def split(loop: Any, width: int) -> Any:
        _, loop = schedule.split(loop, [None, width])
        results.append(schedule.rfactor(loop, len(block.write.shape)))
        return draft.loops(block)[-1]

    def mask(extent: int | str, width: int) -> None:
        schedule.annotate(results[-1], MASKED_EXTENT, extent)
        schedule.annotate(results[-1], MASKED_TILE, width)

    is_free = any(is_symbolic(block.extents[i]) for i in axes)
    if is_free and widest == 1:
        return []
    loop = draft.fuse([loops[i] for i in axes])
    if is_free:
        length = schedule.get(loop).extent
        draft.lengths[str(length)] = length
        loop = split(loop, widest)
        mask(str(length), widest)
    while (width := _partial_width(draft, extent := draft.extent(loop), outside)) > 1:
        loop, outside = split(loop, width), 1
        if extent % width:
            mask(extent, width)
    return results


def _last_in_memory(block: BlockInfo) -> list[int]:
    """The last reduced iterators: as many as are one axis in memory of everything that runs along them."""
    axes: list[int] = []
    for i in sorted(block.reduced, reverse=True):
        if axes and not all(_is_one_axis(block, read, i, axes[0]) for read in block.operands(axes[0])):
            break
        axes.insert(0, i)
    return axes


def _is_one_axis(block: BlockInfo, read: BufferAccess, outer: int, inner: int) -> bool:
    """Whether the next step of the outer iterator is behind the last one of the inner iterator."""
    long = [d for d, extent in enumerate(read.shape) if extent != 1 or read.iterators[d] & {outer, inner}]
    wanted = (frozenset({outer}), frozenset({inner}))
    pairs = [(d, e) for d, e in pairwise(long) if (read.iterators[d], read.iterators[e]) == wanted]
    return any(read.shape[e] == block.extents[inner] for _, e in pairs)


def _partial_width(draft: Draft, extent: int, outside: int = 1) -> int:
    """Elements of partial results: whole vectors that divide the extent, else vectors whose tail is masked (see tails).

    For few elements they are a part of a vector, of two only if that divides them; 1 for fewer.
    `outside`: so often steps along the extent are added to the same results.
    """
    lanes = draft.device.lanes
    widths = [v * lanes for v in range(PARTIAL_VECTORS, 0, -1)]
    fitting = [w for w in widths if w <= extent and extent * outside >= LEAST_STEPS * w]
    if not fitting and extent > lanes:
        return lanes
    if whole := [w for w in fitting if extent % w == 0]:
        widest = PARTIAL_VECTORS * lanes
        return draft.trace.decide_number("partial", whole, lambda width: 1.0 + log2(widest / width))
    parts = [1 << bits for bits in range(lanes.bit_length() - 1, 0, -1) if extent >= LEAST_PART_STEPS << bits]
    return next(iter(fitting), 0) or next((p for p in parts if p > 2 or extent % p == 0), 1)


def vectorise_partial_result(draft: Draft, block: Any) -> None:
    """Make vectors of the last dimension of a partial result, inside of the steps that add to it."""
    result, schedule = draft.inspect(block), draft.schedule
    loops = draft.loops(result)[-len(result.extents) :]
    (steps,), (lane,) = result.reduced, result.write.iterators[-1]
    schedule.reorder(*[loops[i] for i in result.spatial if i != lane], loops[steps], loops[lane])
    _vectorise(draft, block, loops[steps], loops[lane])


def _vectorise(draft: Draft, block: Any, step: Any, elements: Any) -> None:
    """Make vectors of the innermost loop, inside of those over steps, of which `step` is the outermost."""
    schedule = draft.schedule
    vectors, lanes = schedule.split(elements, [None, largest_divisor(draft.extent(elements), draft.device.lanes)])
    schedule.unroll(vectors)
    schedule.vectorize(lanes)
    initial = schedule.decompose_reduction(block, step)
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
