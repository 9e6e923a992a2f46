"""Products of which one operand is turned in front of them, as the keys of attention are.

    for k, j: T[k, j] = B[j, k]; for i, j, k: C[i, j] += A[i, k] * T[k, j]

Both operands lie along the sum in memory. Many rows i are worth turning B by blocks in registers, as a stage of its
own. Few rows, those of one token, take less time than turning B: then vectors run along the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import ir, tirx

from .blocks import BlockInfo, BufferAccess
from .draft import Draft
from .extents import is_symbolic

_MOST_ROWS = 4
"""Rows up to which a sum along each is tried."""
_DEPTH_OF_ROW = 16
"""Steps of the sum for each of several rows from which on sums along rows are faster. One thread of Zen 3, microseconds
for turning and for sums along rows, of 8 products of 128 columns, beside other programs: 1 row of 64 steps 11 and 4, 3
rows 15 and 11, 4 rows 16 and 14; 4 rows of 32 steps and 64 columns 3 and 5."""


@dataclass(frozen=True)
class TurnedProduct:
    """The only sum of a function, and how it reads what a block in front of it moves."""

    anchor: BlockInfo
    read: BufferAccess

    @property
    def has_few_rows(self) -> bool:
        """Whether each element that is moved meets too few others to be worth it."""
        extents = [self.anchor.extents[i] for i in self.anchor.spatial if i not in self.read.used]
        if any(map(is_symbolic, extents)):
            return False
        rows, depth = prod(extents), self.anchor.depth
        return rows == 1 or (rows <= _MOST_ROWS and not is_symbolic(depth) and rows * _DEPTH_OF_ROW <= depth)


def find_turned_product(draft: Draft) -> TurnedProduct | None:
    """The product of two activations of a function that has no other sum, and in front of it a block that turns one."""
    sums = [block for block in draft.blocks() if block.reduced]
    if len(sums) != 1 or not sums[0].is_product_sum() or any(map(draft.is_constant, sums[0].reads)):
        return None
    (anchor,) = sums
    pairs = ((read, draft.producer(read)) for read in anchor.reads)
    turned = (read for read, move in pairs if move is not None and _is_turned(draft, anchor, read, move))
    read = next(turned, None)
    return TurnedProduct(anchor, read) if read is not None else None


def _is_turned(draft: Draft, anchor: BlockInfo, read: BufferAccess, move: BlockInfo) -> bool:
    """Whether a block only moves what a sum reads, and what it reads itself lies along the sum."""
    if not moves(draft, move) or not move.reads[0].iterators:
        return False
    last = move.reads[0].iterators[-1]
    places = [d for d, used in enumerate(move.write.iterators) if used & last]
    return bool(places) and all(read.iterators[d] and read.iterators[d] <= anchor.reduced for d in places)


def moves(draft: Draft, block: BlockInfo) -> bool:
    """Whether a block computes nothing, and writes elements in another order than they have."""
    own = (*block.reads, block.write)
    return isinstance(block.value, ir.TensorLoad) and not all(is_identity(draft, block, each) for each in own)


def is_identity(draft: Draft, block: BlockInfo, access: BufferAccess) -> bool:
    """Whether a block reads or writes each element of a buffer at the place that its iterators are."""
    variables = [i.var for i in draft.schedule.get(block.block).iter_vars]
    pairs = zip(access.indices, variables, strict=False)
    return access.shape == block.extents and all(isinstance(i, tirx.Var) and i.same_as(v) for i, v in pairs)
