"""Domain-specific accelerators, read from ``devices/dsa/NAME.toml``.

The abstraction is GraphTurbo's (OSDI 2023, Fig. 1): d clusters, each of c cores around a global buffer (GB); each core
has u compute units and a local buffer (LB); clusters reach DDR by DMA. Buffers are scratchpads: nothing moves unless a
program says so. On a GPU the LB is the shared memory of a multiprocessor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from .device_file import Count, Figure, Origin, Overhead, Table, Word, device_path, read_device_file

DIRECTORY = Path(__file__).parent / "devices" / "dsa"

UnitKind = Literal["matrix", "vector_mac", "vector"]
"""The work of a unit: matrix products on a systolic array, multiply-accumulate by vectors, any element-wise work."""
Place = Literal["core", "cluster"]
DMA_CHANNELS, CORE_DMA_CHANNELS = 8, 4
"""Channels of a cluster and of a core, for device files without these fields."""


class Dataflow(Enum):
    """Which operand of a matrix product stays in a systolic array."""

    OUTPUT_STATIONARY = "os"
    WEIGHT_STATIONARY = "ws"
    INPUT_STATIONARY = "is"


DATAFLOWS = (Dataflow.OUTPUT_STATIONARY,)
"""The dataflows of a matrix unit whose file names none."""


@dataclass(frozen=True)
class ComputeUnit:
    """One kind of unit, one in each core (or one for all cores of a cluster, as Goya's GEMM engine is).

    It does `rows` x `columns` multiply-accumulates a cycle, `rows` elements for kind ``vector`` (whose `columns` is 1).
    One of kind ``matrix`` runs each product by the one of its `dataflows` that takes the fewest cycles. One that
    multiplies does `int8` times as many multiply-accumulates of integers of 8 bits: a cell of an array takes so many
    neighbours of a reduction at once. An array that `loads_ahead` takes in the operands that are to stay next while it
    computes with those that stay now.
    """

    name: str
    kind: UnitKind
    per: Place
    rows: int
    columns: int
    dataflows: tuple[Dataflow, ...] = DATAFLOWS
    int8: int = 1
    loads_ahead: bool = False

    def rate(self, eight_bits: bool) -> int:
        """How many times `operations` it does in a cycle."""
        return self.int8 if eight_bits else 1

    @property
    def operations(self) -> int:
        """Multiply-accumulates, or elements, per cycle."""
        return self.rows * self.columns


@dataclass(frozen=True)
class DsaDevice:
    """An accelerator. Sizes are bytes, bandwidths bytes/s, latencies seconds, the clock is Hz.

    `local_buffer` is one core's LB, of which `weight_buffer` bytes are kept for weights on their way to the units;
    `global_buffer` is one cluster's GB. `ddr_bandwidth` is shared by all clusters; `global_bandwidth` is between the
    GB and all LBs of a cluster, `local_bandwidth` between one LB and the units of its core. `dma_latency` and
    `hoist_latency` are the times of one transfer DDR <-> GB and GB <-> LB before its first byte.
    A cluster has `dma_channels` of its own, and each core `core_dma_channels`.
    Invariants: every figure is positive (latencies may be 0); weight_buffer < local_buffer <= global_buffer <=
    ddr_capacity; transfers start at multiples of `alignment`, a power of two; at least one unit multiplies.
    """

    name: str
    clusters: int
    cores: int
    clock: float
    local_buffer: int
    weight_buffer: int
    global_buffer: int
    ddr_capacity: int
    ddr_bandwidth: float
    global_bandwidth: float
    local_bandwidth: float
    dma_latency: float
    hoist_latency: float
    alignment: int
    units: tuple[ComputeUnit, ...]
    dma_channels: int = DMA_CHANNELS
    core_dma_channels: int = CORE_DMA_CHANNELS
    joins_samples: bool = True
    """Whether rules may make one axis of the samples and rows of a product."""

    @property
    def activation_buffer(self) -> int:
        """Bytes of one LB for tensors that are not weights."""
        return self.local_buffer - self.weight_buffer

    @property
    def peak_macs(self) -> float:
        """Multiply-accumulates/s of one cluster, all units together."""
        return self.clock * sum(u.operations * self.count(u) for u in self.units if u.kind != "vector")

    @property
    def matrix_unit(self) -> ComputeUnit | None:
        """The first unit that is a systolic array; None if there is none."""
        return next((unit for unit in self.units if unit.kind == "matrix"), None)

    def count(self, unit: ComputeUnit) -> int:
        """How many of a unit a cluster has."""
        return self.cores if unit.per == "core" else 1


class DataflowChoice(msgspec.Struct, frozen=True):
    """The dataflows that a matrix unit can run, and the origin of this knowledge."""

    value: Annotated[tuple[Dataflow, ...], msgspec.Meta(min_length=1)]
    origin: Origin

    def __post_init__(self) -> None:
        if len(set(self.value)) < len(self.value):
            raise ValueError("each dataflow must be listed once only")


class UnitTable(Table, frozen=True):
    """A [[units]] table; the fields are those of `ComputeUnit`."""

    name: Annotated[Word, msgspec.Meta(min_length=1)]
    kind: UnitKind
    rows: Count
    per: Place = "core"
    columns: Count = Count(1, "documented")
    dataflows: DataflowChoice | None = None
    int8: Count = Count(1, "assumed")
    loads_ahead: bool = False

    def __post_init__(self) -> None:
        if self.dataflows is not None and self.kind != "matrix":
            raise ValueError(f"a unit of kind {self.kind!r} has no dataflows; leave the field out")
        if self.loads_ahead and self.kind != "matrix":
            raise ValueError(f"a unit of kind {self.kind!r} keeps no operands that it could load ahead; leave that out")
        if self.kind == "vector" and self.int8.number > 1:
            raise ValueError("a unit of kind 'vector' multiplies no integers of 8 bits; leave int8 out")


class DsaDeviceFile(Table, frozen=True):
    """The file of an accelerator; the fields are those of `DsaDevice`."""

    clusters: Count
    cores: Count
    clock: Figure
    local_buffer: Count
    weight_buffer: Count
    global_buffer: Count
    ddr_capacity: Count
    ddr_bandwidth: Figure
    global_bandwidth: Figure
    local_bandwidth: Figure
    dma_latency: Overhead
    hoist_latency: Overhead
    alignment: Count
    units: tuple[UnitTable, ...]
    joins_samples: bool = True
    dma_channels: Count = Count(DMA_CHANNELS, "assumed")
    core_dma_channels: Count = Count(CORE_DMA_CHANNELS, "assumed")
    description: str = ""

    def __post_init__(self) -> None:
        """Refuse figures that could each be true, but not together."""
        if len({unit.name for unit in self.units}) < len(self.units):
            raise ValueError("two units have the same name")
        if all(unit.kind == "vector" for unit in self.units):
            raise ValueError("no unit multiplies; one must be of kind 'matrix' or 'vector_mac'")
        sizes = [
            (name, int(getattr(self, name).value))
            for name in ("weight_buffer", "local_buffer", "global_buffer", "ddr_capacity")
        ]
        for (small, a), (large, b) in pairwise(sizes):
            if a > b or (a == b and small == "weight_buffer"):
                raise ValueError(f"the {a} bytes of {small} do not leave room in the {b} bytes of {large}")
        if self.alignment.number & (self.alignment.number - 1):
            raise ValueError(f"alignment must be a power of two, not {self.alignment.number}")


def single_cluster(device: DsaDevice, working: int | None = None) -> DsaDevice:
    """The device of one cluster while `working` clusters (all if None) run the same program in lockstep: itself and its
    share of DDR.

    The share of the capacity is rounded down to the alignment.
    """
    sharing = device.clusters if working is None else working
    capacity = device.ddr_capacity // sharing // device.alignment * device.alignment
    bandwidth = device.ddr_bandwidth / sharing
    return replace(device, clusters=1, ddr_capacity=capacity, ddr_bandwidth=bandwidth)


def dsa_device_names() -> list[str]:
    """The accelerators that come with the project, sorted."""
    return sorted(p.stem for p in DIRECTORY.glob("*.toml"))


def load_dsa_device(name_or_path: str | Path) -> DsaDevice:
    """The accelerator of that name, or of that file when the text ends in ``.toml``. Raises DeviceError."""
    path = device_path(name_or_path, DIRECTORY)
    file = read_device_file(path, str(name_or_path), dsa_device_names(), DsaDeviceFile)
    units = tuple(
        ComputeUnit(**{**unit.arguments(), "dataflows": unit.dataflows.value if unit.dataflows else DATAFLOWS})
        for unit in file.units
    )
    return DsaDevice(name=path.stem, **{**file.arguments(), "units": units})
