"""Products of two activations of bytes: both become numbers of 16 bits without their zero points, the second by pairs.

    for i, j, k: C[i, j] += (int32(A[i, k]) - za) * (int32(B[k, j]) - zb)
 => for i, k: D[i, k] = int16(A[i, k]) - za; for k, j: E[k, j] = int16(B[k, j]) - zb
    for q, j, p: F[q, j, p] = E[2 q + p, j]
    for i, j, k: C[i, j] += int32(D[i, k]) * int32(F[k // 2, j, k % 2])

A processor multiplies pairs of numbers of 16 bits and adds up both products in one instruction, as it does with
weights, which are packed when the model is compiled. The pairs are a stage of their own: `transposition` turns them
within the registers, whichever axis of B is contiguous in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import stmt as s_stmt

from ...costmodels.device import WIDE
from ...ir.types import BYTES
from .base.blocks import BlockInfo, BufferAccess, index_map
from .base.draft import PAIRED, STAYS, Draft
from .base.extents import is_symbolic
from .base.nodes import Expression, Statement
from .base.rewriting import list_statements, with_body


def pair_activations(draft: Draft) -> Draft | None:
    """The draft with the operands of its products of activations as numbers of 16 bits, the second by pairs; None if it
    has no such product, or the processor no instruction for it. The draft is not changed."""
    paired = None
    while draft.device.activation_product is not None and (product := next(_find_products(draft), None)) is not None:
        draft = paired = _pair(draft.copy(), product)
    return paired


@dataclass(frozen=True)
class _Side:
    """An operand of a product: how it is read, and what is added to elements: the zero point with the other sign."""

    read: BufferAccess
    offset: int


@dataclass(frozen=True)
class _Product:
    """A sum of products of activations, along the only iterator that it reduces."""

    anchor: BlockInfo
    left: _Side
    right: _Side

    @property
    def reduced(self) -> int:
        """The iterator of the sum."""
        (only,) = self.anchor.reduced
        return only


def _find_products(draft: Draft) -> Iterator[_Product]:
    """The sums of products of two stacks of matrices of bytes, the second not constant, of known sizes."""
    for anchor in draft.blocks():
        if not anchor.is_product_sum() or len(anchor.reduced) != 1 or any(map(is_symbolic, anchor.extents)):
            continue
        multiplied = next(part for part in (anchor.value.a, anchor.value.b) if isinstance(part, tirx.Mul))
        left, right = (_side_of(anchor, factor) for factor in (multiplied.a, multiplied.b))
        if left is None or right is None or draft.is_constant(right.read):
            continue
        product = _Product(anchor, left, right)
        if anchor.depth % 2 == 0 and _has_columns_last(product):
            yield product


def _side_of(anchor: BlockInfo, factor: Expression) -> _Side | None:
    """What is multiplied: an element of an operand of bytes, less a number that is known."""
    wide, offset = factor, 0
    if isinstance(factor, tirx.Sub | tirx.Add) and isinstance(factor.b, tirx.IntImm):
        wide, offset = factor.a, int(factor.b) if isinstance(factor, tirx.Add) else -int(factor.b)
    load = wide.value if isinstance(wide, tirx.Cast) else None
    if not isinstance(load, ir.TensorLoad) or str(load.source.dtype) not in BYTES:
        return None
    return _Side(next(read for read in anchor.reads if read.buffer.same_as(load.source)), offset)


def _has_columns_last(product: _Product) -> bool:
    """Whether the last axes of the second operand are that of the sum, and one that only it has."""
    iterators = product.right.read.iterators
    if len(iterators) < 2 or any(len(used) > 1 for used in iterators):
        return False
    return iterators[-2] == {product.reduced} and bool(iterators[-1]) and not iterators[-1] & product.left.read.used


def _pair(draft: Draft, product: _Product) -> Draft:
    """The draft, which is changed, with numbers of 16 bits in the place of the bytes of both operands."""
    schedule, anchor = draft.schedule, product.anchor
    first = _widen(draft, anchor, product.left.read)
    moves = list(_list_moves(draft, product.right.read))
    reader, read = (moves[-1], moves[-1].reads[0]) if moves else (anchor, product.right.read)
    second = _widen(draft, reader, read)
    for move in moves:
        schedule.unsafe_set_dtype(move.block, 0, WIDE)
    pairs = schedule.cache_read(anchor.block, anchor.reads.index(product.right.read), "global")

    def by_pairs(*indices: Expression) -> list[Expression]:
        *others, k, column = indices
        return [*others, k // 2, column, k % 2]

    schedule.transform_layout(pairs, ("write", 0), by_pairs, assume_injective_transform=True)
    rank = len(product.right.read.shape)
    schedule.transform_block_layout(pairs, index_map(by_pairs, rank))
    schedule.annotate(pairs, PAIRED, 1)
    schedule.annotate(pairs, STAYS, 1)
    sides = ((first, product.left), (second, product.right))
    offsets = {draft.inspect(block).name: side.offset for block, side in sides}
    names = {anchor.name, *(move.name for move in moves)}
    callbacks = [(tirx.BufferStore, _finish(offsets, names)), (s_stmt.SBlock, _write_plainly)]
    body = tvm_ffi.structural_map(draft.function.body, callbacks)
    finished = draft.with_body(_put_before(body, draft.inspect(first).name, anchor.name))
    for block in finished.blocks():
        if block.name in names and block.name != anchor.name:
            finished.inline(block)
    return finished


def _write_plainly(block: Statement) -> Statement:
    """The block of pairs, of which TVM writes indices as (2 q + p) // 2 and (2 q + p) % 2, at q and p."""
    if PAIRED not in block.annotations:
        return block
    store, places = block.body, [each.var for each in block.iter_vars]
    region = tirx.BufferRegion(store.buffer, [ir.Range.from_min_extent(place, 1) for place in places])
    return with_body(block, tirx.BufferStore(store.buffer, store.value, places), writes=[region])


def _put_before(body: Statement, moved: str, anchor: str) -> Statement:
    """The body of a function with the loops that write the buffer `moved` directly in front of those that write
    `anchor`: with the sum, not in front of the pairs."""
    block = body.block
    nests = {_written(nest): nest for nest in block.body.seq}
    nest = nests.pop(moved)
    ordered = [part for name, each in nests.items() for part in ((nest, each) if name == anchor else (each,))]
    return s_stmt.SBlockRealize(body.iter_values, body.predicate, with_body(block, tirx.SeqStmt(ordered)))


def _written(nest: Statement) -> str:
    """The name of the buffer that a loop nest writes."""
    (realized,) = list_statements(nest, s_stmt.SBlockRealize)
    return str(realized.block.writes[0].source.name)


def _widen(draft: Draft, reader: BlockInfo, read: BufferAccess) -> Any:
    """The new block that makes the numbers of 16 bits which `reader` alone reads in the place of bytes."""
    block = draft.schedule.cache_read(reader.block, reader.reads.index(read), "global", [reader.block])
    draft.schedule.annotate(block, STAYS, 1)
    draft.schedule.unsafe_set_dtype(block, 0, WIDE)
    return block


def _list_moves(draft: Draft, read: BufferAccess) -> Iterator[BlockInfo]:
    """The blocks in front of an operand, the last first, that only move elements, for this operand alone."""
    producer = draft.producer(read)
    while producer is not None and isinstance(producer.value, ir.TensorLoad):
        if draft.is_output(producer) or len(draft.consumers(producer)) > 1:
            return
        yield producer
        producer = draft.producer(producer.reads[0])


def _finish(offsets: Mapping[str, int], names: Collection[str]) -> Callable[[Any], Any]:
    """What stores become: to those of some buffers `offsets` are added, and those of `names` read numbers of 16 bits as
    they are."""

    def drop(cast: Any) -> Any:
        """int32(load) in the place of int32(uint8(load)), of which TVM made the load wider; without zero points."""
        inner = cast.value
        narrowed = isinstance(inner, tirx.Cast) and isinstance(inner.value, ir.TensorLoad)
        if not narrowed or str(inner.value.source.dtype) != WIDE:
            return cast
        return inner.value if str(cast.ty.dtype) == WIDE else inner.value.astype(cast.ty.dtype)

    def drop_offset(value: Any) -> Any:
        is_wide = isinstance(value.a, tirx.Cast) and isinstance(value.a.value, ir.TensorLoad)
        return value.a if is_wide and str(value.a.value.source.dtype) == WIDE else value

    def finish(store: Any) -> Any:
        name, value = str(store.buffer.name), store.value
        if name in offsets:
            value = value + tirx.const(offsets[name], WIDE)
        elif name in names:
            value = tvm_ffi.structural_map(value, [(tirx.Cast, drop)])
            value = tvm_ffi.structural_map(value, [(tirx.Sub, drop_offset), (tirx.Add, drop_offset)])
        return tirx.BufferStore(store.buffer, value, list(store.indices))

    return finish
