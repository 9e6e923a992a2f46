"""Functions that no rule does well as a whole, divided into stages that rules do well, one behind the other.

    for i, k: M = sum(X); for i, k: Y = f(X, M); for k, i: Z[k, i] = Y[i, k]
 => { for i: { M; vectorised k: Y = f(X, M) }; for k, i: blocks of Z[k, i] = Y[i, k] }

What one stage hands to another is written and read again, which is less than loops that no vector runs along. Of all
cuts between blocks, those of the fewest estimated cycles are taken.

If the constant of a product sum has fewer columns than a vector, as in the last layer of a network that makes images, a
stage in front may turn the map: a vector along the three colours of a pixel is mostly empty, one along pixels is full.

    for h, w, o, k, c: C[h, w, o] += X[h, w + k, c] * W[o, k, c]
 => { for h, c, w: T[h, c, w] = X[h, w, c]; for h, w, o, k, c: C[h, w, o] += T[h, c, w + k] * W[o, k, c] }

A point-wise block that reads along another axis than it writes, as one behind a view of a feature map does, reads a
copy that a stage in front has turned: together they would move elements one by one.

    for w, c: Y[w, c] = f(X[c, w])    =>    { for w, c: T[w, c] = X[c, w]; for w, c: Y[w, c] = f(T[w, c]) }

If a sum is so deep that the weights of a tile of columns do not fit the second cache, each tile of rows would bring
them again. Then parts of the sum are one stage, part after part, and their sums another.

    for i, j, k: C[i, j] += A[i, k] * W[k, j]
 => { for p, i, j, k: P[p, i, j] += A[i, p*256 + k] * W[p*256 + k, j]; for i, j, p: C[i, j] += P[p, i, j] }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from math import prod
from typing import Any

import tvm
from tvm import ir, s_tir, tirx
from tvm.s_tir import stmt as s_stmt

from ...costmodels.device import Device
from ..base.decisions import DecisionSite, Trace
from ..compute.recurrence import RECURRENCE
from .base.blocks import FUNCTION, BlockInfo, BufferAccess, index_map, parameter_index
from .base.draft import BETWEEN, CONSTANTS, Draft, Scheduled
from .base.extents import is_symbolic, number_of
from .base.nodes import Buffer, Statement
from .base.packing import Packing, Repack
from .base.rewriting import with_body
from .base.turned import find_turned_product, is_identity, moves
from .estimate import estimate_cycles
from .passes.tails import separate_scopes
from .rules.contraction import MANY_ROWS
from .tiling.tiles import FLOAT_BYTES

STAGES = "stages"
"""The prefix of the names of these schedules; the rules of the stages follow."""
MOST_CUTS = 6
"""Cuts that are tried, together and each alone; those that hand over least."""
MOST_BLOCKS = 600
"""Blocks of all parts that are scheduled to choose among the cuts of a function: 4 to 16 ms for each. Long
functions, such as unrolled recurrences, try fewer cuts."""
FEW = 64
"""Iterations of a block that computes a few numbers: scale and zero point of a map, or those of its channels."""
HANDED_OVER = 1 / 16
"""Cycles for a byte that is written and read again."""
FAR_WEIGHTS, NEAR_WEIGHTS = 0.4, 0.25
"""The part of the second cache from which on the weights of a tile are too many, and the one that those of a part of
the sum may take: a 3 x 3 x 3 convolution of 512 channels on 4 x 14 x 14 takes 258 ms as one sum, and 82 in parts; 128
rows by 1,024 columns take 3.5 ms as one sum and 3.6 in parts with a depth of 2,048, where the part is 0.3, and with
4,096 8.6 and 7.2 ms (Xeon with 2 MB)."""
CLEARLY_MORE = 4
"""The factor by which bytes of weights that are brought again have to exceed those of the parts' sums."""
ROUND = 8
"""Rows of a tile in registers, about, for which weights are brought once."""


@dataclass(frozen=True)
class Estimated:
    """A schedule, its estimated cycles, and the decisions that it took."""

    cycles: float
    scheduled: Scheduled
    sites: Sequence[DecisionSite]

    @staticmethod
    def of(scheduled: Scheduled, trace: Trace, device: Device) -> Estimated:
        """The estimate of a schedule that was made with a trace of its own."""
        return Estimated(estimate_cycles(scheduled.schedule.mod[FUNCTION], device), scheduled, trace.sites)


Part = Callable[[tirx.PrimFunc, str], Estimated]
"""Schedules a function without cutting it; its decisions are named after the text."""


@dataclass(frozen=True)
class _Stages:
    """Scheduled stages in running order, and the estimated cycles of all."""

    cycles: float
    stages: tuple[tuple[Stage, Estimated], ...]


@dataclass(frozen=True)
class Stage:
    """Some of the blocks as a function; its parameters are buffers of the whole."""

    function: tirx.PrimFunc
    buffers: tuple[Buffer, ...]


def schedule_stages(draft: Draft, schedule_part: Part) -> Estimated | None:
    """The best schedule by stages; None for a function that has no places to cut. The draft is not changed."""
    blocks = draft.blocks()
    nests = list_nests(draft.function)
    if len(nests) != len(blocks):
        return None
    needed = find_needed_cuts(draft)
    free = sorted(_find_cuts(draft, blocks) - needed, key=lambda cut: _handed_over(blocks, cut))
    parts = _list_parts(needed, free, len(blocks))
    if not parts:
        return None
    best: dict[int, _Stages] = {len(blocks): _Stages(0.0, ())}
    for start in sorted({start for start, _ in parts}, reverse=True):
        ends = [end for first, end in parts if first == start]
        joined = (_join(draft, blocks, nests, start, best[end], end, schedule_part) for end in ends)
        best[start] = min(joined, key=lambda stages: stages.cycles)
    chosen = best[0].stages
    combined = combine_stages(draft, [(stage, each.scheduled) for stage, each in chosen])
    return Estimated(best[0].cycles, combined, [site for _, each in chosen for site in each.sites])


def _join(
    draft: Draft,
    blocks: Sequence[BlockInfo],
    nests: Sequence[Statement],
    start: int,
    rest: _Stages,
    end: int,
    part: Part,
) -> _Stages:
    stage = cut_stage(draft.function, blocks, nests, start, end)
    scheduled = part(stage.function, f"stage {start}.")
    over = HANDED_OVER * _handed_over(blocks, end) if end < len(blocks) else 0.0
    return _Stages(scheduled.cycles + over + rest.cycles, ((stage, scheduled), *rest.stages))


# --- where to cut


def _list_parts(needed: set[int], free: Sequence[int], length: int) -> list[tuple[int, int]]:
    """Where the parts begin and end that may be stages: at `needed` cuts and the first `free` ones, as many as
    MOST_CUTS and MOST_BLOCKS allow; none without a cut."""
    parts: list[tuple[int, int]] = []
    for count in range(min(len(free), MOST_CUTS) + 1):
        places = sorted({0, *needed, *free[:count], length})
        pairs = [pair for pair in combinations(places, 2) if needed.isdisjoint(range(pair[0] + 1, pair[1]))]
        finer = [pair for pair in pairs if pair != (0, length)]
        if count > 1 and sum(end - start for start, end in finer) > MOST_BLOCKS:
            break
        parts = finer
    return parts


def find_needed_cuts(draft: Draft) -> set[int]:
    """Numbers of blocks that a stage has to begin with: the recurrence of a network is a stage of its own, and so are
    pairs of activations."""
    blocks = draft.blocks()
    annotations = [draft.schedule.get(block.block).annotations for block in blocks]
    alone = [n for n, block in enumerate(blocks) if RECURRENCE in annotations[n] or draft.is_paired(block)]
    return {cut for number in alone for cut in (number, number + 1)} - {0, len(blocks)}


def _find_cuts(draft: Draft, blocks: Sequence[BlockInfo]) -> set[int]:
    """Numbers of blocks that a stage may begin with.

    They do more than read the result of the block before element by element, or that block only moves elements, or
    others than they read it, too. A cut behind a few numbers is none if there is one in front of them: in whichever
    stage they are computed, the loops of others stay the same, and MOST_CUTS are soon used up. Nor is one in front of a
    product of few rows whose operand is turned there.
    """
    cuts = set[int]()
    turned = find_turned_product(draft)
    kept = turned.anchor.name if turned is not None and turned.has_few_rows else None
    for number in range(1, len(blocks)):
        before = blocks[number - 1]
        reads = [read for read in blocks[number].reads if read.name == before.name]
        follows = len(reads) == 1 and is_identity(draft, blocks[number], reads[0])
        if blocks[number].name == kept:
            continue
        if not follows or blocks[number].reduced or draft.is_output(before) or moves(draft, before):
            cuts.add(number)
    return {cut for cut in cuts if cut - 1 not in cuts or not _is_few(blocks[cut - 1])}


def _is_few(block: BlockInfo) -> bool:
    """Whether a block takes no longer than a few vectors do."""
    return not any(map(is_symbolic, block.extents)) and prod(block.extents) <= FEW


def _handed_over(blocks: Sequence[BlockInfo], cut: int) -> int:
    """Bytes that blocks before a cut write and blocks behind it read."""
    read = {access.name for block in blocks[cut:] for access in block.reads}
    return sum(FLOAT_BYTES * prod(block.write.shape) for block in blocks[:cut] if block.name in read)


# --- functions of some blocks, and back


def list_nests(function: tirx.PrimFunc) -> list[Any]:
    """The loop nests of a function, one for each block of one that has no schedule yet."""
    body = function.body.block.body if _has_root(function) else function.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _has_root(function: tirx.PrimFunc) -> bool:
    """Whether there is a block around all: `transposition` makes bare loops."""
    return isinstance(function.body, s_stmt.SBlockRealize)


def cut_stage(
    function: tirx.PrimFunc, blocks: Sequence[BlockInfo], nests: Sequence[Statement], start: int, end: int
) -> Stage:
    """The blocks from `start` to `end` as a function; what others read of them, or it of others, are parameters."""
    own = blocks[start:end]
    written = {access.name for block in own for access in block.writes}
    outside = {access.name for block in (*blocks[:start], *blocks[end:]) for access in block.reads}
    parameters = {str(p.name) for p in function.params}
    reads = {a.name: a.buffer for block in own for a in block.reads if a.name not in written}
    results = {access.name: access.buffer for block in own for access in block.writes}
    outputs = {name: buffer for name, buffer in results.items() if name in outside or name in parameters}
    buffers = (*reads.values(), *outputs.values())
    root = function.body.block
    inside = [b for b in root.alloc_buffers if str(b.name) in written and str(b.name) not in outputs]
    part = nests[start:end]
    block = with_body(root, tirx.SeqStmt(part) if len(part) > 1 else part[0], alloc_buffers=inside)
    realized = s_stmt.SBlockRealize(function.body.iter_values, function.body.predicate, block)
    attributes = dict(function.attrs.items())
    constants = {int(i) for i in attributes.pop(CONSTANTS, ())}
    numbers = [parameter_index(function, buffer) for buffer in buffers]
    attributes[CONSTANTS] = [n for n, number in enumerate(numbers) if number in constants]
    attributes[BETWEEN] = [n for n, number in enumerate(numbers) if number is None]
    cut = tirx.PrimFunc(buffers, realized, function.ret_type).with_attrs(attributes)
    return Stage(cut, buffers)


def combine_stages(draft: Draft, stages: Sequence[tuple[Stage, Scheduled]]) -> Scheduled:
    """The stages as one function. Raises RuntimeError if two want one constant packed in different ways."""
    function = draft.function
    parameters: list[Any] = list(function.params)
    packs: list[Packing] = []
    body: list[Statement] = []
    allocated: list[Any] = []
    packed: set[int] = set()
    for stage, scheduled in stages:
        made = scheduled.schedule.mod[FUNCTION]
        repacked = {packing.parameter for packing in scheduled.repack}
        for number, (before, after) in enumerate(zip(stage.buffers, made.params, strict=True)):
            place = parameter_index(function, before)
            shared = place is not None and sum(any(before.same_as(b) for b in s.buffers) for s, _ in stages) > 1
            if (number in repacked or not before.same_as(after)) and (place is None or shared):
                raise RuntimeError(f"{before.name}: a value of several stages that one of them wants packed")
            if place is not None:
                parameters[place] = after
        for packing in scheduled.repack:
            place = parameter_index(function, stage.buffers[packing.parameter])
            assert place is not None
            packs.append(replace(packing, parameter=place))
            packed.add(place)
        body += list_nests(made)
        allocated += list(made.body.block.alloc_buffers) if _has_root(made) else []
    written = [b for stage, _ in stages for b in stage.buffers if parameter_index(function, b) is None]
    between = reduce(lambda kept, b: kept if any(b.same_as(k) for k in kept) else [*kept, b], written, list[Any]())
    block = with_body(function.body.block, tirx.SeqStmt(body), alloc_buffers=[*between, *allocated])
    realized = s_stmt.SBlockRealize(function.body.iter_values, function.body.predicate, block)
    whole = tirx.PrimFunc(parameters, realized, function.ret_type, function.attrs)
    module = s_tir.transform.ConvertSSA()(tvm.IRModule({FUNCTION: whole}))
    combined = replace(draft, schedule=s_tir.Schedule(module))
    separate_scopes(combined)
    rules = " + ".join(scheduled.rule for _, scheduled in stages)
    return Scheduled(combined.schedule, tuple(packs), f"{STAGES} ({rules})")


# --- maps that are turned


def turn_rows(draft: Draft) -> Draft | None:
    """A draft whose product sum reads a copy of its map that has pixels last; None if its columns fill a vector."""
    sums = [block for block in draft.blocks() if block.reduced]
    if len(sums) != 1 or not sums[0].is_product_sum():
        return None
    (anchor,) = sums
    maps = [read for read in anchor.reads if _has_channels_last(anchor, read) and not draft.is_constant(read)]
    if len(maps) != 1 or not _is_narrow(draft, anchor, maps[0]):
        return None
    turned = draft.copy()
    copy = turned.schedule.cache_read(anchor.block, anchor.reads.index(maps[0]), "global")
    turned.schedule.transform_layout(copy, ("write", 0), lambda *i: [*i[:-2], i[-1], i[-2]])
    return turned


def turn_reads(draft: Draft) -> Draft | None:
    """A draft whose point-wise blocks read turned copies of what lies along another axis than they write; None if they
    read nothing so. Blocks that do nothing but move elements stay."""
    turned, has_copies = draft.copy(), False
    for block in turned.blocks():
        if not block.is_pointwise() or isinstance(block.value, ir.TensorLoad):
            continue
        for number, read in enumerate(block.reads):
            if _is_turned(block, read):
                copy = turned.schedule.cache_read(block.block, number, "global")
                turned.schedule.transform_layout(copy, ("write", 0), _in_order(_order_of_write(block, read)))
                has_copies = True
    return turned if has_copies else None


def _is_turned(block: BlockInfo, read: BufferAccess) -> bool:
    """Whether neighbours along the axis that a block writes lie apart where it reads, and others lie side by side."""
    if not all(isinstance(index, tirx.Var | tirx.IntImm) for index in (*read.indices, *block.write.indices)):
        return False
    long = [i for i, extent in enumerate(block.extents) if extent != 1]
    written = next((i for i in long if block.write.is_unit_stride(i)), None)
    along = next((i for i in long if read.is_unit_stride(i)), None)
    return written in read.used and along not in (None, written) and len(read.used) == sum(map(len, read.iterators))


def _order_of_write(block: BlockInfo, read: BufferAccess) -> list[int]:
    """The dimensions of what is read in the order of the result's; those of one element first."""
    places = [next((block.write.dimension_of(i) for i in used), -1) for used in read.iterators]
    return sorted(range(len(places)), key=places.__getitem__)


def _in_order(dimensions: Sequence[int]) -> Any:
    return index_map(lambda *i: [i[d] for d in dimensions], len(dimensions))


def _has_channels_last(anchor: BlockInfo, read: BufferAccess) -> bool:
    """Whether the sum is along the last axis of an operand, and an axis of the result along the one before."""
    if len(read.shape) < 3:
        return False
    return read.iterators[-1] <= anchor.reduced and bool(read.iterators[-2] - anchor.reduced)


def _is_narrow(draft: Draft, anchor: BlockInfo, read: BufferAccess) -> bool:
    """Whether the axes of the result that are not the map's are fewer elements than a vector, its pixels more."""
    columns = prod(anchor.extents[i] for i in anchor.spatial if i not in read.used)
    pixels = [anchor.extents[i] for i in read.iterators[-2] - anchor.reduced]
    return columns < draft.device.lanes <= max(pixels)


# --- sums in parts


def split_sum(draft: Draft, scheduled: Scheduled) -> Draft | None:
    """A draft whose product sum is added up in parts, the weights of which stay in the second cache while all rows use
    them; None if those of its schedule stay there as it is, or are brought too rarely to be worth it."""
    packings = [each for each in scheduled.repack if isinstance(each, Repack) and each.word is None]
    if len(packings) != 1:
        return None
    (packing,) = packings
    weights = draft.function.params[packing.parameter]
    size = FLOAT_BYTES * prod(int(extent) for extent in weights.shape)
    columns, cache = int(weights.shape[packing.axis]), draft.device.second_cache
    if size * packing.factor / columns <= FAR_WEIGHTS * cache:
        return None  # told without a look into blocks, which takes longer
    sums = [block for block in draft.blocks() if block.reduced]
    if len(sums) != 1 or not sums[0].is_product_sum():
        return None
    (anchor,) = sums
    tile = FLOAT_BYTES * number_of(anchor.depth) * packing.factor  # of one phase of a transposed convolution
    if tile <= FAR_WEIGHTS * cache:
        return None
    deepest = max(anchor.reduced, key=lambda iterator: number_of(anchor.extents[iterator]))
    steps = anchor.extents[deepest]
    if is_symbolic(steps):
        return None
    needed = tile / (NEAR_WEIGHTS * cache)
    parts = next(number for number in range(1, steps + 1) if steps % number == 0 and number >= min(needed, steps))
    extents = anchor.write.shape
    result = FLOAT_BYTES * prod(max(number_of(e), MANY_ROWS) if is_symbolic(e) else e for e in extents)
    rounds = result // (FLOAT_BYTES * columns * ROUND)
    if rounds * size < CLEARLY_MORE * 2 * parts * result:
        return None
    split = draft.copy()
    loop = split.loops(anchor)[deepest]
    part, _ = split.schedule.split(loop, [parts, None])
    split.schedule.rfactor(part, 0)
    return split
