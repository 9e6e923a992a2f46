"""Targets: a device file to compile for, and its processor in LLVM's words.

LLVM takes a processor's name, by which it schedules instructions, and a list of features. The name implies features
that a hypervisor or an emulator may withhold: code made for the name alone then dies of an illegal instruction. So
every feature that the operating system does not show is switched off.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from archspec.cpu import TARGETS

from ...costmodels.choices import ACCELERATOR
from ...costmodels.device import HOST, Device, device_names, load_device
from ...costmodels.dsa_device import DsaDevice, dsa_device_names, load_dsa_device
from ...costmodels.ethos_device import EthosDevice, ethos_device, ethos_names
from ...support.errors import UsageError
from ...support.processor import X86, processor_features, processor_level

_X86_WORDS = {
    "bmi": "bmi1", "lzcnt": "abm", "pclmul": "pclmulqdq", "prfchw": "3dnowprefetch", "rdrnd": "rdrand",
    "sahf": "lahf_lm", "sha": "sha_ni",
}  # fmt: skip
"""LLVM's words for instruction sets that Linux calls otherwise; the rest differ by dots, hyphens and underscores."""
_ARM_WORDS = {
    "asimd": "neon", "asimdhp": "fullfp16", "asimddp": "dotprod", "asimdrdm": "rdm", "asimdfhm": "fp16fml",
    "atomics": "lse", "crc32": "crc", "lrcpc": "rcpc", "aes": "aes", "sha2": "sha2", "sha3": "sha3", "i8mm": "i8mm",
    "bf16": "bf16", "sve": "sve", "sve2": "sve2", "fcma": "complxnum",
}  # fmt: skip
"""Linux's words for instruction sets of Arm, and LLVM's."""
_TUNING = frozenset({"branchfusion", "macrofusion", "vzeroupper"})
"""Words of LLVM's about speed, not about instructions. The others of this kind have a hyphen in them."""
_ON_REQUEST = frozenset(
    {"clflushopt", "clwb", "clzero", "fsgsbase", "invpcid", "rdpid", "rdrand", "rdseed", "xsavec", "xsaveopt", "xsaves"}
)
"""What compilers use only if a program names the instruction, which kernels never do: no bundle needs them."""


@dataclass(frozen=True)
class Processor:
    """LLVM's name of a processor, and features to add (``+name``) or to take away (``-name``)."""

    cpu: str
    attributes: tuple[str, ...]


def host_processor() -> Processor:
    """The processor of this machine as this process may use it."""
    import tvm

    here = processor_features()
    if platform.machine() != X86:
        words = sorted({_ARM_WORDS[feature] for feature in here if feature in _ARM_WORDS})
        return Processor("generic", tuple(f"+{word}" for word in words))
    cpu, level = str(tvm.target.codegen.llvm_get_system_cpu()), processor_level() or "x86-64"
    named = llvm_features(cpu)
    if not named:  # a processor that LLVM has no name for
        return Processor(level, ("-prefer-256-bit",) if level == "x86-64-v4" else ())
    doubtful = (word for word in named - llvm_features(level) if not _is_tuning(word))
    return Processor(cpu, tuple(f"-{word}" for word in sorted(doubtful) if linux_name(word) not in here))


def needed_features(processor: Processor, triple: str) -> tuple[str, ...]:
    """The instruction sets that code for a processor may use, as Linux names them, sorted."""
    if not triple.startswith(X86):
        return tuple(sorted(name for name, word in _ARM_WORDS.items() if f"+{word}" in processor.attributes))
    words = llvm_features(processor.cpu, processor.attributes)
    return tuple(sorted({linux_name(word) for word in words} & _linux_names().keys() - _ON_REQUEST))


def llvm_features(cpu: str, attributes: Iterable[str] = ()) -> frozenset[str]:
    """LLVM's words for what an x86-64 processor has and likes; none for a processor that it does not know."""
    import tvm

    if not tvm.target.codegen.llvm_is_valid_cpu(cpu, f"{X86}-unknown-linux-gnu"):
        return frozenset()
    description = {"kind": "llvm", "mtriple": f"{X86}-unknown-linux-gnu", "mcpu": cpu, "mattr": list(attributes)}
    return frozenset(map(str, tvm.target.codegen.llvm_get_cpu_features(tvm.target.Target(description))))


def linux_name(word: str) -> str:
    """What Linux calls an instruction set of x86-64 that LLVM calls `word`; the word itself if Linux has no name."""
    renamed = _X86_WORDS.get(word, word)
    return renamed if renamed in _linux_names() else _spellings().get(_letters(word), word)


def _is_tuning(word: str) -> bool:
    return word in _TUNING or ("-" in word and not word.startswith(("amx-", "avx")))


@cache
def _linux_names() -> dict[str, None]:
    """Every instruction set of x86-64 that archspec knows of, and those of this machine."""
    x86 = [target for target in TARGETS.values() if target.family.name == X86]
    return dict.fromkeys(sorted(processor_features().union(*(target.features for target in x86))))


@cache
def _spellings() -> dict[str, str]:
    return {_letters(name): name for name in _linux_names()}


def _letters(name: str) -> str:
    return "".join(letter for letter in name if letter.isalnum())


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
        words |= {"mattr": list(self.attributes)} if self.attributes else {}
        return {**words, "mfloat-abi": "hard"} if self.triple.endswith("hf") else words


def target_names() -> list[str]:
    """The targets that come with the project: this machine, every device file that names a processor to LLVM, and
    accelerators.
    """
    processors = (name for name in device_names() if name != HOST and load_device(name).mtriple)
    return [HOST, *processors, *(ACCELERATOR + name for name in dsa_device_names()), *ethos_names()]


def check_target(name: str) -> None:
    """Raise UsageError if there is no such target. A device file of the user's own is one, by its path."""
    if name not in target_names() and not name.endswith(".toml"):
        if name in device_names():
            raise UsageError(
                f"--target {name}: its device file has no mtriple, LLVM's name of the system to compile for, such as "
                "x86_64-unknown-linux-gnu"
            )
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


def is_ethos(name: str) -> bool:
    """Whether a target is an NPU of Arm's, for which Vela compiles."""
    return name in ethos_names()


def ethos_device_of(name: str) -> EthosDevice:
    """The NPU that a target names. Raises UsageError."""
    check_target(name)
    return ethos_device(name)


def check_linker() -> None:
    """Raise UsageError if this machine has nothing to link a library with."""
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
    return not is_accelerator(name) and not is_ethos(name) and load_device(name).mtriple.partition("-")[0] in ("", X86)


def check_runs_here(target: Target) -> None:
    """Raise UsageError for a library that this machine cannot run, and so cannot verify."""
    if target.is_library and target.missing:
        raise UsageError(
            f"--target {target.name}: this machine has no {', '.join(target.missing)}, so what is compiled cannot be "
            "verified here; --no-verify writes it unverified"
        )
