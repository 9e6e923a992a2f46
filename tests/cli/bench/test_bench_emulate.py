"""``eqfuse bench --emulate``: what a model compiled for Arm executes, and what goes wrong on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eqfuse.lowering.arm.toolchain import Tool, missing

from ..command_line import CommandLine

ABSENT = missing(Tool.CROSS_COMPILER, Tool.COUNTING_EMULATOR, Tool.HOST_COMPILER)
needs_tools = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
COUNTED = ("instructions", "fused", "loads", "stores", "branches", "other", "stack")


def compiled(eqfuse: CommandLine) -> None:
    """Three products of matrices of one shape: one kernel that is called three times."""
    eqfuse.chain(3)
    options = ("--target", "arm-cortex-a76", "--partition", "none", "--precision", "exact", "--no-verify", "-q")
    assert eqfuse.run("compile", "in.onnx", "-o", "build", *options).code == 0


@needs_tools
def test_kernels_come_with_their_operators_and_calls(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    outcome = eqfuse.run("bench", "build", "--emulate")
    assert outcome.code == 0
    title, heads, _, kernel, between, model = outcome.out.splitlines()[:6]
    assert title == "build: one inference on an emulated arm-cortex-a76, one core"
    assert heads.split()[:6] == ["kernel", "operators", "calls", "instructions", "fmla", "loads"]
    assert kernel.split()[:3] == ["kernel_0_matmul", "MatMul", "3"]
    assert (between.startswith("between kernels"), model.split()[:2]) == (True, ["model", "3"])


@needs_tools
def test_cycles_are_said_to_be_an_estimate(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    assert "\nestimate: " in eqfuse.run("bench", "build", "--emulate").out


@needs_tools
def test_two_runs_count_the_same(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    first, second = (json.loads(eqfuse.run("bench", "build", "--emulate", "--json").out) for _ in range(2))
    assert first == second


@needs_tools
def test_kernels_and_what_lies_between_are_the_inference(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    said = json.loads(eqfuse.run("bench", "build", "--emulate", "--json").out)
    parts = [said["between_kernels"], *said["kernels"]]
    assert {name: sum(part[name] for part in parts) for name in COUNTED} == {n: said["inference"][n] for n in COUNTED}
    assert said["inference"]["misses"].keys() == {"L1D", "L2", "L3"}


@pytest.mark.conformance
@needs_tools
def test_kernels_beyond_the_twentieth_are_added_up(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqfuse.cli.bench._SHOWN_EMULATED", 0)
    eqfuse.small()
    eqfuse.run("compile", "in.onnx", "-o", "build", "--target", "arm-cortex-a76", "--partition", "none", "-q")
    short, full = (eqfuse.run("bench", "build", "--emulate", *option).out for option in ((), ("-v",)))
    assert ("2 other kernels (-v)" in short, "2 other kernels (-v)" in full) == (True, False)


@pytest.mark.conformance
def test_a_bundle_for_this_machine_is_refused(eqfuse: CommandLine) -> None:
    eqfuse.small()
    eqfuse.run("compile", "in.onnx", "-o", "build", "-q")
    outcome = eqfuse.run("bench", "build", "--emulate")
    assert outcome.code == 2
    assert outcome.error.startswith("build: was compiled for host, which needs no emulation")


def test_without_emulation_a_bundle_for_arm_says_what_to_do(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    outcome = eqfuse.run("bench", "build")
    assert outcome.code == 1
    assert outcome.error.startswith("build: is a C project for arm-cortex-a76;")
    assert outcome.error.endswith("`eqfuse bench --emulate`")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--emulate", "--repeat", "3"), "--repeat: has no meaning with --emulate"),
        (("--emulate", "--threads", "1"), "--threads: has no meaning with --emulate"),
        (("--emulate", "--against", "ort"), "--against ort: with --emulate it needs ONNX Runtime for arm64"),
        (("--emulate", "--arm64-root", "."), "--arm64-root: is for --against ort, which was not asked for"),
        (("--arm64-root", "."), "--arm64-root: is for --emulate --against ort"),
    ],
)
def test_options_that_do_not_go_together(eqfuse: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    outcome = eqfuse.run("bench", "build", *arguments)
    assert outcome.code == 2
    assert outcome.error.startswith(message)


def test_a_folder_that_is_no_root_is_refused(eqfuse: CommandLine) -> None:
    outcome = eqfuse.run("bench", "build", "--emulate", "--against", "ort", "--arm64-root", ".")
    assert outcome.code == 1
    assert outcome.error.endswith("benchmarks/arm64_root.sh makes a root")


def test_a_bundle_that_was_edited_is_refused(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    Path("build/main.c").write_text("int main(void) { return 0; }\n")
    outcome = eqfuse.run("bench", "build", "--emulate")
    assert outcome.code == 1
    assert outcome.error.startswith("build/main.c: was changed")


def test_missing_tools_are_named_all_at_once(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(eqfuse)
    monkeypatch.setenv("PATH", str(eqfuse.folder))
    outcome = eqfuse.run("bench", "build", "--emulate")
    assert outcome.code == 1
    assert outcome.error.startswith("aarch64-linux-gnu-gcc, qemu-aarch64, gcc: not found; on Debian or Ubuntu: apt-get")
