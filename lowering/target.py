"""What is compiled for: a device file, and how LLVM calls that processor."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from ..costmodels.device import Device, device_names, load_device
from ..errors import UsageError

HOST = "host"
_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Target:
    """A processor to compile for. `features` are the instruction sets that the code may use, as Linux names them.

    `triple` and `cpu` are LLVM's names; `threads` is how many the kernels are made for.
    """

    name: str
    device: Device
    architecture: str
    triple: str
    cpu: str
    threads: int
    attributes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def is_host(self) -> bool:
        """Whether this machine can run it."""
        return self.name == HOST

    @property
    def description(self) -> dict[str, Any]:
        """The target as TVM takes it."""
        found: dict[str, Any] = {"kind": "llvm", "mtriple": self.triple, "mcpu": self.cpu, "num-cores": self.threads}
        return {**found, "mattr": list(self.attributes)} if self.attributes else found


@dataclass(frozen=True)
class _Processor:
    cpu: str
    architecture: str = "aarch64"
    triple: str = "aarch64-linux-gnu"
    attributes: tuple[str, ...] = ("+neon",)


_PROCESSORS: Mapping[str, _Processor] = {
    "arm-cortex-a76": _Processor("cortex-a76"),
    "arm-cortex-a57": _Processor("cortex-a57"),
    "arm-cortex-a77": _Processor("cortex-a77"),
    "armv8-neon": _Processor("generic"),
    "snapdragon810": _Processor("cortex-a57"),
    "snapdragon865": _Processor("cortex-a77"),
}
"""What LLVM calls the processors of the device files that are not this machine."""


def target_names() -> list[str]:
    """The targets that come with the project: this machine, and each device file whose processor LLVM has a name for."""
    return [HOST, *(name for name in device_names() if name in _PROCESSORS)]


def target_of(name: str, threads: int | None = None) -> Target:
    """The target of that name, for `threads` threads (default: the cores of its device). Raises UsageError."""
    if name not in target_names():
        near = get_close_matches(name, target_names(), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"--target {name}: unknown; the targets are {', '.join(target_names())}{hint}")
    device = load_device(name)
    count = threads or device.cores
    if name == HOST:
        return _host(device, count)
    known = _PROCESSORS[name]
    return Target(name, device, known.architecture, known.triple, known.cpu, count, known.attributes)


def _host(device: Device, threads: int) -> Target:
    import tvm

    triple = str(tvm.target.codegen.llvm_get_system_triple())
    cpu = str(tvm.target.codegen.llvm_get_system_cpu())
    return Target(HOST, device, platform.machine(), triple, cpu, threads, features=host_features())


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
