"""The device of this machine: what the system says of it, what was measured on it, else the figures of its class."""

from __future__ import annotations

import json
import platform
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from ..errors import UsageError
from ..support.files import cache_folder, write_text
from ..support.processor import ARM, available_cores, cache_levels, processor_identity, processor_level

ARM_CLASS = "arm64"
_FIGURES = (
    "cores", "vector_bits", "vector_registers", "fma_ports", "clock", "issue_width", "load_ports", "store_ports",
    "dram_bandwidth", "launch_overhead", "view_overhead",
)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A number of a device file, the origin that the file states, and in words where it comes from."""

    value: float
    origin: str
    source: str

    def __str__(self) -> str:
        value = int(self.value) if self.value == int(self.value) else self.value
        return f'{{ value = {value}, origin = "{self.origin}" }}  # {self.source}'


@dataclass(frozen=True)
class CacheFigures:
    """One cache of a device file; `ways` and `line` are absent where the file leaves them out."""

    level: int
    shared: bool
    size: Figure
    bandwidth: Figure
    ways: Figure | None = None
    line: Figure | None = None

    def text(self) -> str:
        """The cache as a table of TOML."""
        numbers = {"size": self.size, "ways": self.ways, "line": self.line, "bandwidth": self.bandwidth}
        lines = [f"{name} = {figure}" for name, figure in numbers.items() if figure is not None]
        return "\n".join(["[[caches]]", f"level = {self.level}", *lines, f"shared = {str(self.shared).lower()}"])


@dataclass(frozen=True)
class HostFigures:
    """Every figure of this machine, by the names of a device file's fields."""

    class_name: str
    figures: Mapping[str, Figure]
    caches: tuple[CacheFigures, ...]

    def text(self) -> str:
        """The figures as a device file."""
        words = json.dumps(f"this machine, of the class {self.class_name}", ensure_ascii=False)
        lines = [f"description = {words}", "", *(f"{name} = {figure}" for name, figure in self.figures.items())]
        return "\n\n".join(["\n".join(lines), *(cache.text() for cache in self.caches)]) + "\n"


def host_class() -> str:
    """The name of the device file that this machine's processor is of the class of.

    Raises UsageError on a processor that there is no class for.
    """
    if platform.machine() == ARM:
        return ARM_CLASS
    level = processor_level()
    if level is None:
        raise UsageError(
            f"this processor ({platform.machine()}) is neither x86-64 with SSE4.2 nor 64-bit Arm; no device is known "
            "for it; name a device file, such as --device x86-64-v2"
        )
    return level


def host_figures(directory: Path) -> HostFigures:
    """What is known of this machine: the system's word over its class's file in `directory`, measurements over both."""
    class_name = host_class()
    table = tomllib.loads((directory / f"{class_name}.toml").read_text(encoding="utf-8"))
    source = f"class {class_name}"
    figures = {name: _of_file(table[name], source) for name in _FIGURES if name in table}
    figures["cores"] = Figure(available_cores(), "detected", "affinity, and the quota of control groups")
    caches = _detected(tuple(_cache_of_file(cache, source) for cache in table["caches"]))
    return _measured(HostFigures(class_name, figures, caches))


def _of_file(entry: Mapping[str, object], source: str) -> Figure:
    measured_elsewhere = entry["origin"] == "measured"
    return Figure(float(str(entry["value"])), "assumed" if measured_elsewhere else str(entry["origin"]), source)


def _cache_of_file(table: Mapping[str, object], source: str) -> CacheFigures:
    numbers = {n: _of_file(e, source) for n, e in table.items() if isinstance(e, dict)}
    return CacheFigures(int(str(table["level"])), bool(table["shared"]), **numbers)


def _detected(caches: tuple[CacheFigures, ...]) -> tuple[CacheFigures, ...]:
    """The caches with the sizes that the kernel states, where it states any.

    A shared cache counts no more than the class says: a virtual machine sees all of its host's, and has a part of it.
    """
    found = {level.level: level for level in cache_levels()}
    result: list[CacheFigures] = []
    for cache in caches:
        here = found.get(cache.level)
        if here is None:
            continue
        ways, line = (Figure(float(n), "detected", "sysfs") for n in (here.ways, here.line))
        size = Figure(float(here.size), "detected", "sysfs")
        if cache.shared and here.size > cache.size.value:
            size = replace(cache.size, source=f"{cache.size.source}; sysfs has the whole host's {here.size}")
        if here.ways < 1 or here.line < 1 or here.line & (here.line - 1) or size.value < here.ways * here.line:
            return caches  # nothing that a cache can be: the system does not really know
        if result and result[-1].size.value > size.value:
            return caches
        result.append(replace(cache, size=size, ways=ways, line=line))
    return tuple(result) or caches


# --- what was measured on this machine


@dataclass(frozen=True)
class HostMeasurements:
    """What `eqfuse device measure` found, by the fields of a device file; bandwidths of caches by level, bytes/s."""

    figures: Mapping[str, float]
    bandwidths: Mapping[int, float]


def measurements_path() -> Path:
    """Where measurements of this machine are kept: one file for each kind of machine that shares the folder."""
    return cache_folder() / "devices" / f"{sha256(processor_identity().encode()).hexdigest()[:16]}.json"


def keep_measurements(measurements: HostMeasurements) -> Path:
    """Keep what was measured; from now on it is part of the device `host`. Raises EqfuseError where it cannot be."""
    path = measurements_path()
    with suppress(OSError):  # what is wrong with the folder is said by the writing
        path.parent.mkdir(parents=True, exist_ok=True)
    bandwidths = {str(level): rate for level, rate in measurements.bandwidths.items()}
    write_text(path, json.dumps({"figures": dict(measurements.figures), "bandwidths": bandwidths}, indent=1) + "\n")
    return path


def forget_measurements() -> bool:
    """Remove what was measured on this machine; False where there is nothing."""
    path = measurements_path()
    there = path.is_file()
    path.unlink(missing_ok=True)
    return there


def _measured(host: HostFigures) -> HostFigures:
    """The figures with the measured ones in place of those of the class. A damaged file counts as none."""
    source = "eqfuse device measure"
    figures, caches = dict(host.figures), list(host.caches)
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        kept = json.loads(measurements_path().read_text(encoding="utf-8"))
        for name, value in kept["figures"].items():
            if name in figures and float(value) > 0:
                figures[name] = Figure(float(value), "measured", source)
        rates = {int(level): float(rate) for level, rate in kept["bandwidths"].items() if float(rate) > 0}
        for place, cache in enumerate(caches):
            if cache.level in rates:
                caches[place] = replace(cache, bandwidth=Figure(rates[cache.level], "measured", source))
        return HostFigures(host.class_name, figures, tuple(caches))
    return host
