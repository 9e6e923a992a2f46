"""Domain-specific accelerators, read from ``devices/dsa/NAME.toml``.

The abstraction is GraphTurbo's (OSDI 2023, Fig. 1): d clusters, each of c cores around a global buffer (GB); each core
has u compute units and a local buffer (LB); clusters reach DDR by DMA. Buffers are scratchpads: nothing moves unless a
program says so. On a GPU the LB is the shared memory of a multiprocessor.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar, get_args

from .device import ORIGINS, DeviceReader, device_path, device_reader

DIRECTORY = Path(__file__).parent / "devices" / "dsa"

UnitKind = Literal["matrix", "vector_mac", "vector"]
"""What a unit does: matrix products on a systolic array, multiply-accumulate by vectors, any element-wise work."""
Place = Literal["core", "cluster"]
_KINDS: tuple[UnitKind, ...] = get_args(UnitKind)
_PLACES: tuple[Place, ...] = get_args(Place)
Choice = TypeVar("Choice", UnitKind, Place)
DMA_CHANNELS, CORE_DMA_CHANNELS = 8, 4
"""What a device file that does not say counts: of a cluster, of a core."""


class Dataflow(Enum):
    """Which operand of a matrix product stays in a systolic array."""

    OUTPUT_STATIONARY = "os"
    WEIGHT_STATIONARY = "ws"
    INPUT_STATIONARY = "is"


DATAFLOWS = (Dataflow.OUTPUT_STATIONARY,)
"""What a matrix unit whose file does not say can run."""


@dataclass(frozen=True)
class ComputeUnit:
    """One kind of unit, one in each core (or one for all cores of a cluster, as Goya's GEMM engine is).

    It does `rows` x `columns` multiply-accumulates a cycle, `rows` elements for kind ``vector`` (whose `columns` is 1).
    One of kind ``matrix`` runs each product in that of its `dataflows` which takes the fewest cycles.
    """

    name: str
    kind: UnitKind
    per: Place
    rows: int
    columns: int
    dataflows: tuple[Dataflow, ...] = DATAFLOWS

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
    `hoist_latency` are what one transfer DDR <-> GB and GB <-> LB takes before its first byte.
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

    @property
    def activation_buffer(self) -> int:
        """Bytes of one LB for tensors that are not weights."""
        return self.local_buffer - self.weight_buffer

    @property
    def peak_macs(self) -> float:
        """Multiply-accumulates/s of one cluster, all units together."""
        return self.clock * sum(u.operations * self.count(u) for u in self.units if u.kind != "vector")

    def count(self, unit: ComputeUnit) -> int:
        """How many of a unit a cluster has."""
        return self.cores if unit.per == "core" else 1


def single_cluster(device: DsaDevice) -> DsaDevice:
    """What one of the clusters sees while all run the same program in lockstep: itself and its share of DDR.

    The share of the capacity is rounded down to the alignment.
    """
    capacity = device.ddr_capacity // device.clusters // device.alignment * device.alignment
    bandwidth = device.ddr_bandwidth / device.clusters
    return replace(device, clusters=1, ddr_capacity=capacity, ddr_bandwidth=bandwidth)


def dsa_device_names() -> list[str]:
    """The accelerators that come with the project, sorted."""
    return sorted(p.stem for p in DIRECTORY.glob("*.toml"))


def load_dsa_device(name_or_path: str | Path) -> DsaDevice:
    """The accelerator of that name, or of that file when the text ends in ``.toml``. Raises DeviceError."""
    return _load(device_path(name_or_path, DIRECTORY), str(name_or_path))


@cache
def _load(path: Path, asked: str) -> DsaDevice:
    reader = device_reader(path, asked, dsa_device_names())
    device = _device(reader, path.stem)
    _check(reader, device)
    return device


def _device(reader: DeviceReader, name: str) -> DsaDevice:
    reader.only(("description", *(f.name for f in fields(DsaDevice) if f.name != "name")))
    return DsaDevice(
        name=name,
        clusters=reader.integer("clusters"),
        cores=reader.integer("cores"),
        clock=reader.number("clock"),
        local_buffer=reader.integer("local_buffer"),
        weight_buffer=reader.integer("weight_buffer"),
        global_buffer=reader.integer("global_buffer"),
        ddr_capacity=reader.integer("ddr_capacity"),
        ddr_bandwidth=reader.number("ddr_bandwidth"),
        global_bandwidth=reader.number("global_bandwidth"),
        local_bandwidth=reader.number("local_bandwidth"),
        dma_latency=reader.number("dma_latency", zero=True),
        hoist_latency=reader.number("hoist_latency", zero=True),
        alignment=reader.integer("alignment"),
        units=_units(reader),
        dma_channels=reader.integer("dma_channels", DMA_CHANNELS),
        core_dma_channels=reader.integer("core_dma_channels", CORE_DMA_CHANNELS),
    )


def _units(reader: DeviceReader) -> tuple[ComputeUnit, ...]:
    tables = reader.get("units")
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise reader.fail("units", "must be a list of [[units]] tables")
    units = tuple(_unit(DeviceReader(reader.path, f"units[{i}].", t)) for i, t in enumerate(tables))
    if len({u.name for u in units}) < len(units):
        raise reader.fail("units", "two have the same name")
    if all(u.kind == "vector" for u in units):
        raise reader.fail("units", "none multiplies; one must be of kind 'matrix' or 'vector_mac'")
    return units


def _unit(reader: DeviceReader) -> ComputeUnit:
    reader.only(tuple(f.name for f in fields(ComputeUnit)))
    name = reader.text("name")
    if not name:
        raise reader.fail("name", "missing")
    kind = _one_of(reader, "kind", _KINDS, reader.get("kind"))
    per = _one_of(reader, "per", _PLACES, reader.table.get("per", "core"))
    return ComputeUnit(name, kind, per, reader.integer("rows"), reader.integer("columns", 1), _dataflows(reader, kind))


def _dataflows(reader: DeviceReader, kind: UnitKind) -> tuple[Dataflow, ...]:
    if "dataflows" not in reader.table:
        return DATAFLOWS
    if kind != "matrix":
        raise reader.fail("dataflows", f"a unit of kind {kind!r} has none")
    entry, known = reader.get("dataflows"), [each.value for each in Dataflow]
    if not isinstance(entry, dict) or entry.get("origin") not in ORIGINS:
        raise reader.fail("dataflows", f"must be {{ value = LIST, origin = {' | '.join(map(repr, ORIGINS))} }}")
    names = entry.get("value")
    if not isinstance(names, list) or not names or any(name not in known or names.count(name) > 1 for name in names):
        raise reader.fail("dataflows", f"value must list some of {', '.join(known)}, each once, not {names!r}")
    return tuple(map(Dataflow, names))


def _one_of(reader: DeviceReader, field: str, choices: tuple[Choice, ...], value: object) -> Choice:
    found = next((choice for choice in choices if choice == value), None)
    if found is None:
        raise reader.fail(field, f"must be one of {', '.join(map(str, choices))}, not {value!r}")
    return found


def _check(reader: DeviceReader, device: DsaDevice) -> None:
    """Figures that each could be true, but not together."""
    for small, large in (
        ("weight_buffer", "local_buffer"),
        ("local_buffer", "global_buffer"),
        ("global_buffer", "ddr_capacity"),
    ):
        a, b = getattr(device, small), getattr(device, large)
        if a > b or (a == b and small == "weight_buffer"):
            raise reader.fail(small, f"{a} bytes do not leave room in the {b} bytes of {large}")
    if device.alignment & (device.alignment - 1):
        raise reader.fail("alignment", f"must be a power of two, not {device.alignment}")
