"""How the cores share each layer of an instance.

Algorithm 4 (GraphTurbo, OSDI 2023, section 3.4) says how the cores share an instance's output. What its layers hand on
inside is shared the same way if that costs least; if another way costs less, in cycles of computation and of
data that cores have to fetch from each other and as weights, that one is taken ("better exploit the trade-off between
parallelism, load balance and locality", section 5.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from ....costmodels.dsa_device import DsaDevice
from ..network.alignment import round_up
from ..network.boxes import Box, Boxes, counterpart, intersection, shape_of, size
from ..network.core_factors import Binding, core_count
from ..network.graph import Network
from ..network.lookups import indexed_table
from ..network.operand_boxes import whole_axes
from ..network.subgraphs import Layer
from ..network.sums import PieceOfSum, Reduction, pieces_of, sum_of_layer
from ..program.cost import Cost
from ..program.instructions import Compute
from ..schedule.instances import InstanceGraph, Part
from .cuts import PassingProduct, Ports
from .kernels import TileKernels
from .local_graph import Tile

_UNEVEN = 1.25
"""The largest of the cores' parts may exceed the mean by this factor."""
_EXCHANGE = 6.0
"""Bytes that cores exchange count this many times: senders' ports are shared, receivers wait, both sides need room."""
_NEARLY_ALL = 8
"""An axis of which all but one element in this many is needed is fetched whole."""


@dataclass(frozen=True, slots=True)
class CorePart:
    """The share of one core in a layer of an instance: the boxes that it makes, and those that it needs for that.

    A `piece` of a sum needs less, and leaves what it has of the sum in the place of the last piece's result.
    """

    made: Boxes
    inputs: Boxes
    constants: Boxes
    piece: PieceOfSum | None = None

    @property
    def is_complete(self) -> bool:
        """Whether what it makes is final."""
        return self.piece is None or self.piece.is_last

    @property
    def shape(self) -> object:
        """A key that is equal for parts that differ by their places alone."""
        shapes = [(v, shape_of(box)) for boxes in (self.made, self.inputs, self.constants) for v, box in boxes.items()]
        piece = self.piece
        return tuple(shapes), None if piece is None else (piece.stop - piece.start, piece.adds, piece.is_last)


@dataclass(frozen=True)
class LayerParts:
    """One layer of an instance. `primary` is the output whose axes are cut; idle cores have None."""

    instance: int
    layer: Layer
    primary: int
    cores: tuple[CorePart | None, ...]


def layer_outputs(network: Network, layer: Layer, wanted: Mapping[int, Box]) -> tuple[int, ...]:
    """The values that a layer hands on, the one with most elements last."""
    graph = network.graph
    inside = set(layer)
    outputs = []
    for index in layer:
        for value in graph.operators[index].outputs:
            readers = graph.consumers[value]
            if value in wanted and (graph.values[value].is_output or not readers or not inside >= set(readers)):
                outputs.append(value)
    return tuple(sorted(outputs, key=lambda value: (size(wanted[value]), value)))


@dataclass
class Sharing:
    """Decides for every layer of every instance. Homogeneous instances are shared alike."""

    graph: InstanceGraph
    device: DsaDevice
    kernels: TileKernels
    preferred: Mapping[Part, Binding]
    """The bindings of Algorithm 4."""
    passes: bool = False
    """Whether instances are too large for the LBs, so that data comes from the GB whichever core made it."""
    _chosen: dict[tuple[Layer, tuple[int, ...]], Binding] = field(default_factory=dict)
    _made: dict[Part, tuple[Box | None, ...]] = field(default_factory=dict)
    _inside: dict[Layer, frozenset[int]] = field(default_factory=dict)
    _boxes: dict[tuple[tuple[int, Box], ...], Boxes] = field(default_factory=dict)
    """Parts of values, which many tiles share."""
    _cycles: dict[tuple[Layer, object], float] = field(default_factory=dict)
    """By layer and shape of a part: the place of it does not change the work."""

    def layer(self, instance: int, layer: Layer) -> LayerParts:
        """How a layer is shared; layers of an instance come in the order in which they run."""
        wanted = self.graph.instances[instance].needed
        outputs = layer_outputs(self.graph.network, layer, wanted)
        primary = outputs[-1]
        key = layer, shape_of(wanted[primary])
        if key not in self._chosen:
            options = list(self._options(instance, layer, primary, wanted[primary]))
            self._chosen[key] = min(options, key=lambda b: self._cost(instance, layer, outputs, b))
        cores = tuple(self._cores(instance, layer, outputs, self._chosen[key]))
        for value in outputs:
            self._made[Part(instance, value)] = tuple(None if each is None else each.made.get(value) for each in cores)
        return LayerParts(instance, layer, primary, cores)

    def _options(self, instance: int, layer: Layer, primary: int, box: Box) -> Iterator[Binding]:
        """Algorithm 4's binding first, then the others that use as many cores as can be used, the outermost axes first.

        Parts that are cut along outer axes lie together in memory.
        """
        extents = shape_of(box)
        preferred = self.preferred.get(Part(instance, primary), ())
        divides = all(extent % factor == 0 for extent, factor in zip(extents, preferred, strict=False))
        if preferred and divides and self._is_regular(primary, preferred):
            yield preferred
        kept = self.whole_axes(layer, primary)
        steps = [[1] if axis in kept else self._factors(extent) for axis, extent in enumerate(extents)]
        bindings = [b for b in product(*steps) if prod(b) <= self.device.cores and self._is_regular(primary, b)]
        most = max(map(core_count, bindings))
        axes = self.graph.network.axes[primary]
        wide = (b for b in bindings if 2 * core_count(b) > most)
        yield from sorted(wide, key=lambda b: tuple(b[axis] for axis in axes), reverse=True)

    def _is_regular(self, value: int, binding: Binding) -> bool:
        """Whether parts are few rows in memory: of the axes after the first two there, one is cut at most."""
        return sum(binding[axis] > 1 for axis in self.graph.network.axes[value][2:]) <= 1

    def _factors(self, extent: int) -> list[int]:
        """Over how many cores an axis may be divided: as the text does it, evenly over 8, 4, 2 or 1, or nearly so."""
        cores = self.device.cores
        even = (f for f in range(1, cores + 1) if cores % f == 0 and f <= extent)
        nearly = [f for f in even if round_up(extent, f) <= _UNEVEN * extent]
        return [*nearly, extent] if extent < cores and extent not in nearly else nearly

    def whole_axes(self, layer: Layer, primary: int) -> frozenset[int]:
        """Axes of the primary output of a layer that are not cut."""
        graph, rank = self.graph.network.graph, len(self.graph.network.shapes[primary])
        axes = [whole_axes(graph.operators[i], rank) for i in layer if primary in graph.operators[i].outputs]
        table = indexed_table(self.graph.network, layer)
        inner = frozenset() if table is None else frozenset(range(rank - len(table[1]) + 1, rank))
        return frozenset().union(*axes, inner)

    def _cores(
        self, instance: int, layer: Layer, outputs: Sequence[int], binding: Binding
    ) -> Iterator[CorePart | None]:
        for made in self._made_by_cores(instance, outputs, binding):
            yield self.part(instance, layer, made)

    def _made_by_cores(self, instance: int, outputs: Sequence[int], binding: Binding) -> Iterator[Boxes]:
        """Per core, the boxes that it makes."""
        wanted = self.graph.instances[instance].needed
        primary = outputs[-1]
        parts = {value: _cut_like_primary(wanted[value], wanted[primary], binding) for value in outputs}
        for core in range(self.device.cores):
            yield {value: boxes[core] for value, boxes in parts.items() if core < len(boxes)}

    def part(self, instance: int, layer: Layer, made: Boxes) -> CorePart | None:
        """The share of a core that makes these parts; it reads a little more if that makes rows whole."""
        if not made:
            return None
        network = self.graph.network
        needed = network.needs(layer, made)
        inside = self._inside.get(layer)
        if inside is None:
            inside = frozenset(value for index in layer for value in network.graph.operators[index].outputs)
            self._inside[layer] = inside
        limits, values = self.graph.instances[instance].needed, network.graph.values
        constants, inputs = dict[int, Box](), dict[int, Box]()
        for value, box in needed.items():
            if value in inside:
                continue
            if values[value].is_constant:
                constants[value] = box
            else:
                inputs[value] = box if box == limits[value] else _widen_to_rows(box, limits[value])
        return CorePart(made, self.shared(inputs), self.shared(constants))

    def shared(self, boxes: Boxes) -> Boxes:
        """The same parts of values, one object however many tiles have them."""
        return self._boxes.setdefault(tuple(boxes.items()), boxes)

    def _cost(self, instance: int, layer: Layer, outputs: Sequence[int], binding: Binding) -> float:
        """Cycles: of computing beside fetching weights, after fetching what other cores have."""
        cores = [(core, made) for core, made in enumerate(self._made_by_cores(instance, outputs, binding)) if made]
        network, port = self.graph.network, self.device.global_bandwidth / self.device.cores / self.device.clock
        table, _ = indexed_table(network, layer) or (None, ())
        most = 0.0
        largest = max(cores, key=lambda each: size(each[1][outputs[-1]]))
        for core, made in (largest, cores[-1]):
            part = self.part(instance, layer, made)
            assert part is not None
            if self.passes and table is None:
                most = max(most, self._passing_cycles(layer, part))
                continue
            fetched = sum(self._absent(instance, core, value, box) for value, box in part.inputs.items())
            weights = sum(network.bytes(value, box) for value, box in part.constants.items() if value != table)
            most = max(most, max(self.cycles(layer, part), weights / port) + _EXCHANGE * fetched / port)
        return most

    def _passing_cycles(self, layer: Layer, part: CorePart) -> float:
        """Cycles of a core for its part of a layer if all data comes from the GB, and results go there."""
        ports, beat = Ports(self.graph.network, self.device), self.device.alignment
        network = ports.network
        moved = {v: network.wire_bytes(v, box, beat) for v, box in (*part.inputs.items(), *part.made.items())}
        kernel = self.kernels.kernel(tile_of(network, layer, part))
        products = [product for work in kernel.work for product in work.products]
        weights = sum(network.bytes(value, box) for value, box in part.constants.items())
        unit = self.device.matrix_unit
        reduction = sum_of_layer(network, layer) if len(products) == 1 and unit is not None else None
        if reduction is None or reduction.of_maps or unit is None:
            return max(self.cycles(layer, part), (sum(moved.values()) + weights) / ports.port)
        operator = network.graph.operators[reduction.product]
        data, weight, total = operator.inputs[0], operator.inputs[1], operator.outputs[0]
        assert data is not None
        assert weight is not None
        of_weight, of_sum = (network.bytes(value) // prod(network.shapes[value]) for value in (weight, total))
        others = sum(size for value, size in moved.items() if value != data)
        return PassingProduct(products[0], moved[data], of_weight, of_sum, others).cycles(ports, unit)

    def cycles(self, layer: Layer, part: CorePart) -> float:
        """Cycles of one core for its part of a layer, all at once."""
        key = layer, part.shape
        if key not in self._cycles:
            kernel = self.kernels.kernel(tile_of(self.graph.network, layer, part))
            computing = Compute(0, 0, kernel.stem, (), (), kernel.work)
            self._cycles[key] = Cost(self.device).compute_cycles(computing)
        return self._cycles[key]

    def _absent(self, instance: int, core: int, value: int, box: Box) -> int:
        """Bytes of a part that the core did not make itself, as they travel."""
        network, beat = self.graph.network, self.device.alignment
        parts = [part for part in (Part(instance, value),) if part in self._made]
        parts += [transfer.part for transfer in self.graph.transfers[instance] if transfer.value == value]
        own, wanted = sum(size(intersection(self._made[part][core], box)) for part in parts), size(box)
        return network.wire_bytes(value, box, beat) * max(0, wanted - own) // max(1, wanted)


def tile_of(network: Network, layer: Layer, part: CorePart) -> Tile:
    """A core's part of a layer as one tile."""
    operands = (*sorted(read_of(network, layer, part).items()), *sorted(part.constants.items()))
    return tile_of_operands(network, layer, part, operands)


def tile_of_operands(network: Network, layer: Layer, part: CorePart, operands: Iterable[tuple[int, Box]]) -> Tile:
    """A core's part of a layer as one tile, with these parts of operands at hand."""
    made, piece = tuple(sorted(part.made.items())), part.piece
    if piece is None:
        return Tile(layer, tuple(operands), made)
    ((_, box),) = made
    (total,) = network.graph.operators[piece.reduction.product].outputs
    inputs = (*operands, (total, box)) if piece.adds else tuple(operands)
    return Tile(layer, inputs, made if piece.is_last else ((total, box),), piece)


def read_of(network: Network, layer: Layer, part: CorePart) -> Boxes:
    """The parts of its inputs that a tile reads: a piece of a sum may have more at hand."""
    if part.piece is None:
        return part.inputs
    product, *others = layer
    data = network.graph.operators[product].inputs[0]
    assert data is not None
    axis, at_hand = part.piece.reduction.data_axis, part.inputs[data]
    if at_hand[axis] == (part.piece.start, part.piece.stop):
        return part.inputs
    if part.piece.is_last and any(data in network.graph.operators[index].inputs for index in others):
        return part.inputs
    return {**part.inputs, data: part.piece.restrict(at_hand, axis)}


def cut_sum(
    network: Network, layer: Layer, part: CorePart, reduction: Reduction, count: int, *,
    is_brought_whole: bool = False, numbers: Iterable[int] | None = None,
    shared: Callable[[Boxes], Boxes] = lambda boxes: boxes,
) -> Iterator[CorePart]:  # fmt: skip
    """A core's part of a layer as `count` tiles, one after another, that add up its product; only some `numbers` of
    them if given. `shared` makes equal parts of values one object.

    If the data `is_brought_whole`, each has all of it at hand.
    """
    if count == 1:
        yield part
        return
    product, *others = layer
    data, weights, *behind = network.graph.operators[product].inputs
    assert data is not None
    assert weights is not None
    of_all = {weights, *(behind if reduction.has_zero_points else ())}
    read_after = {value for index in others for value in network.graph.operators[index].inputs}
    pieces = pieces_of(reduction, count)
    for piece in pieces if numbers is None else [pieces[number] for number in numbers]:
        inputs = {v: box for v, box in part.inputs.items() if piece.is_last or v == data or v in of_all}
        constants = {v: box for v, box in part.constants.items() if piece.is_last or v in of_all}
        if not is_brought_whole and (not piece.is_last or data not in read_after):
            inputs[data] = piece.restrict(part.inputs[data], reduction.data_axis)
        if reduction.of_maps:
            inputs[weights] = piece.restrict(part.inputs[weights], reduction.weight_axis)
        elif not piece.is_last or weights not in read_after:
            constants[weights] = piece.restrict(part.constants[weights], reduction.weight_axis)
        yield CorePart(part.made, shared(inputs), shared(constants), piece)


def _cut_like_primary(box: Box, primary: Box, binding: Binding) -> Sequence[Box]:
    """The cores' parts of an output: cut like the primary one if it has its axes, else all of it on one core."""
    parts = list(spread(primary, binding))
    same = [counterpart(part, primary, box) for part in parts]
    if None not in same:
        return [each for each in same if each is not None]
    matching = (extent >= factor for extent, factor in zip(shape_of(box), binding, strict=False))
    return list(spread(box, binding)) if len(box) == len(primary) and all(matching) else [box]


def _widen_to_rows(box: Box, limits: Box) -> Box:
    """Take all of the inner axes of which most is needed.

    A strided convolution leaves out a last column, and the rest would be many short rows in memory.
    """
    return tuple(
        limit if axis and _NEARLY_ALL * (stop - start) >= (_NEARLY_ALL - 1) * (last - first) else (start, stop)
        for axis, ((start, stop), limit) in enumerate(zip(box, limits, strict=True))
        for first, last in (limit,)
    )


def spread(box: Box, binding: Binding) -> Iterator[Box]:
    """The box of each core, row by row along the axes that are divided; they are as equal as they can be."""
    if not binding:
        yield box
        return
    (start, stop), factor = box[0], binding[0]
    for number in range(factor):
        first = start + number * (stop - start) // factor, start + (number + 1) * (stop - start) // factor
        yield from ((first, *rest) for rest in spread(box[1:], binding[1:]))
