"""Transpositions: vectors of one axis are loaded, turned by shuffles within the registers, and stored along another.

    for c, w: Y[w, c] = X[c, w]
 => for c_o, w_o: { rows = 16 vectors X[c_o*16 + i, w_o*16...]; 4 rounds of shuffles; Y[w_o*16 + j, c_o*16...] = rows }

Element by element a processor makes one in a cycle, as each has to be put into its place in a vector. In rounds (as
Eklundh transposes, IEEE Transactions on Computers C-21, 1972) a tile of 16 x 16 takes 64 shuffles: one for every four
elements. Axes that follow each other in both memories are one, whatever the operator calls them. The last tile of an
axis overlaps the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import ir, s_tir, sym, tirx

from ...costmodels.device import Device
from ...costmodels.device_file import CACHE_LINE
from .packing import Scheduled
from .pointwise import inline_all, is_shared
from .stages import FUNCTION, Stage, stages
from .tiling.tiles import FLOAT_BYTES

FEWEST_LANES = 4
_INDEX = "int32"


@dataclass(frozen=True)
class Axis:
    """`extent` steps, each so many elements further in the memory that is read, and in the one that is written."""

    extent: int
    read: int
    write: int


@dataclass(frozen=True)
class Movement:
    """All of a tensor copied from a buffer to another: element `start` of `source` goes to the first of `target`."""

    source: Any
    target: Any
    start: int
    axes: tuple[Axis, ...]


def transposition(function: tirx.PrimFunc, device: Device, threads: int = 1) -> Scheduled | None:
    """The rule: matches a function that copies elements of four bytes, read along one axis, written along another."""
    schedule = s_tir.Schedule(function)
    if not all(stage.is_pointwise() for stage in stages(schedule)):
        return None
    inline_all(schedule)
    left = stages(schedule)
    found = movement(schedule, left[0]) if len(left) == 1 else None
    if found is None:
        return None
    read, written = (next((a for a in found.axes if steps(a) == 1), None) for steps in (_reads, _writes))
    if read is None or written is None or read is written:
        return None
    lanes = min(device.lanes, *(_power_of_two(axis.extent) for axis in (read, written)))
    if lanes < FEWEST_LANES:
        return None
    is_parallel = threads > 1 and is_shared(prod(axis.extent for axis in found.axes))
    body = _Tiles(found, read, written, lanes, is_parallel).statement()
    module = tvm.IRModule({FUNCTION: schedule.mod[FUNCTION].with_body(body)})
    return Scheduled(s_tir.Schedule(module), (), "transposition")


# --- what is moved where


def movement(schedule: s_tir.Schedule, stage: Stage) -> Movement | None:
    """What a block moves, if that is all it does, and by steps that are the same everywhere."""
    load = stage.value
    if not isinstance(load, ir.TensorLoad) or np.dtype(str(load.source.dtype)).itemsize != FLOAT_BYTES:
        return None
    iterators = schedule.get(stage.block).iter_vars
    read = _steps(load.indices, load.source.shape, iterators)
    write = _steps(stage.write.indices, stage.write.shape, iterators)
    if read is None or write is None or write[-1]:
        return None
    *reads, start = read
    axes = [Axis(*each) for each in zip(stage.extents, reads, write[:-1], strict=True) if each[0] > 1]
    return Movement(load.source, stage.write.buffer, start, _merged(axes))


def _steps(indices: Sequence[Any], shape: Sequence[Any], iterators: Sequence[Any]) -> list[int] | None:
    """Elements that one more of each iterator is further in memory, and where that starts; None where they vary."""
    analyzer, place = sym.Analyzer(), tirx.const(0, _INDEX)
    for iterator in iterators:
        analyzer.bind(iterator.var, iterator.dom)
    for index, extent in zip(indices, shape, strict=True):
        place = place * int(extent) + index
    found = sym.detect_linear_equation(analyzer.simplify(place), [iterator.var for iterator in iterators])
    constants = [analyzer.simplify(each) for each in found]
    return [int(each) for each in constants] if constants and all(_is_number(each) for each in constants) else None


def _is_number(expression: Any) -> bool:
    return isinstance(expression, tirx.IntImm)


def _merged(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Axes that are one in both memories."""
    found: list[Axis] = []
    for axis in sorted(axes, key=_writes, reverse=True):
        outer = found[-1] if found else None
        if outer and (outer.read, outer.write) == (axis.read * axis.extent, axis.write * axis.extent):
            found[-1] = Axis(outer.extent * axis.extent, axis.read, axis.write)
        else:
            found.append(axis)
    return tuple(found)


def _reads(axis: Axis) -> int:
    return axis.read


def _writes(axis: Axis) -> int:
    return axis.write


def _power_of_two(extent: int) -> int:
    """The largest that is not above it."""
    return 1 << extent.bit_length() - 1


# --- how


@dataclass(frozen=True)
class _Tiles:
    """Tiles of `lanes` x `lanes` elements along the axes `read` and `written`; other axes are loops around them."""

    movement: Movement
    read: Axis
    written: Axis
    lanes: int
    is_parallel: bool

    def statement(self) -> Any:
        """The loops.

        Lines of memory are longer than the vectors of a small processor: it finishes some of what it writes before it
        goes on along what it reads.
        """
        others = [axis for axis in self.movement.axes if axis not in (self.read, self.written)]
        extents = [axis.extent for axis in others]
        group = max(1, CACHE_LINE // FLOAT_BYTES // self.lanes)
        tiles, across = (-(-axis.extent // self.lanes) for axis in (self.read, self.written))
        numbers = [tirx.Var(name, _INDEX) for name in ("groups", "across", "tile")]
        around = [tirx.Var(f"i{number}", _INDEX) for number in range(len(others))]
        tile = tirx.min(numbers[0] * group + numbers[2], tiles - 1)
        body = self._tile(dict(zip(others, around, strict=True)), tile, numbers[1])
        inner = [(numbers[0], -(-tiles // group)), (numbers[1], across), (numbers[2], group)]
        loops = [*zip(around, extents, strict=True), *inner]
        for variable, extent in reversed(loops[1:]):
            body = tirx.For(variable, 0, extent, tirx.ForKind.SERIAL, body)
        kind = tirx.ForKind.PARALLEL if self.is_parallel else tirx.ForKind.SERIAL
        return tirx.For(loops[0][0], 0, loops[0][1], kind, body)

    def _tile(self, around: Mapping[Axis, Any], tile: Any, across: Any) -> Any:
        """One tile: loads, shuffles, stores."""
        along, over = self._start(self.read, tile), self._start(self.written, across)
        source = self.movement.start + along + self.written.read * over + _offset(around, _reads)
        target = over + self.read.write * along + _offset(around, _writes)
        rows = _Rows(self.lanes, str(self.movement.source.dtype))
        loads = (self._load(source + number * self.written.read) for number in range(self.lanes))
        turned = rows.transposed([rows.bind(load) for load in loads])
        stores = [self._store(row, target + number * self.read.write) for number, row in enumerate(turned)]
        return tirx.SeqStmt([*rows.bound, *stores])

    def _start(self, axis: Axis, tile: Any) -> Any:
        """Where a tile starts on an axis; the last one ends with it."""
        return tirx.min(tile * self.lanes, axis.extent - self.lanes)

    def _load(self, element: Any) -> Any:
        source = self.movement.source
        return tirx.BufferLoad(source, _place(source, element, self.lanes))

    def _store(self, value: Any, element: Any) -> Any:
        target = self.movement.target
        return tirx.BufferStore(target, value, _place(target, element, self.lanes))


def _offset(around: Mapping[Axis, Any], steps: Callable[[Axis], int]) -> Any:
    return sum((steps(axis) * variable for axis, variable in around.items()), tirx.const(0, _INDEX))


def _place(buffer: Any, element: Any, lanes: int) -> list[Any]:
    """Indices of a vector of elements by their place in memory: TVM makes one of it, whatever the shape."""
    return [*(0,) * (len(buffer.shape) - 1), tirx.Ramp(element, 1, lanes)]


class _Rows:
    """Vectors of a tile by their names, which `bound` statements give them."""

    def __init__(self, lanes: int, dtype: str) -> None:
        self.bound: list[Any] = []
        self._lanes = lanes
        self._dtype = f"{dtype}x{lanes}"

    def bind(self, value: Any) -> Any:
        """A name for a vector."""
        variable = tirx.Var(f"row{len(self.bound)}", self._dtype)
        self.bound.append(tirx.Bind(variable, value))
        return variable

    def transposed(self, rows: Sequence[Any]) -> list[Any]:
        """The columns of these rows: in each round pairs of rows swap blocks of half the size."""
        found, size = list(rows), self._lanes // 2
        while size:
            for number in range(self._lanes):
                if not number & size:
                    pair = found[number], found[number + size]
                    found[number], found[number + size] = (self._swapped(pair, size, half) for half in (0, 1))
            size //= 2
        return found

    def _swapped(self, pair: tuple[Any, Any], size: int, half: int) -> Any:
        """Every other block of `size` elements of the first row, those of the `half`, and in between the second's."""
        blocks = [place // size for place in range(self._lanes)]
        first = [place + size * (half - block % 2) for place, block in enumerate(blocks)]
        places = [place + self._lanes * (block % 2) for place, block in zip(first, blocks, strict=True)]
        return self.bind(tirx.Shuffle(list(pair), places))
