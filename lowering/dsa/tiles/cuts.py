"""Ways to cut a layer into tiles, and about what they cost (GraphTurbo, OSDI 2023, section 4.1).

A product that is too deep for the buffer of weights can be cut along its columns, its rows and its reduction at once.
Which of these ways are any good follows from sizes alone: an array is filled and drained for each tile, so that it
wants many rows, the sums of which take room in LB, and pieces of the reduction that are whole folds of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from ....costmodels.dsa_device import ComputeUnit, DsaDevice
from ....costmodels.systolic import Product, best_dataflow
from ..network.alignment import round_up
from ..network.boxes import Box, Boxes, size
from ..network.graph import Network
from ..network.sums import Reduction, starts_of

TILE_CYCLES = 50.0
"""Cycles of a tile beyond its work: many tiny ones are no gain."""
_MAP_SHARE = 4
"""In a product of two maps, a piece of the second one takes at most this part of LB (one divided by it)."""
_MORE_PIECES = 4
"""A reduction is cut into up to this many times the fewest pieces: lighter weights leave more columns to a tile."""


Numbers = Any
"""A number, or an array of numbers, one for each of several ways."""


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
    def columns(self) -> int:
        """Into how many pieces weights cut a layer."""
        return prod(self.weights)

    @property
    def brings_pieces(self) -> bool:
        """Whether data comes for each piece of the reduction by itself."""
        return self.pieces > 1 and not self.is_brought_whole


@dataclass(frozen=True)
class Moving:
    """Cycles of transfers one after another, and the part of them in which they use the port of an LB."""

    all: Numbers = 0.0
    port: Numbers = 0.0

    def __add__(self, other: Moving) -> Moving:
        return Moving(self.all + other.all, self.port + other.port)

    def __mul__(self, times: Numbers) -> Moving:
        return Moving(self.all * times, self.port * times)


class TileCycles(NamedTuple):
    """Cycles of a tile, of all its pieces: to compute it, to bring its weights and its data, to move its results out.

    Data that is brought whole counts once.
    """

    computing: Numbers
    weights: Moving
    read: Moving
    written: Moving


def cycles_of(way: Cut | _Ways, tile: TileCycles) -> Any:
    """Cycles of all tiles, which are computed while operands and weights of others arrive: each by transfers of their
    own, which share the port of the LB. Numbers may be arrays, for many ways at once.

    What does not change from tile to tile stays: operands if weights change first, weights if they change last.
    With pieces of a sum weights stay only if the sums of all rows are held, and operands only if they are brought
    whole and rows stay; the place of a sum is free once it was moved out.
    """
    count, columns, pieces = way.count, way.columns, way.pieces
    rows, is_cut = count // columns, pieces > 1
    brings_pieces = is_cut & np.logical_not(way.is_brought_whole)
    loads = np.where(way.rows_first | (is_cut & np.logical_not(way.is_held)), rows, 1)
    changes = np.where(way.is_held, columns * pieces, columns)
    changes = np.where(way.rows_first | ((rows == 1) & is_cut), 1, changes)
    whole, by_pieces = tile.read * rows * changes, tile.read * count
    read = Moving(
        np.where(brings_pieces, by_pieces.all, whole.all), np.where(brings_pieces, by_pieces.port, whole.port)
    )  # fmt: skip
    weights = tile.weights * columns * loads
    written = tile.written * count
    waiting = np.where(is_cut, tile.written.all, 0.0)
    computing = count * (tile.computing + pieces * TILE_CYCLES + waiting)
    first = read.all / np.maximum(1, rows) / np.where(way.is_brought_whole, 1, pieces)
    last = tile.computing / pieces
    moving = np.maximum(np.maximum(read.all, written.all), np.maximum(weights.all, (read + written + weights).port))
    return np.maximum(first + computing, moving + last)


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


@dataclass(frozen=True)
class _Ways:
    """Of each of several ways to cut a layer, what its cycles follow from (see `Cut`)."""

    count: np.ndarray
    columns: np.ndarray
    pieces: np.ndarray
    rows_first: np.ndarray
    is_held: np.ndarray
    is_brought_whole: np.ndarray


class Moved(NamedTuple):
    """Bytes that parts of values take in LB, and the cycles to move them."""

    bytes: Numbers
    cycles: Moving


class Pieced(NamedTuple):
    """A tile of some rows and columns of a deep product, `cut` as it says, in pieces of the reduction: the cycles to
    compute all of them and to bring their weights; the data of one piece and all of it, which `may_be_whole` beside
    pieces of the weights; other inputs, and results."""

    cut: Cut
    pieces: int
    computing: int
    weights: Moving
    data: Moved
    whole_data: Moved
    rest: Moved
    made: Moved
    may_be_whole: bool


class Guesses:
    """Ways to cut a deep product, the one that promises most first by costs from sizes alone: in each of some pieces,
    with data brought whole or not, with rows or columns first."""

    def __init__(self, pieced: Sequence[Pieced]) -> None:
        """At least one."""

        def of(number: Callable[[Pieced], Numbers]) -> Any:
            return np.array([number(each) for each in pieced])[tile]

        def moving(part: Callable[[Pieced], Moving]) -> Moving:
            return Moving(of(lambda each: part(each).all), of(lambda each: part(each).port))

        def moved(part: Callable[[Pieced], Moved]) -> Moved:
            return Moved(of(lambda each: part(each).bytes), moving(lambda each: part(each).cycles))

        may_be_whole = np.array([each.may_be_whole and each.pieces > 1 for each in pieced])
        tile, whole, rows_first = (each.reshape(-1) for each in np.indices((len(pieced), 2, 2)))
        is_possible = np.logical_or(whole == 0, may_be_whole[tile])
        tile, whole, rows_first = tile[is_possible], whole[is_possible] == 1, rows_first[is_possible] == 1
        pieces, rest, made = of(lambda each: each.pieces), moved(lambda each: each.rest), moved(lambda each: each.made)
        is_held = of(lambda each: each.cut.is_held) & np.logical_not(rows_first)
        ways = _Ways(
            of(lambda each: each.cut.count), of(lambda each: each.cut.columns), pieces, rows_first, is_held, whole
        )
        each_time = np.where((pieces > 1) & np.logical_not(whole), pieces, 1)
        data, all_data = moved(lambda each: each.data), moved(lambda each: each.whole_data)
        brought = Moving(
            np.where(whole, all_data.cycles.all, data.cycles.all),
            np.where(whole, all_data.cycles.port, data.cycles.port),
        )
        cost = cycles_of(ways, TileCycles(
            of(lambda each: each.computing), moving(lambda each: each.weights),
            brought * each_time + rest.cycles, made.cycles,
        ))  # fmt: skip
        times = np.minimum(2, ways.count * each_time)
        sizes = (rest.bytes + made.bytes) * np.where(pieces == 1, times, 1)
        sizes = sizes + np.where(whole, all_data.bytes, data.bytes) * times
        order = np.argsort(cost, kind="stable")
        self._cuts, self._sizes = [each.cut for each in pieced], sizes[order]
        self._choices = [each[order] for each in (tile, rows_first, pieces, is_held, whole)]

    def fitting(self, free: int) -> Iterator[Cut]:
        """Those of which two tiles pass through so many bytes."""
        for place in np.flatnonzero(self._sizes <= free):
            tile, rows_first, pieces, is_held, whole = (each[place].item() for each in self._choices)
            cut = self._cuts[tile]
            yield Cut(cut.weights, cut.others, rows_first, pieces, is_held, whole)


@dataclass(frozen=True)
class Rows:
    """A tile of all columns that a core makes: its number of rows, the boxes of `data`, of `weights` that are a map,
    and of the other inputs that pass through, and of results that do."""

    count: int
    data: Box | None
    weights: Box | None
    others: Boxes
    made: Boxes


@dataclass
class DeepProduct:
    """A layer whose weights are too many for their buffer, or are a map, on one core. `width` are the columns that the
    core makes, along axis `axis` of the results."""

    ports: Ports
    reduction: Reduction
    passing: Passing
    axis: int
    width: int
    unit: ComputeUnit
    cycles: dict[Product, int]
    """Of products on the unit, as far as they are known."""
    _known_data: dict[object, Moved] = field(default_factory=dict)
    _known_lengths: dict[int, list[int]] = field(default_factory=dict)

    def rows(self, made: Boxes, inputs: Boxes) -> Rows:
        """The rows of a tile of all columns."""
        network, passing = self.ports.network, self.passing.values
        data, weights = network.graph.operators[self.reduction.product].inputs[:2]
        others = {v: box for v, box in inputs.items() if v not in (data, weights) and v in passing}
        (box,) = made.values()
        results = {v: box for v, box in made.items() if v in passing}
        of_data, of_weights = (inputs.get(v) if v is not None and v in passing else None for v in (data, weights))
        return Rows(size(box) // self.width, of_data, of_weights, others, results)

    def pieced(self, rows: Rows, cut: Cut) -> Iterator[Pieced]:
        """The ways to cut the reduction for tiles of some rows and columns."""
        device, depth, width = self.ports.device, self.reduction.depth, self.reduction.width
        columns = self.width // cut.columns
        of_index = columns * width * self._weight_size
        of_maps = self.reduction.of_maps
        # The last piece has the bias, too. If data stays in the GB, as good ways are found without a thought of it.
        of_bias = round_up(columns * self._weight_size, device.alignment) if self.passing.far else 0
        of_weights = max(0, device.weight_buffer // 2 - of_bias)
        longest = (device.activation_buffer // _MAP_SHARE if of_maps else of_weights) // of_index
        if longest not in self._known_lengths:
            self._known_lengths[longest] = self._lengths(longest)
        lengths = self._known_lengths[longest]
        if not lengths:
            return
        rest, made = (self._moved(self._narrow(boxes, columns)) for boxes in (rows.others, rows.made))
        whole = self._data(rows, depth, columns)
        may_be_whole = rows.data is not None and not of_maps
        for length in lengths:
            pieces = len(starts_of(self.reduction, -(-depth // length)))
            product = Product(rows.count, columns, length * width, 1, self.reduction.has_zero_points)
            cycles = self.cycles.get(product)
            if cycles is None:
                cycles = self.cycles[product] = best_dataflow(self.unit, product)[0]
            weights = self.ports.hoisting_cycles(0 if of_maps else of_index * length) * pieces
            data = self._data(rows, length, columns)
            yield Pieced(cut, pieces, pieces * cycles, weights, data, whole, rest, made, may_be_whole)

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

    def _data(self, rows: Rows, length: int, columns: int) -> Moved:
        """The data of some rows and indices of the reduction, with a map's part for them and some columns."""
        key = rows.data, rows.weights, length, columns if rows.weights else 0
        known = self._known_data.get(key)
        if known is None:
            boxes: dict[int, Box] = {}
            data, weights = self.ports.network.graph.operators[self.reduction.product].inputs[:2]
            if rows.data is not None and data is not None:
                boxes[data] = _first(rows.data, self.reduction.data_axis, length)
            if rows.weights is not None and weights is not None:
                some = _first(rows.weights, self.reduction.weight_axis, length)
                boxes[weights] = _first(some, len(some) - 1, columns)
            known = self._known_data[key] = self._moved(boxes)
        return known

    def _moved(self, boxes: Boxes) -> Moved:
        network, alignment = self.ports.network, self.ports.device.alignment
        total = sum(round_up(network.bytes(value, box), alignment) for value, box in boxes.items())
        return Moved(total, self.ports.moving_cycles(boxes, self.passing))

    def _narrow(self, boxes: Boxes, columns: int) -> Boxes:
        """Parts of values with the results' columns, only some of these; others as they are."""
        found: dict[int, Box] = {}
        for value, box in boxes.items():
            start, stop = box[self.axis] if self.axis < len(box) else (0, 0)
            is_alike = stop - start == self.width
            found[value] = (*box[: self.axis], (start, start + columns), *box[self.axis + 1 :]) if is_alike else box
        return found


def _first(box: Box, axis: int, length: int) -> Box:
    """The first indices of a box along an axis, at most `length`."""
    start, stop = box[axis]
    return (*box[:axis], (start, min(stop, start + length)), *box[axis + 1 :])


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
