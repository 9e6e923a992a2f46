"""The tiles of a layer on a core (GraphTurbo, OSDI 2023, section 4.1).

The two outer loops of the anchor op are tiled: the one along which weights change, so that a tile's weights fit half of
the small buffer that LB has for them (they are promoted while the tile before is computed), and the others, so that
the values that pass through LB fit its free room twice. The reduction of a product is cut too if columns that keep the
matrix unit busy do not fit otherwise: tiles follow each other that add up a sum in its place (network/sums.py).
"""

from __future__ import annotations

import itertools
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from typing import NamedTuple

from ....costmodels.dsa_device import DsaDevice
from ....costmodels.systolic import Product
from ....ir.operators import MATRIX_PRODUCTS
from ...base.errors import DsaError
from ..network.alignment import round_up
from ..network.boxes import Box, Shape, counterpart, shape_of, size
from ..network.graph import Network
from ..network.lookups import indexed_table
from ..network.subgraphs import Layer
from ..network.sums import Reduction, starts_of, sum_of_layer
from .core_parts import CorePart, LayerParts, Sharing, cut_sum
from .cuts import (
    TILE_CYCLES,
    Cut,
    DeepProduct,
    Guesses,
    Moving,
    Passing,
    Pieced,
    Ports,
    TileCycles,
    cycles_of,
    divisors,
)

_FAIR_SHARE = 4
"""Values that pass through get this part of LB (one divided by it) if they need it: tiny tiles cost more than spilling.
"""
_GRAINS = 64
"""Room is counted in this many parts of LB, so that equal steps are cut alike."""
_DEARER = 1.3
"""The cycles of a layer may grow by this factor for being cut only to let units work at once."""
_LEAST_CYCLES = 500
"""Such a cut leaves tiles of at least this many cycles."""
_ABOUT = 1.05
"""Costs that differ by up to this factor are about the same."""
_LOOKED_AT = 8
"""Of the ways to cut a deep product, this many that promise most are compared by their exact parts."""


@dataclass(frozen=True)
class TiledStep:
    """Per core, the tiles of a step in order, and about the cycles of all. `short`: the bytes that passing through asks
    for, if there were fewer."""

    cores: tuple[tuple[CorePart, ...], ...]
    cycles: float = 0.0
    short: int = 0

    @property
    def count(self) -> int:
        """The most tiles of a core."""
        return max(map(len, self.cores))

    def at(self, position: int) -> list[CorePart | None]:
        """Per core, its tile at a place in their order; None if it has fewer."""
        return [tiles[position] if position < len(tiles) else None for tiles in self.cores]


class _Alike(NamedTuple):
    """A piece of a sum, and how many like it there are."""

    tile: CorePart
    times: int


@dataclass(frozen=True)
class _Options:
    """The ways to cut a layer. Of those that were looked at, the pieces of a tile, the bytes that pass through for one,
    and the cycles of all; of guesses, the bytes that pass through at once.
    """

    cuts: tuple[Cut, ...]
    pieces: dict[Cut, Sequence[_Alike]] = field(default_factory=dict)
    sizes: dict[Cut, int] = field(default_factory=dict)
    costs: dict[Cut, float] = field(default_factory=dict)
    deep: dict[Cut, int] = field(default_factory=dict)
    guesses: Guesses | None = None
    """Of a deep product, ways to cut it."""


@dataclass
class Tiling:
    """Cuts the layers of a schedule into tiles."""

    sharing: Sharing
    steps: tuple[LayerParts, ...]
    device: DsaDevice
    pipeline: int
    _reductions: dict[Layer, Reduction | None] = field(default_factory=dict)
    _axes: dict[tuple[Layer, Shape], frozenset[int]] = field(default_factory=dict)
    _options: dict[tuple[object, ...], _Options] = field(default_factory=dict)
    _cuts: dict[tuple[object, ...], tuple[Cut, int]] = field(default_factory=dict)
    _products: dict[Product, int] = field(default_factory=dict)
    """Cycles of products on the matrix unit."""
    _made: dict[int, tuple[Cut, TiledStep]] = field(default_factory=dict)
    """The last tiles of each step."""
    _divided: set[int] = field(default_factory=set)
    """Steps of which tiles that do not fit are divided."""

    @property
    def network(self) -> Network:
        """The operators."""
        return self.sharing.graph.network

    def step(self, number: int, free: int, passing: Passing, least: int = 1) -> TiledStep:
        """The tiles of a step when `free` bytes of each LB are left for the values that pass through.

        The first axis is cut into a multiple of `least`.
        """
        step = self.steps[number]
        first = max(
            (part for part in step.cores if part),
            key=lambda part: (size(part.made.get(step.primary)), self._passing_bytes(part, passing)),
        )
        grain = self.device.activation_buffer // _GRAINS
        free = free // grain * grain if passing.values else 0
        moved = self._passing_bytes(first, passing)  # less at the borders of a feature map
        key = step.layer, shape_of(first.made[step.primary]), passing, moved, least
        if key not in self._options:
            self._options[key] = self._all_options(step, first, passing, least)
        if (*key, free) not in self._cuts:
            self._cuts[*key, free] = self._choose_cut(step, first, self._options[key], free, passing, least)
        cut, short = self._cuts[*key, free]
        costs = self._options[key].costs
        if short:
            return TiledStep(((),), short=short)
        if cut not in costs:
            pieces = self._few_pieces(step, self._largest(step, first, cut), cut)
            costs[cut] = self._cost(step, pieces, cut, passing)
        known = self._made.get(number)
        if known is None or known[0] != cut or number in self._divided:
            fits = partial(self._fits, step, free, passing) if number in self._divided else _always
            cores = tuple(() if part is None else tuple(self._tiles(step, part, cut, fits)) for part in step.cores)
            for tile in (tile for tiles in cores for tile in tiles):  # an output of other axes is made by one tile
                if self._weight_bytes(tile) > self.device.weight_buffer and not self._is_lookup(step):
                    raise self._too_heavy(tile)
            known = self._made[number] = cut, TiledStep(cores)
        return replace(known[1], cycles=costs[cut])

    def divide(self, number: int) -> None:
        """Divide those tiles of a step that do not fit, since they need far more than the one that was looked at.

        Where rows of all samples are one axis, and an operand has an axis for the samples, a tile with the last rows of
        one and the first of the next needs all rows of both.
        """
        self._divided.add(number)

    def _fits(self, step: LayerParts, free: int, passing: Passing, part: CorePart, box: Box) -> bool:
        """Whether the room is enough for what passes through for a tile."""
        return self._passing_bytes(self._part(step, part, box, is_first=False), passing) <= free

    def _fitting(
        self, step: LayerParts, part: CorePart, box: Box, fits: Callable[[CorePart, Box], bool]
    ) -> Iterator[Box]:
        """A tile as it is if it fits, else as few as possible that do."""
        if fits(part, box):
            yield box
            return
        kept = self.sharing.whole_axes(step.layer, step.primary)
        axes = [n for n in self.network.axes[step.primary] if n not in kept and box[n][1] - box[n][0] > 1]
        if not axes:
            yield box
            return

        def first(axis: int, length: int) -> Box:
            start = box[axis][0]
            return (*box[:axis], (start, start + length), *box[axis + 1 :])

        axis = next((axis for axis in axes if fits(part, first(axis, 1))), axes[0])
        start, stop = box[axis]
        lengths = range(2, stop - start)
        length = 1 + bisect_left(lengths, True, key=lambda length: not fits(part, first(axis, length)))
        yield from self._fitting(step, part, first(axis, length), fits)
        yield from self._fitting(step, part, (*box[:axis], (start + length, stop), *box[axis + 1 :]), fits)

    def _all_options(self, step: LayerParts, part: CorePart, passing: Passing, least: int) -> _Options:
        """The ways to cut a layer whatever room there is."""
        weights, pieces = self._cut_for_weights(step, part)
        is_held = step.primary not in passing.values
        others = list(self._other_cuts(step, part, least))
        cuts = [Cut(weights, o, pieces=pieces, is_held=is_held) for o in others]
        if pieces > 1 and passing.values:
            cuts += [replace(cut, is_brought_whole=True) for cut in cuts]
        is_whole = pieces == prod(weights) == 1 and not self._multiplies_maps(step)
        return _Options(tuple(cuts), guesses=None if is_whole else self._guesses(step, part, passing, others))

    def _choose_cut(
        self, step: LayerParts, part: CorePart, options: _Options, free: int, passing: Passing, least: int
    ) -> tuple[Cut, int]:
        """The cheapest tiles that fit twice; with too little room for tiles that are not tiny, how much is wanted."""
        if not passing.values:
            return self._cut_for_pipeline(step, part, options.cuts, least), 0
        fair = min(2 * self._passing_bytes(part, passing), self.device.activation_buffer // _FAIR_SHARE)
        if free < fair:
            return options.cuts[0], fair
        pieces, sizes = options.pieces, options.sizes
        promising = self._promising_cut(step, part, options, free, passing)
        if promising is not None and not self._multiplies_maps(step):
            return promising, 0
        for cut in options.cuts if not sizes.keys() >= set(options.cuts) else ():
            pieces[cut] = self._few_pieces(step, self._largest(step, part, cut), cut)
            sizes[cut] = self._passing_bytes(pieces[cut][-1].tile, passing)
        counts = {cut: cut.count * (1 if cut.is_brought_whole else cut.pieces) for cut in options.cuts}
        fitting = {cut: cut for cut in options.cuts if sizes[cut] * min(2, counts[cut]) <= free}
        fitting |= {replace(cut, rows_first=True, is_held=False): cut for cut in fitting}
        for cut, like in fitting.items():
            if cut not in options.costs:
                options.costs[cut] = self._cost(step, pieces[like], cut, passing)
        chosen = [*fitting, *([] if promising is None else [promising])]
        if chosen:
            return min(chosen, key=options.costs.__getitem__), 0
        smallest = min(options.cuts, key=sizes.__getitem__)
        return smallest, 0 if sizes[smallest] <= free else sizes[smallest]

    def _guesses(
        self, step: LayerParts, part: CorePart, passing: Passing, others: Sequence[tuple[int, ...]]
    ) -> Guesses | None:
        """Columns, rows and pieces of a deep product; None if it has none, or is no such product."""
        reduction = self._reduction(step)
        if reduction is None or not passing.values:
            return None
        box = part.made[step.primary]
        columns = frozenset({len(box) - 1}) if reduction.of_maps else self.weight_axes(step, part)
        unit = self.device.matrix_unit
        if len(columns) != 1 or len(part.made) != 1 or unit is None:
            return None
        (axis,) = columns
        ones, wide = (1,) * len(box), box[axis][1] - box[axis][0]
        if reduction.of_maps:  # an array multiplies two matrices, so a tile is of one
            matrices = tuple(stop - start for start, stop in box[:-2])
            others = [(*matrices, factor, 1) for factor in _factors(box[-2][1] - box[-2][0])]
        product = DeepProduct(self._ports, reduction, passing, axis, wide, unit, self._products)
        found: list[Pieced] = []
        for other in (other for other in others if other[axis] == 1):
            tile = self._largest(step, part, Cut(ones, other))
            rows = product.rows(tile.made, tile.inputs)
            for factor in divisors(wide):
                cut = Cut((*ones[:axis], factor, *ones[axis + 1 :]), other, is_held=step.primary not in passing.values)
                found += product.pieced(rows, cut)
        return Guesses(found) if found else None

    def _promising_cut(
        self, step: LayerParts, part: CorePart, options: _Options, free: int, passing: Passing
    ) -> Cut | None:
        """The cheapest of a few cuts of a deep product that fit; None if none of them does.

        If something comes from DDR or goes there, the one with the fewest tiles of those that cost about as little, for
        each tile waits for DDR. But layers that do not overlap wait for all of their first tile, so it is to be small.
        """
        found: list[Cut] = []
        cuts = () if options.guesses is None else options.guesses.fitting(free)
        for looked_at, cut in enumerate(cuts, start=1):
            if cut not in options.deep:
                pieces = self._few_pieces(step, self._largest(step, part, cut), cut)
                heaviest = max(self._weight_bytes(each.tile) for each in pieces)
                fits = heaviest <= self.device.weight_buffer // 2
                options.deep[cut] = self._deep_bytes(step, pieces[-1].tile, cut, passing) if fits else sys.maxsize
                options.costs[cut] = self._cost(step, pieces, cut, passing)
            if options.deep[cut] <= free:
                found.append(cut)
            if looked_at >= _LOOKED_AT and found:
                break
        cheapest = min(found, key=options.costs.__getitem__, default=None)
        if cheapest is None or not passing.far or self.pipeline < 2:
            return cheapest
        close = (cut for cut in found if options.costs[cut] <= _ABOUT * options.costs[cheapest])
        return min(close, key=lambda cut: (cut.count * cut.pieces, options.costs[cut]))

    def _deep_bytes(self, step: LayerParts, tile: CorePart, cut: Cut, passing: Passing) -> int:
        """Bytes that pass through for pieces of a sum: data of the next one arrives meanwhile."""
        reduction = self._reduction(step)
        assert reduction is not None
        operands = self.network.graph.operators[reduction.product].inputs[: 2 if reduction.of_maps else 1]
        arriving = sum(self._bytes(v, box) for v, box in tile.inputs.items() if v in operands and v in passing.values)
        if cut.pieces == 1:
            return self._passing_bytes(tile, passing) * min(2, cut.count)
        times = min(2, cut.count * (1 if cut.is_brought_whole else cut.pieces))
        return self._passing_bytes(tile, passing) + (times - 1) * arriving

    def _cost(self, step: LayerParts, pieces: Sequence[_Alike], cut: Cut, passing: Passing) -> float:
        """Cycles of all tiles; `pieces` are of one."""
        last, ports = pieces[-1].tile, self._ports
        read = ports.moving_cycles(last.inputs, passing)
        if cut.brings_pieces:
            read = sum((ports.moving_cycles(each.tile.inputs, passing) * each.times for each in pieces), Moving())
        computing = self._over_pieces(pieces, lambda tile: self.sharing.cycles(step.layer, tile))
        weights = sum((self._hoisting(each.tile) * each.times for each in pieces), Moving())
        if self._is_lookup(step):  # the table stays in DDR, and each tile is a transfer from there
            computing, weights = computing + self.device.dma_latency * self.device.clock, Moving()
        return float(cycles_of(cut, TileCycles(computing, weights, read, ports.moving_cycles(last.made, passing))))

    @cached_property
    def _ports(self) -> Ports:
        return Ports(self.network, self.device)

    def _hoisting(self, tile: CorePart) -> Moving:
        """Cycles until the weights of a tile are in LB."""
        return self._ports.hoisting_cycles(self._weight_bytes(tile))

    def _cut_for_pipeline(self, step: LayerParts, part: CorePart, options: Sequence[Cut], least: int) -> Cut:
        """A few tiles even if one would do, so that the layers before and after can run on other units meanwhile."""
        best = options[0]
        if self.pipeline < 2 or self._is_lookup(step):
            return best
        whole = self._cycles(step, part, best)
        for cut in options[1:]:
            if prod(cut.others) > max(self.pipeline, least):
                break
            cycles = self._cycles(step, part, cut)
            if cycles < _LEAST_CYCLES * cut.count or cycles > _DEARER * whole:
                break
            best = cut
        return best

    def _cycles(self, step: LayerParts, part: CorePart, cut: Cut) -> float:
        return cut.count * self._sum_cycles(step, self._largest(step, part, cut), cut)

    def _sum_cycles(self, step: LayerParts, tile: CorePart, cut: Cut) -> float:
        """Cycles of a tile in pieces."""
        pieces = self._few_pieces(step, tile, cut)
        return self._over_pieces(pieces, lambda piece: self.sharing.cycles(step.layer, piece))

    def _over_pieces(self, pieces: Sequence[_Alike], amount: Callable[[CorePart], float]) -> float:
        """The sum over all pieces."""
        return sum(each.times * amount(each.tile) for each in pieces)

    def _pieces_of(
        self, step: LayerParts, tile: CorePart, cut: Cut, numbers: Iterable[int] | None = None
    ) -> list[CorePart]:
        """A tile in pieces of the reduction, or some of them."""
        reduction = self._reduction(step)
        if reduction is None or cut.pieces == 1:
            return [tile]
        whole = cut.is_brought_whole
        return list(cut_sum(
            self.network, step.layer, tile, reduction, cut.pieces,
            is_brought_whole=whole, numbers=numbers, shared=self.sharing.shared,
        ))  # fmt: skip

    def _few_pieces(self, step: LayerParts, tile: CorePart, cut: Cut) -> list[_Alike]:
        """A tile in pieces of the reduction, of which those between the first and the last are alike."""
        reduction = self._reduction(step)
        count = 1 if reduction is None else len(starts_of(reduction, cut.pieces))
        counts = [1, count - 2, 1] if count > 2 else [1] * count
        tiles = self._pieces_of(step, tile, cut, dict.fromkeys((0, min(1, count - 1), count - 1)))
        return [_Alike(tile, n) for tile, n in zip(tiles, counts, strict=True)]

    def _reduction(self, step: LayerParts) -> Reduction | None:
        """The reduction of a layer that may be cut."""
        if step.layer not in self._reductions:
            self._reductions[step.layer] = sum_of_layer(self.network, step.layer)
        return self._reductions[step.layer]

    def _bytes(self, value: int, box: Box) -> int:
        return round_up(self.network.bytes(value, box), self.device.alignment)

    def _passing_bytes(self, tile: CorePart, passing: Passing) -> int:
        parts = (*tile.inputs.items(), *tile.made.items())
        return sum(self._bytes(value, box) for value, box in parts if value in passing.values)

    def _cut_for_weights(self, step: LayerParts, part: CorePart) -> tuple[tuple[int, ...], int]:
        """Columns, and pieces of the reduction, whose weights fit half of the buffer for them; else all of it.

        Of those that do, the ones that take the fewest cycles.
        """
        box = part.made[step.primary]
        ones = (1,) * len(box)
        if self._is_lookup(step) or self._weight_bytes(part) <= self.device.weight_buffer // 2:
            return ones, 1
        extents = [stop - start for start, stop in box]
        axes = [axis for axis in sorted(self.weight_axes(step, part)) if extents[axis] > 1]
        # Columns may be along several axes, as those of heads are: one is cut whole before the next one is.
        starts = [ones, *((*ones[:axis], extents[axis], *ones[axis + 1 :]) for axis in axes if len(axes) > 1)]
        columns = [
            (*start[:axis], factor, *start[axis + 1 :])
            for start in starts
            for axis in reversed(axes) if start[axis] == 1
            for factor in divisors(extents[axis])
        ]  # fmt: skip
        for share in (2, 1):
            room = self.device.weight_buffer // share
            found: list[tuple[float, tuple[int, ...], int]] = []
            for cut in columns or [ones]:
                tile = self._largest(step, part, Cut(cut, ones))
                count = self._fewest_pieces(step, tile, room)
                if count:
                    pieces = self._few_pieces(step, tile, Cut(cut, ones, pieces=count))
                    cycles = prod(cut) * self._over_pieces(pieces, lambda piece: self._piece_cycles(step, piece))
                    found.append((cycles, cut, count))
                if count == 1:  # fewer columns are no gain
                    break
            if found:
                _, cut, count = min(found, key=lambda each: each[0])
                return cut, count
        raise self._too_heavy(part)

    def _piece_cycles(self, step: LayerParts, piece: CorePart) -> float:
        """Cycles of a tile beside which the weights of the next one arrive."""
        hoisting: float = self._hoisting(piece).all
        return max(self.sharing.cycles(step.layer, piece) + TILE_CYCLES, hoisting)

    def _fewest_pieces(self, step: LayerParts, tile: CorePart, room: int) -> int | None:
        """Into how many pieces of one length a sum has to be cut for its weights to fit; None if they never do."""
        reduction = self._reduction(step)
        for count in divisors(1 if reduction is None or reduction.of_maps else reduction.depth):
            if self._weight_bytes(tile) <= count * room:
                pieces = self._few_pieces(step, tile, Cut((), (), pieces=count))
                if max(self._weight_bytes(pieces[0].tile), self._weight_bytes(pieces[-1].tile)) <= room:
                    return count
        return None

    def _too_heavy(self, part: CorePart) -> DsaError:
        graph = self.network.graph
        heaviest = max(part.constants, key=lambda value: self.network.bytes(value, part.constants[value]))
        size, room = self._weight_bytes(part), self.device.weight_buffer
        return DsaError(
            f"weights {graph.values[heaviest].name!r}: split fully, a tile still takes more than the {room} bytes that "
            f"{self.device.name}'s LB has for weights ({size} bytes in all)"
        )

    def _is_lookup(self, step: LayerParts) -> bool:
        """Whether a layer reads rows of a table, which stays in DDR."""
        return indexed_table(self.network, step.layer) is not None

    def _weight_bytes(self, part: CorePart) -> int:
        return sum(self._bytes(value, box) for value, box in part.constants.items())

    def weight_axes(self, step: LayerParts, part: CorePart) -> frozenset[int]:
        """Axes of the primary output along which tiles need different weights."""
        box = part.made[step.primary]
        key = step.layer, shape_of(box)
        if key not in self._axes:
            found = set()
            for axis, (start, stop) in enumerate(box):
                if stop - start > 1:
                    half = (*box[:axis], (start, start + (stop - start) // 2), *box[axis + 1 :])
                    less = self.sharing.part(step.instance, step.layer, {step.primary: half})
                    if less is not None and self._weight_bytes(less) < self._weight_bytes(part):
                        found.add(axis)
            self._axes[key] = frozenset(found)
        return self._axes[key]

    def _other_cuts(self, step: LayerParts, part: CorePart, least: int) -> Iterator[tuple[int, ...]]:
        """Finer and finer, from the outermost axis in."""
        box = part.made[step.primary]
        factors = [1] * len(box)
        if box:
            factors[0] = least
        yield tuple(factors)
        heavy = self.weight_axes(step, part) if self._weight_bytes(part) else frozenset()
        kept = self.sharing.whole_axes(step.layer, step.primary)
        axes = [axis for axis in self.network.axes[step.primary] if axis not in kept]
        for axis in (*(a for a in axes if a not in heavy), *(a for a in axes if a in heavy)):
            for factor in _factors(box[axis][1] - box[axis][0]):
                if factor > factors[axis] and factor % factors[axis] == 0:
                    yield (*factors[:axis], factor, *factors[axis + 1 :])
            factors[axis] = box[axis][1] - box[axis][0]
        reduction = self._reduction(step)
        if (reduction is None or reduction.of_maps) and len(axes) > 1 and self._multiplies(step):
            # A product of two maps: rows of one and columns of the other, since all columns leave room for few rows.
            rows, columns = axes[-2:]
            extents = [stop - start for start, stop in box]
            for pair in itertools.product(_factors(extents[rows])[:-1], _factors(extents[columns])[1:]):
                for axis, factor in zip((rows, columns), pair, strict=True):
                    factors[axis] = factor
                yield tuple(factors)

    def _multiplies_maps(self, step: LayerParts) -> bool:
        """Whether a layer has a product of two maps that may be summed up in pieces."""
        reduction = self._reduction(step)
        return reduction is not None and reduction.of_maps

    def _multiplies(self, step: LayerParts) -> bool:
        """Whether a layer has a product of matrices."""
        return any(self.network.graph.operators[index].op in MATRIX_PRODUCTS for index in step.layer)

    def _largest(self, step: LayerParts, part: CorePart, cut: Cut) -> CorePart:
        """A tile from the middle: it has all its neighbours."""
        middle = []
        for (start, stop), a, b in zip(part.made[step.primary], cut.weights, cut.others, strict=True):
            length = -(-(stop - start) // max(a, b))
            first = min(start + (max(a, b) // 2) * length, stop - length)
            middle.append((first, first + length))
        return self._part(step, part, tuple(middle), is_first=True)

    def _tiles(
        self, step: LayerParts, part: CorePart, cut: Cut, fits: Callable[[CorePart, Box], bool]
    ) -> Iterator[CorePart]:
        """The tiles of a part in the order in which they are computed."""
        box = part.made[step.primary]
        if prod(cut.weights) == prod(cut.others) == 1 and fits(part, box):
            yield from self._pieces_of(step, part, cut)
            return
        is_first = True
        outer, inner = (_without(cut), cut.weights) if cut.rows_first else (cut.weights, _without(cut))
        for piece in _pieces(box, outer):
            sums: list[list[CorePart]] = []
            for tile in (each for whole in _pieces(piece, inner) for each in self._fitting(step, part, whole, fits)):
                sums.append(self._pieces_of(step, self._part(step, part, tile, is_first), cut))
                is_first = False
            for tiles in zip(*sums, strict=True) if cut.is_held else sums:
                yield from tiles

    def _part(self, step: LayerParts, part: CorePart, box: Box, is_first: bool) -> CorePart:
        """One tile: other outputs are cut like the primary one if they have its axes, else the first makes them."""
        primary = part.made[step.primary]
        made: dict[int, Box] = {}
        for value, own in part.made.items():
            same = counterpart(box, primary, own)
            if same is not None:
                made[value] = same
            elif is_first:
                made[value] = own
        found = self.sharing.part(step.instance, step.layer, made)
        assert found is not None
        return found


def _always(part: CorePart, box: Box) -> bool:
    return True


def _without(cut: Cut) -> tuple[int, ...]:
    """The cuts of a piece: axes that weights cut already are not cut again."""
    return tuple(1 if weight > 1 else other for weight, other in zip(cut.weights, cut.others, strict=True))


def _pieces(box: Box, factors: tuple[int, ...]) -> Iterator[Box]:
    """Parts as equal as they can be, row by row."""
    if not box:
        yield ()
        return
    start, stop = box[0]
    factor = min(factors[0], stop - start)
    for index in range(factor):
        first = (start + index * (stop - start) // factor, start + (index + 1) * (stop - start) // factor)
        for rest in _pieces(box[1:], factors[1:]):
            yield (first, *rest)


def _factors(extent: int) -> list[int]:
    """Into how many parts an axis may be cut: few, then each time about half as many again."""
    found = [1]
    while found[-1] < extent:
        found.append(min(extent, found[-1] + max(1, found[-1] // 2)))
    return found
