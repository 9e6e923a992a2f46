"""Which processor LLVM makes code for: its name for the schedules inside LLVM, and only features that are there.

A processor's name implies features that a hypervisor or an emulator may withhold: code made for the name alone then
dies of an illegal instruction. What the operating system does not show is switched off by name.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from archspec.cpu import TARGETS

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
"""What compilers use only where a program names the instruction, which kernels never do: no bundle needs them."""


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
    """What Linux calls an instruction set of x86-64 that LLVM calls `word`; the word itself where Linux has no name."""
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
