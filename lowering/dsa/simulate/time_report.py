"""The figures of a simulated run: cycles, throughput, bytes moved, utilisation, and how far from a lower bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from ....costmodels.dsa_device import DsaDevice
from ..program.cost import UNIT_KINDS
from ..program.instructions import (
    COMPUTE_UNITS,
    DDR,
    INITIAL,
    Compute,
    Engine,
    IndexedTransfer,
    Level,
    Program,
    Region,
    Role,
    ScopeCounts,
    Transfer,
    Unit,
)
from .timing import Timeline


@dataclass(frozen=True)
class Traffic:
    """Bytes moved from one level to another; a multicast counts each of its targets."""

    source: Level
    target: Level
    bytes: int


@dataclass(frozen=True)
class LevelBytes:
    """Bytes that transfers read from the memories of a level and write to them; a multicast reads once."""

    level: Level
    read: int
    written: int


@dataclass(frozen=True)
class EngineUse:
    """Cycles that an engine was occupied; `share` is of the whole run."""

    engine: Engine
    busy: float
    share: float


@dataclass(frozen=True)
class StageUse:
    """How some kernels use the units (GraphTurbo's figure 17): the `share` of the run in which any of them runs, and,
    per unit kind, the mean share of these cycles over all its units."""

    share: float
    occupied: tuple[tuple[Unit, float], ...]


@dataclass(frozen=True)
class LowerBound:
    """Cycles below which no schedule of the same work can come.

    `compute`: per unit kind, all operations at the peak rate of all its units on the device. `traffic`: the bytes of
    inputs and constants that the program reads and of outputs that it writes, once each, at DDR's bandwidth; of a table
    that transfers with indices read, as many rows as they have indices, were these all different.
    """

    compute: tuple[tuple[Unit, float], ...]
    traffic: float

    @property
    def cycles(self) -> float:
        """The largest of all."""
        return max((self.traffic, *(cycles for _, cycles in self.compute)))


@dataclass(frozen=True)
class TimeReport:
    """`throughput` is samples per second, `occupied` per unit kind the mean share over all its units of the device.

    `scheduled` is the bound that keeps the program's kernels: per unit kind, their cycles spread evenly over its units.
    """

    cycles: float
    seconds: float
    throughput: float
    traffic: tuple[Traffic, ...]
    levels: tuple[LevelBytes, ...]
    utilisation: tuple[EngineUse, ...]
    occupied: tuple[tuple[Unit, float], ...]
    scopes: ScopeCounts
    bound: LowerBound
    scheduled: tuple[tuple[Unit, float], ...]

    @property
    def bound_ratio(self) -> float:
        """Lower bound by cycles: 1 is optimal."""
        return self.bound.cycles / self.cycles if self.cycles else 1.0

    def as_json(self) -> dict[str, Any]:
        """For json.dumps: units, levels and engines by their names."""
        return {
            "cycles": self.cycles,
            "seconds": self.seconds,
            "throughput": self.throughput,
            "traffic": {f"{each.source.value}->{each.target.value}": each.bytes for each in self.traffic},
            "levels": {each.level.value: {"read": each.read, "written": each.written} for each in self.levels},
            "utilisation": {str(each.engine): each.share for each in self.utilisation},
            "occupied": {unit.value: share for unit, share in self.occupied},
            "scopes": msgspec.structs.asdict(self.scopes),
            "lower_bound": {unit.value: cycles for unit, cycles in self.bound.compute}
            | {"traffic": self.bound.traffic, "cycles": self.bound.cycles, "ratio": self.bound_ratio},
            "scheduled_bound": {unit.value: cycles for unit, cycles in self.scheduled},
        }


def report(timeline: Timeline) -> TimeReport:
    """The figures of a run."""
    program, device, cycles = timeline.program, timeline.device, timeline.cycles
    seconds = cycles / device.clock
    busy = busy_cycles(timeline)
    units = {unit: sum(each for engine, each in busy.items() if engine.unit is unit) for unit in COMPUTE_UNITS}
    counts = {unit: unit_count(device, unit) for unit in COMPUTE_UNITS}
    scheduled = tuple((unit, units[unit] / counts[unit]) for unit in COMPUTE_UNITS if counts[unit])
    return TimeReport(
        cycles=cycles,
        seconds=seconds,
        throughput=program.batch / seconds if seconds else 0.0,
        traffic=_traffic(program),
        levels=_levels(program),
        utilisation=tuple(EngineUse(engine, each, each / cycles if cycles else 0.0) for engine, each in busy.items()),
        occupied=tuple((unit, each / cycles if cycles else 0.0) for unit, each in scheduled),
        scopes=program.scopes,
        bound=lower_bound(program, device),
        scheduled=scheduled,
    )


def busy_cycles(timeline: Timeline) -> dict[Engine, float]:
    """Per engine, the cycles that it is occupied."""
    busy = dict.fromkeys(timeline.program.engines(), 0.0)
    for index in range(len(timeline.program.instructions)):
        for engine, start, end in timeline.occupied_engines(index):
            busy[engine] += end - start
    return busy


def use_by_stage(timeline: Timeline, stages: Mapping[str, int]) -> tuple[StageUse, ...]:
    """The use of the units by each stage; `stages` has its number by the labels of its kernels."""
    count = max(stages.values()) + 1
    busy = [dict.fromkeys(COMPUTE_UNITS, 0.0) for _ in range(count)]
    spans: list[list[tuple[float, float]]] = [[] for _ in range(count)]
    for index, instruction in enumerate(timeline.program.instructions):
        if isinstance(instruction, Compute):
            stage = stages[instruction.label]
            spans[stage].append((timeline.starts[index], timeline.ends[index]))
            for engine, start, end in timeline.occupied_engines(index):
                busy[stage][engine.unit] += end - start
    found = []
    for units, intervals in zip(busy, spans, strict=True):
        cycles, reached = 0.0, 0.0
        for start, end in sorted(intervals):
            cycles += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        counts = ((unit, unit_count(timeline.device, unit)) for unit in COMPUTE_UNITS)
        shares = ((unit, units[unit] / (n * cycles) if cycles else 0.0) for unit, n in counts if n)
        found.append(StageUse(cycles / timeline.cycles if timeline.cycles else 0.0, tuple(shares)))
    return tuple(found)


def _traffic(program: Program) -> tuple[Traffic, ...]:
    moved: Counter[tuple[Level, Level]] = Counter()
    for transfer in program.instructions:
        if isinstance(transfer, Transfer | IndexedTransfer):
            source = transfer.reads[0].memory.level
            for target in transfer.writes:
                moved[source, target.memory.level] += target.size
    return tuple(Traffic(s, t, moved[s, t]) for s in Level for t in Level if (s, t) in moved)


def _levels(program: Program) -> tuple[LevelBytes, ...]:
    read: Counter[Level] = Counter()
    written: Counter[Level] = Counter()
    for transfer in program.instructions:
        if isinstance(transfer, Transfer):
            read[transfer.source.memory.level] += transfer.source.size
        elif isinstance(transfer, IndexedTransfer):
            read[transfer.table.memory.level] += transfer.target.size
            read[transfer.indices.region.memory.level] += transfer.indices.region.size
        else:
            continue
        for target in transfer.writes:
            written[target.memory.level] += target.size
    return tuple(LevelBytes(level, read[level], written[level]) for level in Level)


def unit_count(device: DsaDevice, unit: Unit) -> int:
    """How many units of a kind a device has."""
    return device.clusters * sum(device.count(each) for each in device.units if each.kind == UNIT_KINDS[unit])


def lower_bound(program: Program, device: DsaDevice) -> LowerBound:
    """The bound for the work of a program."""
    done: Counter[Unit] = Counter()
    int8 = {unit: max((each.int8 for each in device.units if each.kind == kind), default=1)
            for unit, kind in UNIT_KINDS.items()}  # fmt: skip
    for instruction in program.instructions:
        if isinstance(instruction, Compute):
            done.update({work.unit: work.total_at(int8[work.unit]) for work in instruction.work})
    bandwidth = device.ddr_bandwidth / device.clock
    peaks = {unit: device.clusters * sum(device.count(u) * u.operations for u in device.units if u.kind == kind)
             for unit, kind in UNIT_KINDS.items()}  # fmt: skip
    """Operations per cycle of all units of a kind."""
    compute = ((unit, done[unit] / peaks[unit]) for unit in COMPUTE_UNITS if done[unit])
    return LowerBound(tuple(compute), compulsory_bytes(program) / bandwidth)


def compulsory_bytes(program: Program) -> int:
    """Bytes of inputs and constants in DDR that are read, and of outputs in DDR that are written, each byte once.

    Which rows of a table are read, only the indices say: here all are different, as long as the table has more.
    """
    gathers = [each for each in program.instructions if isinstance(each, IndexedTransfer)]
    others = (each for each in program.instructions if not isinstance(each, IndexedTransfer))
    read = _distinct(program, (region for each in others for region in each.reads), INITIAL)
    for gather in gathers:
        buffer = program.buffers_by_name[gather.table.buffer]
        if buffer.role in INITIAL and buffer.memory.level is Level.DDR:
            read[buffer.name] = min(read.get(buffer.name, 0) + gather.target.size, buffer.size)
    written = _distinct(program, (region for each in program.instructions for region in each.writes), {Role.OUTPUT})
    return sum(read.values()) + sum(written.values())


def _distinct(program: Program, regions: Iterable[Region], roles: Iterable[Role]) -> dict[str, int]:
    """Per buffer in DDR of these roles, its bytes that lie in any of the regions."""
    wanted = {buffer.name for buffer in program.buffers if buffer.role in set(roles) and buffer.memory == DDR}
    touched: dict[str, set[Region]] = {}
    for region in regions:
        if region.memory.level is Level.DDR and region.buffer in wanted:
            touched.setdefault(region.buffer, set()).add(region)
    return {name: _count_bytes(each) for name, each in touched.items()}


def _count_bytes(regions: Collection[Region]) -> int:
    """Bytes that lie in any of the regions of one memory."""
    each = [region.starts for region in regions]
    starts = np.concatenate(each)
    lengths = np.repeat([region.row_bytes for region in regions], [len(rows) for rows in each])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], (starts + lengths)[order]
    reached = np.concatenate((starts[:1], np.maximum.accumulate(ends)[:-1]))
    return int(np.maximum(ends - np.maximum(starts, reached), 0).sum())
