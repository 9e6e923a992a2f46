"""Extremes of all elements of a result, found where the result is written: no loop reads it again.

    for i, j: Y[i, j] = f(C); for i, j: M = max(M, Y[i, j]); S = g(M)
 => P[..] = -infinity; for i, j: { Y[i, j] = f(C); P[task, lane] = max(P[task, lane], Y[i, j]) }; M = max of P; S = g(M)

DynamicQuantizeLinear has to know the largest and the smallest number of a tensor before it rounds the first one. What
makes the tensor keeps the schedule of its rule. Here its stores are marked, and `lowering/kernels/noting.py` finds the
extremes beside them, in registers, once the loops are vectors. An element that two tiles write may count twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, te, tirx
from tvm.s_tir import stmt as s_stmt

from ..compute.elementary import highest, lowest
from ..compute.reductions import reduce_max, reduce_min
from .base.blocks import FUNCTION, BlockInfo, walk
from .base.draft import Draft, Scheduled
from .base.extents import is_symbolic
from .base.nodes import Buffer, Statement
from .base.rewriting import list_statements, with_body
from .stages import Stage, combine_stages, cut_stage, list_nests

EXTREMES = "extremes"
"""The prefix of the name of such a schedule; the rule of the rest follows."""
NOTED, BEGUN = "eqfuse.noted", "eqfuse.begun"
"""Marks of an element that counts for extremes, and of the first value of the numbers P of one of them. Their arguments
are the value and the number of the tensor, or of the extreme."""
LANES = 16
"""Numbers of P for each task, as many as the longest vectors have. Those of all tasks end in the first one's."""
MOST_TASKS = 2048
"""Iterations of loops that threads share, each of which has numbers of its own."""
_PURE = 1
"""TVM's number of a call without side effects (`tirx.CallEffectKind.Pure`)."""


def _register(name: str) -> None:
    tvm_ffi.get_global_func("ir.RegisterOp")(name, "a mark of a value, which it returns")
    ir.register_op_attr(name, "TCallEffectKind", _PURE)
    ir.register_op_attr(name, "TVectorizable", True)


_register(NOTED)
_register(BEGUN)
_NOTED = ir.Op.get(NOTED)


@dataclass(frozen=True)
class _Extreme:
    """The block at a `place` among the blocks, which finds the largest or the smallest element of a `source`."""

    place: int
    source: Buffer
    is_largest: bool


def has_extremes(draft: Draft) -> bool:
    """Whether a function finds extremes, perhaps of its own results."""
    return any(map(_is_extreme, draft.blocks()))


def schedule_extremes(draft: Draft, schedule_rest: Callable[[tirx.PrimFunc], Scheduled]) -> Scheduled | None:
    """The schedule of a function that finds extremes of its own results; None if they are of something else.

    The draft is not changed. Raises RuntimeError, one of REFUSALS, if too many tasks share the work, or a number of
    them that a call decides.
    """
    draft = _copy_reduced(draft)
    blocks = draft.blocks()
    extremes = [each for place, block in enumerate(blocks) if (each := _match(draft, place, block)) is not None]
    if not extremes or len(list_nests(draft.function)) != len(blocks):
        return None
    behind = _find_behind(blocks, [each.place for each in extremes])
    if len(behind) == len(blocks) or not all(_is_number(blocks[place]) for place in behind):
        return None
    laid_out = _LaidOut.of(draft, blocks, extremes, behind, 1)
    between, scheduled = laid_out.between, schedule_rest(laid_out.between.function)
    tasks = _count_tasks(scheduled.schedule.mod[FUNCTION].body)
    if tasks > 1:
        laid_out = _LaidOut.of(draft, blocks, extremes, behind, tasks)
    first, last = ((s, Scheduled(s_tir.Schedule(s.function))) for s in (laid_out.first, laid_out.last))
    combined = combine_stages(laid_out.draft, [first, (between, scheduled), last])
    return Scheduled(combined.schedule, combined.repack, f"{EXTREMES} ({scheduled.rule})")


def _copy_reduced(draft: Draft) -> Draft:
    """A draft in which a result that a reduction makes, and whose extremes are found, is a copy: marks stand there."""
    copied = draft.copy()
    for block in copied.blocks():
        is_made_once = block.reduced and len(block.writes) == 1 and copied.is_output(block)
        if is_made_once and any(map(_is_extreme, copied.consumers(block))):
            copied.schedule.cache_write(block.block, 0, "global")
    return copied


def _is_number(block: BlockInfo) -> bool:
    """Whether a block writes one element, whatever the sizes of a call."""
    return not any(map(is_symbolic, block.write.shape)) and prod(block.write.shape) == 1


def _is_extreme(block: BlockInfo) -> bool:
    """Whether a block finds the largest or the smallest of some elements of one tensor."""
    is_one = bool(block.reduced) and len(block.reads) == 1 and _is_number(block)
    if not is_one or not isinstance(block.value, tirx.Max | tirx.Min):
        return False
    return str(block.reads[0].buffer.dtype) == "float32" and isinstance(block.value.b, ir.TensorLoad)


def _match(draft: Draft, place: int, block: BlockInfo) -> _Extreme | None:
    """The extreme of all elements of a result of the function that a block finds; None if it does something else."""
    if not _is_extreme(block):
        return None
    (read,) = block.reads
    maker = draft.producer(read)
    if maker is None or maker.reduced or len(maker.writes) != 1 or not draft.is_output(maker):
        return None
    variables = [index for index in read.indices if isinstance(index, tirx.Var)]
    sizes = [size for index, size in zip(read.indices, read.shape, strict=True) if not isinstance(index, tirx.Var)]
    is_whole = len(set(variables)) == len(variables) and prod(sizes) == 1 and block.depth == prod(read.shape)
    return _Extreme(place, read.buffer, isinstance(block.value, tirx.Max)) if is_whole else None


def _find_behind(blocks: Sequence[BlockInfo], extremes: Sequence[int]) -> list[int]:
    """The places of blocks that find extremes or depend on them."""
    names, behind = set[str](), []
    for place, block in enumerate(blocks):
        if place in extremes or any(read.name in names for read in block.reads):
            names.add(block.name)
            behind.append(place)
    return behind


@dataclass(frozen=True)
class _LaidOut:
    """The function in three stages: the `first` values of P, the results with their stores marked, and what follows
    from P in place of the results."""

    draft: Draft
    first: Stage
    between: Stage
    last: Stage

    @staticmethod
    def of(
        draft: Draft, blocks: Sequence[BlockInfo], extremes: Sequence[_Extreme], behind: Sequence[int], tasks: int
    ) -> _LaidOut:
        """The stages, with numbers P for each of the tasks."""
        nests = list(list_nests(draft.function))
        sources: list[Buffer] = []
        first, numbers = [], []
        for number, extreme in enumerate(extremes):
            if not any(extreme.source.same_as(source) for source in sources):
                sources.append(extreme.source)
            tensor = next(n for n, source in enumerate(sources) if extreme.source.same_as(source))
            written = blocks[extreme.place].write.buffer
            begin, nests[extreme.place], parts = _make_nests(extreme, (number, tensor), written, tasks)
            first.append(begin)
            numbers.append(parts)
        between = [_mark(nests[place], sources) for place in range(len(blocks)) if place not in behind]
        root = draft.function.body.block
        body = tirx.SeqStmt([*first, *between, *(nests[place] for place in behind)])
        block = with_body(root, body, alloc_buffers=[*root.alloc_buffers, *numbers])
        realized = s_stmt.SBlockRealize(draft.function.body.iter_values, draft.function.body.predicate, block)
        whole = draft.with_body(realized)
        ordered, function = whole.blocks(), whole.function
        ends = (0, len(first), len(first) + len(between), len(ordered))
        stages = (cut_stage(function, ordered, list_nests(function), *pair) for pair in pairwise(ends))
        return _LaidOut(whole, *stages)


def _mark(nest: Statement, sources: Sequence[Buffer]) -> Statement:
    """The nest with its stores to these tensors marked."""

    def mark(store: Any) -> Any:
        number = next((n for n, source in enumerate(sources) if store.buffer.same_as(source)), None)
        if number is None:
            return store
        value = tirx.call_intrin("float32", NOTED, store.value, tirx.const(number, "int32"))
        return tirx.BufferStore(store.buffer, value, store.indices)

    return tvm_ffi.structural_map(nest, [(tirx.BufferStore, mark)])


def _make_nests(
    extreme: _Extreme, numbers: tuple[int, int], written: Buffer, tasks: int
) -> tuple[Statement, Statement, Buffer]:
    """The nests that write the first values of P, and that find an extreme in it; and P. `numbers` are those of the
    extreme and of its tensor."""
    reduce_, neutral = (reduce_max, lowest) if extreme.is_largest else (reduce_min, highest)
    size = (tasks * LANES,)
    name = f"{written.name}_parts"
    parts = te.placeholder(size, "float32", name)
    axis = te.reduce_axis((0, LANES), "p")
    found = te.compute(tuple(written.shape), lambda *_: reduce_(parts(axis.var), [axis]), name=f"{written.name}_found")
    find = te.create_prim_func([parts, found])
    partial, result = find.params
    arguments = [tirx.const(number, "int32") for number in numbers]
    value = tirx.call_intrin("float32", BEGUN, neutral("float32"), *arguments)
    begin = te.create_prim_func([te.compute(size, lambda _: value, name=f"{name}_first")])
    first = _exchange(begin.body.block.body, begin.params[0], partial)
    return first, _exchange(find.body.block.body, result, written), partial


def _exchange(nest: Statement, before: Buffer, after: Buffer) -> Statement:
    """The nest with another buffer of the same shape."""

    def load(node: Any) -> Any:
        return tirx.BufferLoad(after, node.indices) if node.source.same_as(before) else node

    def store(node: Any) -> Any:
        return tirx.BufferStore(after, node.value, node.indices) if node.buffer.same_as(before) else node

    def region(node: Any) -> Any:
        return tirx.BufferRegion(after, node.region) if node.source.same_as(before) else node

    return tvm_ffi.structural_map(nest, [(ir.TensorLoad, load), (tirx.BufferStore, store), (ir.TensorRegion, region)])


def _is_noted(store: Statement) -> bool:
    return any(isinstance(part, ir.Call) and part.op.same_as(_NOTED) for part in walk(store.value))


def _count_tasks(body: Statement) -> int:
    """The most iterations of a loop that threads share, and that writes what extremes are found of."""
    loops = (loop for loop in list_statements(body, tirx.For) if loop.kind == tirx.ForKind.PARALLEL)
    shared = [loop for loop in loops if any(map(_is_noted, list_statements(loop, tirx.BufferStore)))]
    if not all(isinstance(loop.extent, tirx.IntImm) for loop in shared):
        raise RuntimeError("a number of tasks that is known in a run only")
    tasks = max((int(loop.extent) for loop in shared), default=1)
    if tasks > MOST_TASKS:
        raise RuntimeError("too many tasks for extremes of each")
    return tasks
