"""Axes of a product sum that are fused or split before it is tiled.

Convolutions that look at one pixel at a time: rows and columns become one axis, of which tiles waste less.

   for n, o, h, w, c, kh: 1, kw: 1: C[n, o, h, w] += X[n, c, h + kh, w + kw] * W[o, c, kh, kw]
=> for n, o, p, c: C[n, o, p] += X[n, c, p // width, p % width] * W[o, c, 0, 0]

Grouped convolutions: the output channel becomes two axes, the group, which both operands share, and the channel in it.

   for n, p, c, k: C[n, p, c] += X[n, p, c // 34 * 12 + k] * W[c, k]
=> for n, p, g, o, k: C[n, p, g, o] += X[n, p, g * 12 + k] * W[g * 34 + o, k]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from ..base.blocks import BlockInfo, BufferAccess, index_map, walk
from ..base.draft import Draft
from ..base.nodes import Expression
from ..base.rewriting import simplify_blocks


def fuse_pixels(draft: Draft, anchor: BlockInfo, epilogue: BlockInfo) -> tuple[BlockInfo, BlockInfo] | None:
    """Fuse both axes of the plane in the sum, in the block after it, and in one in front that computes the pixels.

    None if pixels are not read one by one.
    """
    schedule, height = draft.schedule, _find_plane(anchor)
    if len(epilogue.extents) != len(anchor.spatial) or height is None:
        return None
    if any(map(draft.is_constant, anchor.operands(height))):  # packed along one of its own axes
        return None
    if not all(map(_is_plain, (*epilogue.reads, epilogue.write))):
        return None
    order = [next(iter(used)) for used in epilogue.read_of(anchor).iterators]
    if order != list(range(len(order))):  # the loops of the epilogue get the order of the sum's axes
        permuted = index_map(lambda *i: [i[n] for n in order], len(order))
        schedule.transform_block_layout(epilogue.block, permuted)
        epilogue = draft.inspect(epilogue.block)
    width = anchor.extents[height + 1]
    reduced = [i for i in sorted(anchor.reduced) if anchor.extents[i] > 1] or sorted(anchor.reduced)[:1]
    before, after = range(height), [*range(height + 2, len(anchor.spatial)), *reduced]
    fused = index_map(
        lambda *i: [*(i[n] for n in before), i[height] * width + i[height + 1], *(i[n] for n in after)],
        len(anchor.extents),
    )
    schedule.transform_block_layout(anchor.block, fused)
    schedule.transform_layout(anchor.block, ("write", 0), _fuse(height, width))
    schedule.transform_block_layout(epilogue.block, index_map(_fuse(height, width), len(epilogue.extents)))
    _fuse_operand(draft, draft.inspect(anchor.block), width)
    return draft.inspect(anchor.block), draft.inspect(epilogue.block)


def _fuse_operand(draft: Draft, anchor: BlockInfo, width: int) -> None:
    """Fuse the pixels of an operand that a block computes for the sum alone."""
    for number, read in enumerate(anchor.reads):
        writer = draft.producer(read)
        place = next((d for d, index in enumerate(read.indices) if isinstance(index, tirx.FloorDiv)), None)
        if writer is None or place is None or writer.reduced or not all(map(_is_plain, writer.reads)):
            continue
        order = [next(iter(used), None) for used in writer.write.iterators]
        if order != list(range(len(writer.extents))) or len(draft.consumers(writer)) != 1 or draft.is_output(writer):
            continue
        draft.schedule.transform_layout(anchor.block, ("read", number), _fuse(place, width))
        fused = index_map(_fuse(place, width), len(writer.extents))
        draft.schedule.transform_block_layout(writer.block, fused)


def _fuse(height: int, width: int) -> Callable[..., list[Any]]:
    return lambda *i: [*i[:height], i[height] * width + i[height + 1], *i[height + 2 :]]


def _find_plane(anchor: BlockInfo) -> int | None:
    """The first of two neighbouring iterators, those of a plane; the last such pair, None if there is none."""
    spatial = list(anchor.spatial)
    if spatial != list(range(len(spatial))):
        return None
    pairs = [h for h in reversed(spatial[1:-1]) if anchor.extents[h] * anchor.extents[h + 1] > 1]
    return next((h for h in pairs if _is_pixelwise(anchor, h)), None)


def _is_pixelwise(anchor: BlockInfo, height: int) -> bool:
    """Whether one operand has pixels, as two whole dimensions in a row, with no stride and no window."""
    units = {i for i in anchor.reduced if anchor.extents[i] == 1}
    plane = [frozenset({height}), frozenset({height + 1})]
    extents = (anchor.extents[height], anchor.extents[height + 1])

    def has_plane(access: BufferAccess) -> bool:
        used = [frozenset(i - units) for i in access.iterators]
        places = [d for d in range(len(used) - 1) if used[d : d + 2] == plane and access.shape[d : d + 2] == extents]
        return len(places) == 1 and sum(bool({height, height + 1} & u) for u in used) == 2

    readers = [r for r in anchor.reads if r.used & {height, height + 1}]
    return len(readers) == 1 and all(map(has_plane, (*readers, anchor.write)))


def _is_plain(access: BufferAccess) -> bool:
    return all(len(used) <= 1 for used in access.iterators)


def split_phases(draft: Draft) -> Draft | None:
    """A draft in which what reads the only sum at i % s and i // s has loops over both; None if nothing does.

        for n, o, p: Y[n, o, p] = f(Z[n, p % 2, p // 2, o])
     => for n, o, q, r: Y[n, o, q * 2 + r] = f(Z[n, r, q, o])
    """
    sums = [block for block in draft.blocks() if block.reduced]
    if len(sums) != 1:
        return None
    indices = [index for user in draft.consumers(sums[0]) for index in _read(user, sums[0])]
    if not any(map(_is_phase, indices)):
        return None
    draft = draft.copy()
    names = [block.name for block in draft.blocks()]
    for block in draft.blocks()[names.index(sums[0].name) + 1 :]:
        if draft.may_inline(block):
            draft.inline(block)
    (user, *others) = draft.consumers(draft.inspect(sums[0].block))
    variables = [i.var for i in draft.schedule.get(user.block).iter_vars]
    strides = {
        next(n for n, v in enumerate(variables) if v.same_as(index.a)): int(index.b)
        for index in _read(user, sums[0])
        if _is_phase(index) and isinstance(index.a, tirx.Var)
    }
    if others or any(user.extents[i] % stride for i, stride in strides.items()):
        return None

    def split(*indices: Expression) -> list[Expression]:
        parts = ((i // strides[n], i % strides[n]) if n in strides else (i,) for n, i in enumerate(indices))
        return [part for each in parts for part in each]

    draft.schedule.transform_block_layout(user.block, index_map(split, len(user.extents)))
    return draft.with_body(simplify_blocks(draft.function.body))


def _read(block: BlockInfo, producer: BlockInfo) -> Sequence[Any]:
    return block.read_of(producer).indices


def _is_phase(index: Expression) -> bool:
    return isinstance(index, tirx.FloorMod) and isinstance(index.b, tirx.IntImm)


def split_groups(draft: Draft, anchor: BlockInfo, epilogue: BlockInfo) -> Draft | None:
    """A draft with the channel split in the sum and in the block after it; None if there are no groups.

    The block after it reads the sum at plain indices.
    """
    group = _find_group(draft, anchor)
    if group is None or len(epilogue.extents) != len(anchor.spatial):
        return None
    iterator, size = group
    dimension = next(d for d, used in enumerate(anchor.write.iterators) if used == {iterator})
    (place,) = epilogue.read_of(anchor).iterators[dimension]
    reduced = [i for i in sorted(anchor.reduced) if anchor.extents[i] > 1]
    if not reduced or list(anchor.spatial) != list(range(len(anchor.spatial))):
        return None

    def split(kept: Sequence[int], at: int) -> Callable[..., list[Expression]]:
        def indices(*i: Any) -> list[Any]:
            return [part for n in kept for part in ((i[n] // size, i[n] % size) if n == at else (i[n],))]

        return indices

    draft = draft.copy()
    schedule = draft.schedule
    inner = index_map(split([*anchor.spatial, *reduced], iterator), len(anchor.extents))
    schedule.transform_block_layout(anchor.block, inner)
    schedule.transform_layout(anchor.block, ("write", 0), split(range(len(anchor.spatial)), dimension))
    after = index_map(split(range(len(epilogue.extents)), place), len(epilogue.extents))
    schedule.transform_block_layout(epilogue.block, after)
    return draft.with_body(simplify_blocks(draft.function.body))  # TVM itself leaves (g * 34 + o) // 34 in the blocks


def _find_group(draft: Draft, anchor: BlockInfo) -> tuple[int, int] | None:
    """The iterator of the output channel, which both operands have, and the number of channels of a group."""
    shared = frozenset.intersection(*(read.used for read in anchor.reads)) & set(anchor.spatial)
    variables = [i.var for i in draft.schedule.get(anchor.block).iter_vars]
    for part in (part for read in anchor.reads for index in read.indices for part in walk(index)):
        if isinstance(part, tirx.FloorDiv) and isinstance(part.a, tirx.Var) and isinstance(part.b, tirx.IntImm):
            iterator = next(n for n, v in enumerate(variables) if v.same_as(part.a))
            size = int(part.b)
            if iterator in shared and anchor.extents[iterator] % size == 0 and size > 1:
                return iterator, size
    return None
