"""The kernel generator: ``Schedule -> Program`` (GraphTurbo, OSDI 2023, section 4).

Instance after instance and layer after layer, cores compute tiles. A layer's output stays in the LBs that its
consumers read it from (buffer stitching); weights go DDR -> GB -> LB ahead of the tiles that read them; what has no
room passes through. Every instruction waits for exactly what it needs, so that whatever can overlaps: the movement of
weights with earlier layers, units with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from ....costmodels.dsa_device import DsaDevice
from ..errors import DsaError
from ..network.boxes import Box, intersection, whole
from ..network.graph import Network
from ..network.lookups import indexed_table
from ..network.storage import plain_box, stored_box
from ..network.subgraphs import Layer
from ..program.instructions import (
    DDR,
    Engine,
    IndexedTransfer,
    Level,
    Program,
    Role,
    ScopeCounts,
    TransferKind,
    global_buffer,
    local_buffer,
)
from ..schedule.scheduler import Schedule
from ..schedule.variants import Variant
from ..tiles.core_parts import CorePart, LayerParts, Sharing
from ..tiles.kernels import TileKernels
from ..tiles.local_graph import Tile
from ..tiles.tiling import Tiling
from .emission import Emission, View, as_operand, core_channel
from .flow import Flow, Part
from .generated import Generated, KernelUse
from .hazards import Contents
from .layout import enclosing
from .memory_map import MemoryMap, StepsFullError, memory_map
from .piecewise import piecewise
from .promotion import blob_of
from .residence import Planner, Residence
from .weight_emission import WeightEmission

_ATTEMPTS = 100
_FROM_LB, _FROM_GB, _FROM_DDR, _OUT = range(4)
"""Channels of a core: where it fetches from, and what it moves out."""


@dataclass(frozen=True)
class Plan:
    """All that is decided before instructions are written: the tiles of a schedule, and where everything is."""

    schedule: Schedule
    variant: Variant
    sharing: Sharing
    residence: Residence
    places: MemoryMap


def generate(schedule: Schedule, variant: Variant, batch: int, name: str = "network") -> Generated:
    """The program of a schedule, which processes `batch` samples.

    Raises DsaError: a tensor, or weights, that fit nowhere even when split fully.
    """
    return written(plan(schedule, variant), batch, name)


def plan(schedule: Schedule, variant: Variant) -> Plan:
    """What `generate` decides. Raises DsaError as it does."""
    network, device = schedule.network, schedule.device
    _check_units(device)
    kernels = TileKernels(network, device)
    sharing = Sharing(schedule.graph, device, kernels, schedule.bindings.binding)
    steps = tuple(sharing.layer(instance, layer) for instance, layer in running_order(schedule, variant))
    flow = Flow(schedule.graph, steps, device.cores)
    flow = replace(flow, pieces=piecewise(flow, sharing))
    tiling = Tiling(sharing, steps, device, variant.pipeline if variant.overlap else 1)
    planner = Planner(flow, device, variant, tiling)
    return Plan(schedule, variant, sharing, *_fitted(planner, device))


def written(found: Plan, batch: int, name: str = "network") -> Generated:
    """The program that a plan leads to."""
    network, device, kernels = found.schedule.network, found.schedule.device, found.sharing.kernels
    return _Generator(network, device, found.variant, kernels, found.residence, found.places).run(batch, name)


def _check_units(device: DsaDevice) -> None:
    shared = [unit.name for unit in device.units if unit.per == "cluster"]
    if shared:
        raise DsaError(
            f"device {device.name}: unit {shared[0]!r} belongs to a cluster, and kernels run on cores; give each core "
            "its part of it"
        )


def running_order(schedule: Schedule, variant: Variant) -> Iterator[tuple[int, Layer]]:
    """Instances one after another; those of one sub-graph that follow each other abreast, where they may."""
    alike = groupby(schedule.order, key=lambda instance: schedule.graph.instances[instance].subgraph)
    for subgraph, run in alike:
        layers, instances = schedule.graph.groups[subgraph].subgraph.layers, list(run)
        if variant.abreast:
            yield from ((instance, layer) for layer in layers for instance in instances)
        else:
            yield from ((instance, layer) for instance in instances for layer in layers)


def _fitted(planner: Planner, device: DsaDevice) -> tuple[Residence, MemoryMap]:
    """A residence for which there are addresses."""
    for _ in range(_ATTEMPTS):
        residence = planner.plan()
        try:
            return residence, memory_map(residence, device)
        except StepsFullError as full:
            for step, size in full.sizes.items():
                planner.tighten(step, size)
    raise DsaError(f"the buffers of {device.name} are too fragmented: no addresses after {_ATTEMPTS} attempts")


@dataclass
class _Generator:
    network: Network
    device: DsaDevice
    variant: Variant
    kernels: TileKernels
    residence: Residence
    places: MemoryMap
    emission: Emission = field(init=False)
    weights: WeightEmission = field(init=False)
    homes: dict[Part, Contents] = field(default_factory=dict)
    """Parts at home in GB or DDR, and whole outputs."""
    fragments: dict[tuple[Part, int], Contents] = field(default_factory=dict)
    arrivals: dict[tuple[Part, int], Contents] = field(default_factory=dict)
    passing: dict[tuple[int, int], Contents] = field(default_factory=dict)
    """What was brought to a core last, by value."""
    inputs: dict[int, Contents] = field(default_factory=dict)
    outputs: dict[int, Contents] = field(default_factory=dict)
    tables: dict[int, Contents] = field(default_factory=dict)
    used: dict[KernelUse, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.emission = Emission(self.device.alignment)
        self.weights = WeightEmission(self.emission, self.device, self.residence, self.places.staging)

    @property
    def flow(self) -> Flow:
        return self.residence.flow

    def run(self, batch: int, name: str) -> Generated:
        for number in range(len(self.flow.steps)):
            if number and not self.variant.overlap:
                self.emission.barrier()
            self._step(number)
        emission = self.emission
        scopes = self._scopes()
        program = Program(name, self.device.name, batch, tuple(emission.buffers), tuple(emission.instructions), scopes)
        return Generated(
            program, self.kernels, self.residence,
            {contents.buffer.name: blob for blob, contents in self.weights.blobs.items()},
            {contents.buffer.name: value for value, contents in self.tables.items()},
            {contents.buffer.name: value for value, contents in self.inputs.items()},
            {contents.buffer.name: value for value, contents in self.outputs.items()},
            {name: use for use, name in self.used.items()},
        )  # fmt: skip

    def _scopes(self) -> ScopeCounts:
        """Values that layers hand on, at the slowest level of their parts."""
        levels: dict[int, Level] = {}
        order = [Level.LB, Level.GB, Level.DDR]
        for (_, value), home in self.residence.homes.items():
            levels[value] = max(home, levels.get(value, Level.LB), key=order.index)
        found = list(levels.values())
        return ScopeCounts(found.count(Level.DDR), found.count(Level.GB), found.count(Level.LB))

    # steps

    def _step(self, number: int) -> None:
        step, tiled = self.flow.steps[number], self.residence.tiles[number]
        self._arrive(number)
        for position in range(tiled.count):
            weights = self.weights.promote(number, position)
            for core, tile in enumerate(tiled.at(position)):
                if tile is not None:
                    self._tile(number, position, core, tile, weights[core])
        for part in self._parts(step):
            self._exchange(part)

    def _parts(self, step: LayerParts) -> list[Part]:
        values = {value for core in step.cores if core is not None for value in core.made}
        return [(step.instance, value) for value in sorted(values)]

    def _arrive(self, number: int) -> None:
        """Bring what the instance reads more than once from here on."""
        for key, kept in self.residence.arrivals.items():
            if kept.first == number:
                for core, box in enumerate(kept.boxes):
                    if box is not None:
                        address = self.places.local[core]["arrival", *key]
                        self.arrivals[key, core] = self._local(core, address, key[1], box)
                        self._bring(core, *key, self.arrivals[key, core], box)

    def _exchange(self, part: Part) -> None:
        """Cores fetch from each other what they need of a part and did not make."""
        if self.residence.homes[part] is not Level.LB:
            return
        for core, held in enumerate(self.flow.fragments[part]):
            for other, made in enumerate(self.flow.made(part)):
                shared = intersection(held, made) if other != core else None
                if shared is not None:
                    source = self._fragment(part, other), self._stored(part[1], shared)
                    self._fetch(core, _FROM_LB, source, self._fragment(part, core), TransferKind.REDISTRIBUTE)

    def _tile(self, number: int, position: int, core: int, tile: CorePart, weights: Contents | None) -> None:
        step = self.flow.steps[number]
        inputs = [self._operand(number, position, core, v, box) for v, box in sorted(tile.inputs.items())]
        outputs = [self._result(number, position, core, v, box) for v, box in sorted(tile.made.items())]
        table = indexed_table(self.network, step.layer)
        label = self.network.graph.values[step.primary].name
        if table is not None:
            self._look_up(core, table[0], inputs[0][1], outputs[0], label)
        else:
            self._compute(core, step, tile, inputs, weights, outputs, label)
        for value, (contents, box) in zip(sorted(tile.made), outputs, strict=True):
            self._move_out(core, (step.instance, value), (contents, box))

    def _compute(
        self, core: int, step: LayerParts, tile: CorePart, inputs: Sequence[tuple[int, View]],
        weights: Contents | None, outputs: Sequence[View], label: str,
    ) -> None:  # fmt: skip
        constants = sorted(tile.constants.items())
        operands = tuple((value, plain_box(self.network.axes[value], view[1])) for value, view in inputs)
        made = tuple(sorted(tile.made.items()))
        kernel = self.kernels.kernel(Tile(step.layer, (*operands, *constants), made))
        read = [(as_operand(view), view) for _, view in inputs]
        if weights is not None:
            read += self.weights.operands(weights, blob_of(constants))
        stored = [self.network.axes[value] for value, _ in (*operands, *constants)]
        use = KernelUse(kernel.name, tuple(stored), tuple(self.network.axes[value] for value, _ in made))
        self.emission.compute(core, self._use(use), read, outputs, kernel.work, label)

    def _use(self, use: KernelUse) -> str:
        """The name of a kernel in the program: one for each layout of its operands."""
        if use not in self.used:
            same = sum(other.tile == use.tile for other in self.used)
            self.used[use] = use.tile if not same else f"{use.tile}.{same}"
        return self.used[use]

    def _look_up(self, core: int, table: int, indices: View, target: View, label: str) -> None:
        source = self._table(table)
        row = self.network.bytes(table) // self.network.shapes[table][0]
        region = as_operand(target).region
        transfer = IndexedTransfer(
            self._channel(core, _FROM_DDR), as_operand((source, source.box)).region, as_operand(indices), row, region,
            label=label,
        )  # fmt: skip
        self.emission.add(transfer, [(source, source.box), indices], [target])

    # operands

    def _operand(self, number: int, position: int, core: int, value: int, box: Box) -> tuple[int, View]:
        """A part that a tile reads, in the LB of its core, larger where only that is one region."""
        instance = self.flow.steps[number].instance
        key = "in", number, self.residence.brought(number, core, position, value, box), value
        if key in self.places.local[core]:
            if key[2] == position:
                made = self._local(core, self.places.local[core][key], value, box)
                self.passing[core, value] = made
                self._bring(core, instance, value, made, box)
            return value, (self.passing[core, value], self.passing[core, value].box)
        contents, stored = self.arrivals.get(((instance, value), core)), self._stored(value, box)
        if contents is None or intersection(contents.box, stored) != stored:
            (source,) = self.flow.sources(instance, value, box)
            assert source.part is not None
            contents = self._fragment(source.part, core)
        return value, (contents, enclosing(contents.box, stored))

    def _result(self, number: int, position: int, core: int, value: int, box: Box) -> View:
        """Where a tile writes."""
        key = "out", number, position, value
        if key in self.places.local[core]:
            return self._local(core, self.places.local[core][key], value, box), self._stored(value, box)
        return self._fragment((self.flow.steps[number].instance, value), core), self._stored(value, box)

    def _move_out(self, core: int, part: Part, made: View) -> None:
        """A tile's result to where it is at home, if it is not there."""
        home, box = self.residence.homes[part], made[1]
        if home is Level.LB:
            target = self._fragment(part, core)
            if target is not made[0]:
                self.emission.copy(self._channel(core, _FROM_LB), made, [(target, box)], TransferKind.COPY)
            return
        kind = TransferKind.COPY if home is Level.GB else TransferKind.DMA
        self.emission.copy(self._channel(core, _OUT), made, [(self._home(part), box)], kind)

    def _bring(self, core: int, instance: int, value: int, target: Contents, box: Box) -> None:
        """Fetch a part from wherever its pieces are."""
        for source in self.flow.sources(instance, value, box):
            stored = self._stored(value, source.box)
            if source.part is None:
                self._fetch(core, _FROM_DDR, (self._input(value), stored), target, TransferKind.DMA)
            elif self.residence.homes[source.part] is Level.LB:
                for other, made in enumerate(self.flow.made(source.part)):
                    shared = intersection(made, source.box)
                    if shared is not None:
                        held = self._fragment(source.part, other), self._stored(value, shared)
                        self._fetch(core, _FROM_LB, held, target, TransferKind.REDISTRIBUTE)
            else:
                is_near = self.residence.homes[source.part] is Level.GB
                channel, kind = (_FROM_GB, TransferKind.COPY) if is_near else (_FROM_DDR, TransferKind.DMA)
                self._fetch(core, channel, (self._home(source.part), stored), target, kind)

    def _channel(self, core: int, channel: int) -> Engine:
        return core_channel(core, channel % self.device.core_dma_channels)

    def _fetch(self, core: int, channel: int, source: View, target: Contents, kind: TransferKind) -> None:
        self.emission.copy(self._channel(core, channel), source, [(target, source[1])], kind)

    # buffers

    def _stored(self, value: int, box: Box) -> Box:
        return stored_box(self.network.axes[value], box)

    def _dtype(self, value: int) -> str:
        return self.network.dtype(value)

    def _local(self, core: int, address: int, value: int, box: Box) -> Contents:
        name = f"{self.network.graph.values[value].name}@{core}"
        return self.emission.buffer(name, local_buffer(0, core), address, self._stored(value, box), self._dtype(value))

    def _fragment(self, part: Part, core: int) -> Contents:
        if (part, core) not in self.fragments:
            held = self.flow.fragments[part][core]
            assert held is not None
            address = self.places.local[core]["part", *part]
            self.fragments[part, core] = self._local(core, address, part[1], held)
        return self.fragments[part, core]

    def _home(self, part: Part) -> Contents:
        value = part[1]
        if self.residence.homes[part] is Level.DDR and self.network.graph.values[value].is_output:
            return self._output(value)
        if part not in self.homes:
            name = self.network.graph.values[value].name
            if self.residence.homes[part] is Level.GB:
                memory, address = global_buffer(0), self.places.shared[part]
            else:
                memory, address = DDR, self.emission.ddr(self.network.bytes(value, self.flow.box(part)))
            box = self._stored(value, self.flow.box(part))
            self.homes[part] = self.emission.buffer(name, memory, address, box, self._dtype(value))
        return self.homes[part]

    def _whole(self, value: int, role: Role) -> Contents:
        name = self.network.graph.values[value].name
        box = self._stored(value, whole(self.network.shapes[value]))
        address = self.emission.ddr(self.network.bytes(value))
        return self.emission.buffer(name, DDR, address, box, self._dtype(value), role)

    def _input(self, value: int) -> Contents:
        if value not in self.inputs:
            self.inputs[value] = self._whole(value, Role.INPUT)
        return self.inputs[value]

    def _output(self, value: int) -> Contents:
        if value not in self.outputs:
            self.outputs[value] = self._whole(value, Role.OUTPUT)
        return self.outputs[value]

    def _table(self, value: int) -> Contents:
        if value not in self.tables:
            self.tables[value] = self._whole(value, Role.CONSTANT)
        return self.tables[value]
