"""Intensive fusion of matrix products (AGO, section III-B): what a later product reads is made tile by tile, in cache.

    for i, j, k: S[i, j] += Q[i, k] * K[k, j]; for i, j: P = softmax(S * scale + mask); for i, d, j: Y += P * V[j, d]
 => parallel outer axes, row tiles:
        S'[rows, all j] = Q[rows, :] K (by register tiles); for row: softmax; Y[rows, :] = P' V (by register tiles)

A tile of rows runs through the whole chain: products, and row-wise blocks between and after them. The tiles' loops are
axes that every block of the chain has, so no block does anything for two of them (section III-B, Fig. 7: matrix
products tile rows and keep columns whole), and what is kept between blocks is a tile of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from typing import Any

from tvm import tirx

from ....costmodels.device import Device
from ...base.decisions import Alternative
from ..base.blocks import BlockInfo, BufferAccess, find_consumers, walk
from ..base.draft import Draft
from ..base.preparation import reads_directly
from ..base.tiled import Tiled
from ..passes.outlining import OUTLINED
from ..rules.contraction import decide_plan, list_plans, pack_operands
from ..rules.pointwise import schedule_pointwise
from ..rules.rows import register_reducers, split_reduction, vectorise_partial_result
from ..tiling.register_tile import TilePlan, counterpart, cut_tile, finish_tile, share
from ..tiling.tiles import FLOAT_BYTES


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


UNROLLED_STEPS = 8
"""Steps of a loop of vectors up to which LLVM unrolls it completely: its constants then stay in the loop around it."""
SINGLE_ROWS, ROW_STEP = 64, 8
"""Numbers of rows that are tried: all up to the first, then multiples of the second."""
TILE_CYCLES = 300
"""Cycles that a tile takes besides its arithmetic: memory for what it keeps, a call, loops that start."""


def product_chain(draft: Draft) -> Iterator[Tiled]:
    """The rule: matches a product sum whose rows are read by further product sums or row-wise reductions."""
    register_reducers()
    chain = find_chain(draft)
    tile = None if chain is None else _decide_rows(draft, chain)
    if chain is None or tile is None:
        return
    plans = []
    for number, product in enumerate(chain.products, 1):
        plan = decide_plan(draft.within(f"product {number}"), _list_product_plans(draft, chain, product, tile.rows))
        assert plan is not None  # these rows were chosen since there is one
        plans.append(plan)
    links = list(zip(chain.products, plans, strict=True))
    repack = tuple(repack for product, plan in links for repack in pack_operands(draft, product.info, plan))
    _schedule(draft, chain, tile, plans)
    yield Tiled(draft, "product_chain", repack)


# --- how many rows at once


@dataclass(frozen=True)
class RowTile:
    """Rows of a tile, and estimates for the chain: `seconds` with all threads, `cycles` with one."""

    rows: int
    seconds: float
    cycles: float

    @property
    def label(self) -> str:
        """``8 rows``."""
        return f"{self.rows} rows"

    @property
    def features(self) -> Mapping[str, float]:
        """The numbers that a learned model judges it by."""
        return {"rows": self.rows}


def _decide_rows(draft: Draft, chain: BlockChain) -> RowTile | None:
    """The tile of the least time among those that fit half of the second cache; None if none does."""
    few = range(1, min(chain.rows, SINGLE_ROWS) + 1)
    sizes = sorted({*few, *range(SINGLE_ROWS, chain.rows, ROW_STEP), chain.rows})
    tiles = [tile for rows in sizes if (tile := _estimate_tile(draft, chain, rows)) is not None]
    return draft.trace.decide("rows", tiles, lambda tile: tile.seconds) if tiles else None


def _estimate_tile(draft: Draft, chain: BlockChain, rows: int) -> RowTile | None:
    kept, device = rows * chain.kept_elements * FLOAT_BYTES, draft.device
    if kept > device.second_cache // 2:
        return None
    cycles: float = 0
    for product in chain.products:
        plans = _list_product_plans(draft, chain, product, rows)
        best = min((plan.cycles for plan in plans), default=None)
        if best is None:
            return None
        cycles += best
    seconds = _tile_seconds(cycles, kept, chain.shared_elements * FLOAT_BYTES, device)
    tiles = chain.copies * -(-chain.rows // rows)
    return RowTile(rows, -(-tiles // draft.threads) * seconds, tiles * seconds * device.clock)


def _tile_seconds(cycles: float, kept: int, shared: int, device: Device) -> float:
    """Seconds for a tile that keeps some bytes, and reads others that every tile reads.

    Bytes that stay in the second cache beside the kept ones are there when they are needed; the others are waited for.
    """
    computing, reading = (cycles + TILE_CYCLES) / device.clock, shared / device.bandwidth(shared + kept)
    seconds = max(computing, reading) if shared + kept <= device.second_cache else computing + reading
    return seconds + (2 * kept / device.bandwidth(kept) if kept > device.caches[0].size // 2 else 0.0)


def _list_product_plans(draft: Draft, chain: BlockChain, product: ChainBlock, rows: int) -> Iterator[TilePlan]:
    """The register tiles of a product on a tile of rows: they divide the tile, unless it is all rows."""
    extents = [1 if i in product.axes else extent for i, extent in enumerate(product.info.extents)]
    extents[product.row] = rows
    anchor = replace(product.info, extents=tuple(extents))
    for plan in list_plans(draft, anchor, chain.epilogue(product).info):
        divides = rows % plan.tile.rows == 0 or rows == chain.rows
        if plan.row == product.row and plan.column not in product.axes and divides:
            yield plan


# --- the loops


def _schedule(draft: Draft, chain: BlockChain, tile: RowTile, plans: list[TilePlan]) -> None:
    outside = {block.name for block in draft.blocks()} - {block.name for block in chain.blocks}
    partial = {
        block.name: split_reduction(draft, block.info)
        for block in chain.blocks
        if block.is_row_wise and block.info.reduced
    }
    outer = _cut_rows(draft, chain, tile)
    for info in reversed(draft.blocks()):
        if info.name not in (*outside, chain.last.name):
            draft.compute_at(info.block, outer[-1])
    for group in chain.row_wise_groups():
        _schedule_row_wise(draft, chain, group, partial, len(outer))
    for number, (product, plan) in enumerate(zip(chain.products, plans, strict=True), 1):
        _schedule_product(draft.within(f"product {number}"), chain, product, plan, len(outer))
    for info in draft.blocks():
        if info.name in outside:
            schedule_pointwise(draft, info, draft.loops(info))


def _cut_rows(draft: Draft, chain: BlockChain, tile: RowTile) -> list[Any]:
    """The loops over tiles, the outermost in the output's block."""
    loops = draft.loops(chain.last.info)
    outer = [loops[i] for i in chain.last.axes]
    inner = [loop for i, loop in enumerate(loops) if i not in chain.last.axes]
    tiles, row = draft.schedule.split(outer.pop(), [None, tile.rows])
    single = [loop for loop in outer if draft.extent(loop) == 1]
    several = [loop for loop in outer if draft.extent(loop) > 1]
    draft.schedule.reorder(*single, *several, tiles, row, *inner)
    return [*single, *share(draft, [*several, tiles], tile.cycles)]


def _own_loops(draft: Draft, chain: BlockChain, block: ChainBlock, depth: int) -> dict[int, Any]:
    """The loops of a block inside of a tile, by iterator; the output's block has none along other axes than rows."""
    iterators = list(range(len(block.info.extents)))
    if block is chain.last:
        iterators = [block.row, *(i for i in iterators if i not in block.axes)]
    return dict(zip(iterators, draft.loops(block.info)[depth:], strict=True))


def _schedule_product(draft: Draft, chain: BlockChain, product: ChainBlock, plan: TilePlan, depth: int) -> None:
    """Put the register tiles of a product into the loops of its epilogue."""
    anchor, after = product.info, chain.epilogue(product)
    own = _own_loops(draft, chain, after, depth)
    prefix = draft.loops(after.info)[:depth]
    places = {i: counterpart(anchor, after.info, i) for i in anchor.spatial}
    loops = {i: own[place] for i, place in places.items() if place in own}
    order = _decide_order(draft, anchor.depth, plan, loops)
    outer, inner = cut_tile(draft, plan, loops, [*(i for i in loops if i not in order), *order])
    finish_tile(draft, anchor, after.info, plan, [*prefix, *outer], inner)


def _decide_order(draft: Draft, depth: int, plan: TilePlan, loops: Mapping[int, Any]) -> list[int]:
    """Rows and columns, the outer loop first: what streams fewer bytes, as fast as it can."""
    rows, columns = (draft.extent(loops[i]) for i in (plan.row, plan.column))
    sizes = [size * FLOAT_BYTES * depth for size in (rows, columns)]
    left, right = (size / draft.device.bandwidth(size) for size in sizes)
    by_columns = -(-columns // plan.tile.columns) * left + right
    by_rows = -(-rows // plan.tile.rows) * right + left
    alternatives = [
        Alternative("columns first", by_columns, [plan.column, plan.row]),
        Alternative("rows first", by_rows, [plan.row, plan.column]),
    ]
    return draft.trace.choose("order", alternatives)


def _schedule_row_wise(
    draft: Draft, chain: BlockChain, group: tuple[ChainBlock, ...], partial: Mapping[str, list[Any]], depth: int
) -> None:
    """Run the blocks of a group row by row, in the loops of its last one, with partial results in vectors."""
    *others, last = group
    own = _own_loops(draft, chain, last, depth)
    row = own.pop(last.row)
    draft.schedule.reorder(row, *own.values())
    longest = UNROLLED_STEPS * draft.device.lanes
    if last is not chain.last and any(not b.info.is_cheap() and b.info.extents[-1] > longest for b in group):
        draft.schedule.annotate(row, OUTLINED, 1)  # functions in a loop that LLVM does not unroll
    for handle in reversed([b for block in others for b in (*partial.get(block.name, ()), block.info.block)]):
        draft.compute_at(handle, row)
    for block in group:
        if not block.info.reduced:
            inside = draft.loops(block.info)[depth + 1 :]
            schedule_pointwise(draft.serial(), draft.inspect(block.info.block), inside)
        for handle in partial.get(block.name, ()):
            vectorise_partial_result(draft, handle)
