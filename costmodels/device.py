"""Devices: what a processor can do, read from ``devices/NAME.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path

from ..errors import EqfuseError

DIRECTORY = Path(__file__).parent / "devices"
ORIGINS = ("documented", "measured", "assumed", "detected")
HOST = "host"
"""The machine that one stands on; its device has no file (see `host.py`)."""
DEFAULT = "x86-64-v4"
"""The device that prices are for where nobody names one, the same everywhere so that results are: kernels.toml was
measured with its figures."""
VECTOR_REGISTERS = 16
"""What a device file that does not say counts: x86-64 without AVX-512 has 16, others in use have more."""
ISSUE_WIDTH, LOAD_PORTS, STORE_PORTS = 4, 2, 1
CACHE_WAYS, CACHE_LINE = 8, 64
LLVM_WORD = re.compile(r"[A-Za-z0-9._+-]*")


def default_device(cost: str) -> str:
    """The device that prices are for where nobody names one: `DEFAULT`, but of measured times those of this machine."""
    return HOST if cost == "profile" else DEFAULT


class DeviceError(EqfuseError):
    """A device that does not exist, or a device file that cannot be used."""


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


@dataclass(frozen=True)
class Device:
    """A processor. Bandwidths are of one core, reads plus writes, bytes/s; overheads are seconds per node.

    `issue_width`, `load_ports` and `store_ports` are instructions per cycle. `mtriple`, `mcpu` and `mattr` are LLVM's
    words for the processor; an empty `mtriple` is the machine that compiles.
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

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits that stand for all figures but the number of cores, which prices do not ask for."""
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
    def second_cache(self) -> int:
        """Bytes of the second cache, or of the only one."""
        return self.caches[min(1, len(self.caches) - 1)].size

    def bandwidth(self, footprint: int) -> float:
        """Bytes/s of the smallest level that holds `footprint` bytes, for one core."""
        for level in self.caches:
            if footprint <= level.size:
                return level.bandwidth
        return self.dram_bandwidth


def device_names() -> list[str]:
    """The devices that come with the project, sorted, and the host."""
    return sorted([HOST, *(p.stem for p in DIRECTORY.glob("*.toml"))])


def load_device(name_or_path: str | Path) -> Device:
    """The device of that name, or of that file when the text ends in ``.toml``. Raises DeviceError."""
    if str(name_or_path) == HOST:
        return host_device()
    return _load(device_path(name_or_path, DIRECTORY), str(name_or_path))


def device_path(name_or_path: str | Path, directory: Path) -> Path:
    """The file that is meant: one of a directory by its name, or any that ends in ``.toml``."""
    path = Path(name_or_path)
    return path if path.suffix == ".toml" else directory / f"{path.name}.toml"


@cache
def host_device() -> Device:
    """This machine, as it is known when first asked for. Raises UsageError on a processor of no known class."""
    from .host import host_figures  # which looks at the processor

    return _device(DeviceReader(Path(HOST), "", tomllib.loads(host_figures(DIRECTORY).text())), HOST)


@cache
def _load(path: Path, asked: str) -> Device:
    return _device(device_reader(path, asked, device_names()), path.stem)


def device_reader(path: Path, asked: str, known: Sequence[str]) -> DeviceReader:
    """A device file to read from. Raises DeviceError, which names the devices that are known."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        names = ", ".join(known)
        raise DeviceError(f"device {asked!r}: not found; use one of {names}, or the path of a .toml file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DeviceError(f"{path}: not a TOML file: {error}") from None
    return DeviceReader(path, "", table)


@dataclass(frozen=True)
class DeviceReader:
    """A table of a device file that knows where it stands, for the error messages."""

    path: Path
    where: str
    table: Mapping[str, object]

    def fail(self, field: str, problem: str) -> DeviceError:
        return DeviceError(f"{self.path}: field {self.where}{field}: {problem}")

    def get(self, field: str) -> object:
        if field not in self.table:
            raise self.fail(field, "missing")
        return self.table[field]

    def number(self, field: str, *, zero: bool = False) -> float:
        entry = self.get(field)
        if not isinstance(entry, dict) or entry.get("origin") not in ORIGINS:
            raise self.fail(field, f"must be {{ value = NUMBER, origin = {' | '.join(map(repr, ORIGINS))} }}")
        value = entry.get("value")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(field, f"value must be a number, not {value!r}")
        if not (0 <= value < float("inf")) or (value == 0 and not zero):
            raise self.fail(field, f"value must be finite and {'at least 0' if zero else 'positive'}, not {value!r}")
        return float(value)

    def integer(self, field: str, default: int | None = None) -> int:
        if default is not None and field not in self.table:
            return default
        value = self.number(field)
        if value != int(value):
            raise self.fail(field, f"value must be a whole number, not {value!r}")
        return int(value)

    def text(self, field: str) -> str:
        """One LLVM word, or nothing where the field is left out."""
        value = self.table.get(field, "")
        if not isinstance(value, str) or not LLVM_WORD.fullmatch(value):
            raise self.fail(field, f"must be one word of letters, digits and '._+-', not {value!r}")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        values = self.table.get(field, [])
        if not isinstance(values, list) or not all(isinstance(v, str) and LLVM_WORD.fullmatch(v) and v for v in values):
            raise self.fail(field, f"must be a list of words, not {values!r}")
        return tuple(values)

    def only(self, fields: tuple[str, ...]) -> None:
        for field in self.table:
            if field not in fields:
                raise self.fail(field, f"unknown; the fields are {', '.join(fields)}")


def _cache(reader: DeviceReader) -> Cache:
    reader.only(tuple(Cache.__dataclass_fields__))
    level, shared = reader.get("level"), reader.get("shared")
    if isinstance(level, bool) or not isinstance(level, int):
        raise reader.fail("level", f"must be a whole number, not {level!r}")
    if not isinstance(shared, bool):
        raise reader.fail("shared", f"must be true or false, not {shared!r}")
    size, ways, line = reader.integer("size"), reader.integer("ways", CACHE_WAYS), reader.integer("line", CACHE_LINE)
    if line & (line - 1):
        raise reader.fail("line", f"must be a power of two, not {line}")
    if size < ways * line:
        raise reader.fail("size", f"must hold at least {ways} ways of one {line}-byte line, not {size} bytes")
    return Cache(level, size, reader.number("bandwidth"), shared, ways, line)


def _caches(reader: DeviceReader) -> tuple[Cache, ...]:
    tables = reader.get("caches")
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise reader.fail("caches", "must be a list of [[caches]] tables")
    caches = tuple(_cache(DeviceReader(reader.path, f"caches[{i}].", t)) for i, t in enumerate(tables))
    if list(caches) != sorted(caches, key=lambda c: (c.size, -c.bandwidth)):
        raise reader.fail("caches", "must go from the smallest to the largest, and not get faster")
    return caches


def _device(reader: DeviceReader, name: str) -> Device:
    reader.only(("description", *(f for f in Device.__dataclass_fields__ if f != "name")))
    return Device(
        name=name,
        cores=reader.integer("cores"),
        vector_bits=reader.integer("vector_bits"),
        fma_ports=reader.integer("fma_ports"),
        clock=reader.number("clock"),
        caches=_caches(reader),
        dram_bandwidth=reader.number("dram_bandwidth"),
        launch_overhead=reader.number("launch_overhead", zero=True),
        view_overhead=reader.number("view_overhead", zero=True),
        vector_registers=reader.integer("vector_registers", VECTOR_REGISTERS),
        issue_width=reader.integer("issue_width", ISSUE_WIDTH),
        load_ports=reader.integer("load_ports", LOAD_PORTS),
        store_ports=reader.integer("store_ports", STORE_PORTS),
        mtriple=reader.text("mtriple"),
        mcpu=reader.text("mcpu"),
        mattr=reader.texts("mattr"),
    )
