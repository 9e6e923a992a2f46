"""The place of values between layers: in the LBs of the cores, in the GB, in DDR (GraphTurbo, OSDI 2023, section 4.3).

Everything starts at the fastest level. If a level cannot hold all that is live, some of it gives way to the next:
what lives longest, as in the text, or what costs least to move. What an instance reads from elsewhere more than once
is kept in LB while it does (an arrival), if that fits; the rest passes through, tile by tile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from ....costmodels.dsa_device import DsaDevice
from ...base.errors import DsaError
from ..network.alignment import round_up
from ..network.boxes import Box, Boxes, contains, enclose, hull, whole
from ..network.storage import stored_box
from ..program.instructions import Level
from ..schedule.instances import Part
from ..schedule.variants import Variant
from ..tiles.cuts import Passing
from ..tiles.tiling import TiledStep, Tiling
from .flow import Flow, Read, ReadKey, Source
from .layout import is_region
from .spilling import Resident, least_traffic, longest_liveness
from .waiting import Span, Timetable, stays_between

_ROUNDS = 200
"""The search ends after this many rounds; each spills something or reserves room, and a handful suffices."""
_INPUT_SHARE = 4
"""Inputs of the network take at most this part of the room (one divided by it) that the GB has for activations."""
_STAGING_SHARE = 4
"""The GB keeps at least this part of its room (one divided by it) for weights on their way."""


def activation_room_of_global_buffer(device: DsaDevice) -> int:
    """Bytes of the GB that are not kept for weights."""
    return device.global_buffer - device.global_buffer // _STAGING_SHARE


def has_large_instances(variant: Variant, device: DsaDevice) -> bool:
    """Whether instances are larger than the LBs, so that data passes through these tile by tile."""
    return variant.split_for is Level.GB and activation_room_of_global_buffer(device) > (
        device.cores * device.activation_buffer
    )


@dataclass
class Arrival:
    """A value that an instance reads from elsewhere in `count` steps, the `first` to the `last`.

    `boxes` are the parts that the cores hold meanwhile: the hull of the reads of each; None if it has them at hand.
    """

    boxes: list[Box | None]
    first: int
    last: int
    count: int = 0


class Stream(NamedTuple):
    """The part of an input of the network that an instance reads, and when the GB has it: a while before, too."""

    box: Box
    stay: Span


@dataclass(frozen=True)
class Residence:
    """The level of every part (`homes`), the values kept in LB while an instance reads them, and the tiles of steps."""

    flow: Flow
    homes: dict[Part, Level]
    arrivals: Mapping[Part, Arrival]
    tiles: Sequence[TiledStep]
    inputs: frozenset[int] = frozenset()
    """The inputs of the network that pass through the GB."""
    waiting: dict[Part, tuple[Span, ...]] = field(default_factory=dict)
    """When parts at home in the GB are there that wait in DDR meanwhile (see waiting.py)."""
    streams: dict[Part, Stream] = field(default_factory=dict)
    """What instances need of other inputs of the network, if it passes through the GB, too."""
    _bringing: dict[ReadKey, list[int]] = field(default_factory=dict, compare=False, repr=False)
    """Per tile of a step on a core, which one a value was brought for."""
    _passing: dict[ReadKey, bool | None] = field(default_factory=dict, compare=False, repr=False)

    def without_tiles(self) -> Residence:
        """The same for whoever keeps it: tiles take much more memory than all else."""
        return replace(self, tiles=(), _bringing={}, _passing={})

    def stays(self, part: Part) -> tuple[Span, ...]:
        """When a part is in the GB."""
        if part in self.streams:
            return (self.streams[part].stay,)
        return self.waiting.get(part) or (Span(self.flow.producing_step[part], self.flow.last_step[part]),)

    def is_passing_input(self, step: int, core: int, value: int, box: Box) -> bool:
        """Whether a read of a tile has to be brought for it."""
        key = ReadKey(step, core, value)
        if key not in self._passing:
            self._passing[key] = self._is_passing(self.flow.read_of_core[key])
        passing = self._passing[key]
        if passing is not None:
            return passing
        held = self._held_arrival(step, core, value)
        has_arrived = held is not None and contains(held, box)
        return not has_arrived and part_at_hand(self.flow, self.homes, self.flow.read(step, core, value, box)) is None

    def _is_passing(self, read: Read) -> bool | None:
        """Whether tiles have to bring what they need of a core's read; None if that depends on the tile."""
        held = self._held_arrival(read.step, read.core, read.value)
        if held is not None:
            return False if contains(held, read.box) else None
        if part_at_hand(self.flow, self.homes, read) is not None:
            return False
        is_elsewhere = all(each.part is None or self.homes[each.part] is not Level.LB for each in read.sources)
        return True if is_elsewhere else None

    def _held_arrival(self, step: int, core: int, value: int) -> Box | None:
        """What a core holds of an arrival."""
        arrival = self.arrivals.get(Part(self.flow.steps[step].instance, value))
        return None if arrival is None else arrival.boxes[core]

    def bringing_tile(self, step: int, core: int, position: int, value: int) -> tuple[int, int]:
        """The tile that an input was brought for, an earlier one if all tiles since read the same; and the last one
        that reads it."""
        key = ReadKey(step, core, value)
        if key not in self._bringing:
            boxes = [tile.inputs.get(value) for tile in self.tiles[step].cores[core]]
            first = [place if not place or box != boxes[place - 1] else 0 for place, box in enumerate(boxes)]
            self._bringing[key] = list(accumulate(first, max))
        bringing = self._bringing[key]
        return bringing[position], bisect_right(bringing, bringing[position]) - 1

    def passing_outputs(self, step: int, core: int, made: Boxes) -> Iterator[tuple[int, Box]]:
        """The results of a tile that are moved out at once, or are no single region of the place where they stay."""
        for value, box in made.items():
            part, axes = Part(self.flow.steps[step].instance, value), self.flow.graph.network.axes[value]
            held = self.flow.fragments[part][core]
            is_whole = held is not None and is_region(stored_box(axes, held), stored_box(axes, box))
            if self.homes[part] is not Level.LB or not is_whole:
                yield value, box


def part_at_hand(flow: Flow, homes: Mapping[Part, Level], read: Read) -> Part | None:
    """The part at home in LB whose fragment on the reading core holds all of a read; None if it has to be brought.

    A read of several sources is at hand if each piece of it is (see `Piecewise`).
    """
    pieces = flow.pieces.reads.get(read.key, ()) if len(read.sources) > 1 else ()
    if pieces:
        parts = [part_at_hand(flow, homes, piece) for piece in pieces]
        return None if any(part is None for part in parts) else parts[0]
    if len(read.sources) != 1 or read.sources[0].part is None:
        return None
    part = read.sources[0].part
    held = flow.fragments[part][read.core] if homes[part] is Level.LB else None
    return part if held is not None and contains(held, read.box) else None


@dataclass
class Planner:
    """Looks for a residence that fits."""

    flow: Flow
    device: DsaDevice
    variant: Variant
    tiling: Tiling
    homes: dict[Part, Level] = field(default_factory=dict)
    inputs: frozenset[int] = frozenset()
    streams: dict[Part, Box] = field(default_factory=dict)
    """By instance, what it needs of other inputs, where that passes through the GB, too."""
    streamed: set[Part] = field(default_factory=set)
    """Arrivals that gave way: each tile brings what it needs of them."""
    reserve: dict[int, int] = field(default_factory=dict)
    """Bytes of each LB kept free during a step for what passes through."""

    def __post_init__(self) -> None:
        values = self.flow.graph.network.graph.values
        for part in self.flow.producing_step:
            self.homes[part] = Level.DDR if values[part.value].is_output else self.variant.fastest
        passes = self.variant.inputs is Level.GB
        self.inputs = frozenset(self._inputs_in_global_buffer() if passes else ())
        large = has_large_instances(self.variant, self.device)
        self.streams = dict(self._inputs_of_instances() if passes and large else ())

    def _inputs_in_global_buffer(self) -> Iterator[int]:
        """The inputs of the network of which several steps read little each: DDR takes longer to begin than to move it.

        The smallest ones, as far as they take a small part of the GB.
        """
        moved = self.device.ddr_bandwidth * self.device.dma_latency
        network, room = self.flow.graph.network, activation_room_of_global_buffer(self.device) // _INPUT_SHARE
        for value, steps in sorted(self.flow.input_readers.items(), key=lambda each: network.bytes(each[0])):
            size = network.bytes(value)
            room -= size
            if room >= 0 and len(steps) > 1 and size < len(steps) * moved:
                yield value

    def _inputs_of_instances(self) -> Iterator[tuple[Part, Box]]:
        """What instances need of other inputs, if several instances share an input and it takes a small part of the GB.

        The tiles of instances that are larger than the LBs are many, and would wait for DDR's latency.
        """
        network, most = self.flow.graph.network, activation_room_of_global_buffer(self.device) // _INPUT_SHARE
        needed: dict[Part, Box] = {}
        for number, reads in enumerate(self.flow.reads):
            for read in reads:
                if read.sources[0].part is None and read.value not in self.inputs:
                    part = Part(self.flow.steps[number].instance, read.value)
                    needed[part] = enclose(needed.get(part, read.box), read.box)
        for part, box in needed.items():
            if network.bytes(part.value, box) <= min(most, network.bytes(part.value) // 2):
                yield part, box

    def plan(self) -> Residence:
        """A residence. Raises DsaError if a step does not fit the buffers however it is cut."""
        for _ in range(_ROUNDS):
            arrivals = self._arrivals()
            if self._spill(arrivals):
                continue
            tiles = self._tiles(arrivals)
            if tiles is not None:
                timetable = Timetable(each.cycles for each in tiles)
                streams = dict(self._stays_of_streams(timetable))
                waiting = self._spill_from_global_buffer(tiles, timetable, streams)
                tiles = self._tiles(arrivals)  # those that read from DDR now, or write to it, are to wait less often
            if tiles is not None:
                return Residence(self.flow, dict(self.homes), arrivals, tiles, self.inputs, waiting, streams)
        raise DsaError(f"no residence found that fits the buffers of {self.device.name} after {_ROUNDS} rounds")

    def tighten(self, step: int, amount: int) -> None:
        """Keep more room at a step: for so many bytes no address could be found."""
        self.reserve[step] = self.reserve.get(step, 0) + amount
        if self.reserve[step] > self.device.activation_buffer:
            self.tiling.divide(step)

    def _arrivals(self) -> dict[Part, Arrival]:
        """The values that an instance reads in more than one step and does not have at hand."""
        arrivals: dict[Part, Arrival] = {}
        for number, reads in enumerate(self.flow.reads):
            seen: set[int] = set()
            for read in reads:
                if part_at_hand(self.flow, self.homes, read) is not None:
                    continue
                key = Part(self.flow.steps[number].instance, read.value)
                arrival = arrivals.setdefault(key, Arrival([None] * self.flow.cores, number, number))
                arrival.boxes[read.core] = hull(arrival.boxes[read.core], read.box)
                arrival.last = number
                arrival.count += read.value not in seen
                seen.add(read.value)
        return {key: each for key, each in arrivals.items() if each.count > 1 and key not in self.streamed}

    def _residents(self, arrivals: Mapping[Part, Arrival]) -> Iterator[tuple[Part, bool, Resident]]:
        """All candidates for LB, and whether each is an arrival."""
        for part, home in self.homes.items():
            if home is Level.LB:
                yield part, False, self._resident(part, self._sizes(part.value, self.flow.fragments[part]))
        for key, arrival in arrivals.items():
            sizes = self._sizes(key.value, arrival.boxes)
            yield key, True, Resident(arrival.first, arrival.last, sizes, float(sum(sizes) * (arrival.count - 1)))

    def _sizes(self, value: int, boxes: Sequence[Box | None]) -> tuple[int, ...]:
        network, alignment = self.flow.graph.network, self.device.alignment
        return tuple(0 if box is None else round_up(network.bytes(value, box), alignment) for box in boxes)

    def _resident(self, part: Part, sizes: tuple[int, ...], cost_per_use: int | None = None) -> Resident:
        """A part in the place in which it takes these bytes. Elsewhere it is moved once when it is made, and for each
        step that reads it."""
        if cost_per_use is None:
            cost_per_use = self.flow.graph.network.bytes(part.value, self.flow.box(part))
        cost = float(cost_per_use * (1 + len({read.step for read in self.flow.readers[part]})))
        return Resident(self.flow.producing_step[part], self.flow.last_step[part], sizes, cost)

    def _spill(self, arrivals: Mapping[Part, Arrival]) -> bool:
        """Give up what does not fit LB; whether there was any."""
        wanted = list(self._residents(arrivals))
        capacity = self.device.activation_buffer
        free = (max(0, capacity - self.reserve.get(step, 0)) for step in range(len(self.flow.steps)))
        spilled = self._choose([resident for _, _, resident in wanted], [[each] * self.flow.cores for each in free])
        for key, is_arrival, _ in (wanted[index] for index in spilled):
            if is_arrival:
                self.streamed.add(key)
            else:
                self.homes[key] = self.variant.next
        return bool(spilled)

    def _choose(self, residents: Sequence[Resident], room: Sequence[Sequence[int]]) -> frozenset[int]:
        if self.variant.spill == "longest":
            return longest_liveness(residents, room)
        return least_traffic(residents, room).spilled

    def _tiles(self, arrivals: Mapping[Part, Arrival]) -> list[TiledStep] | None:
        """The tiles of every step in what room is left; None after more room has been reserved.

        Raises DsaError if all of an LB is not enough for what passes through in a step.
        """
        used, capacity = self._used_bytes(arrivals), self.device.activation_buffer
        steps: list[TiledStep] = []
        for number in range(len(self.flow.steps)):
            least = self.flow.pieces.cuts.get(number, 1)
            tiled = self.tiling.step(number, capacity - max(used[number]), self._passing(number, arrivals), least)
            if tiled.short:
                before = self.reserve.get(number, 0)
                if before >= capacity:
                    raise self._too_large(number, tiled.short)
                self.reserve[number] = min(capacity, max(tiled.short, 2 * before))
            steps.append(tiled)
        return None if any(tiled.short for tiled in steps) else steps

    def _used_bytes(self, arrivals: Mapping[Part, Arrival]) -> list[list[int]]:
        """Bytes per step and core that residents take."""
        used = [[0] * self.flow.cores for _ in range(len(self.flow.steps) + 1)]
        for _, _, resident in self._residents(arrivals):
            for core, size in enumerate(resident.sizes):
                used[resident.start][core] += size
                used[resident.end + 1][core] -= size
        for before, row in pairwise(used):
            for core, amount in enumerate(before):
                row[core] += amount
        return used[:-1]

    def _passing(self, number: int, arrivals: Mapping[Part, Arrival]) -> Passing:
        """The values that pass through LB in a step, tile by tile, read or made."""
        step = self.flow.steps[number]
        passing: set[int] = set()
        far: set[int] = set()
        for read in self.flow.reads[number]:
            is_arrival = Part(step.instance, read.value) in arrivals
            if not is_arrival and part_at_hand(self.flow, self.homes, read) is None:
                passing.add(read.value)
                part = Part(step.instance, read.value)
                if part not in self.streams and any(self._is_far(source, read.value) for source in read.sources):
                    far.add(read.value)
        for value in {value for core in step.cores if core is not None for value in core.made}:
            home = self.homes[Part(step.instance, value)]
            passing |= {value} if home is not Level.LB else set()
            far |= {value} if home is Level.DDR else set()
        return Passing(frozenset(passing), frozenset(far))

    def _is_far(self, source: Source, value: int) -> bool:
        return value not in self.inputs if source.part is None else self.homes[source.part] is Level.DDR

    def _too_large(self, number: int, need: int) -> DsaError:
        name = self.flow.graph.network.graph.values[self.flow.steps[number].primary].name
        return DsaError(
            f"tensor {name!r}: split fully, what makes it still needs {need} bytes of the "
            f"{self.device.activation_buffer} bytes that {self.device.name}'s LB has for tensors"
        )

    def _bytes_while_waiting(self, part: Part, tiles: Sequence[TiledStep]) -> float:
        """Bytes that DDR could move while tiles wait for its latency, each by itself, if a part is there."""
        return sum(tiles[step].count for step in self.flow.uses(part)) * self._bytes_of_latency

    def _stays_of_streams(self, timetable: Timetable) -> Iterator[tuple[Part, Stream]]:
        """When the GB has what instances read of inputs, as far as all of it together takes a small part of the GB."""
        steps: dict[Part, list[int]] = {}
        for number, reads in enumerate(self.flow.reads):
            for part in {Part(self.flow.steps[number].instance, read.value) for read in reads} & self.streams.keys():
                steps.setdefault(part, []).append(number)
        room = [activation_room_of_global_buffer(self.device) // _INPUT_SHARE] * len(self.flow.steps)
        for part, used in steps.items():
            (size,) = self._sizes(part.value, [self.streams[part]])
            earliest, last = timetable.ahead(used[0], self._moving_cycles(size)), used[-1]
            starts = range(earliest, used[0] + 1)
            first = next((start for start in starts if min(room[start : last + 1]) >= size), None)
            if first is not None:
                room[first : last + 1] = [left - size for left in room[first : last + 1]]
                yield part, Stream(self.streams[part], Span(first, last))

    def _spill_from_global_buffer(
        self, tiles: Sequence[TiledStep], timetable: Timetable, streams: Mapping[Part, Stream]
    ) -> dict[Part, tuple[Span, ...]]:
        """Move what does not fit the GB beside weights to DDR. Returns when parts are in the GB that wait there."""
        parts = [part for part, home in self.homes.items() if home is Level.GB]
        sizes = [self._sizes(part.value, [self.flow.box(part)]) for part in parts]
        may_wait = self.variant.spill == "least"
        residents: list[Resident] = []
        owners: list[tuple[Part, Span | None]] = []
        """The part that each resident stands for, and the time for which it may leave; None if for good."""
        for part, size in zip(parts, sizes, strict=True):
            resident = self._resident(part, size, *size)
            waits = self._bytes_while_waiting(part, tiles) if may_wait else 0.0
            gaps = list(self._gaps(part, sum(size), timetable)) if may_wait else []
            for stay in stays_between(Span(resident.start, resident.end), gaps):
                residents.append(Resident(*stay, size, resident.cost + waits))
                owners.append((part, None))
            for gap in gaps:
                residents.append(Resident(*gap, size, 2.0 * (sum(size) + self._bytes_of_latency)))
                owners.append((part, gap))
        for value in sorted(self.inputs):
            size = self._sizes(value, [whole(self.flow.graph.network.shapes[value])])
            residents.append(Resident(0, self.flow.input_readers[value][-1], size, 0.0, fixed=True))
        for part, stream in streams.items():
            residents.append(Resident(*stream.stay, self._sizes(part.value, [stream.box]), 0.0, fixed=True))
        room = activation_room_of_global_buffer(self.device)
        chosen = [owners[index] for index in sorted(self._choose(residents, [[room]] * len(self.flow.steps)))]
        self.homes.update((part, Level.DDR) for part, gap in chosen if gap is None)
        absences: dict[Part, list[Span]] = {}
        for part, absence in chosen:
            if absence is not None and self.homes[part] is Level.GB:
                absences.setdefault(part, []).append(absence)
        return {
            part: tuple(stays_between(Span(self.flow.producing_step[part], self.flow.last_step[part]), gaps))
            for part, gaps in absences.items()
        }

    @property
    def _bytes_of_latency(self) -> float:
        """Bytes that DDR could move during its latency."""
        return self.device.dma_latency * self.device.ddr_bandwidth

    def _gaps(self, part: Part, size: int, timetable: Timetable) -> Iterator[Span]:
        """When a part may be in DDR: between two uses, but for the time to move it there and back."""
        for before, after in pairwise(self.flow.uses(part)):
            gap = timetable.gap(before, after, self._moving_cycles(size))
            if gap is not None:
                yield gap

    def _moving_cycles(self, size: int) -> float:
        """Cycles to move some bytes between DDR and GB."""
        return (self.device.dma_latency + size / self.device.ddr_bandwidth) * self.device.clock
