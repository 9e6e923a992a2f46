"""Devices: the capabilities of processors, read from ``devices/NAME.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from math import gcd
from pathlib import Path
from typing import ClassVar

from ..ir.operation import Operation
from ..ir.types import BYTES
from .choices import ACCELERATOR, DEFAULT_DEVICE
from .device_file import (
    CACHE_LINE,
    CACHE_WAYS,
    ISSUE_WIDTH,
    LOAD_PORTS,
    STORE_PORTS,
    VECTOR_REGISTERS,
    DeviceFile,
    device_path,
    parse_device_file,
    read_device_file,
)
from .dsa_device import DsaDevice, load_dsa_device, single_cluster
from .dsa_work import unit_seconds

DIRECTORY = Path(__file__).parent / "devices"
HOST = "host"
"""The name of this machine; its device has no file (see `host.py`)."""
CALL_CYCLES = 300.0
"""Cycles of a kernel beside its loops: the call takes 30; then its code, arguments and first lines are fetched."""


def default_device(cost: str) -> str:
    """The device that costs are predicted for by default: this machine for measured times, else `DEFAULT_DEVICE`."""
    return HOST if cost == "profile" else DEFAULT_DEVICE


WIDE = "int16"
"""The element type that holds all bytes, with a sign and without one."""


@dataclass(frozen=True)
class DotProduct:
    """`length` neighbours of both operands are multiplied and added up in a lane.

    `data` and `weights` are the element types of the operand that is broadcast, and of the one in lanes. Data that are
    `widened` are made numbers of 16 bits before they are multiplied; weights become that on their way to a register.
    `steps` are those of a register tile of floats that take as long as the product of one element in each lane.
    """

    length: int
    data: frozenset[str]
    weights: frozenset[str]
    steps: float
    widened: bool = False
    added: bool = False
    """Whether another instruction adds the products to the accumulators, so that registers hold them until then."""

    @property
    def loaded(self) -> frozenset[str]:
        """The element types of the data as they are when they are multiplied."""
        return frozenset({WIDE}) if self.widened else self.data

    def multiplies(self, data: str | None, weights: str | None) -> bool:
        """Whether it takes elements of these types; None is a type that is not known."""
        return data in self.data and weights in self.weights


DOT_PRODUCTS: Mapping[str, DotProduct] = {
    "vpdpbusd": DotProduct(4, frozenset({"uint8"}), frozenset({"int8"}), 1 / 4),
    "sdot": DotProduct(4, frozenset({"int8"}), frozenset({"int8"}), 1 / 4),
    "vpmaddubsw": DotProduct(4, frozenset({"uint8"}), frozenset({"int8"}), 1 / 2, added=True),
    "vpmaddwd": DotProduct(2, frozenset(BYTES), frozenset(BYTES), 0.75, widened=True, added=True),
}
"""The instructions by the names of a device file. Sums of 64 to 256 bytes on a Xeon: 650 to 727 GOPS by vpdpbusd, where
floats reach some 160."""
WIDE_PRODUCTS: Mapping[str, DotProduct] = {
    "vpdpbusd": DotProduct(2, frozenset({WIDE}), frozenset({WIDE}), 1 / 2),
    "vpmaddwd": DotProduct(2, frozenset({WIDE}), frozenset({WIDE}), 0.6, added=True),
}
"""How processors with these instructions multiply two activations, whose bytes the kernel has widened: by vpdpwssd, or
by vpmaddwd and a sum."""
MOST_NEIGHBOURS = max(product.length for product in DOT_PRODUCTS.values())
"""Of an operand that one of them multiplies in a lane."""


@dataclass(frozen=True)
class Cache:
    """One level: bytes (of one core's share unless `shared`) and the bytes/s that one core streams through it.

    Invariant: `size` holds at least one set of `ways` lines of `line` bytes, and `line` is a power of two.
    """

    level: int
    size: int
    bandwidth: float
    shared: bool
    ways: int = CACHE_WAYS
    line: int = CACHE_LINE

    def holds(self, lines: int, stride: int) -> bool:
        """Whether this number of lines, `stride` bytes apart, stay in it together. The cache has a power of two of
        sets, so lines whose stride is a multiple of a power of two share few of them."""
        period = self.line << ((self.size // (self.ways * self.line)).bit_length() - 1)
        return lines * max(gcd(stride, period), self.line) <= self.ways * period


@dataclass(frozen=True)
class Device:
    """A processor. Bandwidths are of one core, reads plus writes, bytes/s; overheads are seconds per node.

    `issue_width`, `load_ports` and `store_ports` are instructions per cycle. `mtriple`, `mcpu` and `mattr` are LLVM's
    names for the processor; an empty `mtriple` is the machine that compiles. `dot_product` is the instruction that adds
    the products of bytes and of others to each lane of 32 bits, as its maker calls it; empty if there is none.
    Invariants: every figure is positive (overheads may be 0), and caches go from the smallest to the largest.
    """

    name: str
    cores: int
    vector_bits: int
    fma_ports: int
    clock: float
    caches: tuple[Cache, ...]
    dram_bandwidth: float
    launch_overhead: float
    view_overhead: float
    vector_registers: int = VECTOR_REGISTERS
    issue_width: int = ISSUE_WIDTH
    load_ports: int = LOAD_PORTS
    store_ports: int = STORE_PORTS
    mtriple: str = ""
    mcpu: str = ""
    mattr: tuple[str, ...] = ()
    dot_product: str = ""

    moves_by_loops: ClassVar[bool] = True
    """Whether loops move elements, so that order and borders cost more than the bytes alone."""

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits that stand for all figures but the number of cores, on which no cost depends."""
        return sha256(repr(replace(self, cores=1)).encode()).hexdigest()[:12]

    @cached_property
    def lanes(self) -> int:
        """Float32 elements in a vector."""
        return max(1, self.vector_bits // 32)

    @cached_property
    def peak_flops(self) -> float:
        """Float32 FLOP/s of one core: two per fused multiply-add."""
        return 2.0 * self.fma_ports * self.lanes * self.clock

    @property
    def call_seconds(self) -> float:
        """Seconds of a kernel beside its loops."""
        return CALL_CYCLES / self.clock

    def unit_seconds(self, operation: Operation) -> float | None:
        """Seconds of an operator's arithmetic on units that are built for it; None if a core's instructions do it."""
        return None

    @property
    def integer_product(self) -> DotProduct | None:
        """What the instruction `dot_product` does; None if there is none."""
        return DOT_PRODUCTS.get(self.dot_product)

    @property
    def integer_products(self) -> tuple[DotProduct, ...]:
        """All that products of integers may take: a processor with vpmaddubsw has vpmaddwd for bytes of other types."""
        names = (self.dot_product, *(["vpmaddwd"] if self.dot_product == "vpmaddubsw" else []))
        return tuple(DOT_PRODUCTS[name] for name in names if name in DOT_PRODUCTS)

    @property
    def activation_product(self) -> DotProduct | None:
        """The instruction for products of two activations of bytes; None if these are multiplied one by one."""
        return WIDE_PRODUCTS.get(self.dot_product)

    @property
    def with_exact_pairs(self) -> Device:
        """The device as it multiplies by weights whose sums of two products fit 16 bits: with AVX2, by vpmaddubsw."""
        has_bytes = self.dot_product == "vpmaddwd" and self.vector_bits >= 256
        return replace(self, dot_product="vpmaddubsw") if has_bytes else self

    @property
    def second_cache(self) -> int:
        """Bytes of the second cache, or of the only one."""
        return self.caches[min(1, len(self.caches) - 1)].size

    def bandwidth(self, footprint: int) -> float:
        """Bytes/s of the smallest level that holds `footprint` bytes, for one core."""
        for level in self.caches:
            if footprint <= level.size:
                return level.bandwidth
        return self.dram_bandwidth


@dataclass(frozen=True, kw_only=True)
class Accelerator(Device):
    """A cluster of an accelerator, with its share of DDR, as the costs of operators and kernels see it.

    All its cores run each kernel together. So its caches are the LBs of all of them for activations, and the GB, with
    the bandwidths of all cores; lanes and clock are those of its vector units.
    """

    cluster: DsaDevice

    moves_by_loops: ClassVar[bool] = False  # its transfers take the bytes in any order

    @property
    def call_seconds(self) -> float:
        """Seconds until the first weights of a kernel arrive."""
        return self.launch_overhead

    def unit_seconds(self, operation: Operation) -> float:
        """Seconds of the busiest units of the cluster."""
        return unit_seconds(operation, self.cluster)

    @staticmethod
    def of(device: DsaDevice) -> Accelerator:
        """One of its clusters, while the others do the same."""
        cluster = single_cluster(device)
        vectors = [unit for unit in cluster.units if unit.kind != "matrix"] or list(cluster.units)
        lanes = max(unit.operations * cluster.count(unit) for unit in vectors)
        buffers = (
            Cache(1, cluster.cores * cluster.activation_buffer, cluster.cores * cluster.local_bandwidth, shared=False),
            Cache(2, cluster.global_buffer, cluster.global_bandwidth, shared=True),
        )
        return Accelerator(
            name=ACCELERATOR + device.name, cores=1, vector_bits=32 * lanes, fma_ports=1, clock=cluster.clock,
            caches=buffers, dram_bandwidth=cluster.ddr_bandwidth, launch_overhead=cluster.hoist_latency,
            view_overhead=0.0, cluster=cluster,
        )  # fmt: skip


def device_names() -> list[str]:
    """The devices that come with the project, sorted, and the host."""
    return sorted([HOST, *(p.stem for p in DIRECTORY.glob("*.toml"))])


def load_device(name_or_path: str | Path) -> Device:
    """The device of that name, or of that file when the text ends in ``.toml``. Raises DeviceError."""
    if str(name_or_path) == HOST:
        return host_device()
    if str(name_or_path).startswith(ACCELERATOR):
        return Accelerator.of(load_dsa_device(str(name_or_path).removeprefix(ACCELERATOR)))
    return _load(device_path(name_or_path, DIRECTORY).absolute(), str(name_or_path))  # the working folder may change


@cache
def host_device() -> Device:
    """This machine, detected at the first call. Raises UsageError on a processor of no known class."""
    from .host import host_figures  # looks at the processor

    return _device(parse_device_file(host_figures(DIRECTORY).text(), Path(HOST), DeviceFile), HOST)


@cache
def _load(path: Path, asked: str) -> Device:
    return _device(read_device_file(path, asked, device_names(), DeviceFile), path.stem)


def _device(file: DeviceFile, name: str) -> Device:
    caches = tuple(Cache(**cache.arguments()) for cache in file.caches)
    return Device(name=name, **{**file.arguments(), "caches": caches})
