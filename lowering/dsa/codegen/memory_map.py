"""Addresses of everything that a program keeps in LBs and in the GB."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ....costmodels.dsa_device import DsaDevice
from ..network.boxes import Box
from ..program.instructions import Level
from ..tiles.core_parts import CorePart
from .addresses import NoRoomError, Request, assign
from .flow import Flow
from .residence import STAGING_SHARE, Residence


@dataclass(frozen=True)
class MemoryMap:
    """`local` per core: addresses in its LB; keys are ("part", instance, value), ("arrival", instance, value) and
    ("in" or "out", step, tile, value). `shared`: of parts in the GB, which end at `staging`, where weights begin."""

    local: tuple[Mapping[Hashable, int], ...]
    shared: Mapping[Hashable, int]
    staging: int


class StepsFullError(Exception):
    """Addresses could not be found during some steps; `sizes` are the most bytes that were asked for in each."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.sizes = sizes
        super().__init__(", ".join(f"step {step}: {size} bytes" for step, size in sizes.items()))


def memory_map(residence: Residence, device: DsaDevice) -> MemoryMap:
    """Addresses for a residence. Raises StepsFullError where there is room, but not in one piece."""
    mapper = _Mapper(residence, device)
    local = tuple(mapper.core(core) for core in range(device.cores))
    if mapper.short:
        raise StepsFullError(mapper.short)
    shared = mapper.shared()
    return MemoryMap(local, shared, mapper.end_of(shared))


class _Mapper:
    def __init__(self, residence: Residence, device: DsaDevice) -> None:
        self.residence, self.device = residence, device
        self.flow: Flow = residence.flow
        counts = [tiled.count for tiled in residence.tiles]
        self.times = [0, *accumulate(counts)]
        """The time of each step's first tile."""
        self.short: dict[int, int] = {}
        """The largest request that found no room in any LB, by step."""

    def core(self, core: int) -> Mapping[Hashable, int]:
        """Addresses in one LB, above the weights; none, and `short`, where not all find room."""
        try:
            found = assign(self._requests(core), self.device.activation_buffer, self.device.alignment)
        except NoRoomError as error:
            for request in error.requests:
                step = self._step_at(request.start)
                self.short[step] = max(request.size, self.short.get(step, 0))
            return {}
        return {key: address + self.device.weight_buffer for key, address in found.items()}

    def _step_at(self, time: int) -> int:
        return bisect_right(self.times, time) - 1

    def _requests(self, core: int) -> Iterator[Request]:
        for part, home in self.residence.homes.items():
            held = self.flow.fragments[part][core]
            if home is Level.LB and held is not None:
                start, end = self._life(part)
                yield Request(("part", *part), self._bytes(part[1], held), start, end)
        for key, kept in self.residence.arrivals.items():
            box = kept.boxes[core]
            if box is not None:
                start, end = self.times[kept.first], self.times[kept.last + 1] - 1
                life = max(0, start - 1), end
                yield Request(("arrival", *key), self._bytes(key[1], box), *life, least=(start, end))
        for number in range(len(self.flow.steps)):
            yield from self._passing(number, core)

    def _life(self, part: tuple[int, int]) -> tuple[int, int]:
        made = self.flow.made_at[part]
        last = max((read.step for read in self.flow.readers[part]), default=made)
        return self.times[made], self.times[last + 1] - 1

    def _passing(self, number: int, core: int) -> Iterator[Request]:
        tiles = self.residence.tiles[number].cores[core]
        last = self.times[-1] - 1
        for position, tile in enumerate(tiles):
            time = self.times[number] + position
            for value, box in self.residence.passing_inputs(number, core, tile.inputs):
                if self.residence.brought(number, core, position, value, box) == position:
                    end = time + _following(tiles[position + 1 :], value, box)
                    life = max(0, time - 1), end
                    yield Request(("in", number, position, value), self._bytes(value, box), *life, True, (time, end))
            for value, box in self.residence.passing_outputs(number, core, tile.made):
                life = time, min(last, time + 1)
                yield Request(("out", number, position, value), self._bytes(value, box), *life, True, (time, time))

    def _bytes(self, value: int, box: Box) -> int:
        return self.flow.graph.network.bytes(value, box)

    def shared(self) -> dict[Hashable, int]:
        """Addresses of parts in the GB. What finds no room in one piece goes to DDR."""
        room = self.device.global_buffer - self.device.global_buffer // STAGING_SHARE
        while True:
            parts = [part for part, home in self.residence.homes.items() if home is Level.GB]
            sizes = {part: self._bytes(part[1], self.flow.box(part)) for part in parts}
            try:
                return assign((Request(p, sizes[p], *self._life(p)) for p in parts), room, self.device.alignment)
            except NoRoomError as error:
                self.residence.homes[error.requests[0].key] = Level.DDR  # type: ignore[index]

    def end_of(self, shared: Mapping[Hashable, int]) -> int:
        """The first byte of the GB that no part takes."""
        ends = (
            address + self._bytes(part[1], self.flow.box(part))  # type: ignore[index, arg-type]
            for part, address in shared.items()
        )
        return -(-max(ends, default=0) // self.device.alignment) * self.device.alignment


def _following(tiles: Sequence[CorePart], value: int, box: Box) -> int:
    """How many tiles from the first on read the same part of a value."""
    return next((count for count, tile in enumerate(tiles) if tile.inputs.get(value) != box), len(tiles))
