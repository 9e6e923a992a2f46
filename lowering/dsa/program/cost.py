"""What an instruction costs on a device: cycles of its units, and the links that its bytes cross."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd
from typing import NamedTuple

from ....costmodels.dsa_device import ComputeUnit, Dataflow, DsaDevice, UnitKind
from ....costmodels.systolic import Product, best_dataflow
from ..network.alignment import round_up
from .instructions import (
    Compute,
    Engine,
    IndexedTransfer,
    Level,
    Memory,
    Movement,
    ProgramError,
    Region,
    Transfer,
    Unit,
    Work,
)

UNIT_KINDS: dict[Unit, UnitKind] = {Unit.MME: "matrix", Unit.VME: "vector_mac", Unit.VECTOR: "vector"}


class Link(NamedTuple):
    """DDR, the ports of a cluster's GB towards its cores, or the port of one LB."""

    level: Level
    cluster: int
    core: int


@dataclass(frozen=True)
class Cost:
    """Costs of instructions on one device. Times are cycles of its clock, bandwidths bytes a cycle.

    DDR's bandwidth is shared by all clusters, the GB's by all cores of its cluster; the port of one LB has a core's
    part of the GB's. A row of a transfer takes all the aligned beats of `device.alignment` bytes that it touches. A
    matrix product takes the least cycles over the dataflows of its unit. Answers that are asked for often are cached.
    """

    device: DsaDevice

    @cached_property
    def _units(self) -> dict[tuple[Unit, bool], ComputeUnit]:
        units = ((unit, each) for unit, kind in UNIT_KINDS.items() for each in self.device.units if each.kind == kind)
        return {(unit, each.per == "core"): each for unit, each in units}

    @cached_property
    def _products(self) -> dict[tuple[ComputeUnit, Product], tuple[int, Dataflow]]:
        return {}

    @cached_property
    def _works(self) -> dict[tuple[tuple[Work, ...], bool], float]:
        return {}

    @cached_property
    def _links(self) -> dict[tuple[Memory, ...], tuple[Link, ...]]:
        return {}

    @cached_property
    def _latencies(self) -> dict[tuple[Memory, ...], float]:
        return {}

    def unit(self, engine: Engine) -> ComputeUnit | None:
        """The unit of the device that an engine is; None if there is none."""
        return self._units.get((engine.unit, engine.core is not None))

    def compute_cycles(self, compute: Compute) -> float:
        """The slowest of the units, and of the operands on their way from LB (or GB) to them and back."""
        in_core = compute.core is not None
        bandwidth = self.device.local_bandwidth if in_core else self.device.global_bandwidth
        moved = sum(operand.size for operand in compute.inputs) + sum(operand.size for operand in compute.outputs)
        cycles = self._works.get((compute.work, in_core))
        if cycles is None:
            pairs = zip(compute.work, compute.engines, strict=True)
            cycles = max((self.work_cycles(work, engine) for work, engine in pairs), default=0.0)
            self._works[compute.work, in_core] = cycles
        return max(moved * self.device.clock / bandwidth, cycles)

    def work_cycles(self, work: Work, engine: Engine) -> float:
        """Cycles that one unit takes. Raises ProgramError if the device has no such unit."""
        unit = self.unit(engine)
        if unit is None:
            raise ProgramError(f"{self.device.name} has no unit for engine {engine}")
        if work.unit is Unit.MME:
            return float(sum(self._product(unit, product)[0] for product in work.products))
        return float(-(-work.total // unit.operations))

    def dataflows(self, compute: Compute) -> list[Dataflow]:
        """The dataflow of each matrix product, in order."""
        unit = self._units.get((Unit.MME, compute.core is not None))
        products = (product for work in compute.work for product in work.products)
        return [self._product(unit, product)[1] for product in products] if unit else []

    def _product(self, unit: ComputeUnit, product: Product) -> tuple[int, Dataflow]:
        if (unit, product) not in self._products:
            self._products[unit, product] = best_dataflow(unit, product)
        return self._products[unit, product]

    def latency(self, movement: Movement) -> float:
        """Cycles before the first byte."""
        memories = _memories_of(movement)
        latency = self._latencies.get(memories)
        if latency is None:
            touches_ddr = any(memory.level is Level.DDR for memory in memories)
            latency = (self.device.dma_latency if touches_ddr else self.device.hoist_latency) * self.device.clock
            self._latencies[memories] = latency
        return latency

    def wire_bytes(self, movement: Movement) -> int:
        """Bytes of the beats that a transfer takes; one with indices takes theirs too."""
        if isinstance(movement, IndexedTransfer):
            # Only the indices say which rows are read: each counts as the one that touches most beats.
            beat, row = self.device.alignment, movement.row_bytes
            step = gcd(row, beat)
            longest = round_up(beat - step + movement.table.address % step + row, beat)
            rows = movement.count * longest
            return max(rows, self._beats(movement.target)) + self._beats(movement.indices.region)
        read = self._beats(movement.source)
        return max(read, *map(self._beats, movement.targets)) if movement.targets else read

    def _beats(self, region: Region) -> int:
        beat, place = self.device.alignment, region.address % self.device.alignment
        if region.rows == region.planes == 1:
            return round_up(place + region.row_bytes, beat)
        return _bytes_of_rows(
            beat, place, region.row_bytes, region.rows, region.stride, region.planes, region.plane_stride
        )  # fmt: skip

    def links(self, movement: Movement) -> tuple[Link, ...]:
        """The links that a transfer shares with others. Bytes between LB and anything else cross the ports of the
        GB."""
        memories = _memories_of(movement)
        links = self._links.get(memories)
        if links is None:
            links = self._links[memories] = _links(memories)
        return links

    def bandwidth(self, link: Link) -> float:
        """Bytes a cycle."""
        device = self.device
        gb = device.global_bandwidth / device.clock
        return {Level.DDR: device.ddr_bandwidth / device.clock, Level.GB: gb, Level.LB: gb / device.cores}[link.level]

    def capacity(self, memory: Memory) -> int:
        """Bytes of a memory."""
        if memory.level is Level.DDR:
            return self.device.ddr_capacity
        return self.device.global_buffer if memory.level is Level.GB else self.device.local_buffer


def _memories_of(movement: Movement) -> tuple[Memory, ...]:
    """The memory that is read first, and others."""
    if isinstance(movement, Transfer):
        return movement.source.memory, *[region.memory for region in movement.targets]
    return tuple([region.memory for region in (*movement.reads, *movement.writes)])


@lru_cache(1 << 14)
def _bytes_of_rows(
    beat: int, place: int, row_bytes: int, rows: int, stride: int, planes: int, plane_stride: int
) -> int:  # fmt: skip
    """The bytes of the beats that rows take which begin at a `place` of one."""

    def beats_of_run(address: int, size: int) -> int:
        return -(-(address % beat + size) // beat)

    def beats_of_plane(address: int) -> int:
        if stride == row_bytes:
            return beats_of_run(address, (rows - 1) * stride + row_bytes)
        return _periodic_sum(rows, stride, beat, lambda row: beats_of_run(address + row, row_bytes))

    return beat * _periodic_sum(planes, plane_stride, beat, lambda plane: beats_of_plane(place + plane))


def _periodic_sum(count: int, stride: int, beat: int, amount: Callable[[int], int]) -> int:
    """The sum over places that are `stride` bytes apart of an amount that depends on the place within a beat alone."""
    period = min(count, beat // gcd(stride, beat))
    amounts = [amount(stride * number) for number in range(period)]
    return count // period * sum(amounts) + sum(amounts[: count % period])


def _links(memories: Sequence[Memory]) -> tuple[Link, ...]:
    inside = all(memory.level is Level.GB for memory in memories)
    links = {Link(memory.level, memory.cluster, memory.core) for memory in memories if memory.level is not Level.GB}
    if inside or any(memory.level is Level.LB for memory in memories):
        links |= {Link(Level.GB, memory.cluster, 0) for memory in memories if memory.level is not Level.DDR}
    return tuple(sorted(links, key=lambda link: (link.level.value, link.cluster, link.core)))
