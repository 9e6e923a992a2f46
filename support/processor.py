"""The parts of the processor that the operating system lets this process use: instruction sets, cores and caches."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath

from archspec.cpu import TARGETS, detect

X86 = "x86_64"
ARM = "aarch64"
CORTEX_M = "thumb"
"""The beginning of the architectures of Arm's microcontrollers, which run without an operating system."""
LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
"""The psABI's levels of x86-64, richest first, as LLVM and the device files call them."""
_CAPABILITIES = {
    16: {
        "fp": 0, "asimd": 1, "aes": 3, "pmull": 4, "sha1": 5, "sha2": 6, "crc32": 7, "atomics": 8, "fphp": 9,
        "asimdhp": 10, "asimdrdm": 12, "jscvt": 13, "fcma": 14, "lrcpc": 15, "sha3": 17, "asimddp": 20,
        "sha512": 21, "sve": 22, "asimdfhm": 23,
    },
    26: {"sve2": 1, "i8mm": 13, "bf16": 14},
}  # fmt: skip
"""Bits of AT_HWCAP and AT_HWCAP2 on 64-bit Arm, by the names of /proc/cpuinfo (asm/hwcap.h of Linux)."""
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


@cache
def processor_features() -> frozenset[str]:
    """The instruction sets that this process may use, as Linux names them; empty if the system does not say.

    The processor's name implies more than a hypervisor may let through. On Arm they are the kernel's hardware
    capabilities; elsewhere those of /proc/cpuinfo, without those that the cpuid instruction denies: an emulated program
    reads the emulator's /proc/cpuinfo.
    """
    if platform.machine() == ARM:
        return _hardware_capabilities()
    try:
        stated = frozenset(detect.detected_info().features)
    except (OSError, ValueError):
        return frozenset()
    if "pni" in stated:  # Linux's name of SSE3, which older releases of archspec do not translate
        stated |= {"sse3"}
    if platform.machine() != X86:
        return stated
    tables = (*detect.CPUID_JSON["flags"], *detect.CPUID_JSON["extension-flags"])
    told_by_cpuid = {bit["name"] for table in tables for bit in table["bits"]}
    allowed: frozenset[str] = stated - (told_by_cpuid - detect.CpuidInfoCollector().features)
    return allowed


def _hardware_capabilities() -> frozenset[str]:
    """The capabilities that the kernel of a 64-bit Arm machine gives in the auxiliary vector (getauxval(3))."""
    vector = ctypes.CDLL(None).getauxval
    vector.restype, vector.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    words = {entry: int(vector(entry)) for entry in _CAPABILITIES}
    bits = ((name, words[entry] >> bit & 1) for entry, table in _CAPABILITIES.items() for name, bit in table.items())
    return frozenset(name for name, is_there in bits if is_there)


def level_features(level: str) -> frozenset[str]:
    """The instruction sets of one of `LEVELS`."""
    return frozenset(TARGETS[level.replace("-", "_")].features)


def processor_level() -> str | None:
    """The richest of `LEVELS` that this process may use; None on other architectures and older processors."""
    return next((level for level in LEVELS if level_features(level) <= processor_features()), None)


def has_vnni() -> bool:
    """Whether it multiplies bytes by vpdpbusd: AVX512-VNNI on vectors of all widths, or AVX-VNNI."""
    return {"avx512_vnni", "avx512vl"} <= processor_features() or "avx_vnni" in processor_features()


def processor_identity() -> str:
    """A text that is the same for equal processors in equal machines, and tells others apart."""
    stated = _stated_facts()
    names = ("vendor_id", "cpu family", "model", "model name", "stepping", "CPU implementer", "CPU part")
    model = " ".join(stated.get(name, "") for name in names) if stated else ""
    caches = [f"{level.level}:{level.size}" for level in cache_levels()]
    return " ".join([platform.machine(), model, *sorted(processor_features()), *caches])


@dataclass(frozen=True)
class ProcessorModel:
    """Vendor, family and model as an x86 processor states them; empty and 0 elsewhere."""

    vendor: str = ""
    family: int = 0
    model: int = 0


def processor_model() -> ProcessorModel:
    """The model of this machine's processor, by /proc/cpuinfo."""
    stated = _stated_facts()
    with suppress(KeyError, ValueError):
        return ProcessorModel(stated["vendor_id"], int(stated["cpu family"]), int(stated["model"]))
    return ProcessorModel()


def processor_name() -> str:
    """The processor's own name, for people; its architecture if it has no name."""
    return _stated_facts().get("model name") or platform.machine()


def _stated_facts() -> dict[str, str]:
    """The lines of /proc/cpuinfo; those of the last processor if they differ."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        return {name.strip(): value.strip() for name, value in pairs}
    return {}


def available_cores() -> int:
    """Cores that this process may keep busy: its affinity, and no more than its control groups' quota of time."""
    cores = len(os.sched_getaffinity(0))
    quotas = [quota for group in _own_groups() if (quota := _quota(group)) is not None]
    return max(1, min([cores, *map(math.ceil, quotas)]))


def _own_groups() -> Iterator[Path]:
    """The control groups that this process is in, and those that contain them: each limits it."""
    with suppress(OSError, ValueError):
        for line in _OWN_CGROUPS.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:  # version 2
                root = _CGROUPS
            elif "cpu" in controllers.split(","):
                root = _CGROUPS / "cpu"
            else:
                continue
            group = PurePath(path.strip("/"))
            yield from (root / part for part in (group, *group.parents))


def _quota(group: Path) -> float | None:
    """Processors' worth of time that a control group of version 2 or 1 grants; None if it does not limit it."""
    with suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        limit, time = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return limit / time if limit > 0 else None
    return None


@dataclass(frozen=True)
class CacheLevel:
    """A data cache of the first core, as the kernel describes it: bytes, ways, and bytes of a line."""

    level: int
    size: int
    ways: int
    line: int


def cache_levels() -> tuple[CacheLevel, ...]:
    """The data caches of the first core, smallest first; empty if the kernel does not describe them."""
    levels = []
    for folder in sorted(_CACHES.glob("index*")):
        with suppress(OSError, ValueError):
            text = {name: (folder / name).read_text(encoding="utf-8").strip() for name in ("type", "size", "level")}
            if text["type"] == "Instruction":
                continue
            number, unit = re.fullmatch(r"(\d+)([KMG]?)", text["size"]).groups()  # type: ignore[union-attr]
            size = int(number) * 1024 ** " KMG".index(unit or " ")
            ways, line = (int((folder / n).read_text()) for n in ("ways_of_associativity", "coherency_line_size"))
            levels.append(CacheLevel(int(text["level"]), size, ways, line))
    return tuple(sorted((level for level in levels if level.size), key=lambda level: level.level))
