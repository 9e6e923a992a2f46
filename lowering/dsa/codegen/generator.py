"""The kernel generator: ``Schedule -> Program`` (GraphTurbo, OSDI 2023, section 4).

Instance after instance and layer after layer, cores compute tiles. A layer's output stays in the LBs that its
consumers read it from (buffer stitching); weights go DDR -> GB -> LB ahead of the tiles that read them; what has no
room passes through. Every instruction waits for exactly what it needs, so that whatever can overlaps: the movement of
weights with earlier layers, units with each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from ....costmodels.dsa_device import DsaDevice
from ...base.errors import DsaError
from ..network.boxes import Box, intersection, size
from ..network.lookups import indexed_table
from ..network.storage import plain_box, stored_box
from ..program.instructions import (
    DDR,
    Level,
    Memory,
    Program,
    Role,
    ScopeCounts,
    TransferKind,
    global_buffer,
    local_buffer,
)
from ..schedule.instances import NETWORK, Part
from ..schedule.scheduler import Schedule
from ..schedule.variants import Variant
from ..tiles.core_parts import CorePart, LayerParts, Sharing, read_of, tile_of_operands
from ..tiles.kernels import TileKernel, TileKernels
from ..tiles.local_graph import Tile
from ..tiles.tiling import Tiling
from .addresses import MemoryMap, PartSlot, SlotKind, Stay, StepsFullError, TileSlot, memory_map
from .emission import Contents, CoreChannel, Emission, View, cluster_channel, core_channel
from .flow import Flow, cut_between_sources
from .generated import Generated, KernelUse
from .layout import enclosing
from .residence import Planner, Residence, has_large_instances
from .running import running_order
from .weights import TilePosition, WeightEmission, blob_of, waiting_channel

_ATTEMPTS = 100
"""The search for addresses ends after this many residences."""


@dataclass(frozen=True)
class Plan:
    """All that is decided before instructions are written: the tiles of a schedule, and where everything is."""

    schedule: Schedule
    variant: Variant
    sharing: Sharing
    residence: Residence
    memory: MemoryMap


def plan_program(schedule: Schedule, variant: Variant, most: float = math.inf) -> Plan:
    """Decide everything before instructions are written. Raises DsaError: a tensor, or weights, that fit nowhere even
    when split fully; steps that take more than `most` cycles together, for which no addresses are sought."""
    device = schedule.device
    for unit in device.units:
        if unit.per == "cluster":
            raise DsaError(
                f"device {device.name}: unit {unit.name!r} belongs to a cluster, and kernels run on cores; give each "
                "core its part of it"
            )
    is_large = has_large_instances(variant, device)
    sharing = Sharing(
        schedule.graph, device, TileKernels(schedule.network, device), schedule.bindings.binding, passes=is_large
    )
    steps = tuple(sharing.layer(instance, layer) for instance, layer in running_order(schedule, variant))
    flow = Flow(schedule.graph, steps, device.cores)
    if not is_large:  # else what several instances made is in the GB, and comes from there tile by tile in any case
        flow = replace(flow, pieces=cut_between_sources(flow, sharing))
    planner = Planner(flow, device, variant, Tiling(sharing, steps, device, variant.pipeline if variant.overlap else 1))
    for _ in range(_ATTEMPTS):
        residence = planner.plan()
        cycles = sum(each.cycles for each in residence.tiles)
        if cycles > most:
            raise DsaError(f"the steps take {cycles:.0f} cycles, and should take {most:.0f} at the most")
        try:
            return Plan(schedule, variant, sharing, residence, memory_map(residence, device))
        except StepsFullError as full:
            for step, size in full.sizes.items():
                planner.tighten(step, size)
    raise DsaError(f"the buffers of {device.name} are too fragmented: no addresses after {_ATTEMPTS} attempts")


def write_program(plan: Plan, batch: int, name: str = "network") -> Generated:
    """The program that a plan leads to."""
    return _Generator(plan).run(batch, name)


class _Operand(NamedTuple):
    """A value that a tile reads, and where."""

    value: int
    view: View


@dataclass
class _Generator:
    plan: Plan
    emission: Emission = field(init=False)
    weights: WeightEmission = field(init=False)
    homes: dict[Part, Contents] = field(default_factory=dict)
    """Parts at home in GB or DDR, and whole outputs."""
    fragments: dict[tuple[Part, int], Contents] = field(default_factory=dict)
    """Pieces of parts at home in LB, by part and core."""
    departures: dict[int, list[tuple[Part, int]]] = field(default_factory=dict)
    """By step, the parts that leave the GB before it to wait in DDR, and which stay of each ends so."""
    returns: dict[int, list[Part]] = field(default_factory=dict)
    """By step, the parts that come back before it."""
    streams: dict[int, list[Part]] = field(default_factory=dict)
    """By step, what comes from inputs before it."""
    beginning_arrivals: dict[int, list[Part]] = field(default_factory=dict)
    """By step, what its instance reads more than once from there on."""
    stay_of: dict[Part, int] = field(default_factory=dict)
    """The stays of parts that left the GB before: the next ones."""
    arrivals: dict[tuple[Part, int], Contents] = field(default_factory=dict)
    """Parts that were brought to an LB, by part and core."""
    passing: dict[tuple[int, int], Contents] = field(default_factory=dict)
    """The contents that were last brought to a core of a value."""
    arriving: dict[int, list[Box]] = field(default_factory=dict)
    """Parts of inputs that were not moved to the GB yet, by value."""
    sums: dict[tuple[int, int, Box], View] = field(default_factory=dict)
    """The places of sums that are not complete, by core, value and box."""
    whole_values: dict[Role, dict[int, Contents]] = field(default_factory=dict)
    """Inputs, outputs and tables in DDR, by value."""
    tiles: dict[TileKernel, str] = field(default_factory=dict)
    """The kernels of the program's tiles by their names, numbered in the order of their first tiles."""
    names: dict[KernelUse, str] = field(default_factory=dict)
    """The kernels of the program."""
    known_names: dict[tuple[TileKernel, tuple[int, ...]], str] = field(default_factory=dict)
    """Of kernels for operands and results that are these values."""

    def __post_init__(self) -> None:
        self.network, self.residence = self.plan.schedule.network, self.plan.residence
        self.device: DsaDevice = self.plan.schedule.device
        self.flow = self.residence.flow
        self.emission = Emission(self.device.alignment)
        self.weights = WeightEmission(self.emission, self.device, self.residence, self.plan.memory.staging)
        for part, stays in self.residence.waiting.items():
            for number, (stay, following) in enumerate(pairwise(stays)):
                used = max(step for step in self.flow.uses(part) if step <= stay.last)
                self.departures.setdefault(used + 1, []).append((part, number))
                self.returns.setdefault(following.first, []).append(part)
        for part, (_, stay) in self.residence.streams.items():
            self.streams.setdefault(stay.first, []).append(part)
        for part, arrival in self.residence.arrivals.items():
            self.beginning_arrivals.setdefault(arrival.first, []).append(part)

    def run(self, batch: int, name: str) -> Generated:
        for number, step in enumerate(self.flow.steps):
            if number and not self.plan.variant.overlap:
                self.emission.barrier()
            self._move_waiting(number)
            self._bring_arrivals(number)
            tiled = self.residence.tiles[number]
            for position in range(tiled.count):
                weights = self.weights.promote(TilePosition(number, position))
                for core, tile in enumerate(tiled.at(position)):
                    if tile is not None:
                        self._tile(number, position, core, tile, weights[core])
            for value in sorted({value for core in step.cores if core is not None for value in core.made}):
                self._exchange(Part(step.instance, value))
        buffers, instructions = tuple(self.emission.buffers), tuple(self.emission.instructions)
        loads = self.weights.loads
        constants = {contents.buffer.name: loads[load].parts for load, contents in self.weights.constants.items()}
        tables, inputs, outputs = (
            {contents.buffer.name: value for value, contents in self.whole_values.get(role, {}).items()}
            for role in (Role.CONSTANT, Role.INPUT, Role.OUTPUT)
        )
        return Generated(
            Program(name, self.device.name, batch, buffers, instructions, self._scopes()),
            {name: kernel.graph for kernel, name in self.tiles.items()}, self.residence.without_tiles(), constants,
            tables, inputs, outputs, {name: use for use, name in self.names.items()},
        )  # fmt: skip

    def _scopes(self) -> ScopeCounts:
        """Count values that layers hand on, at the slowest level of their parts."""
        levels: dict[int, Level] = {}
        for part, home in self.residence.homes.items():
            levels[part.value] = max(home, levels.get(part.value, Level.LB))
        counts = Counter(levels.values())
        return ScopeCounts(counts[Level.DDR], counts[Level.GB], counts[Level.LB])

    # steps

    def _move_waiting(self, number: int) -> None:
        """Move parts that nobody uses for a while to DDR, and those to the GB that are soon needed."""
        for part, stay in self.departures.get(number, ()):
            kept, box = self.homes[part], self._stored_box(part.value, self.flow.box(part))
            address = self.emission.reserve_ddr(self.network.bytes(part.value, self.flow.box(part)))
            waiting = self._buffer(DDR, address, part.value, self.flow.box(part))
            self._move_home(kept, waiting, box)
            self.homes[part] = waiting
            self.stay_of[part] = stay + 1
        for part in self.returns.get(number, ()):
            waiting, box = self.homes.pop(part), self._stored_box(part.value, self.flow.box(part))
            self._move_home(waiting, self._home(part), box)
        for part in self.streams.get(number, ()):
            source, box = self._whole(part.value, Role.INPUT), self.residence.streams[part].box
            memory, address = global_buffer(0), self.plan.memory.shared[Stay(part)]
            self.homes[part] = self._buffer(memory, address, part.value, box)
            self._move_home(source, self.homes[part], self._stored_box(part.value, box))

    def _move_home(self, source: Contents, target: Contents, box: Box) -> None:
        self.emission.copy(waiting_channel(self.device), View(source, box), [View(target, box)], TransferKind.DMA)

    def _bring_arrivals(self, number: int) -> None:
        """Bring what the instance reads more than once from here on."""
        for part in self.beginning_arrivals.get(number, ()):
            for core, box in enumerate(self.residence.arrivals[part].boxes):
                if box is not None:
                    address = self.plan.memory.local[core][PartSlot(SlotKind.ARRIVAL, part)]
                    self.arrivals[part, core] = self._local(core, address, part.value, box)
                    self._bring(core, part, self.arrivals[part, core], box)

    def _exchange(self, part: Part) -> None:
        """Cores fetch from each other what they need of a part and did not make."""
        if self.residence.homes[part] is Level.LB:
            for core, held in enumerate(self.flow.fragments[part]):
                for other, made in enumerate(self.flow.boxes_made(part)):
                    shared = intersection(held, made) if other != core else None
                    if shared is not None:
                        source = View(self._fragment(part, other), self._stored_box(part.value, shared))
                        target = self._fragment(part, core)
                        self._fetch(core, CoreChannel.FROM_LB, source, target, TransferKind.REDISTRIBUTE)

    def _tile(self, number: int, position: int, core: int, tile: CorePart, weights: Contents | None) -> None:
        step = self.flow.steps[number]
        read = read_of(self.network, step.layer, tile)
        at_hand = [self._operand(number, position, core, v, box) for v, box in sorted(tile.inputs.items())]
        inputs = [self._narrow(each, read[each.value], tile.inputs[each.value]) for each in at_hand]
        outputs = [self._place(number, position, core, tile, value) for value in sorted(tile.made)]
        table = indexed_table(self.network, step.layer)
        label = self.network.graph.values[step.primary].name
        if table is None:
            self._compute(core, step, tile, inputs, weights, outputs, label)
        else:
            self._look_up(core, table[0], inputs[0].view, outputs[0], label)
        for value, view in zip(sorted(tile.made), outputs, strict=True) if tile.is_complete else ():
            self._move_out(core, Part(step.instance, value), view)

    def _compute(
        self, core: int, step: LayerParts, tile: CorePart, inputs: Sequence[_Operand],
        weights: Contents | None, outputs: Sequence[View], label: str,
    ) -> None:  # fmt: skip
        axes, blob = self.network.axes, blob_of(tile.constants)
        operands = (*[(value, plain_box(axes[value], view.box)) for value, view in inputs], *blob)
        whole_tile = tile_of_operands(self.network, step.layer, tile, operands)
        kernel = self.plan.sharing.kernels.kernel(whole_tile)
        read = [(view.operand(), view) for _, view in inputs]
        if weights is not None:
            read += self.weights.operands(weights, blob)
        adds = tile.piece is not None and tile.piece.adds
        if adds:
            read += [(view.operand(), view) for view in outputs]
        values = tuple([value for value, _ in (*whole_tile.inputs, *whole_tile.outputs)])
        name = self.known_names.get((kernel, values))
        if name is None:
            name = self.known_names[kernel, values] = self._name(kernel, whole_tile)
        self.emission.compute(core, name, read, outputs, kernel.work, label, in_place=adds)

    def _name(self, kernel: TileKernel, tile: Tile) -> str:
        """The name of a tile's kernel: one of the program for each layout of a tile's operands."""
        axes = self.network.axes
        if kernel not in self.tiles:
            self.tiles[kernel] = f"{kernel.stem}_{sum(other.stem == kernel.stem for other in self.tiles)}"
        use = KernelUse(self.tiles[kernel], *(
            tuple(axes[value] for value, _ in parts) for parts in (tile.inputs, tile.outputs)
        ))  # fmt: skip
        if use not in self.names:
            others = sum(other.tile == use.tile for other in self.names)
            self.names[use] = f"{use.tile}.{others}" if others else use.tile
        return self.names[use]

    def _look_up(self, core: int, table: int, indices: View, target: View, label: str) -> None:
        contents = self._whole(table, Role.CONSTANT)
        row = self.network.bytes(table) // self.network.shapes[table][0]
        channel = core_channel(self.device, core, CoreChannel.FROM_DDR)
        self.emission.look_up(channel, View(contents, contents.box), indices, row, target, label)

    # operands

    def _operand(self, number: int, position: int, core: int, value: int, box: Box) -> _Operand:
        """A part that a tile reads, in the LB of its core, larger if only that is one region."""
        part = Part(self.flow.steps[number].instance, value)
        bringing, _ = self.residence.bringing_tile(number, core, position, value)
        address = self.plan.memory.local[core].get(TileSlot(SlotKind.INPUT, number, bringing, value))
        if address is not None:
            if bringing == position:
                self.passing[core, value] = self._local(core, address, value, box)
                self._bring(core, part, self.passing[core, value], box)
            contents = self.passing[core, value]
            return _Operand(value, View(contents, contents.box))
        arrival, stored = self.arrivals.get((part, core)), self._stored_box(value, box)
        if arrival is None or intersection(arrival.box, stored) != stored:
            (source,) = self.flow.sources(part.instance, value, box)
            assert source.part is not None
            arrival = self._fragment(source.part, core)
        return _Operand(value, View(arrival, enclosing(arrival.box, stored)))

    def _narrow(self, operand: _Operand, read: Box, box: Box) -> _Operand:
        """The part of the data at hand that a tile reads."""
        if read == box:
            return operand
        contents = operand.view.contents
        return _Operand(operand.value, View(contents, enclosing(contents.box, self._stored_box(operand.value, read))))

    def _place(self, number: int, position: int, core: int, tile: CorePart, value: int) -> View:
        """The place that a tile writes: pieces of a sum all write the same."""
        box = tile.made[value]
        if tile.piece is None:
            return self._result(number, position, core, value, box)
        key = core, value, box
        if not tile.piece.adds:
            self.sums[key] = self._result(number, position, core, value, box)
        return self.sums.pop(key) if tile.piece.is_last else self.sums[key]

    def _result(self, number: int, position: int, core: int, value: int, box: Box) -> View:
        """The place that a tile writes."""
        address = self.plan.memory.local[core].get(TileSlot(SlotKind.OUTPUT, number, position, value))
        if address is not None:
            return View(self._local(core, address, value, box), self._stored_box(value, box))
        return View(self._fragment(Part(self.flow.steps[number].instance, value), core), self._stored_box(value, box))

    def _move_out(self, core: int, part: Part, result: View) -> None:
        """Move a tile's result to its home, if it is not there."""
        home = self.residence.homes[part]
        if home is Level.LB:
            target = self._fragment(part, core)
            if target is not result.contents:
                self._fetch(core, CoreChannel.FROM_LB, result, target, TransferKind.COPY)
        else:
            kind = TransferKind.COPY if home is Level.GB else TransferKind.DMA
            self._fetch(core, CoreChannel.OUT, result, self._home(part), kind)

    def _bring(self, core: int, part: Part, target: Contents, box: Box) -> None:
        """Fetch a box that an instance reads from wherever its pieces are."""
        value = part.value
        for source in self.flow.sources(part.instance, value, box):
            stored = self._stored_box(value, source.box)
            if source.part is None and value in self.residence.inputs:
                view = View(self._staged_input(value, stored), stored)
                self._fetch(core, CoreChannel.FROM_GB, view, target, TransferKind.COPY)
            elif source.part is None and part in self.residence.streams:
                self._fetch(core, CoreChannel.FROM_GB, View(self.homes[part], stored), target, TransferKind.COPY)
            elif source.part is None:
                view = View(self._whole(value, Role.INPUT), stored)
                self._fetch(core, CoreChannel.FROM_DDR, view, target, TransferKind.DMA)
            elif self.residence.homes[source.part] is Level.LB:
                for other, made in enumerate(self.flow.boxes_made(source.part)):
                    shared = intersection(made, source.box)
                    if shared is not None:
                        view = View(self._fragment(source.part, other), self._stored_box(value, shared))
                        self._fetch(core, CoreChannel.FROM_LB, view, target, TransferKind.REDISTRIBUTE)
            else:
                is_near = self.residence.homes[source.part] is Level.GB
                channel = CoreChannel.FROM_GB if is_near else CoreChannel.FROM_DDR
                kind = TransferKind.COPY if is_near else TransferKind.DMA
                self._fetch(core, channel, View(self._home(source.part), stored), target, kind)

    def _fetch(self, core: int, channel: CoreChannel, source: View, target: Contents, kind: TransferKind) -> None:
        self.emission.copy(core_channel(self.device, core, channel), source, [View(target, source.box)], kind)

    # buffers

    def _stored_box(self, value: int, box: Box) -> Box:
        return stored_box(self.network.axes[value], box)

    def _buffer(
        self, memory: Memory, address: int, value: int, box: Box, role: Role = Role.INTERMEDIATE, suffix: str = ""
    ) -> Contents:
        name = self.network.graph.values[value].name + suffix
        return self.emission.buffer(
            name, memory, address, self._stored_box(value, box), self.network.dtype(value), role
        )

    def _local(self, core: int, address: int, value: int, box: Box) -> Contents:
        return self._buffer(local_buffer(0, core), address, value, box, suffix=f"@{core}")

    def _fragment(self, part: Part, core: int) -> Contents:
        if (part, core) not in self.fragments:
            held = self.flow.fragments[part][core]
            assert held is not None
            address = self.plan.memory.local[core][PartSlot(SlotKind.PART, part)]
            self.fragments[part, core] = self._local(core, address, part.value, held)
        return self.fragments[part, core]

    def _home(self, part: Part) -> Contents:
        home, box = self.residence.homes[part], self.flow.box(part)
        if home is Level.DDR and self.network.graph.values[part.value].is_output:
            return self._whole(part.value, Role.OUTPUT)
        if part not in self.homes:
            if home is Level.GB:
                stay = Stay(part, self.stay_of.get(part, 0))
                memory, address = global_buffer(0), self.plan.memory.shared[stay]
            else:
                memory, address = DDR, self.emission.reserve_ddr(self.network.bytes(part.value, box))
            self.homes[part] = self._buffer(memory, address, part.value, box)
        return self.homes[part]

    def _staged_input(self, value: int, needed: Box) -> Contents:
        """An input in the GB, where the needed part of it arrives at the latest by this.

        It comes in transfers that take DDR about as long as their latency.
        """
        part, source = Part(NETWORK, value), self._whole(value, Role.INPUT)
        if part not in self.homes:
            box, address = self.flow.box(part), self.plan.memory.shared[Stay(part)]
            self.homes[part] = self._buffer(global_buffer(0), address, value, box)
            longest = self.device.ddr_bandwidth * self.device.dma_latency
            self.arriving[value] = list(_runs(self._stored_box(value, box), longest / self.homes[part].width))
        staged = self.homes[part]
        for number, run in enumerate([each for each in self.arriving[value] if intersection(each, needed)]):
            engine = cluster_channel(number % self.device.dma_channels)
            self.emission.copy(engine, View(source, run), [View(staged, run)], TransferKind.DMA)
            self.arriving[value].remove(run)
        return staged

    def _whole(self, value: int, role: Role) -> Contents:
        """An input, an output or a table in DDR."""
        buffers = self.whole_values.setdefault(role, {})
        if value not in buffers:
            frame = self.network.frame(value)
            address = self.emission.reserve_ddr(self.network.bytes(value, frame))
            buffers[value] = self._buffer(DDR, address, value, frame, role)
        return buffers[value]


def _runs(box: Box, most: float) -> Iterator[Box]:
    """A box in parts that are runs in memory, of about `most` elements, or one row if that has more."""
    if size(box) <= most or not box:
        yield box
        return
    (start, stop), *inner = box
    row = size(tuple(inner))
    if row > most and inner:
        for index in range(start, stop):
            yield from (((index, index + 1), *rest) for rest in _runs(tuple(inner), most))
        return
    step = max(1, int(most // row))
    for first in range(start, stop, step):
        yield ((first, min(first + step, stop)), *inner)
