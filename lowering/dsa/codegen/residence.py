"""Where what layers hand on is kept: in the LBs of the cores, in the GB, in DDR (GraphTurbo, OSDI 2023, section 4.3).

Everything starts at the fastest level. Where a level cannot hold all that is live, some of it gives way to the next:
what lives longest, as in the text, or what costs least to move. What an instance reads from elsewhere more than once
is kept in LB while it does (an arrival), where that fits; the rest passes through, tile by tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ....costmodels.dsa_device import DsaDevice
from ..errors import DsaError
from ..network.boxes import Box, contains, hull
from ..network.storage import stored_box
from ..program.instructions import Level
from ..schedule.variants import Variant
from ..tiles.core_parts import Boxes
from ..tiles.tiling import TiledStep, Tiling
from .flow import Flow, Part, Read, Reading
from .layout import is_region
from .spilling import Resident, least_traffic, longest_liveness

_ROUNDS = 200
STAGING_SHARE = 4
"""The GB keeps at least one part in so many for weights on their way."""


@dataclass(frozen=True)
class Residence:
    """`homes` per part, `arrivals` per (instance, value) that is kept in LB while it reads it; the tiles of each step.

    An arrival's `boxes` are what each core holds; None where it reads the part at hand already.
    """

    flow: Flow
    homes: dict[Part, Level]
    arrivals: Mapping[Part, Reading]
    tiles: Sequence[TiledStep]

    def direct(self, read: Read) -> Part | None:
        """The part in the core's own LB that holds all of a read; None where it has to be brought."""
        return direct(self.flow, self.homes, read)

    def passing_inputs(self, step: int, core: int, inputs: Boxes) -> Iterator[tuple[int, Box]]:
        """What a tile reads that has to be brought for it alone."""
        instance = self.flow.steps[step].instance
        for value, box in inputs.items():
            read = Read(step, core, value, box, self.flow.sources(instance, value, box))
            if self.direct(read) is None and not self._has_arrived(instance, value, core, box):
                yield value, box

    def brought(self, step: int, core: int, position: int, value: int, box: Box) -> int:
        """The tile that what passes through was brought for: an earlier one, if all tiles since read the same."""
        tiles = self.tiles[step].cores[core]
        while position and tiles[position - 1].inputs.get(value) == box:
            position -= 1
        return position

    def _has_arrived(self, instance: int, value: int, core: int, box: Box) -> bool:
        kept = self.arrivals.get((instance, value))
        held = None if kept is None else kept.boxes[core]
        return held is not None and contains(held, box)

    def passing_outputs(self, step: int, core: int, made: Boxes) -> Iterator[tuple[int, Box]]:
        """What a tile makes that is moved out at once, or is no single region of where it stays."""
        instance = self.flow.steps[step].instance
        for value, box in made.items():
            held = self.flow.fragments[instance, value][core]
            axes = self.flow.graph.network.axes[value]
            is_whole = held is not None and is_region(stored_box(axes, held), stored_box(axes, box))
            if self.homes[instance, value] is not Level.LB or not is_whole:
                yield value, box


def direct(flow: Flow, homes: Mapping[Part, Level], read: Read) -> Part | None:
    """The one part at home in LB whose fragment on the reading core holds what is read, by `read` or each piece."""
    pieces = flow.pieces.reads.get((read.step, read.core, read.value), ()) if len(read.sources) > 1 else ()
    if pieces:
        found = [direct(flow, homes, piece) for piece in pieces]
        return None if any(part is None for part in found) else found[0]
    if len(read.sources) != 1 or read.sources[0].part is None:
        return None
    part = read.sources[0].part
    if homes[part] is not Level.LB:
        return None
    held = flow.fragments[part][read.core]
    return part if held is not None and contains(held, read.box) else None


@dataclass
class Planner:
    """Looks for a residence that fits."""

    flow: Flow
    device: DsaDevice
    variant: Variant
    tiling: Tiling
    homes: dict[Part, Level] = field(default_factory=dict)
    streamed: set[Part] = field(default_factory=set)
    """Arrivals that gave way."""
    reserve: dict[int, int] = field(default_factory=dict)
    """Bytes kept free during a step for what passes through."""

    def __post_init__(self) -> None:
        values = self.flow.graph.network.graph.values
        for part in self.flow.made_at:
            self.homes[part] = Level.DDR if values[part[1]].is_output else self.variant.fastest

    def plan(self) -> Residence:
        """A residence. Raises DsaError where a step does not fit the buffers however it is cut."""
        for _ in range(_ROUNDS):
            arrivals = self._arrivals()
            if self._spill(arrivals):
                continue
            tiles = self._tiles(arrivals)
            if tiles is not None:
                self._settle_global()
                return Residence(self.flow, dict(self.homes), arrivals, tiles)
        raise DsaError(f"no residence found that fits the buffers of {self.device.name} after {_ROUNDS} rounds")

    def tighten(self, step: int, amount: int) -> None:
        """Keep more room at a step: addresses could not be found."""
        self.reserve[step] = self.reserve.get(step, 0) + amount

    def _arrivals(self) -> dict[Part, Reading]:
        """What is kept for an instance: what it reads in more than one step and does not have at hand."""
        found: dict[Part, Reading] = {}
        for number, reads in enumerate(self.flow.reads):
            seen: set[int] = set()
            for read in reads:
                if direct(self.flow, self.homes, read) is not None:
                    continue
                key = self.flow.steps[number].instance, read.value
                kept = found.setdefault(key, Reading(*key, [None] * self.flow.cores, number, number))
                kept.boxes[read.core] = hull(kept.boxes[read.core], read.box)
                kept.last = number
                kept.count += read.value not in seen
                kept.sources |= {source.part for source in read.sources}
                seen.add(read.value)
        return {key: kept for key, kept in found.items() if kept.count > 1 and key not in self.streamed}

    def _residents(self, arrivals: Mapping[Part, Reading]) -> Iterator[tuple[Part, bool, Resident]]:
        """All that wants to be in LB, and whether it is an arrival."""
        bytes_ = self.flow.graph.network.bytes
        for part, home in self.homes.items():
            if home is Level.LB:
                boxes = self.flow.fragments[part]
                sizes = tuple(0 if box is None else self._aligned(bytes_(part[1], box)) for box in boxes)
                readers = self.flow.readers[part]
                end = max((read.step for read in readers), default=self.flow.made_at[part])
                steps = len({read.step for read in readers})
                price = float(bytes_(part[1], self.flow.box(part)) * (1 + steps))
                yield part, False, Resident(self.flow.made_at[part], end, sizes, price)
        for key, kept in arrivals.items():
            sizes = tuple(0 if box is None else self._aligned(bytes_(key[1], box)) for box in kept.boxes)
            yield key, True, Resident(kept.first, kept.last, sizes, float(sum(sizes) * (kept.count - 1)))

    def _aligned(self, size: int) -> int:
        return -(-size // self.device.alignment) * self.device.alignment

    def _room(self) -> list[list[int]]:
        capacity = self.device.activation_buffer
        return [
            [max(0, capacity - self.reserve.get(step, 0))] * self.flow.cores for step in range(len(self.flow.steps))
        ]

    def _spill(self, arrivals: Mapping[Part, Reading]) -> bool:
        """Let go of what does not fit; whether there was any."""
        wanted = list(self._residents(arrivals))
        chosen = self._choose([resident for _, _, resident in wanted], self._room())
        for index in chosen:
            key, is_arrival, _ = wanted[index]
            if is_arrival:
                self.streamed.add(key)
            else:
                self.homes[key] = self.variant.next
        return bool(chosen)

    def _choose(self, residents: Sequence[Resident], room: Sequence[Sequence[int]]) -> frozenset[int]:
        if self.variant.spill == "longest":
            return longest_liveness(residents, room)
        return least_traffic(residents, room).spilled

    def _tiles(self, arrivals: Mapping[Part, Reading]) -> list[TiledStep] | None:
        """The tiles of every step in what room is left; None after more room has been reserved."""
        used = self._used(arrivals)
        found: list[TiledStep] = []
        is_short = False
        for number in range(len(self.flow.steps)):
            passing, far = self._passing(number, arrivals)
            least = self.flow.pieces.cuts.get(number, 1)
            tiled = self.tiling.step(number, self.device.activation_buffer - max(used[number]), passing, far, least)
            if tiled.short:
                self._reserve(number, tiled)
                is_short = True
            found.append(tiled)
        return None if is_short else found

    def _reserve(self, number: int, tiled: TiledStep) -> None:
        """Keep room for what passes through at a step. Raises DsaError where all of it is not enough."""
        before = self.reserve.get(number, 0)
        if before >= self.device.activation_buffer:
            raise self._too_large(number, tiled.short)
        self.reserve[number] = min(self.device.activation_buffer, max(tiled.short, 2 * before))

    def _used(self, arrivals: Mapping[Part, Reading]) -> list[list[int]]:
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

    def _passing(self, number: int, arrivals: Mapping[Part, Reading]) -> tuple[frozenset[int], frozenset[int]]:
        """The values that pass through LB in a step, tile by tile, read or made; and those of them that are in DDR."""
        step = self.flow.steps[number]
        found: set[int] = set()
        far: set[int] = set()
        for read in self.flow.reads[number]:
            if (step.instance, read.value) not in arrivals and direct(self.flow, self.homes, read) is None:
                found.add(read.value)
                if any(s.part is None or self.homes[s.part] is Level.DDR for s in read.sources):
                    far.add(read.value)
        for value in {value for core in step.cores if core is not None for value in core.made}:
            home = self.homes[step.instance, value]
            found |= {value} if home is not Level.LB else set()
            far |= {value} if home is Level.DDR else set()
        return frozenset(found), frozenset(far)

    def _too_large(self, number: int, need: int) -> DsaError:
        network = self.flow.graph.network
        name = network.graph.values[self.flow.steps[number].primary].name
        room = self.device.activation_buffer
        return DsaError(
            f"tensor {name!r}: split fully, what makes it still needs {need} bytes of the {room} bytes that "
            f"{self.device.name}'s LB has for tensors"
        )

    def _settle_global(self) -> None:
        """What does not fit the GB beside weights goes to DDR."""
        parts = [part for part, home in self.homes.items() if home is Level.GB]
        residents = [self._in_global(part) for part in parts]
        room = self.device.global_buffer - self.device.global_buffer // STAGING_SHARE
        for index in self._choose(residents, [[room]] * len(self.flow.steps)):
            self.homes[parts[index]] = Level.DDR

    def _in_global(self, part: Part) -> Resident:
        size = self._aligned(self.flow.graph.network.bytes(part[1], self.flow.box(part)))
        readers = self.flow.readers[part]
        end = max((read.step for read in readers), default=self.flow.made_at[part])
        return Resident(self.flow.made_at[part], end, (size,), float(size * (1 + len({r.step for r in readers}))))

