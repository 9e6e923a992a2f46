"""Addresses of what a program keeps in LBs and in the GB (GraphTurbo, OSDI 2023, sections 4.2 and 4.3).

Lifetimes are known, so addresses are assigned first fit, in order of the starts. Long-lived buffers go to the bottom
and those that pass through to the top, so that they do not break up each other's room.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate
from typing import Any, Generic, NamedTuple, TypeVar

from ....costmodels.dsa_device import DsaDevice
from ..network.alignment import round_up
from ..network.boxes import Box
from ..program.instructions import Level
from ..schedule.instances import NETWORK, Part
from .residence import Residence, activation_room_of_global_buffer

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
    __hash__ = object.__hash__  # Enum's own hashes the name, in Python


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
    """Addresses: `local`, per core, in its LB; `shared`, of parts in the GB each time that they are there, which end at
    `staging`, where weights begin."""

    local: tuple[Mapping[Slot, int], ...]
    shared: Mapping[Stay, int]
    staging: int


class Stay(NamedTuple):
    """The time number `number` that a part is in the GB."""

    part: Part
    number: int = 0


class Lifetime(NamedTuple):
    """Times, both inclusive."""

    start: int
    end: int


class Request(NamedTuple, Generic[Key]):
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
    aligned = (
        request if request.size % alignment == 0 else request._replace(size=round_up(request.size, alignment))
        for request in requests
    )
    addresses: dict[Key, int] = {}
    without_room: list[Request[Key]] = []
    for placed in _apart(aligned):
        try:
            addresses |= _with_shorter_lives(placed, capacity)
        except NoRoomError as error:
            without_room += error.requests
    if without_room:
        raise NoRoomError(without_room)
    return addresses


def _apart(requests: Iterable[Request[Key]]) -> Iterator[list[Request[Key]]]:
    """Requests by times at which nothing else lives: a program has hundreds of thousands, of which few share a time."""
    together: list[Request[Key]] = []
    end = -1
    for request in sorted(requests, key=lambda each: each.life.start):
        if together and request.life.start > end:
            yield together
            together = []
        together.append(request)
        end = max(end, request.life.end)
    if together:
        yield together


def _with_shorter_lives(placed: list[Request[Key]], capacity: int) -> dict[Key, int]:
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
                placed[number] = placed[number]._replace(life=life, shorter=None)


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
    soonest = 0
    """No earlier end of a life among those that live."""
    for request in sorted(requests, key=lambda r: (r.life.start, r.is_passing, -r.life.end, -r.size)):
        if soonest < request.life.start:
            live = [each for each in live if each.end_of_life >= request.life.start]
            soonest = min((each.end_of_life for each in live), default=request.life.start)
        room = _last_room if request.is_passing else _first_room
        address = room(live, capacity, request.size)
        if address is None:
            without_room.append(request)
            continue
        addresses[request.key] = address
        insort(live, _Live(address, address + request.size, request.life.end))
        soonest = min(soonest, request.life.end)
    if without_room:
        raise NoRoomError(without_room)
    return addresses


def _first_room(live: Iterable[_Live], capacity: int, size: int) -> int | None:
    """The lowest address with `size` free bytes among what lives, which ascends; None if there is none."""
    end = 0
    for address, stop, _ in live:
        if address - end >= size:
            return end
        end = max(end, stop)
    return end if capacity - end >= size else None


def _last_room(live: Sequence[_Live], capacity: int, size: int) -> int | None:
    """The highest such address."""
    end = capacity
    for address, stop, _ in reversed(live):
        if end - stop >= size:
            return end - size
        end = address
    return end - size if end >= size else None


_ROUNDS = 30
"""Attempts to find places for all that a buffer keeps for long."""


def long_term_addresses(
    fixed: Sequence[Request[Key]], others: Sequence[Request[Key]], capacity: int, alignment: int
) -> dict[Key, int]:
    """Addresses of requests that are few and large, each for its whole life. Raises NoRoomError for some of `others`.

    In the order of their starts they leave gaps into which no other fits. So the largest are placed first, behind those
    that are `fixed`; what finds no room goes before all others in the next attempt.
    """
    requests = [*fixed, *others]
    sizes = [round_up(request.size, alignment) for request in requests]
    beside = [
        [other for other, each in enumerate(requests) if _are_together(each.life, request.life) and other != number]
        for number, request in enumerate(requests)
    ]
    first = list(range(len(fixed)))
    order = sorted(range(len(fixed), len(requests)), key=lambda n: (-sizes[n], requests[n].life))
    fewest: list[int] | None = None
    for _ in range(_ROUNDS):
        addresses: dict[int, int] = {}
        without_room: list[int] = []
        for number in (*first, *order):
            live = sorted(_Live(at, at + sizes[n], 0) for n in beside[number] if (at := addresses.get(n)) is not None)
            address = _first_room(live, capacity, sizes[number])
            if address is None:
                without_room.append(number)
            else:
                addresses[number] = address
        if not without_room:
            return {requests[number].key: address for number, address in addresses.items()}
        if fewest is None or sum(sizes[n] for n in without_room) < sum(sizes[n] for n in fewest):
            fewest = without_room
        order = [*without_room, *(number for number in order if number in addresses)]
    assert fewest is not None
    raise NoRoomError(sorted((requests[number] for number in fewest), key=lambda request: request.life))


def _are_together(first: Lifetime, second: Lifetime) -> bool:
    return first.start <= second.end and second.start <= first.end


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
    ends = (address + mapper.bytes_of_part(stay.part) for stay, address in shared.items())
    return MemoryMap(local, shared, round_up(max(ends, default=0), device.alignment))


class _Mapper:
    def __init__(self, residence: Residence, device: DsaDevice) -> None:
        self.residence, self.device, self.flow = residence, device, residence.flow
        self.times = [0, *accumulate(tiled.count for tiled in residence.tiles)]
        """The time of each step's first tile."""
        self.short: dict[int, int] = {}
        """The largest request that found no room in any LB, by step."""
        self.found: list[tuple[list[Request[Slot]], Mapping[Slot, int]]] = []
        """What was asked of LBs so far, and the addresses in them: cores are mostly alike."""

    def bytes_of(self, value: int, box: Box) -> int:
        """The aligned bytes of a part."""
        return round_up(self.flow.graph.network.bytes(value, box), self.device.alignment)

    def bytes_of_part(self, part: Part) -> int:
        """The aligned bytes of all of a part, or of what an instance reads of an input."""
        stream = self.residence.streams.get(part)
        return self.bytes_of(part.value, self.flow.box(part) if stream is None else stream.box)

    def local_addresses(self, core: int) -> Mapping[Slot, int]:
        """Addresses in one LB, above the weights; none, and an entry in `short`, if not all find room."""
        requests = list(self._local_requests(core))
        known = next((addresses for asked, addresses in self.found if asked == requests), None)
        if known is not None:
            return known
        addresses: Mapping[Slot, int] = {}
        try:
            found = assign_addresses(requests, self.device.activation_buffer, self.device.alignment)
            addresses = {slot: address + self.device.weight_buffer for slot, address in found.items()}
        except NoRoomError as error:
            for request in error.requests:
                step = bisect_right(self.times, request.life.start) - 1
                self.short[step] = max(request.size, self.short.get(step, 0))
        self.found.append((requests, addresses))
        return addresses

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
        return Lifetime(self.times[self.flow.producing_step[part]], self.times[self.flow.last_step[part] + 1] - 1)

    def _passing_requests(self, step: int, core: int) -> Iterator[Request[Slot]]:
        tiles = self.residence.tiles[step].cores[core]
        complete = {tuple(tile.made.items()): number for number, tile in enumerate(tiles) if tile.is_complete}
        """Where each result is final."""
        for position, tile in enumerate(tiles):
            time = self.times[step] + position
            for value, box in tile.inputs.items():
                bringing, last = self.residence.bringing_tile(step, core, position, value)
                if bringing == position and self.residence.is_passing_input(step, core, value, box):
                    end = self.times[step] + last
                    yield self._passing_request(
                        SlotKind.INPUT, step, position, value, box,
                        Lifetime(max(0, time - 1), end), Lifetime(time, end),
                    )  # fmt: skip
            if tile.piece is not None and tile.piece.adds:
                continue
            for value, box in self.residence.passing_outputs(step, core, tile.made):
                end = self.times[step] + complete[tuple(tile.made.items())]
                yield self._passing_request(
                    SlotKind.OUTPUT, step, position, value, box,
                    Lifetime(time, min(self.times[-1] - 1, end + 1)), Lifetime(time, end),
                )  # fmt: skip

    def _passing_request(
        self, kind: SlotKind, step: int, position: int, value: int, box: Box, life: Lifetime, shorter: Lifetime
    ) -> Request[Slot]:
        return Request(TileSlot(kind, step, position, value), self.bytes_of(value, box), life, True, shorter)

    def shared_addresses(self) -> dict[Stay, int]:
        """Addresses of parts in the GB. What finds no room in one piece goes to DDR."""
        room = activation_room_of_global_buffer(self.device)
        while True:
            parts = [part for part, home in self.residence.homes.items() if home is Level.GB]
            parts += self.residence.streams
            stays = [request for part in parts for request in self._stay_requests(part)]
            inputs = [self._input_request(value) for value in sorted(self.residence.inputs)]
            try:
                return long_term_addresses(inputs, stays, room, self.device.alignment)
            except NoRoomError as error:
                part = error.requests[0].key.part
                if self.residence.streams.pop(part, None) is None:
                    self.residence.homes[part] = Level.DDR
                    self.residence.waiting.pop(part, None)

    def _stay_requests(self, part: Part) -> Iterator[Request[Stay]]:
        for number, (first, last) in enumerate(self.residence.stays(part)):
            life = Lifetime(self.times[first], self.times[last + 1] - 1)
            yield Request(Stay(part, number), self.bytes_of_part(part), life)

    def _input_request(self, value: int) -> Request[Stay]:
        part, last = Part(NETWORK, value), self.flow.input_readers[value][-1]
        return Request(Stay(part), self.bytes_of_part(part), Lifetime(0, self.times[last + 1] - 1))
