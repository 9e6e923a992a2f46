"""Chains of reductions over feature maps: which blocks of a function are its stages, and how each reads another.

A stage is a reduction (a convolution of any kind, pooling) with the point-wise block behind it; a copy of the input
with its border may be the first. The map between two stages is read by the second alone, through a window of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx

from ..base.blocks import BlockInfo, BufferAccess, is_selection, is_zero, uses, walk
from ..base.draft import Draft
from ..base.extents import is_symbolic
from ..base.nodes import Expression, Variable
from ..base.rewriting import conjuncts

IMAGE, ROW, COLUMN, CHANNEL = range(4)
"""The axes of a feature map with its channels last."""


@dataclass(frozen=True)
class Border:
    """The zeros around a map: rows above it, columns to its left, and the rows and columns that it has with them."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True)
class Window:
    """Row `o` of a stage reads the rows from ``o * stride`` on, `span` of them, of the map before with its border.

    `is_per_channel`: one of its channels reads that channel alone.
    """

    name: str
    stride: int
    span: int
    border: Border
    is_per_channel: bool


@dataclass(frozen=True)
class Stage:
    """A reduction, None if a map is only copied, and the block behind it, whose result is a map or the output.

    `window` is None if the stage reads nothing that another one makes.
    """

    anchor: BlockInfo | None
    result: BlockInfo
    window: Window | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Images, rows, columns and channels of the result."""
        return self.result.extents


def find_map_chain(draft: Draft) -> tuple[Stage, ...] | None:
    """The stages in running order, after inlining: each but the first reads the one before, the last makes the output.

    None if the function is of another form, has fewer than two reductions, or sizes that only a call knows.
    """
    if any(is_symbolic(extent) for block in draft.blocks() for extent in block.extents):
        return None
    anchors = [block.block for block in draft.blocks() if block.reduced]
    if len(anchors) < 2:
        return None
    _inline(draft)
    for anchor in anchors:
        users = draft.consumers(draft.inspect(anchor))
        if not users or users[0].reduced or users[0].is_selective():
            draft.schedule.cache_write(anchor, 0, "global")
    for block in draft.blocks():  # a border around a parameter: its copy becomes a stage
        if block.is_selective() and len(block.reads) == 1 and draft.producer(block.reads[0]) is None:
            draft.schedule.cache_read(block.block, 0, "global")
    stages: list[Stage] = []
    taken = 0
    for anchor in map(draft.inspect, anchors):
        users = draft.consumers(anchor)
        if len(users) != 1 or not _is_map_block(users[0]) or not _reads_plainly(users[0], anchor):
            return None
        front = _find_front(draft, anchor, stages)
        if front is None:
            return None
        before, window, padding = front
        stages += [before] if before is not None else []
        stages.append(Stage(anchor, users[0], window))
        taken += 2 + padding + (before is not None)
    is_whole = len(draft.blocks()) == taken
    is_last = draft.is_output(stages[-1].result)
    inner = any(draft.is_output(stage.result) for stage in stages[:-1])
    return tuple(stages) if is_whole and is_last and not inner else None


def _inline(draft: Draft) -> None:
    """Inline point-wise blocks, but for borders, and the last block in front of a border or a reduction."""
    for block in draft.blocks_in_turn():
        users = draft.consumers(block)
        if block.reduced or block.is_selective() or not draft.may_inline(block):
            continue
        if not any(user.reduced or user.is_selective() for user in users) and (block.is_cheap() or len(users) == 1):
            draft.inline(block)


def _is_map_block(block: BlockInfo) -> bool:
    """Whether it writes a map of four axes element by element, and computes with nothing but elements."""
    plain = all(isinstance(index, tirx.Var) for index in block.write.indices)
    return plain and not block.reduced and len(block.extents) == 4 and not block.is_selective() and _is_placeless(block)


def _is_placeless(block: BlockInfo) -> bool:
    """Whether the value depends on its place by what it loads alone."""
    def skip(part: Any) -> Any:
        return tirx.const(0.0, part.ty.dtype) if isinstance(part, ir.TensorLoad) else part

    value = tvm_ffi.structural_map(block.value, [(ir.TensorLoad, skip)])
    return not uses(value, [index for index in block.write.indices if isinstance(index, tirx.Var)])


def _reads_plainly(block: BlockInfo, anchor: BlockInfo) -> bool:
    reads = [read for read in block.reads if read.name == anchor.name]
    if len(reads) != 1 or anchor.spatial != (0, 1, 2, 3) or block.extents != anchor.extents[:4]:
        return False
    return all(used == {axis} for axis, used in enumerate(reads[0].iterators)) and all(
        used == {axis} for axis, used in enumerate(anchor.write.iterators)
    )


Front = tuple[Stage | None, Window | None, int]
"""The front of a reduction: a stage that copies, the window, and how many borders there are."""


def _find_front(draft: Draft, anchor: BlockInfo, stages: Sequence[Stage]) -> Front | None:
    """The front of a reduction; None if it has another form."""
    last = stages[-1].result.name if stages else None
    writers = {read.name: draft.producer(read) for read in anchor.reads}
    inside = [writer for writer in writers.values() if writer is not None]
    if not inside:
        return (None, None, 0) if not stages and _has_map(draft, anchor) else None
    if len(inside) != 1:
        return None
    (writer,) = inside
    read = anchor.read_of(writer)
    if len(read.shape) != 4:
        return None
    source, border, padding = writer, Border(0, 0, *read.shape[1:3]), 0
    if writer.is_selective():
        found = _find_border(writer)
        inner = draft.producer(writer.reads[0]) if found is not None else None
        if found is None or inner is None or len(draft.consumers(writer)) != 1:
            return None
        source, border, padding = inner, found, 1
    is_next = source.name == last
    if len(draft.consumers(source)) != 1 or not (is_next or (not stages and _is_map_block(source))):
        return None
    window = _find_window(anchor, read, source.name, border)
    if window is None:
        return None
    return None if is_next else Stage(None, source, None), window, padding


def _has_map(draft: Draft, anchor: BlockInfo) -> bool:
    """Whether the reduction reads a map that is a parameter, row by row."""
    maps = [read for read in anchor.reads if not draft.is_constant(read)]
    return len(maps) == 1 and len(maps[0].shape) == 4


def _find_border(padding: BlockInfo) -> Border | None:
    """The border of a block that surrounds a map with zeros."""
    if not is_selection(padding.value) or len(padding.extents) != 4:
        return None
    condition, inside, outside = padding.value.args
    loads = [part for part in walk(inside) if isinstance(part, ir.TensorLoad)]
    if len(loads) != 1 or not isinstance(inside, ir.TensorLoad) or not is_zero(outside) or len(padding.reads) != 1:
        return None
    own = padding.variables
    starts = []
    analyzer = sym.Analyzer()
    if len(loads[0].indices) != 4:
        return None
    for axis in range(4):
        offset = analyzer.simplify(own[axis] - loads[0].indices[axis])
        if not isinstance(offset, tirx.IntImm):
            return None
        starts.append(int(offset))
    shape = padding.reads[0].shape
    bounds = _find_bounds(condition, own, padding.extents)
    if bounds is None or starts[IMAGE] or starts[CHANNEL] or shape[CHANNEL] != padding.extents[CHANNEL]:
        return None
    expected = {axis: (starts[axis], starts[axis] + shape[axis]) for axis in (ROW, COLUMN)}
    if any(bounds[axis] != expected[axis] for axis in expected) or min(starts) < 0:
        return None
    return Border(starts[ROW], starts[COLUMN], *padding.extents[1:3])


def _find_bounds(
    condition: Expression, variables: Sequence[Variable], extents: Sequence[int]
) -> dict[int, tuple[int, int]] | None:
    """For rows and columns the first place, and the one behind the last, at which the condition holds."""
    analyzer = sym.Analyzer()
    inside = {axis: set(range(extents[axis])) for axis in (ROW, COLUMN)}
    for bound in conjuncts(condition):
        used = {axis for axis in range(4) if any(variables[axis].same_as(part) for part in walk(bound))}
        if len(used) != 1 or not used <= {ROW, COLUMN}:
            return None
        (axis,) = used

        def holds(place: int) -> bool:
            return bool(analyzer.simplify(place_at(bound, [variables[axis]], [place])))  # noqa: B023

        inside[axis] = {place for place in inside[axis] if holds(place)}
    if not all(inside.values()):
        return None
    bounds = {axis: (min(places), max(places) + 1) for axis, places in inside.items()}
    return bounds if all(len(inside[axis]) == b - a for axis, (a, b) in bounds.items()) else None


def place_at(expression: Expression, variables: Sequence[Variable], places: Sequence[Any]) -> Expression:
    """The expression with places, which may be numbers, for its variables."""
    numbers = [tirx.const(place, "int32") if isinstance(place, int) else place for place in places]

    def place_of(part: Any) -> Any:
        return next((p for v, p in zip(variables, numbers, strict=True) if v.same_as(part)), part)

    return tvm_ffi.structural_map(expression, [(tirx.Var, place_of)])


def _find_window(anchor: BlockInfo, read: BufferAccess, name: str, border: Border) -> Window | None:
    variables, analyzer = list(anchor.variables), sym.Analyzer()
    row, zeros = read.indices[ROW], [0] * len(variables)

    def at(**places: int) -> Any:
        chosen = list(zeros)
        for axis, place in places.items():
            chosen[int(axis[1:])] = place
        return analyzer.simplify(place_at(row, variables, chosen))

    last = {f"v{i}": anchor.extents[i] - 1 for i in anchor.reduced}
    first, stride, span = at(), at(v1=1), at(**last)
    if not all(isinstance(value, tirx.IntImm) for value in (first, stride, span)) or int(first) != 0:
        return None
    if read.iterators[IMAGE] != {IMAGE} or {IMAGE, COLUMN, CHANNEL} & read.iterators[ROW]:
        return None
    if anchor.extents[ROW] > 1 and ROW not in read.iterators[ROW]:
        return None
    is_per_channel = isinstance(read.indices[CHANNEL], tirx.Var) and read.iterators[CHANNEL] == {CHANNEL}
    if not is_per_channel and CHANNEL in read.iterators[CHANNEL]:
        return None
    return Window(name, max(1, int(stride)), int(span) + 1, border, is_per_channel)
