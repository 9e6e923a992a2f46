"""Ways to cut a layer into tiles, and about what they cost (GraphTurbo, OSDI 2023, section 4.1).

A product that is too deep for the buffer of weights can be cut along its columns, its rows and its reduction at once.
Which of these ways are any good follows from sizes alone: an array is filled and drained for each tile, so that it
wants many rows, the sums of which take room in LB, and pieces of the reduction that are whole folds of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple

from msgspec.structs import replace

from ....costmodels.dsa_device import ComputeUnit, DsaDevice
from ....costmodels.systolic import Product, best_dataflow
from ..network.alignment import round_up
from ..network.boxes import Box, Boxes, size
from ..network.graph import Network
from ..network.sums import Reduction, starts_of

TILE_CYCLES = 50.0
"""Cycles of a tile beyond its work: many tiny ones are no gain."""
_MORE_PIECES = 4
"""A reduction is cut into up to this many times the fewest pieces: lighter weights leave more columns to a tile."""


@dataclass(frozen=True)
class Passing:
    """The values that pass through LB in a step, tile by tile, and those of them that come from or go to DDR."""

    values: frozenset[int]
    far: frozenset[int]


@dataclass(frozen=True)
class Cut:
    """Into how many pieces the axes of a layer's primary output are cut: by weights, and otherwise.

    `pieces` are those of the reduction. `is_held`: the sums of all rows stay in LB, so that a piece of the weights is
    used for all of them before the next one arrives. `is_brought_whole`: data that passes through is brought with all
    indices of the reduction at once.
    """

    weights: tuple[int, ...]
    others: tuple[int, ...]
    rows_first: bool = False
    """Whether weights change fastest, so that rows stay, and not the other way round."""
    pieces: int = 1
    is_held: bool = False
    is_brought_whole: bool = False

    @property
    def count(self) -> int:
        """The number of tiles, but for pieces of the reduction."""
        return prod(max(a, b) for a, b in zip(self.weights, self.others, strict=True))

    @property
    def brings_pieces(self) -> bool:
        """Whether data comes for each piece of the reduction by itself."""
        return self.pieces > 1 and not self.is_brought_whole


@dataclass(frozen=True)
class Moving:
    """Cycles of transfers one after another, and the part of them in which they use the port of an LB."""

    all: float = 0.0
    port: float = 0.0

    def __add__(self, other: Moving) -> Moving:
        return Moving(self.all + other.all, self.port + other.port)

    def __mul__(self, times: float) -> Moving:
        return Moving(self.all * times, self.port * times)


class TileCycles(NamedTuple):
    """Cycles of a tile, of all its pieces: to compute it, to bring its weights and its data, to move its results out.

    Data that is brought whole counts once.
    """

    computing: float
    weights: Moving
    read: Moving
    written: Moving


def cycles_of(cut: Cut, tile: TileCycles) -> float:
    """Cycles of all tiles, which are computed while operands and weights of others arrive: each by transfers of their
    own, which share the port of the LB.

    What does not change from tile to tile stays: operands if weights change first, weights if they change last.
    With pieces of a sum weights stay only if the sums of all rows are held, and operands only if they are brought
    whole and rows stay; the place of a sum is free once it was moved out.
    """
    count, columns = cut.count, prod(cut.weights)
    rows = count // columns
    loads = rows if cut.rows_first or (cut.pieces > 1 and not cut.is_held) else 1
    if cut.brings_pieces:
        read = tile.read * count
    else:
        changes = columns * (cut.pieces if cut.is_held else 1)
        changes = 1 if cut.rows_first or (rows == 1 and cut.pieces > 1) else changes
        read = tile.read * rows * changes
    weights = tile.weights * columns * loads
    written = tile.written * count
    waiting = tile.written.all if cut.pieces > 1 else 0.0
    computing = count * (tile.computing + cut.pieces * TILE_CYCLES + waiting)
    first = read.all / max(1, rows) / (1 if cut.is_brought_whole else cut.pieces)
    last = tile.computing / cut.pieces
    moving = max(read.all, written.all, weights.all, (read + written + weights).port)
    return max(first + computing, moving + last)


@dataclass(frozen=True)
class Ports:
    """What moves data of one core."""

    network: Network
    device: DsaDevice

    @property
    def port(self) -> float:
        """Bytes a cycle into one LB."""
        return self.device.global_bandwidth / self.device.cores / self.device.clock

    def hoisting_cycles(self, weights: int) -> Moving:
        """Cycles until weights of a tile are in LB."""
        port = weights / self.port
        return Moving(port + self.device.hoist_latency * self.device.clock, port) if weights else Moving()

    def moving_cycles(self, boxes: Boxes, passing: Passing) -> Moving:
        """Cycles to move parts of values, one after another: all cores do it at once."""
        device = self.device
        remote = min(device.ddr_bandwidth / device.cores / device.clock, self.port)
        total = Moving()
        for value, box in boxes.items():
            if value in passing.values:
                is_far = value in passing.far
                bandwidth, latency = (remote, device.dma_latency) if is_far else (self.port, device.hoist_latency)
                moved = self.network.wire_bytes(value, box, device.alignment)
                total += Moving(moved / bandwidth + latency * device.clock, moved / self.port)
        return total


class Guess(NamedTuple):
    """A way to cut a deep product, the bytes that pass through LB for one of its tiles, and about its cycles."""

    cut: Cut
    size: int
    cost: float


@dataclass(frozen=True)
class Rows:
    """A tile of all columns that a core makes: its number of rows, the boxes of `data` and of the other inputs that
    pass through, and of results that do."""

    count: int
    data: Box | None
    others: Boxes
    made: Boxes


class _Moved(NamedTuple):
    """Bytes that parts of values take in LB, and the cycles to move them."""

    bytes: int
    cycles: Moving


@dataclass
class DeepProduct:
    """A layer whose weights are too many for their buffer, on one core. `width` are the columns that the core makes,
    along axis `axis` of the results."""

    ports: Ports
    reduction: Reduction
    passing: Passing
    axis: int
    width: int
    unit: ComputeUnit
    _cycles: dict[Product, int] = field(default_factory=dict)

    def rows(self, made: Boxes, inputs: Boxes) -> Rows:
        """The rows of a tile of all columns."""
        network, passing = self.ports.network, self.passing.values
        data = network.graph.operators[self.reduction.product].inputs[0]
        others = {v: box for v, box in inputs.items() if v != data and v in passing}
        (box,) = made.values()
        results = {v: box for v, box in made.items() if v in passing}
        return Rows(size(box) // self.width, inputs[data] if data in passing else None, others, results)

    def guesses(self, rows: Rows, cut: Cut) -> Iterator[Guess]:
        """The ways to cut the reduction for tiles of some rows and columns."""
        device, depth = self.ports.device, self.reduction.depth
        columns = self.width // cut.weights[self.axis]
        room = device.weight_buffer // 2
        lengths = self._lengths(room // (columns * self.reduction.width * self._weight_size))
        if not lengths:
            return
        rest, made = (self._moved(self._narrow(boxes, columns)) for boxes in (rows.others, rows.made))
        whole = self._data(rows, depth)
        for length in lengths:
            pieces, data = len(starts_of(self.reduction, -(-depth // length))), self._data(rows, length)
            product = Product(rows.count, columns, length * self.reduction.width, 1, self.reduction.has_zero_points)
            if product not in self._cycles:
                self._cycles[product] = best_dataflow(self.unit, product)[0]
            computing = pieces * self._cycles[product]
            of_piece = columns * length * self.reduction.width * self._weight_size
            weights = self.ports.hoisting_cycles(of_piece) * pieces
            for is_whole in (False, True) if rows.data is not None and pieces > 1 else (False,):
                for rows_first in (False, True):
                    way = Cut(
                        cut.weights, cut.others, rows_first, pieces, cut.is_held and not rows_first, is_whole
                    )  # fmt: skip
                    brought = whole if is_whole else data
                    each = pieces if way.brings_pieces else 1
                    cycles = TileCycles(computing, weights, brought.cycles * each + rest.cycles, made.cycles)
                    times = min(2, way.count * each)
                    size_ = (rest.bytes + made.bytes) * (times if pieces == 1 else 1) + brought.bytes * times
                    yield Guess(way, size_, cycles_of(way, cycles))

    def _lengths(self, longest: int) -> list[int]:
        """Numbers of indices of the reduction in a piece, evenly many in each."""
        depth = self.reduction.depth
        if longest < 1:
            return []
        fewest = -(-depth // longest)
        counts = {min(depth, fewest * quarters // 4) for quarters in range(4, 4 * _MORE_PIECES + 1)}
        folds = {-(-depth // (n * self.unit.rows)) for n in range(1, longest // self.unit.rows + 1)}
        wanted = counts | {count for count in folds if fewest <= count <= _MORE_PIECES * fewest}
        return sorted({-(-depth // count) for count in wanted})

    @cached_property
    def _weight_size(self) -> int:
        """Bytes of an element of the weights."""
        network = self.ports.network
        weights = network.graph.operators[self.reduction.product].inputs[1]
        assert weights is not None
        return network.bytes(weights) // prod(network.shapes[weights])

    def _data(self, rows: Rows, length: int) -> _Moved:
        """The data of some rows and indices of the reduction."""
        value = self.ports.network.graph.operators[self.reduction.product].inputs[0]
        if rows.data is None or value is None:
            return _Moved(0, Moving())
        axis = self.reduction.data_axis
        start, stop = rows.data[axis]
        box = (*rows.data[:axis], (start, min(stop, start + length)), *rows.data[axis + 1 :])
        return self._moved({value: box})

    def _moved(self, boxes: Boxes) -> _Moved:
        network, alignment = self.ports.network, self.ports.device.alignment
        total = sum(round_up(network.bytes(value, box), alignment) for value, box in boxes.items())
        return _Moved(total, self.ports.moving_cycles(boxes, self.passing))

    def _narrow(self, boxes: Boxes, columns: int) -> Boxes:
        """Parts of values with the results' columns, only some of these; others as they are."""
        found: dict[int, Box] = {}
        for value, box in boxes.items():
            start, stop = box[self.axis] if self.axis < len(box) else (0, 0)
            is_alike = stop - start == self.width
            found[value] = (*box[: self.axis], (start, start + columns), *box[self.axis + 1 :]) if is_alike else box
        return found


@dataclass(frozen=True)
class PassingProduct:
    """A core's part of a product all of whose operands and results pass through its LB: bytes of its `data`, of an
    element of its weights and of its sums, and of further operands and of the result together."""

    product: Product
    data: int
    weight: int
    sum: int
    others: int

    def cycles(self, ports: Ports, unit: ComputeUnit) -> float:
        """About the fewest: a tile is as many rows as fit with their sums and two pieces of the data."""
        device, product = ports.device, self.product
        best = math.inf
        for columns, share in itertools.product(divisors(product.n), (1, 2, 4)):
            depth = min(product.k, device.weight_buffer // 2 // (columns * self.weight) // share)
            if not depth:
                continue
            pieces = -(-product.k // depth)
            of_row = columns * self.sum + 2 * self.data // product.m // pieces
            rows = min(product.m, max(1, device.activation_buffer // of_row))
            tiles = -(-product.m // rows)
            rows, repeats = -(-product.m // tiles), product.n // columns
            cycles, _ = best_dataflow(unit, replace(product, m=rows, n=columns, k=depth))
            computing = tiles * repeats * pieces * (cycles + TILE_CYCLES)
            weights = product.n * product.k * product.count * self.weight
            moved = self.data * repeats + tiles * weights + self.others
            best = min(best, max(computing, moved / ports.port))
        return best


def divisors(extent: int) -> list[int]:
    """The numbers that divide an extent."""
    return [factor for factor in range(1, extent + 1) if extent % factor == 0]
