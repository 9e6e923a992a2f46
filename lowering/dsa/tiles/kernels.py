"""Tiles as kernels: their names, their work on the units of a core, and their graphs (GraphTurbo, section 4).

Tiles that differ only by their place share a kernel. An axis that all operators of a layer pass on element by element
(the batch, mostly) has no border: what a tile computes does not change when all its parts are moved along it. Axes of
values are joined to such tracks if operators connect them; any other use pins a track to its place.

The units of a core share the work of a tile. Matrix products and convolutions are `Product`s of the matrix unit (a
convolution as im2col), or multiply-accumulates of the vector MAC engine if that takes fewer cycles: what has little to
multiply per element, as depthwise ones. All else is element operations of the vector unit. Units work as a pipeline:
what follows a product runs along with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from ....costmodels.dsa_device import DsaDevice
from ....costmodels.dsa_work import MOVES, product_of, vector_operations
from ....costmodels.systolic import Product
from ....ir.graph import Operator, OperatorGraph
from ....ir.index_maps import Axis, Reduction, loops_of
from ..network.boxes import Box
from ..network.graph import Network
from ..network.operand_boxes import partial_maps
from ..network.sums import PieceOfSum
from ..program.cost import Cost
from ..program.instructions import Engine, Unit, Work
from .local_graph import Tile, local_graph


def work_of(graph: OperatorGraph, device: DsaDevice, total: int | None = None) -> tuple[Work, ...]:
    """The work of each unit that is used, at least one.

    What adds to `total`, the sum that a tile goes on with, is the matrix unit's: no unit's work by itself.

    All of them are of one place: of the core, or, if the matrix unit that a tile needs is the cluster's, of the
    cluster. Of a unit that is not there its work is left to one that is; what follows a product in a cluster without a
    vector unit is left to the matrix unit's way out.
    """
    units = _Units(device)
    products, multiplied, elements = [], 0, 0
    for operator, operation in zip(graph.operators, graph.operations, strict=True):
        if total is not None and total in operator.inputs:
            continue
        product = None if operator.is_opaque else product_of(operation)
        if product is not None and units.suits(product):
            products.append(product)
        elif product is not None:
            multiplied += units.steps(product)
        elements += vector_operations(operation)
    if not (products or multiplied or elements):
        elements = sum(_elements(graph, o.outputs) for o in graph.operators if o.op in MOVES)
    return units.work(tuple(products), multiplied, elements)


class _Units:
    """The units of a device that a tile may use."""

    def __init__(self, device: DsaDevice) -> None:
        self.cost = Cost(device)

    def engine(self, unit: Unit) -> Engine | None:
        """The unit of the core, or of the cluster if cores have none; None if there is none."""
        return next((e for e in (Engine(0, 0, unit), Engine(0, None, unit)) if self.cost.unit(e) is not None), None)

    def cycles(self, work: Work) -> float:
        """How long a unit takes; forever if there is none."""
        engine = self.engine(work.unit)
        return float("inf") if engine is None else self.cost.work_cycles(work, engine)

    def suits(self, product: Product) -> bool:
        """Whether the matrix unit is no slower than what else multiplies."""
        matrix = self.cycles(Work(Unit.MME, 0, (product,)))
        others = (self.cycles(Work(unit, self.steps(product))) for unit in (Unit.VME, Unit.VECTOR))
        return matrix < float("inf") and matrix <= min(others)

    def steps(self, product: Product) -> int:
        """Multiply-accumulates of the vector MAC engine, of which it does several of 8 bits in the time of one."""
        engine = self.engine(Unit.VME)
        unit = None if engine is None else self.cost.unit(engine)
        return -(-product.macs // (1 if unit is None else unit.rate(product.eight_bits)))

    def work(self, products: tuple[Product, ...], multiplied: int, elements: int) -> tuple[Work, ...]:
        """Work for units that there are, in the place of the matrix unit if there are products."""
        matrix = self.engine(Unit.MME)
        core = matrix.core if products and matrix is not None else 0
        present = [u for u in (Unit.VECTOR, Unit.VME, Unit.MME) if self.cost.unit(Engine(0, core, u)) is not None]
        amounts: dict[Unit, int] = {}
        for unit, amount in ((Unit.VME, multiplied), (Unit.VECTOR, elements)):
            own = unit if unit in present else next(iter(present), unit)
            amounts[own] = amounts.get(own, 0) + amount
        found = [Work(Unit.MME, 0, products)] if products else []
        found += [Work(unit, n) for unit, n in amounts.items() if n and not (unit is Unit.MME and products)]
        return tuple(found) or (Work(next(iter(present), Unit.VECTOR)),)


def _elements(graph: OperatorGraph, values: Iterable[int]) -> int:
    return sum(prod(graph.values[value].extent.dimensions) for value in values)


Parts = tuple[tuple[int, Box], ...]
_Axis = tuple[int, int]
"""A value and one of its axes."""


@dataclass
class Shifts:
    """The tracks of one layer: `track` gives the number of each axis of a value, None if it is pinned."""

    network: Network
    members: tuple[int, ...]
    _parents: dict[_Axis, _Axis] = field(default_factory=dict)
    _pinned: set[_Axis] = field(default_factory=set)
    _tracks: dict[int, tuple[int | None, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index in self.members:
            self._connect(self.network.graph.operators[index])

    def normal(self, inputs: Parts, outputs: Parts) -> tuple[Parts, Parts]:
        """The same tile, moved as near to the start of every track as it can be."""
        bases: dict[int, int] = {}
        for value, box in (*inputs, *outputs):
            for track, (start, _) in zip(self._track(value), box, strict=True):
                if track is not None and start < bases.get(track, start + 1):
                    bases[track] = start
        return self._moved(inputs, bases), self._moved(outputs, bases)

    def _moved(self, parts: Parts, bases: Mapping[int, int]) -> Parts:
        if not any(bases.values()):
            return parts
        return tuple(
            [
                (
                    value,
                    tuple(
                        [
                            i if t is None else (i[0] - bases[t], i[1] - bases[t])
                            for t, i in zip(self._tracks[value], box, strict=True)
                        ]
                    ),
                )
                for value, box in parts
            ]
        )

    def _track(self, value: int) -> tuple[int | None, ...]:
        if value not in self._tracks:
            numbers: dict[_Axis, int] = {root: n for n, root in enumerate(sorted(set(map(self._root, self._parents))))}
            pinned = set(map(self._root, self._pinned))
            roots = [self._root((value, axis)) for axis in range(len(self.network.shapes[value]))]
            self._tracks[value] = tuple(None if r in pinned or r not in numbers else numbers[r] for r in roots)
        return self._tracks[value]

    def _connect(self, operator: Operator) -> None:
        """Join the axes that an operator passes on; pin every one that it also reads or makes otherwise."""
        shapes = self.network.shapes
        links = _links(self.network, operator)
        read, made = {(link.operand, link.axis) for link in links}, {link.result_axis for link in links}
        for link in links:
            value = operator.inputs[link.operand]
            if value is not None:
                for result in operator.outputs:
                    self._join((value, link.axis), (result, link.result_axis))
        for number, value in enumerate(operator.inputs):
            if value is not None:
                self._pinned |= {(value, axis) for axis in range(len(shapes[value])) if (number, axis) not in read}
        for result in operator.outputs:
            self._pinned |= {(result, axis) for axis in range(len(shapes[result])) if axis not in made}

    def _root(self, axis: _Axis) -> _Axis:
        while self._parents.get(axis, axis) != axis:
            axis = self._parents[axis]
        return axis

    def _join(self, first: _Axis, second: _Axis) -> None:
        for axis in (first, second):
            self._parents.setdefault(axis, axis)
        self._parents[self._root(first)] = self._root(second)


@dataclass(frozen=True)
class _Link:
    """Element i of an axis of the result needs element i of an axis of an operand, and no other along it."""

    operand: int
    axis: int
    result_axis: int


def _links(network: Network, operator: Operator) -> frozenset[_Link]:
    """The links of axes of the result that every operand reads element by element, or not at all."""
    maps = partial_maps(operator, network.call(operator))
    if maps is None or (len(operator.outputs) > 1 and operator.op != "Split"):
        return frozenset()
    links: set[_Link] = set()
    fixed: set[int] = set()
    for number, (operand, shape) in enumerate(zip(maps.operands, maps.shapes, strict=True)):
        for axis, (index, extent) in enumerate(zip(operand or (), shape or (), strict=False)):
            if isinstance(index, Axis) and index.extent == extent:
                links.add(_Link(number, axis, index.number))
                continue
            fixed |= {loop.number for loop in loops_of(index) if isinstance(loop, Axis)}
            fixed |= {loop.beside.number for loop in loops_of(index) if isinstance(loop, Reduction) and loop.beside}
    return frozenset(link for link in links if link.result_axis not in fixed)


_NAMED_OPERATORS = 3
"""The name of a kernel names this many of its operators, the first ones."""


@dataclass(frozen=True, eq=False)
class TileKernel:
    """A kernel. Tiles share it if they differ only by their places in their tensors and by their weights.

    `work` is what each unit does that is used, at least one. Kernels of one program are numbered apart
    (codegen/generator.py).
    """

    graph: OperatorGraph
    work: tuple[Work, ...]

    @property
    def stem(self) -> str:
        """``conv_add_relu``, the beginning of a C identifier."""
        stem = "_".join(operator.op.lower() for operator in self.graph.operators[:_NAMED_OPERATORS])
        return "".join(c if c.isalnum() else "_" for c in stem)


class TileKernels:
    """The kernels of a network's tiles, each made once."""

    def __init__(self, network: Network, device: DsaDevice) -> None:
        self._network, self._device = network, device
        self._shifts: dict[tuple[int, ...], Shifts] = {}
        self._by_tile: dict[Tile, TileKernel] = {}
        self._by_structure: dict[object, TileKernel] = {}

    def kernel(self, tile: Tile) -> TileKernel:
        """The kernel of a tile. Raises DsaError if the tile's inputs are less than it needs."""
        shifts = self._shifts.get(tile.members)
        if shifts is None:
            shifts = self._shifts[tile.members] = Shifts(self._network, tile.members)
        first = first_piece(self._network, tile)
        kernel = self._by_tile.get(first)
        if kernel is None:  # nor were there other pieces of the same sum
            inputs, outputs = shifts.normal(first.inputs, first.outputs)
            key = Tile(tile.members, inputs, outputs, first.piece)
            kernel = self._by_tile.get(key)
            if kernel is None:
                kernel = self._by_tile[key] = self._kernel_of_structure(key)
            if first.piece is not None:
                self._by_tile[first] = kernel
        return kernel

    def _kernel_of_structure(self, tile: Tile) -> TileKernel:
        graph = local_graph(self._network, tile)
        total = len(tile.inputs) - 1 if tile.piece is not None and tile.piece.adds else None
        key = total, structure(graph)
        if key not in self._by_structure:
            self._by_structure[key] = TileKernel(graph, work_of(graph, self._device, total))
        return self._by_structure[key]


def first_piece(network: Network, tile: Tile) -> Tile:
    """The same tile with the first indices of the reduction: pieces of one length compute alike.

    The tile itself if it has more of an operand at hand than the piece.
    """
    piece = tile.piece
    if piece is None or not piece.start:
        return tile
    reduction, length = piece.reduction, piece.stop - piece.start
    data, weights = network.graph.operators[reduction.product].inputs[:2]
    axes = {data: reduction.data_axis, weights: reduction.weight_axis}
    moved = PieceOfSum(reduction, 0, length, piece.adds, piece.is_last)
    operands = tile.inputs[:-1] if piece.adds else tile.inputs
    if any(value in axes and box[axes[value]] != (piece.start, piece.stop) for value, box in operands):
        return tile
    boxes = [(value, moved.restrict(box, axes[value]) if value in axes else box) for value, box in operands]
    return Tile(tile.members, (*boxes, *tile.inputs[len(operands) :]), tile.outputs, moved)


def structure(graph: OperatorGraph) -> object:
    """A key that is equal for graphs that compute the same way from operands of the same types."""
    operators = tuple(
        (o.op, tuple(sorted(o.attributes.items())), o.inputs, o.outputs, o.is_opaque) for o in graph.operators
    )
    return operators, tuple((v.type, v.producer, v.is_constant, v.is_output) for v in graph.values)
