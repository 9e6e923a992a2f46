"""Kernels for 64-bit Arm, timed by what they execute under emulation."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eqfuse.ir.types import TensorType
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.toolchain import Tool, missing
from eqfuse.lowering.plan.plan import PlanError
from eqfuse.lowering.tuning.runners import emulated_runner
from eqfuse.lowering.tuning.runners.emulated_runner import EmulatedRunner, plan_of
from eqfuse.lowering.tuning.runners.measuring import KernelObject
from eqfuse.support.processes.program import ToolError

from ..compiled import adding

ABSENT = missing(Tool.CROSS_COMPILER, Tool.COUNTING_EMULATOR, Tool.HOST_COMPILER)
needs_tools = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
TARGET = target_of("arm-cortex-a76", 1)
VECTOR = TensorType("float32", (8,))


@pytest.fixture(scope="module")
def runner() -> Iterator[EmulatedRunner]:
    runner = EmulatedRunner(TARGET)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def for_arm(tmp_path_factory: pytest.TempPathFactory) -> KernelObject:
    return adding(tmp_path_factory.mktemp("kernel"), target=TARGET)


@needs_tools
def test_seconds_are_cycles_at_the_clock_of_the_device(runner: EmulatedRunner, for_arm: KernelObject) -> None:
    """4096 elements, 4 at a time, are 1024 loads, additions and stores; no plain loop takes 20 cycles for them."""
    (timing,) = runner.measure([for_arm])
    assert 1024 / 2 < timing.latency * TARGET.device.clock < 1024 * 20


@needs_tools
def test_the_same_kernel_takes_the_same(runner: EmulatedRunner, for_arm: KernelObject) -> None:
    another = EmulatedRunner(TARGET)
    assert runner.measure([for_arm]) == another.measure([for_arm])
    another.close()


@needs_tools
def test_what_was_measured_is_not_measured_again(
    runner: EmulatedRunner, for_arm: KernelObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = runner.measure([for_arm])
    copy = replace(for_arm, object_file=Path(shutil.copy(for_arm.object_file, tmp_path / "copy.o")))
    monkeypatch.delattr(emulated_runner, "ask")
    assert runner.measure([copy]) == first


@needs_tools
def test_a_kernel_that_fails_costs_itself_alone(runner: EmulatedRunner, for_arm: KernelObject, tmp_path: Path) -> None:
    wrong = [replace(for_arm, symbol="other"), replace(for_arm, object_file=tmp_path / "absent.o")]
    first, second, good = runner.measure([*wrong, for_arm])
    assert "undefined reference" in (first.problem or "")
    assert "absent.o" in (second.problem or "")
    assert good.problem is None
    assert runner.compare(for_arm, wrong) == [[], []]


def test_the_last_parameters_are_what_a_kernel_writes() -> None:
    plan = plan_of(KernelObject("k", Path("k.o"), (VECTOR,) * 5, outputs=2))
    assert (plan.inputs, plan.outputs, plan.calls[0].outputs) == ((0, 1, 2), (3, 4), (3, 4))


def test_a_type_that_c_has_not_is_refused() -> None:
    with pytest.raises(PlanError, match="complex64"):
        plan_of(KernelObject("k", Path("k.o"), (TensorType("complex64", (8,)),) * 2))


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(ToolError, match=r"aarch64-linux-gnu-gcc, qemu-aarch64, gcc: not found; .*apt-get install"):
        EmulatedRunner(TARGET)
