"""Product sums: matrix products and convolutions of any kind, from a register tile.

The output has axes that both operands share (batch, group, depthwise channel), axes of the first only, and axes of the
second only. One axis of one operand is vectorised, one or two of the other are the rows of the tile:

    for o.. (outputs), k.., k_in (reductions): C += A * B; for o..: Y = f(C)
 => parallel outer tiles: for column tile: for row tile:
        init C[rows, vectors, lanes] (registers)
        for k..: unrolled k_in, rows, vectors: vectorised lanes: C += broadcast(A) * B
        for rows, vectors: vectorised lanes: Y = f(C)

A constant operand is packed so that the tile's columns (or rows) are contiguous. 3x3 convolutions may be computed with
fewer products instead: see `winograd`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import log2, prod, sqrt
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from ....costmodels.device import WIDE, Device
from ....costmodels.device_file import CACHE_LINE
from ....costmodels.register_tiles import Tile, register_tiles, tile_cycles
from ...base.decisions import Alternative, Trace
from ..base.blocks import BlockInfo, BufferAccess, element_bytes, is_selection, parameter_index, walk
from ..base.draft import EXACT_PAIRS, STAYS, Draft
from ..base.extents import TYPICAL, expression_of, is_symbolic, number_of, typical_sizes
from ..base.packing import Repack, Word
from ..base.preparation import find_anchor
from ..base.tiled import Tiled
from ..passes.prefetch import Weights, cycles_with_weights
from ..passes.tails import PACKED
from ..passes.taps import find_outside, list_gaps, list_taps
from ..tiling.axes import fuse_pixels, split_groups, split_phases
from ..tiling.register_tile import TilePlan, counterpart, cut_tile, finish_tile, share, usual_steps
from ..tiling.tiles import FLOAT_BYTES, shrink_tile
from ..winograd.match import find_convolution
from .pointwise import schedule_prologues, vectorise_last
from .winograd import winograd

BLOCKS = (2, 4, 8, 16, 32)
"""Numbers of tiles in a block that a search tries."""
FEWER_ROWS = (1, 4)
"""Rows of the tiles for dynamic extents that are shorter than the usual tile."""
SHORT_SUM = 32
"""Products of bytes in a sum up to which LLVM leaves no loop over it: it then loads the broadcast words of a tile of
rows in front of the loop over its columns, and spills them. 24 channels to 144 on 56 x 56: 108 us, and 78 by columns
first (Xeon with VNNI)."""
FEW_REGISTERS = 16
"""Vector registers up to which tiles of windows are as large as others if one tap's channels fill the unrolled steps. A
convolution of 3x3 by steps of 2, of 32 channels to 64 on 28 x 28, takes 80 us by 5 x 2 vectors and 90 by 4 x 2, one of
5x5 with 64 channels 1,177 by 6 x 2 and 1,245; of three channels to 32, whose taps are unrolled, 18 and 15 (Zen 3)."""
MANY_ROWS = 16
"""Rows that a dynamic axis counts, too, if fewer are optimised for: 12,544 columns by 1,024, with tiles for a batch of
1, take 492 ms for 128 rows, with tiles for both 57 ms, and 3.9 instead of 5.6 ms for one row (Xeon with AVX-512)."""
FAR_ROWS = 1.5
"""How many times as many cycles rows count whose pixels lie on lines of their own, if neighbours along another axis
share lines. Of maps with channels first, a convolution of 1x3x3 took 1.9 to 2.2 times as long with rows along the
depth as along the width, one of 3x3 along the height 1.05 to 2.7 times (Xeon with AVX-512)."""
LARGER = 2
"""The factor by which rows and columns of a dynamic plane count larger than those that are optimised for when
Winograd's filters are considered."""


def contraction(draft: Draft) -> Iterator[Tiled]:
    """The rule: matches a function with exactly one product sum, whose other blocks are point-wise."""
    draft = split_phases(draft) or draft
    pair = find_anchor(draft, BlockInfo.is_product_sum)
    if pair is None:
        return
    filtered = _filter(draft, *pair)
    if filtered is not None:
        yield filtered
        return
    draft = _choose_exact_pairs(draft, pair[0])
    draft, pair = widen_data(draft, *pair)
    if pair is None:
        return
    attempt = draft.copy()
    with suppress(s_tir.ScheduleError):
        flat = fuse_pixels(attempt, *pair)
        if flat is not None and flat[0].is_product_sum() and draft.trace.decide_flag("flat", usual=True):
            draft, pair = attempt, flat
    grouped = split_groups(draft, *pair)
    if grouped is not None:
        draft, pair = grouped, find_anchor(grouped, BlockInfo.is_product_sum)
    if pair is None:
        return
    anchor, epilogue = pair
    plan = decide_plan(draft, list_plans(draft, anchor, epilogue))
    if plan is None:
        return
    repack = pack_operands(draft, anchor, plan)
    yield replace(_tile(draft, anchor, epilogue, plan), repack=repack, fetches_ahead=True)


def _tile(draft: Draft, anchor: BlockInfo, epilogue: BlockInfo, plan: TilePlan) -> Tiled:
    """The draft, whose constants are packed, by the plan's tiles.

    If dynamic rows or columns are fewer than a tile has, smaller tiles compute them. Tiles of one row leave out what
    their windows see outside of the map, all tiles what has no weights.
    """
    smaller, outside = None, None
    has_gaps = any(True for _ in list_gaps(anchor.value))
    is_short, is_narrow = (is_symbolic(anchor.extents[axis]) for axis in (plan.row, plan.column))
    tile = shrink_tile(plan.tile, FEWER_ROWS, is_short=is_short, is_narrow=is_narrow)
    if tile != plan.tile:
        own = replace(draft.copy(), trace=Trace())
        smaller = _tile(own, anchor, epilogue, replace(plan, tile=tile))
    if plan.tile.rows == 1 and (is_symbolic(anchor.extents[plan.row]) or anchor.extents[plan.row] == 1):
        outside = find_outside(draft, anchor)
    plan = replace(plan, taps=list_taps(anchor) if has_gaps or outside is not None else ())
    _schedule(draft, anchor, epilogue, plan)
    schedule_prologues(draft, epilogue)
    return Tiled(draft, "contraction", smaller=smaller, outside=outside, has_gaps=has_gaps)


def _filter(draft: Draft, anchor: BlockInfo, epilogue: BlockInfo) -> Tiled | None:
    """The tiling by Winograd's minimal filters, if these are estimated to be faster.

    For a dynamic plane the estimate takes more rows and columns than those that are optimised for: a filter gains more
    on large planes than it loses on small ones.
    """
    convolution = find_convolution(draft, anchor, epilogue)
    if convolution is None:
        return None
    sizes = typical_sizes(draft.function)
    if convolution.is_free:
        parts = (part for extent in convolution.outputs[1:3] for part in walk(expression_of(extent)))
        plane = {str(part.name) for part in parts if isinstance(part, tirx.Var)}
        larger = {name: size * LARGER if name in plane else size for name, size in sizes.items()}
        draft = draft.with_attribute(TYPICAL, larger)
        pair = find_anchor(draft, BlockInfo.is_product_sum)
        assert pair is not None
        convolution = find_convolution(draft, *pair)
        assert convolution is not None
        anchor, epilogue = pair
    direct = list_plans(draft, anchor, epilogue)
    filtered = winograd(draft, convolution, min(plan.cycles for plan in direct), _tile_few) if direct else None
    if filtered is None or not sizes:
        return filtered
    return replace(filtered, draft=filtered.draft.with_attribute(TYPICAL, sizes))


def _tile_few(draft: Draft, tile: Tile) -> Tiled:
    """Direct products of weights that are packed for a wider tile of columns, by tiles of its rows and fewer."""
    pair = find_anchor(draft, BlockInfo.is_product_sum)
    assert pair is not None
    anchor, epilogue = pair
    weights = next(read for read in anchor.reads if draft.is_constant(read))
    (column,) = weights.iterators[-1]
    row = next(i for i in reversed(anchor.spatial) if i != column and is_symbolic(anchor.extents[i]))
    return _tile(replace(draft, trace=Trace()), anchor, epilogue, TilePlan(column, row, tile, 0.0))


# --- the register tile


def decide_plan(draft: Draft, plans: Iterable[TilePlan]) -> TilePlan | None:
    """The plan of the fewest cycles, if nothing else is decided; None of none."""
    options = list(plans)
    return draft.trace.decide("tile", options, lambda plan: plan.cycles) if options else None


def list_plans(draft: Draft, anchor: BlockInfo, epilogue: BlockInfo) -> list[TilePlan]:
    """The axes that can be vectorised, with every tile that fits the registers."""
    plans: list[TilePlan] = []
    for column in anchor.spatial:
        readers = anchor.operands(column)
        weighed = len(readers) == 1 and draft.is_constant(readers[0])
        paired = len(readers) == 1 and _is_paired(anchor, readers[0])
        packed = weighed or paired
        word = _find_word(draft, anchor, readers[0]) if packed else None
        if not packed and not all(read.is_unit_stride(column) for read in readers):
            continue
        for row in reversed(anchor.spatial):
            rows = anchor.operands(row)  # of a tile, which is an outer product, only the other operand has the rows
            if row != column and len(rows) == 1 and column not in rows[0].used:
                own = _plans_of_axes(anchor, epilogue, draft.device, column, row, word, weighed=weighed)
                far = FAR_ROWS if not draft.is_constant(rows[0]) and _is_far(anchor, rows[0], row) else 1.0
                plans += (replace(plan, cycles=far * plan.cycles) for plan in own)
    return plans


def _is_far(anchor: BlockInfo, read: BufferAccess, row: int) -> bool:
    """Whether neighbours along the row lie on different cache lines, and those along another axis are the next ones in
    memory."""
    place = max(d for d, used in enumerate(read.iterators) if row in used)
    distance = element_bytes(read.buffer) * prod(number_of(extent) for extent in read.shape[place + 1 :])
    return distance > CACHE_LINE and any(read.is_unit_stride(i) for i in anchor.spatial if anchor.extents[i] != 1)


def _plans_of_axes(
    anchor: BlockInfo, epilogue: BlockInfo, device: Device, column: int, row: int, word: Word | None, *, weighed: bool
) -> Iterable[TilePlan]:
    """Every tile of these axes, whose sum is of bytes if there is a `word`; `weighed`: the operand with the columns is
    a constant, of which a model has many."""
    columns, rows = anchor.extents[column], anchor.extents[row]
    others = prod(anchor.extents[i] for i in anchor.spatial if i not in (column, row))
    stride = _stride(epilogue, counterpart(anchor, epilogue, column))
    wide = {i for i in anchor.reduced if anchor.extents[i] > 1}
    # neighbours along the rows read overlapping elements, as the pixels of a convolution do
    taps = {i for read in anchor.reads for used in read.iterators if row in used for i in used & wide}
    inside = prod(number_of(anchor.extents[i]) for i in anchor.reduced if i > max(taps, default=0))
    depth, step_bytes = (anchor.depth, FLOAT_BYTES) if word is None else (anchor.depth // word.length, word.length)
    product = None if word is None else device.integer_product if weighed else device.activation_product
    added = product is not None and product.added

    def cycles_of(tile: Tile, rows: int) -> float:
        cycles = others * tile_cycles(tile, rows, columns, depth, device, stride, widened=added)
        if not weighed:
            return cycles
        line, passes = step_bytes * depth, others * -(-rows // tile.rows)
        return cycles_with_weights(cycles, Weights(line * columns, line * tile.columns, passes), device)

    def keeps_broadcasts(tile: Tile) -> bool:
        """Whether the unrolled steps of a tile are several taps of a window, which share what is broadcast."""
        is_rolled = word is None and device.vector_registers <= FEW_REGISTERS and inside > usual_steps(tile, device)
        return bool(taps) and not is_rolled

    many = max(number_of(rows), MANY_ROWS) if is_symbolic(rows) else rows
    for tile in register_tiles(many, columns, device, window=False, widened=added):
        if not tile.fits(device, window=keeps_broadcasts(tile), widened=added):
            continue
        cycles = cycles_of(tile, many)
        if many > rows:  # a call may bring as many: equally far from the best tile for these and for few
            few = shrink_tile(tile, FEWER_ROWS, is_short=tile.rows > rows, is_narrow=False)
            cycles = sqrt(cycles / many * number_of(rows) * cycles_of(few, rows))
        yield TilePlan(column, row, tile, cycles, word=word)


def _choose_exact_pairs(draft: Draft, anchor: BlockInfo) -> Draft:
    """The draft for a device that adds up products of bytes in 16 bits, if no sum of two saturates in the function."""
    constants = [read for read in anchor.reads if draft.is_constant(read)]
    if len(anchor.reads) != 2 or len(constants) != 1 or not (draft.function.attrs or {}).get(EXACT_PAIRS):
        return draft
    paired = replace(draft, device=draft.device.with_exact_pairs)
    return draft if _find_word(paired, anchor, constants[0]) is None else paired


def _find_word(draft: Draft, anchor: BlockInfo, weights: BufferAccess) -> Word | None:
    """The steps of the reduction that are one instruction: along their iterator, integers follow each other in memory.
    None if there is none, or no such instruction for the types."""
    (data,) = [read for read in anchor.reads if read is not weights]
    is_paired = _is_paired(anchor, weights)
    product = draft.device.activation_product if is_paired else draft.device.integer_product
    if product is None or str(data.buffer.dtype) not in product.loaded:
        return None
    if str(weights.buffer.dtype) not in product.weights:
        return None
    length = product.length
    return next(
        (Word(i, length) for i in sorted(anchor.reduced) if data.is_unit_stride(i) and i in weights.used
         and anchor.extents[i] % length == 0
         and (is_paired or weights.shape[weights.dimension_of(i)] == anchor.extents[i])),
        None,
    )  # fmt: skip


def _is_paired(anchor: BlockInfo, read: BufferAccess) -> bool:
    """Whether an operand has pairs of neighbours along the reduction side by side, behind its columns, as
    `pair_activations` makes them: [k // 2, n, k % 2]."""
    last, before = read.iterators[-1], read.iterators[-2] if len(read.iterators) > 1 else frozenset[int]()
    return read.shape[-1:] == (2,) and last == anchor.reduced and bool(before) and not before & anchor.reduced


def _stride(epilogue: BlockInfo, iterator: int) -> int | None:
    """Bytes from an element of the result to the next of the iterator, of which each is taken to be one of its
    dimension; None if that is the next in memory."""
    write = epilogue.write
    if write.is_unit_stride(iterator):
        return None
    first = next((d for d, used in enumerate(write.iterators) if iterator in used), len(write.shape))
    return FLOAT_BYTES * prod(int(extent) for extent in write.shape[first + 1 :])


def pack_operands(draft: Draft, anchor: BlockInfo, plan: TilePlan) -> tuple[Repack, ...]:
    """Pack the constants among the operands by tiles of the plan; `overlap_tails` has to follow."""
    function, packs = draft.function, []
    for iterator, factor in ((plan.column, plan.tile.columns), (plan.row, plan.tile.rows)):
        readers = anchor.operands(iterator)
        if len(readers) != 1 or not draft.is_constant(readers[0]):
            continue
        (read,) = readers
        axis, index = read.dimension_of(iterator), parameter_index(function, read.buffer)
        assert index is not None
        if len(read.iterators[axis]) > 1 and anchor.extents[iterator] % factor:
            factor = read.shape[axis]  # tiles of groups that they do not divide stay where they are
        others = [a for a in range(len(read.shape)) if a != axis]  # reduced axes in the order of the loops
        order = (axis, *(a for _, a in sorted((min(read.iterators[a], default=-1), a) for a in others)))
        word = None
        if plan.word is not None and iterator == plan.column:
            word = replace(plan.word, axis=read.dimension_of(plan.word.axis))
        packs.append(Repack(index, axis, factor, order, word))
        place = ("read", anchor.reads.index(read))
        draft.schedule.transform_layout(
            anchor.block, place, packs[-1].index_map, assume_injective_transform=True
        )
    tiled = [repack for repack in packs if repack.factor < function.params[repack.parameter].shape[repack.axis]]
    if tiled:
        names = [str(function.params[repack.parameter].name) for repack in tiled]
        draft.schedule.annotate(anchor.block, PACKED, names)
    return tuple(packs)


# --- the loops over tiles


def _schedule(draft: Draft, anchor: BlockInfo, epilogue: BlockInfo, plan: TilePlan) -> None:
    around = draft.loops(epilogue)
    loops = {i: around[counterpart(anchor, epilogue, i)] for i in anchor.spatial}
    producer = _find_row_producer(draft, anchor, plan)
    order = order_tiles(draft, anchor, plan, rows_first=producer is not None)
    outer, inner = cut_tile(draft, plan, loops, order)
    if producer is None:
        outer = _split_blocks(draft, outer, order, plan)
    outer = share(draft, outer, plan.cycles)
    finish_tile(draft, anchor, epilogue, plan, outer, inner)
    if producer is not None:
        inside = len(order) - order.index(plan.row)
        draft.compute_at(producer.block, outer[max(0, len(outer) - inside)])
        vectorise_last(draft, producer.block)


def _split_blocks(draft: Draft, outer: list[Any], order: list[int], plan: TilePlan) -> list[Any]:
    """The loops over tiles; the first of rows and columns is cut into blocks that all of the other pass through.

    for row tile: for column tile: ...    =>    for block: for column tile: for row tile in the block: ...
    """
    first = min(order.index(plan.row), order.index(plan.column))
    extent = draft.extent(outer[first])
    sizes = [size for size in BLOCKS if size < extent and extent % size == 0] if first + 1 < len(outer) else []
    size = draft.trace.decide_number("block", [1, *sizes], lambda number: 1.0 + log2(number) / 4)
    if size == 1:
        return outer
    blocks, inside = draft.schedule.split(outer[first], [None, size])
    loops = [*outer[:first], blocks, *outer[first + 1 :], inside]
    draft.schedule.reorder(*loops)
    return loops


def _find_row_producer(draft: Draft, anchor: BlockInfo, plan: TilePlan) -> BlockInfo | None:
    """The block that computes the rows of the product, not only pads them, for nobody else.

    It is computed for a tile of rows at a time, which all columns then read; not if windows of neighbouring rows
    overlap: each tile would compute elements of its neighbours again, and read words right behind the narrower stores
    that write them. The first convolution of MobileNet-V2 took 193 us with AVX2 so, and takes 43 (Zen 5).
    """
    (rows,) = anchor.operands(plan.row)
    if any(plan.row in used and used & anchor.reduced for used in rows.iterators):
        return None
    for block in draft.blocks():
        if block.name == rows.name and not draft.is_output(block):
            alone = len(draft.consumers(block)) == 1
            return block if alone and block.is_pointwise() and not block.is_selective() else None
    return None


def order_tiles(draft: Draft, anchor: BlockInfo, plan: TilePlan, *, rows_first: bool = False) -> list[int]:
    """The output's axes from the outermost to the innermost loop over tiles.

    Those that both operands share come first. Then either the columns' operand stays in the caches and the rows' is
    streamed once per column tile, or the other way round (always if `rows_first`): the way that moves fewer bytes, each
    at the rate of the memory that they fit.
    """
    streamed = anchor.operands(plan.row)[0]
    kept = next(r for r in anchor.reads if r is not streamed)
    shared = [i for i in anchor.spatial if (i in streamed.used) == (i in kept.used)]
    rows = [i for i in anchor.spatial if i not in (*shared, *kept.used, plan.row)] + [plan.row]
    columns = [i for i in anchor.spatial if i not in (*shared, *streamed.used, plan.column)] + [plan.column]
    if rows_first:
        return [*shared, *rows, *columns]
    if plan.word is not None and anchor.depth <= SHORT_SUM:
        return [*shared, *columns, *rows]
    row_tiles = prod(anchor.extents[i] for i in rows[:-1]) * -(-anchor.extents[plan.row] // plan.tile.rows)
    column_tiles = prod(anchor.extents[i] for i in columns[:-1]) * -(-anchor.extents[plan.column] // plan.tile.columns)
    batch = prod(anchor.extents[i] for i in shared)

    def seconds(access: BufferAccess) -> float:
        """Seconds to read the operand once; 0 from the first cache, whose loads are in the cycles of a tile."""
        size = element_bytes(access.buffer) * prod(access.shape) // batch
        return size / draft.device.bandwidth(size) if size > draft.device.caches[0].size else 0.0

    by_columns = column_tiles * seconds(streamed) + seconds(kept)
    by_rows = row_tiles * seconds(kept) + seconds(streamed)
    alternatives = [
        Alternative("columns first", by_columns, [*shared, *columns, *rows]),
        Alternative("rows first", by_rows, [*shared, *rows, *columns]),
    ]
    return draft.trace.choose("order", alternatives)


# Bytes that a sum reads as numbers of 16 bits, if the processor multiplies these.
#
#     for i, j, k: C[i, j] += int32(X[i, k]) * int32(W[j, k])
#  => for i, k: A[i, k] = int16(X[i, k]); for i, j, k: C[i, j] += int32(A[i, k]) * int32(W[j, k])
#
# What computes the operand for the sum alone, such as a padding, writes them. Else a block of its own does, for a tile
# of rows at a time. Weights stay bytes in memory: a load widens them for all rows of a tile.

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
        block = draft.schedule.cache_read(anchor.block, anchor.reads.index(data), "global", [anchor.block])
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
