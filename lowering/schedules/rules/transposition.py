"""Transpositions: vectors of one axis are loaded, turned by shuffles within the registers, and stored along another.

    for c, w: Y[w, c] = X[c, w]
 => for c_o, w_o: { rows = 16 vectors X[c_o*16 + i, w_o*16...]; 4 rounds of shuffles; Y[w_o*16 + j, c_o*16...] = rows }

Element by element a processor makes one in a cycle, as each has to be put into its place in a vector. In rounds (as
Eklundh transposes, IEEE Transactions on Computers C-21, 1972) a tile of 16 x 16 takes 64 shuffles: one for every four
elements. Axes that follow each other in both memories are one, whatever the operator calls them. The last tile of an
axis overlaps the one before; of a dynamic axis, fewer elements than a tile are moved one by one. In a
buffer that is a part of a wider tensor, steps count the elements of the wider one.

Numbers of 16 bits are moved by pairs (`pairs.py`): as one element of four bytes if both are neighbours in both
memories, else by interleaving two vectors.

    for q, w, p: Y[q, w, p] = X[2 q + p, w]
 => for q, w_o: Y[q, w_o*32.., :] = interleaved X[2 q, w_o*32..] and X[2 q + 1, w_o*32..]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import ir, sym, tirx
from tvm.s_tir import stmt as s_stmt

from ....costmodels.device_file import CACHE_LINE
from ..base.blocks import BlockInfo, element_bytes, shape_in_memory
from ..base.draft import Draft
from ..base.extents import estimate_extent, expression_of, extent_of, is_symbolic
from ..base.nodes import Buffer, Expression, Statement
from ..base.rewriting import with_body
from ..base.tiled import Tiled
from ..tiling.tiles import FLOAT_BYTES
from .pointwise import decide_parallel, inline_pointwise, schedule_pointwise

FEWEST_LANES = 4
"""Lanes of the narrowest tile: narrower ones take more instructions than moving the elements one by one."""
_INDEX = "int32"
PAIR = 2
"""Numbers of 16 bits that are moved together."""


@dataclass(frozen=True)
class Axis:
    """`extent` steps; one is `read` elements further in the memory that is read, and `write` in the other: numbers, or
    expressions of dynamic sizes."""

    extent: Any
    read: Any
    write: Any


@dataclass(frozen=True)
class Movement:
    """All of a tensor copied from a buffer to another: element `start` of `source` goes to the first of `target`."""

    source: Any
    target: Any
    start: Any
    axes: tuple[Axis, ...]

    @property
    def item_bytes(self) -> int:
        """Bytes of an element of the buffers."""
        return element_bytes(self.source)


def transposition(draft: Draft) -> Iterator[Tiled]:
    """The rule: matches a function that copies elements of four bytes, or pairs of two bytes, read along one axis and
    written along another."""
    if not all(isinstance(block.value, ir.TensorLoad) for block in draft.blocks()) or not inline_pointwise(draft):
        return
    blocks = draft.blocks()
    movement = find_movement(draft, blocks[0]) if len(blocks) == 1 else None
    if movement is not None and movement.item_bytes < FLOAT_BYTES:
        words = _join_pairs(movement)
        if words is None:
            yield from _interleave(draft, movement)
            return
        movement = words
    if movement is None:
        return
    rows = next((axis for axis in movement.axes if _is_one(axis.read)), None)
    columns = next((axis for axis in movement.axes if _is_one(axis.write)), None)
    if rows is None or columns is None or rows is columns:
        return
    free = [axis for axis in (rows, columns) if is_symbolic(axis.extent)]
    fixed = [1 << axis.extent.bit_length() - 1 for axis in (rows, columns) if axis not in free]
    lanes = min(draft.device.lanes, *fixed) if fixed else draft.device.lanes
    if lanes < FEWEST_LANES:
        return
    tiles = _with_loops(draft, _TransposedTiles(movement, rows, columns, lanes).statement(_is_shared(draft, movement)))
    conditions = tuple(tirx.const(lanes, _INDEX) <= expression_of(axis.extent) for axis in free)
    if free:
        schedule_pointwise(draft, blocks[0], draft.loops(blocks[0]))
    smaller = Tiled(draft, "transposition") if free else None
    yield Tiled(tiles, "transposition", tails="none", conditions=conditions, smaller=smaller)


def _is_shared(draft: Draft, movement: Movement) -> bool:
    """Whether threads share the outermost loop."""
    return draft.threads > 1 and decide_parallel(draft, prod(int(axis.extent) for axis in movement.axes))


def _with_loops(draft: Draft, loops: Statement) -> Draft:
    """The draft of the function that does these loops."""
    realize = draft.function.body
    return draft.with_body(
        s_stmt.SBlockRealize(realize.iter_values, realize.predicate, with_body(realize.block, loops))
    )


# --- which elements move where


def find_movement(draft: Draft, block: BlockInfo) -> Movement | None:
    """The elements that a block moves, if it does nothing else, and by steps that are the same everywhere."""
    load = block.value
    if not isinstance(load, ir.TensorLoad) or element_bytes(load.source) not in (FLOAT_BYTES, FLOAT_BYTES // PAIR):
        return None
    iterators = draft.schedule.get(block.block).iter_vars
    read = _find_steps(load.indices, shape_in_memory(draft.function, load.source), iterators)
    write = _find_steps(block.write.indices, shape_in_memory(draft.function, block.write.buffer), iterators)
    if read is None or write is None or write[-1]:
        return None
    *reads, start = read
    axes = [Axis(*each) for each in zip(block.extents, reads, write[:-1], strict=True) if each[0] > 1]
    merged: list[Axis] = []
    for axis in sorted(axes, key=lambda axis: estimate_extent(axis.write, draft.function), reverse=True):
        outer, extent = merged[-1] if merged else None, expression_of(axis.extent)
        if outer and _are_equal(outer.read, axis.read * extent) and _are_equal(outer.write, axis.write * extent):
            whole = extent_of(expression_of(outer.extent) * extent, draft.function)
            merged[-1] = Axis(whole, axis.read, axis.write)  # one axis in both memories
        else:
            merged.append(axis)
    return Movement(load.source, block.write.buffer, start, tuple(merged))


def _join_pairs(movement: Movement) -> Movement | None:
    """The movement of pairs, if both of them are neighbours in both memories: of elements of four bytes, in steps of
    these; else None."""
    pair = next((axis for axis in movement.axes if _is_one(axis.read) and _is_one(axis.write)), None)
    others = [axis for axis in movement.axes if axis is not pair]
    steps = [movement.start, *(step for axis in others for step in (axis.read, axis.write))]
    numbers = [int(step) if isinstance(step, tirx.IntImm) else step for step in steps]
    if pair is None or pair.extent != PAIR or any(not isinstance(n, int) or n % PAIR for n in numbers):
        return None
    axes = (Axis(axis.extent, axis.read // PAIR, axis.write // PAIR) for axis in others)
    return replace(movement, start=movement.start // PAIR, axes=tuple(axes))


def _are_equal(first: Any, second: Any) -> bool:
    """Whether two numbers or expressions are equal for every call."""
    return bool(sym.Analyzer().can_prove_equal(tirx.const(0, _INDEX) + first, second))


def _is_one(step: Any) -> bool:
    return isinstance(step, int) and step == 1


def _find_steps(
    indices: Sequence[Expression], shape: Sequence[Any], iterators: Sequence[Any]
) -> list[Expression] | None:
    """Elements that one more of each iterator is further in memory, and where that starts; None if they vary."""
    analyzer, place = sym.Analyzer(), tirx.const(0, _INDEX)
    for iterator in iterators:
        analyzer.bind(iterator.var, iterator.dom)
    for index, extent in zip(indices, shape, strict=True):
        place = place * extent + index
    equation = sym.detect_linear_equation(analyzer.simplify(place), [iterator.var for iterator in iterators])
    steps = [analyzer.simplify(each) for each in equation]
    return [int(step) if isinstance(step, tirx.IntImm) else step for step in steps] if steps else None


# --- the loops and the tile


def _interleave(draft: Draft, movement: Movement) -> Iterator[Tiled]:
    """The tiling of a movement of pairs that lie in different rows of the memory that is read."""
    pair = next((axis for axis in movement.axes if _is_one(axis.write) and axis.extent == PAIR), None)
    along = next((axis for axis in movement.axes if _is_one(axis.read) and axis.write == PAIR), None)
    if pair is None or along is None or any(is_symbolic(axis.extent) for axis in movement.axes):
        return
    width = min(PAIR * draft.device.lanes, 1 << along.extent.bit_length() - 1)
    others = [axis for axis in movement.axes if axis not in (pair, along)]
    around = [tirx.Var(f"i{number}", _INDEX) for number in range(len(others))]
    tile = tirx.Var("tile", _INDEX)
    over = tirx.min(tile * width, tirx.const(along.extent - width, _INDEX))
    source, target = movement.start + over, over * PAIR
    for axis, variable in zip(others, around, strict=True):
        source, target = source + axis.read * variable, target + axis.write * variable
    first, second = (_load(movement.source, source + number * pair.read, width) for number in range(PAIR))
    places = [number // PAIR + number % PAIR * width for number in range(PAIR * width)]
    body: Statement = _store(movement.target, tirx.Shuffle([first, second], places), target, PAIR * width)
    counts = [*(axis.extent for axis in others), -(-along.extent // width)]
    for number, (variable, extent) in reversed(list(enumerate(zip((*around, tile), counts, strict=True)))):
        kind = tirx.ForKind.PARALLEL if number == 0 and _is_shared(draft, movement) else tirx.ForKind.SERIAL
        body = tirx.For(variable, 0, extent, kind, body)
    yield Tiled(_with_loops(draft, body), "transposition", tails="none")


def _place(buffer: Buffer, element: Expression, count: int) -> list[Any]:
    """The indices of neighbours in memory. TVM makes one index of them, whatever the shape."""
    return [*(0,) * (len(buffer.shape) - 1), tirx.Ramp(element, 1, count)]


def _load(buffer: Buffer, element: Expression, count: int) -> Any:
    return tirx.BufferLoad(buffer, _place(buffer, element, count))


def _store(buffer: Buffer, value: Any, element: Expression, count: int) -> Any:
    return tirx.BufferStore(buffer, value, _place(buffer, element, count))


@dataclass(frozen=True)
class _TransposedTiles:
    """Tiles of `lanes` x `lanes` elements along the axis that is read, `rows`, and the one that is written, `columns`.

    Other axes are loops around them.
    """

    movement: Movement
    rows: Axis
    columns: Axis
    lanes: int

    def statement(self, is_parallel: bool) -> Any:
        """The loops, the outermost shared by threads if `is_parallel`.

        Lines of memory are longer than the vectors of a small processor: it finishes some of the lines that it
        writes before it goes on along those that it reads.
        """
        others = [axis for axis in self.movement.axes if axis not in (self.rows, self.columns)]
        group = max(1, CACHE_LINE // FLOAT_BYTES // self.lanes)
        extents = {axis: expression_of(axis.extent) for axis in self.movement.axes}
        tiles, across = ((extents[axis] + self.lanes - 1) // self.lanes for axis in (self.rows, self.columns))
        outer, middle, inner = (tirx.Var(name, _INDEX) for name in ("groups", "across", "tile"))
        around = [tirx.Var(f"i{number}", _INDEX) for number in range(len(others))]
        tile = tirx.min(outer * group + inner, tiles - 1)
        along, over = self._tile_start(self.rows, tile), self._tile_start(self.columns, middle)
        zero = tirx.const(0, _INDEX)
        pairs = list(zip(others, around, strict=True))
        source = self.movement.start + along + self.columns.read * over
        source = source + sum((axis.read * variable for axis, variable in pairs), zero)
        target = over + self.rows.write * along + sum((axis.write * variable for axis, variable in pairs), zero)
        body = self._move_tile(source, target)
        counts = [*(extents[axis] for axis in others), (tiles + group - 1) // group, across, group]
        loops = list(zip((*around, outer, middle, inner), counts, strict=True))
        for variable, extent in reversed(loops[1:]):
            body = tirx.For(variable, 0, extent, tirx.ForKind.SERIAL, body)
        kind = tirx.ForKind.PARALLEL if is_parallel else tirx.ForKind.SERIAL
        return tirx.For(loops[0][0], 0, loops[0][1], kind, body)

    def _tile_start(self, axis: Axis, tile: Any) -> Any:
        """Where a tile starts on an axis; the last one ends with it."""
        return tirx.min(tile * self.lanes, expression_of(axis.extent) - self.lanes)

    def _move_tile(self, source: Any, target: Any) -> Any:
        """Loads, shuffles and stores of the tile between these elements.

        In each round of shuffles pairs of rows swap blocks of half the size.
        """
        statements: list[Statement] = []
        read, written = self.movement.source, self.movement.target
        parts = FLOAT_BYTES // self.movement.item_bytes
        own, moved = read.dtype, read.dtype if parts == 1 else "int32"
        dtype = f"{moved}x{self.lanes}"

        def as_type(name: str, vector: Any) -> Any:
            return vector if parts == 1 else tirx.call_intrin(name, "tirx.reinterpret", vector)

        def bind(vector: Any) -> Any:
            variable = tirx.Var(f"row{len(statements)}", dtype)
            statements.append(tirx.Bind(variable, vector))
            return variable

        count = parts * self.lanes
        starts = [source + number * self.columns.read for number in range(self.lanes)]
        rows = [bind(as_type(dtype, _load(read, parts * start, count))) for start in starts]
        size = self.lanes // 2
        while size:
            for number in range(self.lanes):
                if not number & size:
                    pair = [rows[number], rows[number + size]]
                    rows[number], rows[number + size] = (
                        bind(tirx.Shuffle(pair, self._interleaved_places(size, half))) for half in (0, 1)
                    )
            size //= 2
        stores = [
            _store(written, as_type(f"{own}x{count}", row), parts * (target + number * self.rows.write), count)
            for number, row in enumerate(rows)
        ]
        return tirx.SeqStmt([*statements, *stores])

    def _interleaved_places(self, size: int, half: int) -> list[int]:
        """Every other block of `size` elements of the first row, those of the `half`, and in between the second's."""
        odd = [place // size % 2 for place in range(self.lanes)]
        return [place + size * (half - second) + self.lanes * second for place, second in enumerate(odd)]
