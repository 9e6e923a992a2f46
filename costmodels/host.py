"""The device of this machine: figures that the system states, that were measured on it, or else those of its class."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..support.errors import EqfuseError, UsageError
from ..support.files import cache_folder, write_text
from ..support.processor import (
    ARM,
    available_cores,
    cache_levels,
    has_vnni,
    processor_identity,
    processor_level,
    processor_model,
)
from .device_file import DeviceFile, Figure, MicroarchitectureFile, Origin, read_device_file

ARM_CLASS = "arm64"
_MICROARCHITECTURES = Path(__file__).with_name("microarchitectures.toml")
_FIELDS = (
    "cores", "vector_bits", "vector_registers", "fma_ports", "clock", "issue_width", "load_ports", "store_ports",
    "dram_bandwidth", "launch_overhead", "view_overhead",
)  # fmt: skip


@dataclass(frozen=True)
class HostFigure:
    """A number of a device file, the origin that the file states, and its source in words."""

    value: float
    origin: Origin
    source: str

    def __str__(self) -> str:
        value = int(self.value) if self.value == int(self.value) else self.value
        return f'{{ value = {value}, origin = "{self.origin}" }}  # {self.source}'


@dataclass(frozen=True)
class HostCache:
    """One cache of this machine."""

    level: int
    shared: bool
    size: HostFigure
    ways: HostFigure
    line: HostFigure
    bandwidth: HostFigure

    def text(self) -> str:
        """The cache as a table of TOML."""
        figures = [f"{name} = {getattr(self, name)}" for name in ("size", "ways", "line", "bandwidth")]
        return "\n".join(["[[caches]]", f"level = {self.level}", *figures, f"shared = {str(self.shared).lower()}"])


@dataclass(frozen=True)
class HostFigures:
    """Every figure of this machine, by the names of a device file's fields."""

    class_name: str
    figures: Mapping[str, HostFigure]
    caches: tuple[HostCache, ...]
    dot_product: str = ""

    def with_figures(self, figures: Mapping[str, HostFigure], bandwidths: Mapping[int, HostFigure]) -> HostFigures:
        """The same with other figures by field, and other bandwidths of caches by level."""
        caches = (replace(cache, bandwidth=bandwidths.get(cache.level, cache.bandwidth)) for cache in self.caches)
        return replace(self, figures={**self.figures, **figures}, caches=tuple(caches))

    def text(self) -> str:
        """A complete device file of this machine."""
        words = json.dumps(f"this machine, of the class {self.class_name}", ensure_ascii=False)
        figures = [f"{name} = {figure}" for name, figure in self.figures.items()]
        target = [
            f'dot_product = "{self.dot_product}"',
            "# LLVM's words for the target of `eqfuse compile`; without an mtriple it is the machine that compiles.",
            'mtriple = ""', 'mcpu = ""', "mattr = []",
        ]  # fmt: skip
        sections = [[f"description = {words}"], figures, target, *([cache.text()] for cache in self.caches)]
        return "\n\n".join("\n".join(section) for section in sections) + "\n"


def host_class() -> str:
    """The name of the device file for the class of this machine's processor.

    Raises UsageError if the project has no file for its class.
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
    """The figures of this machine: those of its class's file in `directory`, unless the system, the file of
    microarchitectures or a measurement gives others."""
    class_name = host_class()
    file = read_device_file(directory / f"{class_name}.toml", class_name, [class_name], DeviceFile)
    source = f"class {class_name}"

    def of_class(figure: Figure) -> HostFigure:
        return _of_file(figure, source)

    caches = tuple(
        HostCache(c.level, c.shared, of_class(c.size), of_class(c.ways), of_class(c.line), of_class(c.bandwidth))
        for c in file.caches
    )
    figures = {name: of_class(getattr(file, name)) for name in _FIELDS}
    figures["cores"] = HostFigure(available_cores(), "detected", "affinity, and the quota of control groups")
    dot_product = "vpdpbusd" if has_vnni() else file.dot_product
    host = HostFigures(class_name, figures, _detect_caches(caches), dot_product)
    return _with_measurements(_with_microarchitecture(host))


def _with_microarchitecture(host: HostFigures) -> HostFigures:
    """The figures with those of the processor's microarchitecture in place of the class's, if it has some."""
    model = processor_model()
    file = read_device_file(_MICROARCHITECTURES, _MICROARCHITECTURES.name, [], MicroarchitectureFile)
    for each in file.microarchitectures:
        if each.class_ == host.class_name and each.includes(model):
            figures = {name: _of_file(figure, each.name) for name, figure in each.figures.items()}
            rates = {level: _of_file(figure, each.name) for level, figure in each.bandwidths.items()}
            return host.with_figures(figures, rates)
    return host


def _of_file(figure: Figure, source: str) -> HostFigure:
    """A figure of other machines of this kind: a measurement of one of them is assumed here."""
    return HostFigure(figure.value, "assumed" if figure.origin == "measured" else figure.origin, source)


def _detect_caches(caches: tuple[HostCache, ...]) -> tuple[HostCache, ...]:
    """The caches with the sizes that the kernel states, if it states possible ones.

    A shared cache counts no more than the class says: a virtual machine sees all of its host's, and has a part of it.
    """
    levels = {level.level: level for level in cache_levels()}
    result: list[HostCache] = []
    for cache in caches:
        here = levels.get(cache.level)
        if here is None:
            continue
        size, ways, line = (HostFigure(float(n), "detected", "sysfs") for n in (here.size, here.ways, here.line))
        if cache.shared and here.size > cache.size.value:
            size = replace(cache.size, source=f"{cache.size.source}; sysfs has the whole host's {here.size}")
        if here.ways < 1 or here.line < 1 or here.line & (here.line - 1) or size.value < here.ways * here.line:
            return caches  # no cache can be like this: the system does not know the caches
        if result and result[-1].size.value > size.value:
            return caches
        result.append(replace(cache, size=size, ways=ways, line=line))
    return tuple(result) or caches


# --- measurements of this machine


@dataclass(frozen=True)
class HostMeasurements:
    """Results of `eqfuse device measure` by the fields of a device file; bandwidths of caches by level, in bytes/s."""

    figures: Mapping[str, float]
    bandwidths: Mapping[int, float]


def measurements_path() -> Path:
    """The file for measurements of this machine; machines of different kinds that share the folder each have one."""
    return cache_folder() / "devices" / f"{sha256(processor_identity().encode()).hexdigest()[:16]}.json"


def keep_measurements(measurements: HostMeasurements) -> Path:
    """Store measurements as part of the device `host` from now on. Raises EqfuseError if the file cannot be written."""
    path = measurements_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EqfuseError(f"{path.parent}: cannot be made: {error.strerror}; set XDG_CACHE_HOME") from None
    bandwidths = {str(level): rate for level, rate in measurements.bandwidths.items()}
    write_text(path, json.dumps({"figures": dict(measurements.figures), "bandwidths": bandwidths}, indent=1) + "\n")
    return path


def forget_measurements() -> bool:
    """Remove the measurements of this machine; False if there are none."""
    path = measurements_path()
    exists = path.is_file()
    path.unlink(missing_ok=True)
    return exists


def _with_measurements(host: HostFigures) -> HostFigures:
    """The figures, with measured ones instead of those of the class. A damaged file counts as none."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        measurements = json.loads(measurements_path().read_text(encoding="utf-8"))
        figures = {name: _measured(value) for name, value in measurements["figures"].items() if name in host.figures}
        rates = {int(level): _measured(rate) for level, rate in measurements["bandwidths"].items()}
        return host.with_figures(figures, rates)
    return host


def _measured(value: Any) -> HostFigure:
    """Raises ValueError for a value that is no positive number."""
    if not float(value) > 0:
        raise ValueError(value)
    return HostFigure(float(value), "measured", "eqfuse device measure")
