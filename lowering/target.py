"""What is compiled for: a device file, and how LLVM calls that processor."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from ..costmodels.device import Device, device_names, load_device
from ..costmodels.dsa_device import DsaDevice, dsa_device_names, load_dsa_device
from ..errors import UsageError

HOST = "host"
ACCELERATOR = "dsa-"
"""What the names of targets begin with that a simulator executes."""
_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Target:
    """A processor to compile for. `features` are the instruction sets that the code may use, as Linux names them.

    `triple` and `cpu` are LLVM's names; the kernels are made for `threads` threads; `is_host`: this machine runs it.
    """

    name: str
    device: Device
    architecture: str
    triple: str
    cpu: str
    threads: int
    attributes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    is_host: bool = False

    @property
    def description(self) -> dict[str, Any]:
        """The target as TVM takes it."""
        found: dict[str, Any] = {"kind": "llvm", "mtriple": self.triple, "mcpu": self.cpu, "num-cores": self.threads}
        return {**found, "mattr": list(self.attributes)} if self.attributes else found


def target_names() -> list[str]:
    """The targets that come with the project: this machine, every device file that names a processor to LLVM, and
    accelerators.
    """
    processors = (name for name in device_names() if name != HOST and load_device(name).mtriple)
    return [HOST, *processors, *(ACCELERATOR + name for name in dsa_device_names())]


def check_target(name: str) -> None:
    """Raise UsageError where there is no such target. A device file of the user's own is one, by its path."""
    if name not in target_names() and not name.endswith(".toml"):
        near = get_close_matches(name, target_names(), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"--target {name}: unknown; the targets are {', '.join(target_names())}{hint}")


def is_accelerator(name: str) -> bool:
    """Whether a target is one that a simulator executes."""
    return name.startswith(ACCELERATOR)


def accelerator_of(name: str) -> DsaDevice:
    """The accelerator that a target names. Raises UsageError, and DeviceError for a file that cannot be used."""
    check_target(name)
    return load_dsa_device(name.removeprefix(ACCELERATOR))


def check_linker() -> None:
    """Raise UsageError where this machine has nothing to link a library with."""
    named = os.environ.get("CXX") or os.environ.get("CC")
    if named is None and not any(map(shutil.which, ("g++", "gcc", "clang++", "clang", "c++", "cc"))):
        raise UsageError("--target host: no C++ compiler to link with; install one (Debian: g++) or set CXX")


def target_of(name: str, threads: int | None = None) -> Target:
    """The target of that name, for `threads` threads (default: the cores of its device).

    Raises UsageError, and DeviceError for a device file that cannot be used.
    """
    check_target(name)
    device = load_device(name)
    count = threads or device.cores
    if not device.mtriple:
        return _host(device, count)
    architecture = device.mtriple.partition("-")[0]
    return Target(name, device, architecture, device.mtriple, device.mcpu or "generic", count, device.mattr)


def _host(device: Device, threads: int) -> Target:
    import tvm

    triple = str(tvm.target.codegen.llvm_get_system_triple())
    cpu = device.mcpu or str(tvm.target.codegen.llvm_get_system_cpu())
    return Target(device.name, device, platform.machine(), triple, cpu, threads, device.mattr, host_features(), True)


_INSTRUCTION_SETS = ("avx", "fma", "sse4", "f16c", "amx", "asimd", "sve", "neon", "bmi", "bf16", "i8mm")


@cache
def host_features() -> tuple[str, ...]:
    """The instruction sets of this machine that compilers use, sorted; empty where Linux does not say."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    flags = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    return tuple(sorted({flag for flag in flags.split() if flag.startswith(_INSTRUCTION_SETS)}))
