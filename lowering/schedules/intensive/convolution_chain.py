"""Intensive fusion of convolutions (AGO, section III-B): rows of a map are read while they are in the cache.

    for h, w, c, k: A += X * W1; for h, w, c: P = pad(f(A)); for h, w, c, i, j: D += P * W2; for h, w, c: Y = g(D)
 => for step: for c tile: { for row: P[row % R] = f(A) (registers); for row: Y = g(D) (registers), which reads R rows }

Of each map between two stages a ring of rows is kept. A step makes as many rows of it as the next stage needs for its
own, so nothing is computed twice, whichever dimensions that one's windows span. Stages whose channels belong together
(the second is depthwise) share a loop over tiles of channels: what one makes the other finds in the first cache. Each
stage is scheduled as a function of one row, or all, by the rule for its operator alone (`row_stage`).

Threads get parts of the last map; at the border of two parts both make the rows that the next stage's windows need.
If all rows are made at once they get tiles of channels, stage by stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log2, prod
from typing import Any

import tvm
from tvm import ir, s_tir, tirx
from tvm.s_tir import stmt as s_stmt

from ....costmodels.register_tiles import MOST_VECTORS
from ....extract.partition.templates.convolution_chain import LEAST_COLUMNS
from ...compute.statements import sequence
from ..base.blocks import FUNCTION, parameter_index
from ..base.draft import Draft
from ..base.nodes import Statement, Variable
from ..base.packing import Repack
from ..base.rewriting import with_body
from ..base.tiled import Tiled
from ..passes.outlining import COMPUTE_SCOPE
from ..tiling import register_tile
from ..tiling.tiles import FLOAT_BYTES
from .map_chain import CHANNEL, COLUMN, ROW, Stage, Window, find_map_chain
from .row_stage import RowCode, schedule_rows

WINDOW_VECTORS = 2
"""Vectors of a tile of channels, if all that shares it are windows over single channels, whose tiles have as many."""
KEPT_SHARE = 0.25
"""The part of the second cache that the rings of a step may take."""


@dataclass(frozen=True)
class StageRows:
    """In step `t` of part `p` a stage makes the rows from ``p * part + t * count + offset`` on, `count` of them.

    Only those from ``p * part + low`` on, and below ``(p + 1) * part + high``, are needed.
    """

    count: int
    offset: int
    part: int
    low: int
    high: int

    def first(self, part: Any, step: Any) -> Any:
        """The first row of a step."""
        return part * self.part + step * self.count + self.offset


@dataclass(frozen=True)
class RowPlan:
    """The rows of the stages in `steps` steps of each of `parts` parts of the last map.

    `kept` are the rows that lie between the first that is still to be read and the last that is made, for each map but
    the last, with its border.
    """

    stages: tuple[StageRows, ...]
    kept: tuple[int, ...]
    steps: int
    parts: int


def plan_rows(stages: Sequence[Stage], rows: int, parts: int) -> RowPlan:
    """The plan in which a step makes `rows` rows of the last map; with all of a part's rows there is one step.

    A step makes of each map as many rows as let the next stage make its own, of which it begins with as many as are
    complete. Parts have no row in common but those that windows at their border read.
    """
    windows = [stage.window for stage in stages[1:] if stage.window is not None]
    height = stages[-1].shape[1]
    part = -(-height // parts)
    counts, sizes, lows, highs = [rows], [part], [0], [0]
    for each in reversed(windows):
        counts.insert(0, counts[0] * each.stride)
        sizes.insert(0, sizes[0] * each.stride)
        lows.insert(0, lows[0] * each.stride - each.border.top)
        highs.insert(0, (highs[0] - 1) * each.stride + each.span - each.border.top)
    offsets, kept = [lows[0]], []
    for number, each in enumerate(windows):
        behind = offsets[-1] + each.border.top
        offsets.append((behind - each.span) // each.stride + 1)
        rows_kept = counts[number] + behind - offsets[-1] * each.stride
        kept.append(min(rows_kept, each.border.height))
    if rows >= part and rows + offsets[-1] < part:
        return plan_rows(stages, part - offsets[-1], parts)
    steps = -(-(part - offsets[-1]) // rows)
    plans = map(StageRows, counts, offsets, sizes, lows, highs)
    return RowPlan(tuple(plans), tuple(kept), steps, parts)


def plan_planes(stages: Sequence[Stage]) -> RowPlan:
    """The plan with one step, whose code for each stage makes all rows."""
    heights = [stage.shape[1] for stage in stages]
    kept = tuple(stage.window.border.height for stage in stages[1:] if stage.window is not None)
    return RowPlan(tuple(StageRows(1, 0, height, 0, 0) for height in heights), kept, 1, 1)


def group_stages(stages: Sequence[Stage]) -> tuple[tuple[int, ...], ...]:
    """The numbers of stages whose channels belong together: each reads the channels that the one before makes."""
    groups: list[tuple[int, ...]] = [(0,)]
    for number, stage in enumerate(stages[1:], 1):
        if stage.window is not None and stage.window.is_per_channel:
            groups[-1] += (number,)
        else:
            groups.append((number,))
    return tuple(groups)


def convolution_chain(draft: Draft) -> Iterator[Tiled]:
    """The rule: matches reductions over feature maps with their channels last, each of which reads the one before."""
    stages = find_map_chain(draft)
    if stages is None:
        return
    groups = group_stages(stages)
    whole = _decide_planes(draft, stages)
    widths: dict[int, int] = {}
    for group in groups:
        widths |= dict.fromkeys(group, _decide_channels(draft, [stages[n] for n in group], group[0], shares=whole))
    codes = []
    for number, stage in enumerate(stages):
        rows = stage.shape[ROW] if whole else 1
        before = stages[number - 1].shape[CHANNEL] if number else 0
        code = schedule_rows(draft.within(f"stage {number}"), stage, before, rows, widths[number])
        if code is None:
            return
        codes.append(code)
    plan = plan_planes(stages) if whole else plan_rows(stages, _decide_rows(draft, stages), _count_parts(draft, stages))
    yield _Assembly(draft, stages, groups, tuple(codes), plan).assemble()


def _decide_planes(draft: Draft, stages: Sequence[Stage]) -> bool:
    """Whether all rows are made at once: a row of few pixels is no good register tile of a product."""
    narrow = any(stage.shape[COLUMN] < LEAST_COLUMNS for stage in stages)
    return draft.trace.decide_flag("planes", narrow)


def _decide_channels(draft: Draft, group: Sequence[Stage], number: int, *, shares: bool) -> int:
    """The channels of a tile: as many as a register tile spans, if several stages share the loop over tiles.

    There is a tile for each thread, if threads share them.
    """
    channels, lanes = group[0].shape[CHANNEL], draft.device.lanes
    has_product = any(s.window is None or not s.window.is_per_channel for s in group if s.anchor is not None)
    options = [*(n for n in range(lanes, channels, lanes) if channels % n == 0), channels]
    most = (MOST_VECTORS if has_product else WINDOW_VECTORS) * lanes if len(group) > 1 else channels
    most = min(most, channels // draft.threads) if shares else most
    usual = max((n for n in options if n <= most), default=channels)
    return draft.trace.decide_number(f"channels {number}", options, lambda n: 1.0 + abs(log2(n / usual)))


def _decide_rows(draft: Draft, stages: Sequence[Stage]) -> int:
    """The rows of the last map in a step: the more, the seldomer weights are read, as far as the rings fit."""
    height = stages[-1].shape[ROW]
    options = [rows for rows in range(1, height + 1) if height % rows == 0]
    room = KEPT_SHARE * draft.device.second_cache

    def size(rows: int) -> int:
        kept = plan_rows(stages, rows, 1).kept
        widths = (stage.window.border.width for stage in stages[1:] if stage.window is not None)
        channels = (stage.shape[CHANNEL] for stage in stages)
        return FLOAT_BYTES * sum(map(prod, zip(kept, widths, channels, strict=False)))

    usual = max((rows for rows in options if size(rows) <= room), default=1)
    return draft.trace.decide_number("rows", options, lambda n: 1.0 + abs(log2(n / usual)))


def _count_parts(draft: Draft, stages: Sequence[Stage]) -> int:
    """Into how many parts the rows are cut for the threads."""
    images, height = stages[-1].shape[:2]
    steps = sum(prod(stage.anchor.extents) for stage in stages if stage.anchor is not None)
    if draft.threads <= 1 or steps < register_tile.PARALLEL_CYCLES * draft.device.lanes * draft.device.fma_ports:
        return 1
    usual = 1 if images % draft.threads == 0 else min(draft.threads, height)
    return draft.trace.decide_number("parts", sorted({1, usual, 2 * usual}), lambda n: 1.0 + abs(n - usual))


@dataclass(frozen=True)
class _StepVariables:
    """The variables of the loops around a step."""

    image: Any
    part: Any
    step: Any


@dataclass(frozen=True)
class _Assembly:
    """The function of a chain from the code of its stages."""

    draft: Draft
    stages: tuple[Stage, ...]
    groups: tuple[tuple[int, ...], ...]
    codes: tuple[RowCode, ...]
    plan: RowPlan

    def assemble(self) -> Tiled:
        """The whole function, and how its constants are packed."""
        draft, function, plan = self.draft, self.draft.function, self.plan
        place = _StepVariables(*(tirx.Var(name, "int32") for name in ("image", "part", "step")))
        steps = sequence([self._group(group, place) for group in self.groups])
        outside = [n for n in range(len(self.rings)) if not (self.shares_tiles and self._is_shared(n))]
        body = sequence([*self._make_rings(outside), _loop(place.step, plan.steps, steps)])
        images, fused = self.stages[-1].shape[0], tirx.Var("fused", "int32")
        place_of = ((place.image, fused // plan.parts), (place.part, fused % plan.parts))
        body = tirx.SeqStmt([*(tirx.Bind(variable, value) for variable, value in place_of), body])
        body = _loop(fused, images * plan.parts, body, is_shared=draft.threads > 1 and not self.shares_tiles)
        root = with_body(function.body.block, body, alloc_buffers=[])
        realized = s_stmt.SBlockRealize(function.body.iter_values, function.body.predicate, root)
        params, packs = self.packed
        whole = tirx.PrimFunc(params, realized, function.ret_type, function.attrs)
        module = s_tir.transform.ConvertSSA()(tvm.IRModule({FUNCTION: whole}))
        return Tiled(replace(draft, schedule=s_tir.Schedule(module)), "convolution_chain", packs, tails="none")

    @cached_property
    def packed(self) -> tuple[list[Any], tuple[Repack, ...]]:
        """The parameters, those that are packed in their new shape, and how they are packed."""
        function = self.draft.function
        params, packs = list(function.params), []
        for code in self.codes:
            for name, pack in code.packs.items():
                whole = code.parts[name].whole
                index = parameter_index(function, whole)
                assert index is not None
                shape = pack.packed_shape(tuple(map(int, whole.shape)))
                params[index] = tirx.decl_buffer(shape, str(whole.dtype), str(whole.name))
                packs.append(Repack(index, pack.axis, pack.factor, pack.order))
        if len({pack.parameter for pack in packs}) < len(packs):
            raise RuntimeError("a constant that two stages read, and want packed")
        return params, tuple(packs)

    @property
    def shares_tiles(self) -> bool:
        """Whether threads share tiles of channels: there is one part of one image."""
        return self.draft.threads > 1 and self.stages[-1].shape[0] * self.plan.parts == 1 and self.plan.steps == 1

    # --- rings

    def _make_rings(self, numbers: Sequence[int]) -> list[Any]:
        """The buffers of rings, and zeros in their borders."""
        borders = [fill for number in numbers for fill in self._fill_border(number)]
        return [*(tirx.AllocBuffer(self.rings[number]) for number in numbers), *borders]

    @cached_property
    def rings(self) -> tuple[Any, ...]:
        """The buffer of each map but the last: tiles of channels, rows, columns, and channels of a tile.

        If stages share the loop over tiles, and make all rows in one step, there is one tile at a time.
        """
        buffers = []
        for number, kept in enumerate(self.plan.kept):
            width, channels = self._window(number).border.width, self.stages[number].shape[CHANNEL]
            size = self.codes[number].channels if self._is_shared(number) else channels
            count = channels // size if self.plan.steps > 1 else 1
            buffers.append(tirx.decl_buffer((count, kept, width, size), "float32", f"rows_{number}"))
        return tuple(buffers)

    def _window(self, number: int) -> Window:
        """The window through which the next stage reads the map of a stage."""
        window = self.stages[number + 1].window
        assert window is not None
        return window

    def _is_shared(self, number: int) -> bool:
        """Whether a stage and the next one share the loop over tiles of channels."""
        return any({number, number + 1} <= set(group) for group in self.groups)

    def _element(self, number: int, row: Any, column: Any, channel: Any, tile: Any) -> tuple[Any, list[Any]]:
        """An element of a map in its ring: `row` and `column` are of the map with its border, `channel` of the tile."""
        ring = self.rings[number]
        count, rows, _, size = map(int, ring.shape)
        slot = row % rows if rows < self._window(number).border.height else row
        if self._is_shared(number):
            return ring, [tile if count > 1 else 0, slot, column, channel]
        own = self.codes[number].channels
        return ring, [0, slot, column, channel + tile * own if size > own else channel]

    def _fill_border(self, number: int) -> Iterator[Any]:
        """Zeros in the columns of the border, which stay as rows come and go; in its rows, if all rows are kept."""
        border, (_, height, width, _) = self._window(number).border, self.stages[number].shape
        ring = self.rings[number]
        count, kept, _, size = map(int, ring.shape)
        columns = [*range(border.left), *range(border.left + width, border.width)]
        rows = [*range(border.top), *range(border.top + height, border.height)] if kept == border.height else []
        tile, other, channel = (tirx.Var(name, "int32") for name in ("tile", "other", "channel"))
        zero = tirx.const(0.0, "float32")
        for places, extent in (
            ([[tile, other, column, channel] for column in columns], kept),
            ([[tile, row, other, channel] for row in rows], border.width),
        ):
            if places:
                stores = sequence([tirx.BufferStore(ring, zero, place) for place in places])
                yield _loop(tile, count, _loop(other, extent, _loop(channel, size, stores)))

    # --- the loops of a step

    def _group(self, group: Sequence[int], place: _StepVariables) -> Any:
        """Stages that share the loop over tiles of channels."""
        count = self.stages[group[0]].shape[CHANNEL] // self.codes[group[0]].channels
        tile = tirx.Var(f"tile_{group[0]}", "int32")
        inside = self._make_rings([n for n in group[:-1] if self.shares_tiles])
        body = sequence([*inside, *(self._stage(number, place, tile) for number in group)])
        return _loop(tile, count, body, is_shared=self.shares_tiles and count > 1)

    def _stage(self, number: int, place: _StepVariables, tile: Any) -> Any:
        """The rows of a stage in a step, as a function of their own: what it writes is no operand of it to LLVM then.

        Something has to follow where it stands: TVM's debug information is wrong otherwise.
        """
        plan, code, index = self.plan.stages[number], self.codes[number], tirx.Var(f"row_{number}", "int32")
        row = plan.first(place.part, place.step) + index
        places = {}
        if number:
            window = self._window(number - 1)

            def read(i: Sequence[Any]) -> tuple[Any, list[Any]]:
                own = tile if window.is_per_channel else 0
                return self._element(number - 1, row * window.stride + i[ROW], i[2], i[CHANNEL], own)

            places[code.source] = read
        if number < len(self.rings):
            border = self._window(number).border

            def write(i: Sequence[Any]) -> tuple[Any, list[Any]]:
                return self._element(number, row + i[ROW] + border.top, i[2] + border.left, i[CHANNEL], tile)

            places[code.result] = write
        params, _ = self.packed
        packed = {name: params[self._parameter(code.parts[name].whole)] for name in code.packs}
        body = code.place((place.image, row, tile * code.channels), places, packed)
        body = self._guard(number, place, row, body, places.get(code.result))
        rows = _loop(index, plan.count, body)
        done = tirx.decl_buffer((1,), "int32", f"done_{number}")
        apart = tirx.AttrStmt(tirx.const(0, "int32"), COMPUTE_SCOPE, ir.StringImm(f"stage_{number}_compute_"), rows)
        return tirx.SeqStmt([tirx.AllocBuffer(done), apart, tirx.BufferStore(done, place.step, [0])])

    def _parameter(self, whole: Any) -> int:
        index = parameter_index(self.draft.function, whole)
        assert index is not None
        return index

    def _guard(self, number: int, place: _StepVariables, row: Any, body: Statement, write: Any) -> Any:
        """The body if the row is in the map and needed, and zeros if it is one of the border."""
        plan, height = self.plan.stages[number], self.stages[number].shape[ROW]
        first, last = plan.offset, plan.count * self.plan.steps + plan.offset - 1 + (self.plan.parts - 1) * plan.part
        needed = [row >= place.part * plan.part + plan.low] if plan.offset < plan.low else []
        if plan.count * self.plan.steps + plan.offset > plan.part + plan.high:
            needed.append(row < (place.part + 1) * plan.part + plan.high)
        inside = [row >= 0] if first < 0 else []
        inside += [row < height] if last >= height else []
        if write is not None and inside:
            body = tirx.IfThenElse(tirx.all(*inside), body, self._zeros(number, row, write))
        elif inside:
            needed += inside
        return tirx.IfThenElse(tirx.all(*needed), body, None) if needed else body

    def _zeros(self, number: int, row: Any, write: Any) -> Any | None:
        """A row of zeros, as far as it is in the border."""
        border, height = self._window(number).border, self.stages[number].shape[ROW]
        if border.height == height:
            return None
        column, channel = tirx.Var("column", "int32"), tirx.Var("channel", "int32")
        buffer, indices = write([0, 0, column - border.left, channel])
        zero = tirx.BufferStore(buffer, tirx.const(0.0, "float32"), indices)
        fill = _loop(column, border.width, _loop(channel, self.codes[number].channels, zero))
        return tirx.IfThenElse(tirx.all(row >= -border.top, row < border.height - border.top), fill, None)


def _loop(variable: Variable, extent: int, body: Statement, *, is_shared: bool = False) -> Any:
    kind = tirx.ForKind.PARALLEL if is_shared else tirx.ForKind.SERIAL
    return tirx.For(variable, tirx.const(0, "int32"), tirx.const(extent, "int32"), kind, body)
