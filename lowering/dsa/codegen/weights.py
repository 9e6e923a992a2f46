"""Weights on their way to the units: DDR -> GB -> LB (GraphTurbo, OSDI 2023, sections 2.2, 4.1 and 4.4).

LB has a small buffer for them that is used as a ring, so that the next tile's weights arrive while this one's are read.
The GB keeps those that are needed again soonest (Belady, "A study of replacement algorithms", 1966), for all uses are
known. The instructions that promote weights come just before the tiles that read them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from ....costmodels.dsa_device import DsaDevice
from ..network.alignment import round_up
from ..network.boxes import Box, shape_of
from ..network.graph import Network
from ..network.lookups import indexed_table
from ..program.instructions import DDR, Engine, Memory, Operand, Region, Role, TransferKind, global_buffer, local_buffer
from .emission import Contents, CoreChannel, Emission, View, cluster_channel, core_channel
from .residence import Residence

_HOIST_CHANNELS = 2
"""Channels of the cluster that move weights from GB to all LBs; the others load them from DDR."""
_WAITING_CHANNELS = 1
"""Channels of the cluster that move feature maps between GB and DDR, if any wait there, and inputs ahead."""
_LEAST_LOADS = 8
"""A GB has room for at least this many loads, so that some arrive while others are read."""

Blob = tuple[tuple[int, Box], ...]
"""The parts of constants that one tile reads, packed one after another: values and their boxes, ascending."""
Blobs = tuple[Blob | None, ...]
"""The blob that each core needs for its tile."""


@dataclass(frozen=True, eq=False)
class Need:
    """What cores need for tiles, one object however often they need it: each blob once, and the cores that need it."""

    blobs: Blobs

    @cached_property
    def distinct(self) -> tuple[Blob, ...]:
        """Each blob once."""
        return tuple(dict.fromkeys(blob for blob in self.blobs if blob is not None))

    @cached_property
    def cores(self) -> tuple[tuple[int, ...], ...]:
        """Of each of these, the cores that need it."""
        return tuple(tuple(core for core, own in enumerate(self.blobs) if own == blob) for blob in self.distinct)


class TilePosition(NamedTuple):
    """A place in the running order: the step, and which of the tiles that each core computes in it."""

    step: int
    tile: int


@dataclass(frozen=True)
class PackedBlob:
    """Where each part of a blob begins, and the bytes of it all."""

    offsets: tuple[int, ...]
    size: int


def blob_of(constants: Mapping[int, Box]) -> Blob:
    """The blob of these parts of constants."""
    return tuple(sorted(constants.items()))


def pack_blob(network: Network, blob: Blob, alignment: int) -> PackedBlob:
    """Lay out a blob, each part of it aligned."""
    offsets, end = [], 0
    for value, box in blob:
        offsets.append(end)
        end += round_up(network.bytes(value, box), alignment)
    return PackedBlob(tuple(offsets), max(end, alignment))


@dataclass(frozen=True)
class Load:
    """Weights that come from DDR in one transfer: the parts of some blobs, one blob after another; and their bytes."""

    parts: Blob
    size: int


class _Place(NamedTuple):
    """The number of the load that brings a blob, and where the blob begins there."""

    load: int
    offset: int


@dataclass
class Ring:
    """A buffer that is used round and round. Its contents need not be brought again while they are in it."""

    capacity: int
    at: int = 0
    held: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    """First byte and end."""

    def find(self, key: Hashable) -> int | None:
        """The address of something; None if it is gone."""
        return self.held[key][0] if key in self.held else None

    def take(self, key: Hashable, size: int) -> int:
        """The address of the next bytes; whatever was there is gone."""
        start = self.at if self.at + size <= self.capacity else 0
        self.held = {k: (a, b) for k, (a, b) in self.held.items() if b <= start or start + size <= a}
        self.held[key] = start, start + size
        self.at = start + size
        return start


class _Held(NamedTuple):
    """Weights that the GB keeps: where, the number of their last use, and that of their next."""

    start: int
    stop: int
    touched: int
    next_use: float


class Staging:
    """The part of a GB that weights pass through.

    The latest ones, up to half of the room, may not be replaced: they may not have been hoisted yet, and those that
    replace them could not be loaded ahead. Each use takes time in proportion to the gaps between weights, which are
    few: a program has as many uses as tiles.
    """

    def __init__(self, base: int, capacity: int, uses: Iterable[Hashable]) -> None:
        """It begins at address `base`; `uses` are the keys that will be fetched, in order."""
        self.capacity = capacity
        self.uses: dict[Hashable, deque[int]] = {}
        for time, key in enumerate(uses):
            self.uses.setdefault(key, deque()).append(time)
        self.gaps = [(base, base + capacity)] if capacity > 0 else []
        """Start and stop of the free ranges, ascending."""
        self.late: OrderedDict[Hashable, _Held] = OrderedDict()
        """The latest weights, the latest one last: as few as take more than half of the room."""
        self.late_bytes = 0
        self.early: dict[Hashable, _Held] = {}
        """All others."""
        self.order: list[tuple[float, int, Hashable]] = []
        """A heap of these: the one that is needed last comes first. Some entries are of weights that are gone."""

    def fetch(self, key: Hashable, size: int, time: int) -> tuple[int, bool]:
        """The address for use number `time`, and whether it is there already."""
        uses = self.uses[key]
        while uses and uses[0] <= time:
            uses.popleft()
        held = self._remove(key)
        address = self._take(size) if held is None else held.start
        self.late[key] = _Held(address, address + size, time, uses[0] if uses else inf)
        self.late_bytes += size
        self._age()
        return address, held is not None

    def _remove(self, key: Hashable) -> _Held | None:
        if key in self.early:
            return self.early.pop(key)
        held = self.late.pop(key, None)
        if held is not None:
            self.late_bytes -= held.stop - held.start
        return held

    def _age(self) -> None:
        """Weights that need not be among the latest any more may be replaced."""
        while self.late:
            key, held = next(iter(self.late.items()))
            if 2 * (self.late_bytes - (held.stop - held.start)) <= self.capacity:
                return
            del self.late[key]
            self.late_bytes -= held.stop - held.start
            self.early[key] = held
            heappush(self.order, (-held.next_use, held.touched, key))

    def _take(self, size: int) -> int:
        """The address of the first gap that is large enough, after weights gave way if there is none."""
        while (place := next((n for n, (a, b) in enumerate(self.gaps) if b - a >= size), None)) is None:
            self._free(self._replaced())
        start, stop = self.gaps[place]
        self.gaps[place : place + 1] = [(start + size, stop)] if start + size < stop else []
        return start

    def _replaced(self) -> _Held:
        """The weights that give way: of those that may, the ones that are needed last (Belady)."""
        while self.order:
            _, touched, key = heappop(self.order)
            if key in self.early and self.early[key].touched == touched:
                return self.early.pop(key)
        _, held = self.late.popitem(last=False)
        self.late_bytes -= held.stop - held.start
        return held

    def _free(self, held: _Held) -> None:
        start, stop = held.start, held.stop
        place = bisect_left(self.gaps, (start, stop))
        if place < len(self.gaps) and self.gaps[place][0] == stop:
            stop = self.gaps.pop(place)[1]
        if place and self.gaps[place - 1][1] == start:
            place -= 1
            start = self.gaps.pop(place)[0]
        self.gaps.insert(place, (start, stop))


class WeightEmission:
    """Moves weights. `constants` are the loads in DDR, `staging` is the part of the GB that they pass through."""

    def __init__(self, emission: Emission, device: DsaDevice, residence: Residence, staging: int) -> None:
        """Weights pass through the GB from address `staging` on."""
        self.emission, self.device, self.network = emission, device, residence.flow.graph.network
        self.packed: dict[Blob, PackedBlob] = {}
        self.needs = dict(_needs(residence))
        self.ring = Ring(device.weight_buffer)
        self.loads: list[Load] = []
        self.places = self._arrange(device.global_buffer - staging)
        self.staging = Staging(staging, device.global_buffer - staging, self._fetches())
        self.constants: dict[int, Contents] = {}
        self.staged: dict[int, Contents] = {}
        self.hoisted: dict[Need, list[Contents | None]] = {}
        """What is in the ring."""
        self.uses = self.loaded = 0
        self.named: dict[Blob, str] = {}
        others = _HOIST_CHANNELS + (_WAITING_CHANNELS if residence.waiting or residence.streams else 0)
        self.loading_channels = max(1, device.dma_channels - others)

    def loaded_by_step(self) -> list[int]:
        """The bytes that promoting all weights moves to the GB for each step. Call it instead of `promote`: it uses up
        the staging."""
        loaded = [0] * (1 + max((position.step for position in self.needs), default=0))
        time = 0
        for position, need in self._hoists():
            for load in (self.places[blob].load for blob in need.distinct):
                size = self.loads[load].size
                _, is_there = self.staging.fetch(load, size, time)
                loaded[position.step] += 0 if is_there else size
                time += 1
        return loaded

    def promote(self, position: TilePosition) -> list[Contents | None]:
        """The weights of one tile per core, in every core's LB at the same place; None if it needs none."""
        need = self.needs[position]
        if not need.distinct:
            return [None] * len(need.blobs)
        if self.ring.find(need) is None:
            address = self.ring.take(need, self._largest(need))
            self.hoisted = {other: each for other, each in self.hoisted.items() if self.ring.find(other) is not None}
            self.hoisted[need] = self._hoist(need, address)
        return self.hoisted[need]

    def operands(self, weights: Contents, blob: Blob) -> Iterator[tuple[Operand, View]]:
        """The parts of a blob in LB, as a kernel reads them."""
        ((first, _),) = weights.box
        for (value, box), offset in zip(blob, self._pack(blob).offsets, strict=True):
            size = self.network.bytes(value, box)
            region = Region(weights.buffer.name, weights.buffer.memory, weights.buffer.address + offset, size)
            operand = Operand(region, self.network.dtype(value), shape_of(box))
            yield operand, View(weights, ((first + offset, first + offset + size),))

    def _arrange(self, room: int) -> dict[Blob, _Place]:
        """Makes the loads, and says where each blob is in them.

        Blobs that are first needed one after another come together, as many as take DDR about as long as its latency.
        """
        longest = min(self.device.ddr_bandwidth * self.device.dma_latency, room // _LEAST_LOADS)
        places: dict[Blob, _Place] = {}
        parts, end = list[tuple[int, Box]](), 0
        for blob in (blob for need in dict.fromkeys(self.needs.values()) for blob in need.distinct):
            if blob not in places:
                size = self._pack(blob).size
                if parts and end + size > longest:
                    self.loads.append(Load(tuple(parts), end))
                    parts, end = [], 0
                places[blob] = _Place(len(self.loads), end)
                parts += blob
                end += size
        self.loads.append(Load(tuple(parts), end))
        return places

    def _fetches(self) -> Iterator[int]:
        """The loads in which blobs will be fetched from the GB."""
        for _, need in self._hoists():
            yield from (self.places[blob].load for blob in need.distinct)

    def _hoists(self) -> Iterator[tuple[TilePosition, Need]]:
        """All that will be brought to the LBs, and for which tiles: a ring that is run dry says so."""
        ring = Ring(self.device.weight_buffer)
        for position, need in self.needs.items():
            if need.distinct and ring.find(need) is None:
                ring.take(need, self._largest(need))
                yield position, need

    def _largest(self, need: Need) -> int:
        return max(self._pack(blob).size for blob in need.distinct)

    def _hoist(self, need: Need, address: int) -> list[Contents | None]:
        contents: list[Contents | None] = [None] * len(need.blobs)
        for blob, cores in zip(need.distinct, need.cores, strict=True):
            load, first = self.places[blob]
            box = ((first, first + self._pack(blob).size),)
            source = View(self._stage(load), box)
            targets = []
            for core in cores:
                target = self._buffer(f"w:{self._name(blob)}@{core}", local_buffer(0, core), address, box)
                contents[core] = target
                targets.append(View(target, target.box))
            if len(need.distinct) > 1:  # cores do not wait for each other's weights
                channel = core_channel(self.device, cores[0], CoreChannel.FROM_LB)
            else:
                turn = self.uses % min(_HOIST_CHANNELS, self.device.dma_channels)
                channel = cluster_channel(self.device.dma_channels - 1 - turn)
            self.emission.copy(channel, source, targets, TransferKind.HOIST)
        return contents

    def _stage(self, load: int) -> Contents:
        """Weights in the GB."""
        address, is_there = self.staging.fetch(load, self.loads[load].size, self.uses)
        self.uses += 1
        if not is_there:
            source = self._constant(load)
            name = self._name(self.loads[load].parts)
            target = self.staged[load] = self._buffer(f"w:{name}", global_buffer(0), address, source.box)
            engine = cluster_channel(self.loaded % self.loading_channels)
            self.loaded += 1
            self.emission.copy(engine, View(source, source.box), [View(target, target.box)], TransferKind.DMA)
        return self.staged[load]

    def _constant(self, load: int) -> Contents:
        """Weights in DDR."""
        if load not in self.constants:
            parts, size = self.loads[load].parts, self.loads[load].size
            address = self.emission.reserve_ddr(size)
            self.constants[load] = self._buffer(f"c:{self._name(parts)}", DDR, address, ((0, size),), Role.CONSTANT)
        return self.constants[load]

    def _buffer(
        self, name: str, memory: Memory, address: int, held: Box, role: Role = Role.INTERMEDIATE
    ) -> Contents:
        """A buffer for these bytes of a load."""
        return self.emission.buffer(name, memory, address, held, "uint8", role)

    def _pack(self, blob: Blob) -> PackedBlob:
        if blob not in self.packed:
            self.packed[blob] = pack_blob(self.network, blob, self.device.alignment)
        return self.packed[blob]

    def _name(self, blob: Blob) -> str:
        """The name of the heaviest constant."""
        if blob not in self.named:
            value, _ = max(blob, key=lambda part: self.network.bytes(*part))
            self.named[blob] = self.network.graph.values[value].name
        return self.named[blob]


def waiting_channel(device: DsaDevice) -> Engine:
    """What moves feature maps between GB and DDR that wait there, and inputs ahead."""
    return cluster_channel(max(0, device.dma_channels - _HOIST_CHANNELS - _WAITING_CHANNELS))


def _needs(residence: Residence) -> Iterator[tuple[TilePosition, Need]]:
    """The weights that the cores need for their tiles, in running order. Tables stay in DDR."""
    flow, known = residence.flow, dict[Blobs, Need]()
    for number, (step, tiled) in enumerate(zip(flow.steps, residence.tiles, strict=True)):
        is_lookup = indexed_table(flow.graph.network, step.layer) is not None
        for position in range(tiled.count):
            tiles = ({} if tile is None or is_lookup else tile.constants for tile in tiled.at(position))
            blobs = tuple([blob_of(each) if each else None for each in tiles])
            yield TilePosition(number, position), known.setdefault(blobs, Need(blobs))
