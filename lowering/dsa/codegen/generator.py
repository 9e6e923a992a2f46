"""The kernel generator: ``Schedule -> Program`` (GraphTurbo, OSDI 2023, section 4).

Instance after instance and layer after layer, cores compute tiles. A layer's output stays in the LBs that its
consumers read it from (buffer stitching); weights go DDR -> GB -> LB ahead of the tiles that read them; what has no
room passes through. Every instruction waits for exactly what it needs, so that whatever can overlaps: the movement of
weights with earlier layers, units with each other.

Everything that a program keeps in LBs and in the GB has an address. Lifetimes are known, so addresses are assigned
first fit, in order of the starts. Long-lived buffers go to the bottom and those that pass through to the top, so that
they do not break up each other's room.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import accumulate, groupby
from typing import Any, Generic, NamedTuple, TypeVar

from ....costmodels.dsa_device import DsaDevice
from ...base.errors import DsaError
from ..network.alignment import round_up
from ..network.boxes import Box, intersection, whole
from ..network.lookups import indexed_table
from ..network.storage import plain_box, stored_box
from ..network.subgraphs import Layer
from ..program.instructions import (
    DDR,
    IndexedTransfer,
    Level,
    Memory,
    Program,
    Role,
    ScopeCounts,
    TransferKind,
    global_buffer,
    local_buffer,
)
from ..schedule.instances import Part
from ..schedule.scheduler import Schedule
from ..schedule.variants import Variant
from ..tiles.core_parts import CorePart, LayerParts, Sharing, read_of, tile_of_operands
from ..tiles.kernels import TileKernels
from ..tiles.tiling import Tiling
from .emission import Contents, CoreChannel, Emission, View, core_channel
from .flow import Flow, cut_between_sources
from .generated import Generated, KernelUse
from .layout import enclosing
from .residence import Planner, Residence, activation_room_of_global_buffer
from .weights import TilePosition, WeightEmission, blob_of

Key = TypeVar("Key")


class SlotKind(Enum):
    """Why a core keeps something in its LB."""

    PART = auto()
    """It is a fragment of a part that is at home there."""
    ARRIVAL = auto()
    """An instance reads it from elsewhere more than once."""
    INPUT = auto()
    """A tile reads it."""
    OUTPUT = auto()
    """A tile makes it, and it is moved out."""


class PartSlot(NamedTuple):
    """The place of a fragment or an arrival in an LB."""

    kind: SlotKind
    part: Part


class TileSlot(NamedTuple):
    """The place of an operand or result that passes through an LB for one tile."""

    kind: SlotKind
    step: int
    tile: int
    value: int


Slot = PartSlot | TileSlot


@dataclass(frozen=True)
class MemoryMap:
    """Addresses: `local`, per core, in its LB; `shared`, of parts in the GB, which end at `staging`, where weights
    begin."""

    local: tuple[Mapping[Slot, int], ...]
    shared: Mapping[Part, int]
    staging: int


class Lifetime(NamedTuple):
    """Times, both inclusive."""

    start: int
    end: int


@dataclass(frozen=True)
class Request(Generic[Key]):
    """`size` bytes for a lifetime. A shorter one, if given, is enough if not all the longer ones fit."""

    key: Key
    size: int
    life: Lifetime
    is_passing: bool = False
    shorter: Lifetime | None = None


class NoRoomError(Exception):
    """Requests that found no room, in order of their starts, each beside those that did."""

    def __init__(self, requests: Sequence[Request[Any]]) -> None:
        self.requests = tuple(requests)
        first = requests[0]
        super().__init__(f"no {first.size} bytes in one piece at time {first.life.start}")


def assign_addresses(requests: Iterable[Request[Key]], capacity: int, alignment: int) -> dict[Key, int]:
    """Addresses such that buffers that live at once do not overlap. Raises NoRoomError.

    If one finds no room, it and those that are there when it begins make do with their shorter lifetimes.
    """
    placed = [replace(request, size=round_up(request.size, alignment)) for request in requests]
    while True:
        try:
            return _first_fit(placed, capacity)
        except NoRoomError as error:
            full = sorted({request.life.start for request in error.requests})
            long = [n for n, each in enumerate(placed) if each.shorter is not None and _includes_any(each.life, full)]
            if not long:
                raise
            for number in long:
                life = placed[number].shorter or placed[number].life
                placed[number] = replace(placed[number], life=life, shorter=None)


def _includes_any(life: Lifetime, times: Sequence[int]) -> bool:
    """Whether a lifetime includes one of these times, which ascend."""
    place = bisect_left(times, life.start)
    return place < len(times) and times[place] <= life.end


class _Live(NamedTuple):
    address: int
    stop: int
    end_of_life: int


def _first_fit(requests: Iterable[Request[Key]], capacity: int) -> dict[Key, int]:
    addresses: dict[Key, int] = {}
    without_room: list[Request[Key]] = []
    live: list[_Live] = []
    for request in sorted(requests, key=lambda r: (r.life.start, r.is_passing, -r.life.end, -r.size)):
        live = [each for each in live if each.end_of_life >= request.life.start]
        gaps = [(start, stop) for start, stop in _gaps(live, capacity) if stop - start >= request.size]
        if not gaps:
            without_room.append(request)
            continue
        address = gaps[-1][1] - request.size if request.is_passing else gaps[0][0]
        addresses[request.key] = address
        live.append(_Live(address, address + request.size, request.life.end))
        live.sort()
    if without_room:
        raise NoRoomError(without_room)
    return addresses


def _gaps(live: Iterable[_Live], capacity: int) -> Iterator[tuple[int, int]]:
    """Start and stop of the free ranges."""
    end = 0
    for address, stop, _ in live:
        if address > end:
            yield end, address
        end = max(end, stop)
    if capacity > end:
        yield end, capacity


class StepsFullError(Exception):
    """Addresses could not be found during some steps; `sizes` are the most bytes that were asked for in each."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.sizes = sizes
        super().__init__(", ".join(f"step {step}: {size} bytes" for step, size in sizes.items()))


def memory_map(residence: Residence, device: DsaDevice) -> MemoryMap:
    """Addresses for a residence. Raises StepsFullError if there is room, but not in one piece.

    Parts for which the GB has no room in one piece go to DDR: `residence.homes` changes.
    """
    mapper = _Mapper(residence, device)
    local = tuple(mapper.local_addresses(core) for core in range(device.cores))
    if mapper.short:
        raise StepsFullError(mapper.short)
    shared = mapper.shared_addresses()
    ends = (address + mapper.bytes_of(part.value, residence.flow.box(part)) for part, address in shared.items())
    return MemoryMap(local, shared, round_up(max(ends, default=0), device.alignment))


class _Mapper:
    def __init__(self, residence: Residence, device: DsaDevice) -> None:
        self.residence, self.device, self.flow = residence, device, residence.flow
        self.bytes_of = self.flow.graph.network.bytes
        self.times = [0, *accumulate(tiled.count for tiled in residence.tiles)]
        """The time of each step's first tile."""
        self.short: dict[int, int] = {}
        """The largest request that found no room in any LB, by step."""

    def local_addresses(self, core: int) -> Mapping[Slot, int]:
        """Addresses in one LB, above the weights; none, and an entry in `short`, if not all find room."""
        try:
            addresses = assign_addresses(
                self._local_requests(core), self.device.activation_buffer, self.device.alignment
            )
        except NoRoomError as error:
            for request in error.requests:
                step = bisect_right(self.times, request.life.start) - 1
                self.short[step] = max(request.size, self.short.get(step, 0))
            return {}
        return {slot: address + self.device.weight_buffer for slot, address in addresses.items()}

    def _local_requests(self, core: int) -> Iterator[Request[Slot]]:
        for part, home in self.residence.homes.items():
            held = self.flow.fragments[part][core]
            if home is Level.LB and held is not None:
                slot = PartSlot(SlotKind.PART, part)
                yield Request(slot, self.bytes_of(part.value, held), self._life(part))
        for part, arrival in self.residence.arrivals.items():
            box = arrival.boxes[core]
            if box is not None:
                start, end = self.times[arrival.first], self.times[arrival.last + 1] - 1
                slot, life = PartSlot(SlotKind.ARRIVAL, part), Lifetime(max(0, start - 1), end)
                yield Request(slot, self.bytes_of(part.value, box), life, shorter=Lifetime(start, end))
        for number in range(len(self.flow.steps)):
            yield from self._passing_requests(number, core)

    def _life(self, part: Part) -> Lifetime:
        return Lifetime(self.times[self.flow.producing_step[part]], self.times[self.flow.last_step(part) + 1] - 1)

    def _passing_requests(self, step: int, core: int) -> Iterator[Request[Slot]]:
        tiles = self.residence.tiles[step].cores[core]
        for position, tile in enumerate(tiles):
            time = self.times[step] + position
            for value, box in self.residence.passing_inputs(step, core, tile.inputs):
                if self.residence.bringing_tile(step, core, position, value) == position:
                    later = enumerate(tiles[position + 1 :])
                    repeats = next((n for n, each in later if each.inputs.get(value) != box), len(tiles) - position - 1)
                    end = time + repeats
                    yield self._passing_request(
                        SlotKind.INPUT, step, position, value, box,
                        Lifetime(max(0, time - 1), end), Lifetime(time, end),
                    )  # fmt: skip
            if tile.piece is not None and tile.piece.adds:
                continue
            for value, box in self.residence.passing_outputs(step, core, tile.made):
                end = self.times[step] + _end_of_sum(tiles, position)
                yield self._passing_request(
                    SlotKind.OUTPUT, step, position, value, box,
                    Lifetime(time, min(self.times[-1] - 1, end + 1)), Lifetime(time, end),
                )  # fmt: skip

    def _passing_request(
        self, kind: SlotKind, step: int, position: int, value: int, box: Box, life: Lifetime, shorter: Lifetime
    ) -> Request[Slot]:
        return Request(TileSlot(kind, step, position, value), self.bytes_of(value, box), life, True, shorter)

    def shared_addresses(self) -> dict[Part, int]:
        """Addresses of parts in the GB. What finds no room in one piece goes to DDR."""
        room = activation_room_of_global_buffer(self.device)
        while True:
            parts = [part for part, home in self.residence.homes.items() if home is Level.GB]
            requests = [Request(p, self.bytes_of(p.value, self.flow.box(p)), self._life(p)) for p in parts]
            try:
                return assign_addresses(requests, room, self.device.alignment)
            except NoRoomError as error:
                self.residence.homes[error.requests[0].key] = Level.DDR


def _end_of_sum(tiles: Sequence[CorePart], position: int) -> int:
    """The position of the tile that completes what a tile begins."""
    made = tiles[position].made
    later = range(position, len(tiles))
    return next(number for number in later if tiles[number].is_complete and tiles[number].made == made)


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


def plan_program(schedule: Schedule, variant: Variant) -> Plan:
    """Decide everything before instructions are written. Raises DsaError: a tensor, or weights, that fit nowhere even
    when split fully."""
    device = schedule.device
    for unit in device.units:
        if unit.per == "cluster":
            raise DsaError(
                f"device {device.name}: unit {unit.name!r} belongs to a cluster, and kernels run on cores; give each "
                "core its part of it"
            )
    sharing = Sharing(
        schedule.graph, device, TileKernels(schedule.network, device), schedule.bindings.binding
    )
    steps = tuple(sharing.layer(instance, layer) for instance, layer in running_order(schedule, variant))
    flow = Flow(schedule.graph, steps, device.cores)
    flow = replace(flow, pieces=cut_between_sources(flow, sharing))
    planner = Planner(flow, device, variant, Tiling(sharing, steps, device, variant.pipeline if variant.overlap else 1))
    for _ in range(_ATTEMPTS):
        residence = planner.plan()
        try:
            return Plan(schedule, variant, sharing, residence, memory_map(residence, device))
        except StepsFullError as full:
            for step, size in full.sizes.items():
                planner.tighten(step, size)
    raise DsaError(f"the buffers of {device.name} are too fragmented: no addresses after {_ATTEMPTS} attempts")


def running_order(schedule: Schedule, variant: Variant) -> Iterator[tuple[int, Layer]]:
    """Instances one after another; those of one sub-graph that follow each other abreast, if they may."""
    runs = groupby(schedule.order, key=lambda instance: schedule.graph.instances[instance].subgraph)
    for subgraph, run in runs:
        layers, instances = schedule.graph.groups[subgraph].subgraph.layers, list(run)
        if variant.abreast:
            yield from ((instance, layer) for layer in layers for instance in instances)
        else:
            yield from ((instance, layer) for instance in instances for layer in layers)


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
    arrivals: dict[tuple[Part, int], Contents] = field(default_factory=dict)
    """Parts that were brought to an LB, by part and core."""
    passing: dict[tuple[int, int], Contents] = field(default_factory=dict)
    """The contents that were last brought to a core of a value."""
    sums: dict[tuple[int, int, Box], View] = field(default_factory=dict)
    """The places of sums that are not complete, by core, value and box."""
    whole_values: dict[Role, dict[int, Contents]] = field(default_factory=dict)
    """Inputs, outputs and tables in DDR, by value."""
    names: dict[KernelUse, str] = field(default_factory=dict)
    """The kernels of the program."""

    def __post_init__(self) -> None:
        self.network, self.residence = self.plan.schedule.network, self.plan.residence
        self.device: DsaDevice = self.plan.schedule.device
        self.flow = self.residence.flow
        self.emission = Emission(self.device.alignment)
        self.weights = WeightEmission(self.emission, self.device, self.residence, self.plan.memory.staging)

    def run(self, batch: int, name: str) -> Generated:
        for number, step in enumerate(self.flow.steps):
            if number and not self.plan.variant.overlap:
                self.emission.barrier()
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
            Program(name, self.device.name, batch, buffers, instructions, self._scopes()), self.plan.sharing.kernels,
            self.residence, constants, tables, inputs, outputs, {name: use for use, name in self.names.items()},
        )  # fmt: skip

    def _scopes(self) -> ScopeCounts:
        """Count values that layers hand on, at the slowest level of their parts."""
        levels: dict[int, Level] = {}
        for part, home in self.residence.homes.items():
            levels[part.value] = max(home, levels.get(part.value, Level.LB))
        counts = Counter(levels.values())
        return ScopeCounts(counts[Level.DDR], counts[Level.GB], counts[Level.LB])

    # steps

    def _bring_arrivals(self, number: int) -> None:
        """Bring what the instance reads more than once from here on."""
        for part, arrival in self.residence.arrivals.items():
            for core, box in enumerate(arrival.boxes):
                if arrival.first == number and box is not None:
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
        operands = (*((value, plain_box(axes[value], view.box)) for value, view in inputs), *blob)
        whole_tile = tile_of_operands(self.network, step.layer, tile, operands)
        kernel = self.plan.sharing.kernels.kernel(whole_tile)
        read = [(view.operand(), view) for _, view in inputs]
        if weights is not None:
            read += self.weights.operands(weights, blob)
        adds = tile.piece is not None and tile.piece.adds
        if adds:
            read += [(view.operand(), view) for view in outputs]
        orders = (tuple(axes[value] for value, _ in parts) for parts in (whole_tile.inputs, whole_tile.outputs))
        use = KernelUse(kernel.name, *orders)
        if use not in self.names:  # one kernel of the program for each layout of a tile's operands
            others = sum(other.tile == use.tile for other in self.names)
            self.names[use] = f"{use.tile}.{others}" if others else use.tile
        self.emission.compute(core, self.names[use], read, outputs, kernel.work, label, in_place=adds)

    def _look_up(self, core: int, table: int, indices: View, target: View, label: str) -> None:
        contents = self._whole(table, Role.CONSTANT)
        source = View(contents, contents.box)
        row = self.network.bytes(table) // self.network.shapes[table][0]
        channel = core_channel(self.device, core, CoreChannel.FROM_DDR)
        transfer = IndexedTransfer(
            channel, source.operand().region, indices.operand(), row, target.operand().region, label=label
        )
        self.emission.add(transfer, [source, indices], [target])

    # operands

    def _operand(self, number: int, position: int, core: int, value: int, box: Box) -> _Operand:
        """A part that a tile reads, in the LB of its core, larger if only that is one region."""
        part = Part(self.flow.steps[number].instance, value)
        bringing = self.residence.bringing_tile(number, core, position, value)
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
            if source.part is None:
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
                memory, address = global_buffer(0), self.plan.memory.shared[part]
            else:
                memory, address = DDR, self.emission.reserve_ddr(self.network.bytes(part.value, box))
            self.homes[part] = self._buffer(memory, address, part.value, box)
        return self.homes[part]

    def _whole(self, value: int, role: Role) -> Contents:
        """An input, an output or a table in DDR."""
        buffers = self.whole_values.setdefault(role, {})
        if value not in buffers:
            address = self.emission.reserve_ddr(self.network.bytes(value))
            buffers[value] = self._buffer(DDR, address, value, whole(self.network.shapes[value]), role)
        return buffers[value]
