"""A stage of a chain for one row of its map, or all, and a tile of its channels: scheduled as a function of its own.

    for n, h, w, c, k: A += X[n, h, w, k] * W[c, k]; for n, h, w, c: Y = f(A)
 => for w, c, k: A += X'[w, k] * W'[c, k]; for w, c: Y' = f(A)

The buffers of the function are parts of those of the whole; `RowCode.place` puts its loops where the whole wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.s_tir import stmt as s_stmt

from ..base.blocks import FUNCTION, BlockInfo, BufferAccess
from ..base.draft import CONSTANTS, Draft
from ..base.nodes import Buffer, Expression, Statement, Variable
from ..base.packing import Repack
from ..passes import apply_rule
from ..passes.borders import lower_blocks
from ..rules.channels import channels
from ..rules.contraction import contraction
from ..rules.fallback import fallback
from ..rules.pointwise import pointwise
from ..rules.transposition import transposition
from ..rules.window import window
from .map_chain import CHANNEL, IMAGE, ROW, Stage, place_at

RULES = (transposition, pointwise, contraction, channels, window, fallback)
"""The rules for a stage, in the order in which they are tried."""
Place = Callable[[Sequence[Any]], tuple[Any, Sequence[Any]]]
"""The buffer of the whole and the indices in it, by the indices in the row's own buffer."""


@dataclass(frozen=True)
class _Part:
    """A buffer of the row's function: part of `whole`, which `access` reads or writes in the block of `variables`."""

    buffer: Buffer
    whole: Any
    access: BufferAccess
    variables: tuple[Variable, ...]

    def offsets(self, image: Any, row: Any, channel: Any) -> list[Any]:
        """Where the part begins in the whole, for an image, a first row and a first channel."""
        analyzer = sym.Analyzer()
        zeros: list[Any] = [0] * len(self.variables)
        places = [image, row, 0, channel, *zeros[4:]]
        return [
            analyzer.simplify(place_at(i, self.variables, places) - place_at(i, self.variables, zeros))
            for i in self.access.indices
        ]


@dataclass(frozen=True)
class RowCode:
    """The loops of a stage for some rows and channels: on parts of buffers, by their names, some of them packed."""

    stage: Stage
    channels: int
    body: Statement
    parts: Mapping[str, _Part]
    packs: Mapping[str, Repack]

    @property
    def source(self) -> str:
        """The buffer of the map that it reads."""
        return data_name(self.stage)

    @property
    def result(self) -> str:
        """The buffer that it writes."""
        return self.stage.result.name

    def place(self, offsets: tuple[Any, Any, Any], places: Mapping[str, Place], packed: Mapping[str, Any]) -> Any:
        """The loops for an image, a first row and a first channel.

        `places` are those of buffers whose elements are elsewhere than in the whole, `packed` the constants as they are
        packed; both by the names of parts.
        """

        def find(buffer: Buffer, indices: Sequence[Expression]) -> tuple[Any, Sequence[Any]] | None:
            name = str(buffer.name)
            part = self.parts.get(name)
            if part is None:
                return None
            if name in places:
                return places[name](indices)
            starts = part.offsets(*offsets)
            pack = self.packs.get(name)
            if pack is None:
                return part.whole, [i + start for i, start in zip(indices, starts, strict=True)]
            axis = pack.order.index(pack.axis)
            tile = sym.Analyzer().simplify(tirx.floordiv(starts[pack.axis], pack.factor))
            return packed[name], [i + tile if n == axis else i for n, i in enumerate(indices)]

        def load(part: Any) -> Any:
            place = find(part.source, part.indices)
            return tirx.BufferLoad(place[0], list(place[1])) if place is not None else part

        def store(part: Any) -> Any:
            place = find(part.buffer, part.indices)
            return tirx.BufferStore(place[0], part.value, list(place[1])) if place is not None else part

        return tvm_ffi.structural_map(self.body, [(ir.TensorLoad, load), (tirx.BufferStore, store)])


def schedule_rows(draft: Draft, stage: Stage, before: int, rows: int, channels: int) -> RowCode | None:
    """The code for that many rows and channels; `before` are the channels of the map that it reads.

    None if a constant cannot be cut in tiles of channels as it is packed.
    """
    function, parts = _make_function(draft, stage, before, rows, channels)
    scheduled = None
    for rule in RULES:
        with suppress(s_tir.ScheduleError, RuntimeError):  # a primitive refused a block that looked right
            scheduled = apply_rule(rule, Draft.of(function, draft.device, trace=draft.trace))
            if scheduled is not None:
                break
    if scheduled is None:
        return None
    names = [str(parameter.name) for parameter in function.params]
    packs: dict[str, Repack] = {}
    for pack in scheduled.repack:
        name = names[pack.parameter]
        whole = parts[name].whole
        if not isinstance(pack, Repack):
            return None
        is_cut = int(whole.shape[pack.axis]) != int(parts[name].buffer.shape[pack.axis])
        if is_cut and channels % pack.factor:
            return None
        packs[name] = pack
    lowered = lower_blocks(scheduled.schedule.mod[FUNCTION])
    assert names == [str(parameter.name) for parameter in lowered.params]
    return RowCode(stage, channels, lowered.body, parts, packs)


def _make_function(
    draft: Draft, stage: Stage, before: int, rows: int, channels: int
) -> tuple[tirx.PrimFunc, dict[str, _Part]]:
    """The stage for some rows, and its parameters as parts of the whole's buffers.

    Raises RuntimeError if its two blocks read one of them: that would be two parts.
    """
    blocks = [block for block in (stage.anchor, stage.result) if block is not None]
    parts: dict[str, _Part] = {}
    buffers: dict[str, Buffer] = {}
    for block in blocks:
        limits = [1, rows, block.extents[2], channels, *block.extents[4:]]
        for access in (*block.reads, block.write):
            if access.name in buffers and access.name != blocks[0].name:
                raise RuntimeError(f"{access.name}: read by a reduction and behind it")
            if access.name not in buffers:
                shape = _part_shape(access, block, limits)
                if stage.window is not None and before and access.name == data_name(stage):
                    read = channels if stage.window.is_per_channel else before
                    shape = [1, shape[1], stage.window.border.width, read]
                buffers[access.name] = tirx.decl_buffer(shape, str(access.buffer.dtype), access.name)
                parts[access.name] = _Part(buffers[access.name], access.buffer, access, block.variables)
    nests = [_make_nest(draft, block, buffers, (rows, channels)) for block in blocks]
    inner = [buffers[stage.anchor.name]] if stage.anchor is not None else []
    outside = [name for name in buffers if stage.anchor is None or name != stage.anchor.name]
    outside = [*(n for n in outside if n != stage.result.name), stage.result.name]
    params = [buffers[name] for name in outside]
    constants = [n for n, name in enumerate(outside) if draft.is_constant(parts[name].access)]
    root = s_stmt.SBlock([], [], [], "root", tirx.SeqStmt(nests) if len(nests) > 1 else nests[0], None, inner)
    body = s_stmt.SBlockRealize([], True, root)
    attributes = {CONSTANTS: constants, "tirx.noalias": True, "s_tir": True, "global_symbol": FUNCTION}
    function = tirx.PrimFunc(params, body).with_attrs(attributes)
    module = s_tir.transform.ConvertSSA()(tvm.IRModule({FUNCTION: function}))
    return module[FUNCTION], {name: parts[name] for name in outside}


def data_name(stage: Stage) -> str:
    """The name of the buffer from which the anchor reads the map before."""
    assert stage.anchor is not None
    return next(r.name for r in stage.anchor.reads if len(r.shape) == 4 and r.iterators[IMAGE] == {IMAGE})


def _part_shape(access: BufferAccess, block: BlockInfo, limits: Sequence[int]) -> list[int]:
    """The elements that some rows and channels reach: all of a dimension that neither image, row nor channel picks
    from."""
    analyzer, shape = sym.Analyzer(), []
    for index, used, extent in zip(access.indices, access.iterators, access.shape, strict=True):
        if not used & {IMAGE, ROW, CHANNEL}:
            shape.append(extent)
            continue
        last = analyzer.simplify(place_at(index, block.variables, [limit - 1 for limit in limits]))
        first = analyzer.simplify(place_at(index, block.variables, [0] * len(limits)))
        shape.append(min(extent, int(last) - int(first) + 1))
    return shape


def _make_nest(draft: Draft, block: BlockInfo, buffers: Mapping[str, Buffer], size: tuple[int, int]) -> Any:
    """The loops of a block for that many rows and channels, on the part's buffers."""
    statement = draft.schedule.get(block.block)
    rows, channels = size
    extents = [1, rows, block.extents[2], channels, *block.extents[4:]]

    def load(part: Any) -> Any:
        own = buffers.get(str(part.source.name))
        return tirx.BufferLoad(own, list(part.indices)) if own is not None else part

    def store(part: Any) -> Any:
        return tirx.BufferStore(buffers[str(part.buffer.name)], part.value, list(part.indices))

    def region(old: Any) -> Any:
        return tirx.BufferRegion(buffers[str(old.source.name)], list(old.region))

    def change(node: Statement) -> Statement:
        changes = [(ir.TensorLoad, load), (tirx.BufferStore, store)]
        return None if node is None else tvm_ffi.structural_map(node, changes)

    iterators = [
        tirx.IterVar(ir.Range(0, extent), each.var, each.iter_type)
        for each, extent in zip(statement.iter_vars, extents, strict=True)
    ]
    inside = s_stmt.SBlock(
        iterators, [region(r) for r in statement.reads], [region(w) for w in statement.writes], statement.name_hint,
        change(statement.body), change(statement.init), [], [], statement.annotations,
    )  # fmt: skip
    loops = [tirx.Var(f"ax{n}", "int32") for n in range(len(extents))]
    node: Statement = s_stmt.SBlockRealize(loops, True, inside)
    for loop, extent in zip(reversed(loops), reversed(extents), strict=True):
        node = tirx.For(loop, tirx.const(0, "int32"), tirx.const(extent, "int32"), tirx.ForKind.SERIAL, node)
    return node
