"""Which functions are chains: products and row-wise reductions, of which each tile of rows can run through all.

    S[i, j] += Q[i, k] * K[k, j]; P = softmax(S * scale + mask) by rows; Y[i, d] += P[i, j] * V[j, d]

Along the axes of a chain each block needs of the others exactly the elements at the same place.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import prod

from tvm import tirx

from ..base.blocks import BlockInfo, BufferAccess, find_consumers, walk
from ..base.draft import Draft
from ..base.preparation import reads_directly


@dataclass(frozen=True)
class ChainBlock:
    """A block of a chain. `axes` are its iterators along the chain's axes, of which the last is the rows'."""

    info: BlockInfo
    axes: tuple[int, ...]
    is_row_wise: bool

    @property
    def name(self) -> str:
        """The buffer that it writes, which is unique in a function."""
        return self.info.name

    @property
    def row(self) -> int:
        """The iterator along the rows."""
        return self.axes[-1]


@dataclass(frozen=True)
class BlockChain:
    """Blocks in running order, each depends on the first; the last one makes the function's only output.

    A product is followed by its epilogue, which reads it element by element; all others are row-wise, and among
    such blocks that follow each other is a reduction. Invariant: along the chain's axes each block needs of the others
    exactly the elements at the same place.
    """

    blocks: tuple[ChainBlock, ...]

    @property
    def products(self) -> tuple[ChainBlock, ...]:
        """The products, in order."""
        return tuple(block for block in self.blocks if block.info.is_product_sum())

    @property
    def last(self) -> ChainBlock:
        """The block that makes the output."""
        return self.blocks[-1]

    @property
    def rows(self) -> int:
        """The extent of the axis that is cut into tiles."""
        return self.last.info.extents[self.last.row]

    @property
    def copies(self) -> int:
        """The number of sets of such rows, along the chain's other axes."""
        return prod(self.last.info.extents[i] for i in self.last.axes[:-1])

    @property
    def kept_elements(self) -> int:
        """Elements of a row that later blocks of the chain read: outputs of epilogues, and operands of products."""
        read = {read.name for product in self.products for read in product.info.reads}
        kept = [b for b in self.blocks[:-1] if not b.info.is_product_sum() and (b.name in read or not b.is_row_wise)]
        return sum(prod(e for i, e in enumerate(b.info.extents) if i not in b.axes) for b in kept)

    @property
    def shared_elements(self) -> int:
        """Elements of operands of products that have no rows: other matrices, which every tile reads as a whole."""
        others = [(p, read) for p in self.products for read in p.info.reads if p.row not in read.used]
        return sum(prod(p.info.extents[i] for i in read.used if i not in p.axes) for p, read in others)

    def epilogue(self, product: ChainBlock) -> ChainBlock:
        """The block that reads the product."""
        return self.blocks[self.blocks.index(product) + 1]

    def row_wise_groups(self) -> list[tuple[ChainBlock, ...]]:
        """Runs of row-wise blocks."""
        runs = groupby(self.blocks, key=lambda block: block.is_row_wise)
        return [tuple(run) for is_row_wise, run in runs if is_row_wise]


def find_chain(draft: Draft) -> BlockChain | None:
    """Inline what can be; None if the function is no chain with a product and, after it, another reduction."""
    blocks = draft.blocks()
    first = next((block for block in blocks if block.is_product_sum()), None)
    if first is None or sum(bool(block.reduced) for block in blocks) < 2:
        return None
    for block in draft.blocks_in_turn():
        if draft.may_inline(block) and _should_inline(draft, block):
            draft.inline(block)
    if not draft.inspect(first.block).is_product_sum():
        return None
    for product in [block for block in draft.blocks() if block.is_product_sum()]:
        if _find_epilogue(draft.blocks(), product) is None:
            draft.schedule.cache_write(product.block, 0, "global")
    blocks = draft.blocks()
    body = _find_dependents(blocks)
    if sum(bool(block.reduced) for block in body) != sum(bool(block.reduced) for block in blocks):
        return None
    outputs = [block for block in body if draft.is_output(block)]
    if len(outputs) != 1 or outputs[0] is not body[-1]:
        return None
    return _make_chain(body)


def _should_inline(draft: Draft, block: BlockInfo) -> bool:
    """Whether it is a prologue of products, or point-wise and read by others such; operands of a reduction stay."""
    blocks = draft.blocks()
    if all(dependent.name != block.name for dependent in _find_dependents(blocks)):
        return block.is_cheap()
    users = find_consumers(blocks, block)
    if any(user.reduced for user in users):
        return False
    divides = any(isinstance(part, tirx.Div) for part in walk(block.value))
    return (len(users) == 1 and users[0].extents == block.extents) or (block.is_cheap() and not divides)


def _find_dependents(blocks: list[BlockInfo]) -> list[BlockInfo]:
    """The first product and all that depends on it."""
    first = next(n for n, block in enumerate(blocks) if block.is_product_sum())
    dependents = [blocks[first]]
    for block in blocks[first + 1 :]:
        if {read.name for read in block.reads} & {dependent.name for dependent in dependents}:
            dependents.append(block)
    return dependents


def _find_epilogue(blocks: list[BlockInfo], product: BlockInfo) -> BlockInfo | None:
    after = find_consumers(blocks, product)
    return after[0] if len(after) == 1 and reads_directly(after[0], product) else None


def _make_chain(body: list[BlockInfo]) -> BlockChain | None:
    axes = _find_common_axes(body)
    products = [block for block in body if block.is_product_sum()]
    tiled = [a for a in axes if all(len(p.operands(axes[a][p.name])) == 1 for p in products)]
    if not tiled:
        return None
    row = next((a for a in reversed(tiled) if body[-1].extents[a] > 1), tiled[-1])
    order = [*(a for a in axes if a != row), row]
    epilogues = {e.name for p in products if (e := _find_epilogue(body, p)) is not None}
    if len(epilogues) != len(products):
        return None
    others = epilogues | {product.name for product in products}
    blocks = [ChainBlock(b, tuple(axes[a][b.name] for a in order), b.name not in others) for b in body]
    chain = BlockChain(tuple(blocks))
    follow = all(body[n + 1].name in epilogues for n, block in enumerate(body) if block.is_product_sum())
    reducing = all(any(block.info.reduced for block in group) for group in chain.row_wise_groups())
    return chain if follow and reducing and any(block.reduced for block in body[1:]) else None


def _find_common_axes(body: list[BlockInfo]) -> dict[int, dict[str, int]]:
    """Axes that all blocks have: by the last block's iterator, the iterator of each block, by its buffer's name."""
    last = body[-1]
    axes_of: dict[str, dict[int, int]] = {last.name: {i: i for i in last.spatial}}
    for block in reversed(body[:-1]):
        passed = [
            _pass_axes(read, axes_of[user.name], block, user)
            for user in find_consumers(body, block)
            for read in user.reads
            if read.name == block.name
        ]
        first = passed[0] if passed else {}
        axes_of[block.name] = {a: i for a, i in first.items() if all(p.get(a) == i for p in passed)}
    common = [a for a in last.spatial if all(a in own for own in axes_of.values())]
    return {a: {name: own[a] for name, own in axes_of.items()} for a in common}


def _pass_axes(read: BufferAccess, axes: dict[int, int], producer: BlockInfo, user: BlockInfo) -> dict[int, int]:
    """The axes whose iterator in `user` alone is the index of a whole dimension that `producer` runs along."""
    axis_of = {iterator: axis for axis, iterator in axes.items()}
    passed: dict[int, int] = {}
    for used, index, written in zip(read.iterators, read.indices, producer.write.iterators, strict=True):
        if len(used) != 1 or len(written) != 1 or not isinstance(index, tirx.Var):
            continue
        (outer,), (inner,) = used, written
        if outer in axis_of and user.extents[outer] == producer.extents[inner]:
            passed[axis_of[outer]] = inner
    return passed
