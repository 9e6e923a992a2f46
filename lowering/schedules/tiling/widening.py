"""Bytes that a sum reads as numbers of 16 bits, if the processor multiplies these.

    for i, j, k: C[i, j] += int32(X[i, k]) * int32(W[j, k])
 => for i, k: A[i, k] = int16(X[i, k]); for i, j, k: C[i, j] += int32(A[i, k]) * int32(W[j, k])

What computes the operand for the sum alone, such as a padding, writes them. Else a block of its own does, for a tile of
rows at a time. Weights stay bytes in memory: a load widens them for all rows of a tile.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ....costmodels.device import WIDE
from ..base.blocks import BlockInfo, is_selection
from ..base.draft import STAYS, Draft
from ..base.preparation import find_anchor


def widen_data(
    draft: Draft, anchor: BlockInfo, epilogue: BlockInfo
) -> tuple[Draft, tuple[BlockInfo, BlockInfo] | None]:
    """The draft, and the sum with the block after it, that reads numbers of 16 bits where it had bytes; all as they are
    if the processor does not multiply these, or no operand is a constant."""
    product = draft.device.integer_product
    constants = [read for read in anchor.reads if draft.is_constant(read)]
    others = [read for read in anchor.reads if not draft.is_constant(read)]
    if product is None or not product.widened or len(constants) != 1 or len(others) != 1:
        return draft, (anchor, epilogue)
    (data,), (weights,) = others, constants
    if not product.multiplies(str(data.buffer.dtype), str(weights.buffer.dtype)):
        return draft, (anchor, epilogue)
    draft = draft.copy()
    writer = draft.producer(data)
    if writer is None or draft.is_output(writer) or len(draft.consumers(writer)) > 1:
        block = draft.schedule.cache_read(anchor.block, anchor.reads.index(data), "global")
    else:
        block = writer.block
    draft.schedule.annotate(block, STAYS, 1)
    draft.schedule.unsafe_set_dtype(block, 0, WIDE)
    drop = partial(_drop_narrowing, draft.inspect(block).name)
    body = tvm_ffi.structural_map(draft.function.body, [(tirx.BufferStore, _cast_choices), (tirx.Cast, drop)])
    widened = draft.with_body(body)
    return widened, find_anchor(widened, BlockInfo.is_product_sum)


def _cast_choices(store: Any) -> Any:
    """A store of a selection of numbers of 16 bits in the place of one of a selection that is widened: a padding."""
    value = store.value
    if not isinstance(value, tirx.Cast) or str(value.ty.dtype) != WIDE or not is_selection(value.value):
        return store
    condition, inside, outside = value.value.args
    chosen = tirx.if_then_else(condition, inside.astype(WIDE), outside.astype(WIDE))
    return tirx.BufferStore(store.buffer, chosen, list(store.indices))


def _drop_narrowing(name: str, cast: Any) -> Any:
    """A number of 16 bits of that buffer, which has widened bytes, in the place of the byte that is made of it."""
    inner = cast.value
    if not isinstance(inner, tirx.Cast) or not isinstance(inner.value, ir.TensorLoad):
        return cast
    is_wide = str(cast.ty.dtype) == "int32" and str(inner.value.source.name) == name
    return inner.value.astype("int32") if is_wide else cast
