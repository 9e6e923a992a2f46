"""Targets: a device file to compile for, and how LLVM calls that processor."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ...costmodels.device import HOST, Device, device_names, load_device
from ...costmodels.dsa_device import DsaDevice, dsa_device_names, load_dsa_device
from ...support.errors import UsageError
from ...support.processor import X86, processor_features
from .instruction_sets import Processor, host_processor, needed_features

ACCELERATOR = "dsa-"
"""What the names of targets begin with that a simulator executes."""


@dataclass(frozen=True)
class Target:
    """A processor to compile for. `features` are the instruction sets that the code may use, as Linux names them.

    `triple` and `cpu` are LLVM's names, `attributes` its words for features added and taken away; the kernels are made
    for `threads` threads. With `is_library` the result is a library that Python loads, otherwise a C project.
    """

    name: str
    device: Device
    architecture: str
    triple: str
    cpu: str
    threads: int
    attributes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    is_library: bool = False
    is_alone: bool = False
    """Whether the code runs without Python, and so without ONNX Runtime for what has no kernel."""

    @property
    def missing(self) -> tuple[str, ...]:
        """What this machine lacks to run the library: its architecture, or instruction sets."""
        if self.architecture != platform.machine():
            return (self.architecture,)
        return tuple(name for name in self.features if name not in processor_features())

    @property
    def description(self) -> dict[str, Any]:
        """The target as TVM takes it."""
        words: dict[str, Any] = {"kind": "llvm", "mtriple": self.triple, "mcpu": self.cpu, "num-cores": self.threads}
        return {**words, "mattr": list(self.attributes)} if self.attributes else words


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
    import tvm

    check_target(name)
    device = load_device(name)
    triple = device.mtriple or str(tvm.target.codegen.llvm_get_system_triple())
    named = device.mtriple or device.mcpu
    processor = Processor(device.mcpu or "generic", device.mattr) if named else host_processor()
    return Target(
        device.name, device, triple.partition("-")[0], triple, processor.cpu, threads or device.cores,
        processor.attributes, needed_features(processor, triple) if is_library(name) else (), is_library(name),
        is_alone=not is_library(name),
    )  # fmt: skip


def is_library(name: str) -> bool:
    """Whether Python loads the code for a target as a library; for other processors it is a C project."""
    return not is_accelerator(name) and load_device(name).mtriple.partition("-")[0] in ("", X86)


def check_runs_here(target: Target) -> None:
    """Raise UsageError for a library that this machine cannot run, and so cannot verify."""
    if target.is_library and target.missing:
        raise UsageError(
            f"--target {target.name}: this machine has no {', '.join(target.missing)}, so what is compiled cannot be "
            "verified here; --no-verify writes it unverified"
        )
