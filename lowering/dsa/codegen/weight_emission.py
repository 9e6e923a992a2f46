"""The instructions that promote weights (see promotion.py), each just before the tiles that read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....costmodels.dsa_device import DsaDevice
from ..network.lookups import indexed_table
from ..program.instructions import DDR, Memory, Operand, Region, Role, TransferKind, global_buffer, local_buffer
from .emission import Emission, View, cluster_channel
from .hazards import Contents
from .promotion import Blob, Packed, Ring, Staging, blob_of, packed
from .residence import Residence

_HOISTS = 2
"""Channels of the cluster that move weights from GB to LBs; the others load them from DDR."""

Blobs = tuple[Blob | None, ...]
"""What each core needs for its tile."""


@dataclass(frozen=True)
class WeightTraffic:
    """Bytes of weights that a cluster loads to its GB, and that each of its LBs takes from there."""

    loaded: int
    hoisted: int


def weight_traffic(residence: Residence, device: DsaDevice, staging: int) -> WeightTraffic:
    """What WeightEmission will move."""
    weights = WeightEmission(Emission(device.alignment), device, residence, staging)
    loaded = 0
    for blob in weights._uses():
        _, is_there = weights.staging.fetch(blob, weights._packed(blob).size, weights.uses)
        weights.uses += 1
        loaded += 0 if is_there else weights._packed(blob).size
    return WeightTraffic(loaded, sum(weights._hoisted()))


class WeightEmission:
    """`blobs` are the constants in DDR. Weights pass through the GB from address `staging` on."""

    def __init__(self, emission: Emission, device: DsaDevice, residence: Residence, staging: int) -> None:
        self.emission, self.device, self.network = emission, device, residence.flow.graph.network
        self.wanted = dict(_wanted(residence))
        self.ring = Ring(device.weight_buffer)
        self.staging = Staging(staging, device.global_buffer - staging, list(self._uses()))
        self.blobs: dict[Blob, Contents] = {}
        self.staged: dict[Blob, Contents] = {}
        self.hoisted: dict[Blobs, list[Contents | None]] = {}
        self.uses = self.loads = 0

    def promote(self, step: int, position: int) -> list[Contents | None]:
        """The weights of one tile per core, in every core's LB at the same place; None where it needs none."""
        blobs = self.wanted[step, position]
        if not _distinct(blobs):
            return [None] * len(blobs)
        if self.ring.find(blobs) is None:
            self.hoisted[blobs] = self._hoist(blobs, self._take(self.ring, blobs))
        return self.hoisted[blobs]

    def operands(self, weights: Contents, blob: Blob) -> Iterator[tuple[Operand, View]]:
        """The parts of a blob in LB, as a kernel reads them."""
        for (value, box), offset in zip(blob, self._packed(blob).offsets, strict=True):
            size = self.network.bytes(value, box)
            where = Region(weights.buffer.name, weights.buffer.memory, weights.buffer.address + offset, size)
            shape = tuple(stop - start for start, stop in box)
            yield Operand(where, self.network.dtype(value), shape), (weights, ((offset, offset + size),))

    def _uses(self) -> Iterator[Blob]:
        """All that will be fetched from the GB."""
        for blobs in self._hoists():
            yield from _distinct(blobs)

    def _hoists(self) -> Iterator[Blobs]:
        """All that will be brought to the LBs: a ring that is run dry says so."""
        ring = Ring(self.device.weight_buffer)
        for blobs in self.wanted.values():
            if _distinct(blobs) and ring.find(blobs) is None:
                self._take(ring, blobs)
                yield blobs

    def _hoisted(self) -> Iterator[int]:
        return (self._largest(blobs) for blobs in self._hoists())

    def _take(self, ring: Ring, blobs: Blobs) -> int:
        return ring.take(blobs, self._largest(blobs))

    def _largest(self, blobs: Blobs) -> int:
        return max(self._packed(blob).size for blob in _distinct(blobs))

    def _hoist(self, blobs: Blobs, address: int) -> list[Contents | None]:
        made: list[Contents | None] = [None] * len(blobs)
        for blob in _distinct(blobs):
            source = self._stage(blob)
            cores = [core for core, other in enumerate(blobs) if other == blob]
            for core in cores:
                made[core] = self._buffer(f"w:{self._named(blob)}@{core}", local_buffer(0, core), address, blob)
            targets = [(each, each.box) for each in (made[core] for core in cores) if each is not None]
            channel = self.device.dma_channels - 1 - self.uses % min(_HOISTS, self.device.dma_channels)
            self.emission.copy(cluster_channel(channel), (source, source.box), targets, TransferKind.HOIST)
        return made

    def _stage(self, blob: Blob) -> Contents:
        """Weights in the GB."""
        address, is_there = self.staging.fetch(blob, self._packed(blob).size, self.uses)
        self.uses += 1
        if not is_there:
            source = self._stored(blob)
            target = self._buffer(f"w:{self._named(blob)}", global_buffer(0), address, blob)
            self.staged[blob] = target
            engine = cluster_channel(self.loads % max(1, self.device.dma_channels - _HOISTS))
            self.loads += 1
            self.emission.copy(engine, (source, source.box), [(target, target.box)], TransferKind.DMA)
        return self.staged[blob]

    def _stored(self, blob: Blob) -> Contents:
        """Weights in DDR."""
        if blob not in self.blobs:
            address = self.emission.ddr(self._packed(blob).size)
            self.blobs[blob] = self._buffer(f"c:{self._named(blob)}", DDR, address, blob, Role.CONSTANT)
        return self.blobs[blob]

    def _buffer(
        self, name: str, memory: Memory, address: int, blob: Blob, role: Role = Role.INTERMEDIATE
    ) -> Contents:
        return self.emission.buffer(name, memory, address, ((0, self._packed(blob).size),), "uint8", role)

    def _packed(self, blob: Blob) -> Packed:
        return packed(self.network, blob, self.device.alignment)

    def _named(self, blob: Blob) -> str:
        heaviest = max(blob, key=lambda each: self.network.bytes(*each))
        return self.network.graph.values[heaviest[0]].name


def _wanted(residence: Residence) -> Iterator[tuple[tuple[int, int], Blobs]]:
    """Per step and place of a tile in it, in running order, the weights that the cores need. Tables stay in DDR."""
    flow = residence.flow
    for number, (step, tiled) in enumerate(zip(flow.steps, residence.tiles, strict=True)):
        is_table = indexed_table(flow.graph.network, step.layer) is not None
        for position in range(tiled.count):
            tiles = tiled.at(position)
            needed = (None if tile is None or is_table else tile.constants for tile in tiles)
            yield (number, position), tuple(blob_of(each.items()) if each else None for each in needed)


def _distinct(blobs: Sequence[Blob | None]) -> list[Blob]:
    return list(dict.fromkeys(blob for blob in blobs if blob is not None))
