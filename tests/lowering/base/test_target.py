"""LLVM gets a processor whose features are all there, whatever its name implies."""

from __future__ import annotations

import platform

import pytest

from eqfuse.lowering.base import target
from eqfuse.lowering.base.target import Processor, host_processor, linux_name, llvm_features, needed_features
from eqfuse.support.processor import LEVELS, X86, level_features, processor_features

pytestmark = pytest.mark.skipif(platform.machine() != X86, reason="about x86-64")
TRIPLE = "x86_64-unknown-linux-gnu"


def mask(monkeypatch: pytest.MonkeyPatch, level: str) -> frozenset[str]:
    """This machine with no instruction set beyond a level's, as a hypervisor may present it."""
    left = level_features(level)
    monkeypatch.setattr(target, "processor_features", lambda: left)
    monkeypatch.setattr(target, "processor_level", lambda: level)
    return left


def test_code_for_this_machine_needs_nothing_that_is_not_there() -> None:
    assert set(needed_features(host_processor(), TRIPLE)) <= processor_features()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("cpu", ["znver4", "znver5", "sapphirerapids", "haswell", "x86-64"])
def test_features_that_a_name_implies_and_the_system_withholds_are_switched_off(
    monkeypatch: pytest.MonkeyPatch, level: str, cpu: str
) -> None:
    import tvm

    monkeypatch.setattr(tvm.target.codegen, "llvm_get_system_cpu", lambda: cpu)
    left = mask(monkeypatch, level)
    processor = host_processor()
    assert processor.cpu == cpu
    words = llvm_features(processor.cpu, processor.attributes) - llvm_features(level)
    assert {linux_name(word) for word in words if not target._is_tuning(word)} <= left


def test_a_name_that_llvm_does_not_know_becomes_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    monkeypatch.setattr(tvm.target.codegen, "llvm_get_system_cpu", lambda: "znver99")
    mask(monkeypatch, "x86-64-v3")
    assert host_processor() == Processor("x86-64-v3", ())


@pytest.mark.parametrize("level", LEVELS)
def test_a_bundle_of_a_level_lists_what_the_level_has(level: str) -> None:
    assert level_features(level) <= set(needed_features(Processor(level, ()), TRIPLE))


def test_an_arm_host_gets_what_the_system_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr(target, "processor_features", lambda: frozenset({"asimd", "asimddp", "cpuid"}))
    processor = host_processor()
    assert processor == Processor("generic", ("+dotprod", "+neon"))
    assert needed_features(processor, "aarch64-linux-gnu") == ("asimd", "asimddp")
