"""``eqfuse bench --kernels`` and ``--emulate``: the time and the instructions of each kernel, and what goes wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eqfuse.cli.bench import operators_text, print_breakdown
from eqfuse.driver.bench import breakdown_as_dict
from eqfuse.lowering.base.toolchain import Tool, missing
from eqfuse.lowering.bundle.bundle import read_manifest, write_manifest
from eqfuse.lowering.plan.kernel_facts import KERNELS, KernelFacts
from eqfuse.lowering.running.kernel_times import Breakdown, KernelTime

from .command_line import CommandLine

ABSENT = missing(Tool.CROSS_COMPILER, Tool.COUNTING_EMULATOR, Tool.HOST_COMPILER)
needs_tools = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
COUNTED = ("instructions", "fused", "loads", "stores", "branches", "other", "stack")


def compile_chain(eqfuse: CommandLine, target: str = "host") -> None:
    """Three products of matrices of one shape: one kernel that is called three times."""
    eqfuse.chain(3)
    options = ("--target", target, "--partition", "none", "--precision", "exact", "--no-verify", "-q")
    threads = ("--threads", "1") if target == "host" else ()
    assert eqfuse.run("compile", "in.onnx", "-o", "build", *options, *threads).code == 0


# --- kernels on this machine


def test_kernels_come_with_their_schedule_calls_and_roofline(eqfuse: CommandLine) -> None:
    compile_chain(eqfuse)
    outcome = eqfuse.run("bench", "build", "--kernels", "--repeat", "3")
    assert outcome.code == 0
    title, heads, _, kernel, summary, *_ = outcome.out.splitlines()
    assert title.startswith("build: 3 runs, 1 thread(s), median CPU time: ")
    assert heads.split()[:4] == ["kernel", "operators", "schedule", "calls"]
    assert kernel.split()[1:4] == ["MatMul", "contraction", "3"]
    assert summary.startswith("all kernels")
    content = json.loads(eqfuse.run("bench", "build", "--kernels", "--repeat", "3", "--json").out)
    assert (content["threads"], content["repeat"], content["clock"]) == (1, 3, "cpu")
    (facts,) = content["kernels"]
    assert facts["symbol"].startswith(f"{kernel.split()[0]}_matmul")
    assert (facts["operators"], facts["calls"]) == (["MatMul"], 3)
    assert facts["seconds"] == pytest.approx(3 * facts["seconds_per_call"])


def test_several_threads_are_timed_by_the_wall_clock(eqfuse: CommandLine) -> None:
    compile_chain(eqfuse)
    outcome = eqfuse.run("bench", "build", "--kernels", "--repeat", "1", "--threads", "2")
    assert outcome.out.startswith("build: 1 runs, 2 thread(s), median wall-clock time: ")


def test_kernels_beyond_the_first_are_added_up(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqfuse.cli.bench._SHOWN_KERNELS", 0)
    compile_chain(eqfuse)
    short, full = (eqfuse.run("bench", "build", "--kernels", "--repeat", "1", *v).out for v in ((), ("-v",)))
    assert ("1 others" in short, "1 others" in full) == (True, False)


def test_a_bundle_that_does_not_say_what_its_kernels_are(eqfuse: CommandLine) -> None:
    compile_chain(eqfuse)
    Path("build", KERNELS).unlink()
    manifest = read_manifest(Path("build"))
    files = {name: digest for name, digest in manifest.files.items() if name != KERNELS}
    write_manifest(Path("build"), replace(manifest, files=files))
    error = eqfuse.fail(1, "bench", "build", "--kernels")
    assert error == f"build: does not say what its kernels are (no {KERNELS}); compile the model again"


# --- their table


def kernel_time(number: int, seconds: float, calls: int = 1, predicted: float | None = 2e-6) -> KernelTime:
    facts = KernelFacts(
        f"kernel_{number}_conv_relu", ("Conv", "Relu"), "window", calls, 10**6, 2 * 10**6, 4000, 1e-6, predicted
    )
    return KernelTime(facts, seconds)


@pytest.mark.parametrize(
    ("breakdown", "most", "place", "row"),
    [
        (
            Breakdown(10e-6, (kernel_time(0, 1e-6), kernel_time(1, 6e-6, calls=2), kernel_time(2, 2e-6)), {}, 0.0),
            1, 4, "2 others 2 3.0 30.0% 2.00 8 4.0 2.0 1.5",
        ),
        (
            Breakdown(12e-6, (kernel_time(1, 6e-6, calls=2),), {}, 0.0),
            5, 3, "kernel_1 Conv Relu window 2 3.0 50.0% 1.00 4 2.0 1.0 3.0",
        ),
        (Breakdown(10e-6, (kernel_time(0, 6e-6),), {}, 1e-6), 5, -2, "ONNX Runtime 1.0 10.0%"),
        (Breakdown(10e-6, (kernel_time(0, 6e-6),), {}, 1e-6), 5, -1, "between kernels 3.0 30.0%"),
    ],
    ids=["others", "kernel", "fallbacks", "between"],
)  # fmt: skip
def test_rows_of_the_table(
    breakdown: Breakdown, most: int, place: int, row: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_breakdown("small", breakdown, most)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line]
    assert lines[place] == row


@pytest.mark.parametrize(
    ("predicted", "correlation"),
    [([1.0, 2.0, 3.0], 1.0), ([3.0, 2.0, 1.0], -1.0), ([1.0, 1.0, 2.0], 0.866), ([1.0, 2.0, None], None)],
    ids=["in order", "reversed", "equal", "too few"],
)
def test_rank_correlation_of_predictions(predicted: list[float | None], correlation: float | None) -> None:
    kernels = tuple(kernel_time(n, 1e-6 * (n + 1), predicted=each) for n, each in enumerate(predicted))
    found = Breakdown(1e-5, kernels, {}, 0.0).correlation
    assert found == (None if correlation is None else pytest.approx(correlation, abs=1e-3))


def test_long_lists_of_operators_are_cut() -> None:
    assert operators_text(["Add"] * 7) == "Add Add Add Add Add +2"


def test_plain_data_has_the_facts_and_the_times() -> None:
    (content,) = breakdown_as_dict(Breakdown(1e-5, (kernel_time(0, 6e-6, calls=3),), {}, 0.0))["kernels"]
    assert content["symbol"] == "kernel_0_conv_relu"
    assert content["seconds_per_call"] == pytest.approx(2e-6)


# --- on an emulated board


@needs_tools
def test_counts_of_kernels_and_between_them_add_up(eqfuse: CommandLine) -> None:
    compile_chain(eqfuse, "arm-cortex-a76")
    outcome = eqfuse.run("bench", "build", "--emulate")
    assert outcome.code == 0
    title, heads, _, kernel, between, model = outcome.out.splitlines()[:6]
    assert title == "build: one inference on an emulated arm-cortex-a76, one core"
    assert heads.split()[:6] == ["kernel", "operators", "calls", "instructions", "fmla", "loads"]
    assert kernel.split()[1:3] == ["MatMul", "3"]
    assert (between.startswith("between kernels"), model.split()[:2]) == (True, ["model", "3"])
    assert "\nestimate: " in outcome.out
    content, again = (json.loads(eqfuse.run("bench", "build", "--emulate", "--json").out) for _ in range(2))
    assert content == again
    parts = [content["between_kernels"], *content["kernels"]]
    assert {n: sum(part[n] for part in parts) for n in COUNTED} == {n: content["inference"][n] for n in COUNTED}
    assert content["inference"]["misses"].keys() == {"L1D", "L2", "L3"}


@pytest.mark.conformance
@needs_tools
def test_kernels_beyond_the_twentieth_are_added_up(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqfuse.cli.bench._SHOWN_EMULATED", 0)
    eqfuse.small()
    eqfuse.run("compile", "in.onnx", "-o", "build", "--target", "arm-cortex-a76", "--partition", "none", "-q")
    short, full = (eqfuse.run("bench", "build", "--emulate", *option).out for option in ((), ("-v",)))
    assert ("2 other kernels (-v)" in short, "2 other kernels (-v)" in full) == (True, False)


# --- refusals


@pytest.mark.parametrize("option", ["--repeat=1", pytest.param("--kernels", marks=pytest.mark.conformance)])
def test_without_emulation_a_bundle_for_arm_says_what_to_do(eqfuse: CommandLine, option: str) -> None:
    compile_chain(eqfuse, "arm-cortex-a76")
    error = eqfuse.fail(1, "bench", "build", option)
    assert error.startswith("build: is a C project for arm-cortex-a76;")
    assert error.endswith("`eqfuse bench --emulate`")


@pytest.mark.conformance
def test_a_bundle_for_this_machine_is_not_emulated(eqfuse: CommandLine) -> None:
    compile_chain(eqfuse)
    error = eqfuse.fail(2, "bench", "build", "--emulate")
    assert error.startswith("build: was compiled for host, which needs no emulation")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("--emulate --repeat 3", 2, "--repeat: has no meaning with --emulate"),
        ("--emulate --threads 1", 2, "--threads: has no meaning with --emulate"),
        ("--emulate --against ort", 2, "--against ort: with --emulate it needs ONNX Runtime for arm64"),
        ("--emulate --arm64-root .", 2, "--arm64-root: is for --against ort, which was not asked for"),
        ("--emulate --against ort --arm64-root .", 1, "benchmarks/arm64_root.sh makes a root"),
        ("--arm64-root .", 2, "--arm64-root: is for --emulate --against ort"),
        ("--kernels --against ort", 2, "--kernels: cannot be used with --against"),
        ("--kernels --emulate", 2, "--kernels: has no meaning with --emulate"),
        ("--kernels --arm64-root .", 2, "--arm64-root: is for --emulate --against ort"),
        ("--kernels", 1, "build: no such folder"),
    ],
)
def test_options_that_do_not_go_together(eqfuse: CommandLine, arguments: str, code: int, message: str) -> None:
    assert message in eqfuse.fail(code, "bench", "build", *arguments.split())


def test_a_bundle_that_was_edited_is_refused(eqfuse: CommandLine) -> None:
    compile_chain(eqfuse, "arm-cortex-a76")
    Path("build/main.c").write_text("int main(void) { return 0; }\n")
    assert eqfuse.fail(1, "bench", "build", "--emulate").startswith("build/main.c: was changed")


def test_missing_tools_are_named_all_at_once(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_chain(eqfuse, "arm-cortex-a76")
    monkeypatch.setenv("PATH", str(eqfuse.folder))
    error = eqfuse.fail(1, "bench", "build", "--emulate")
    assert error.startswith("aarch64-linux-gnu-gcc, qemu-aarch64, gcc: not found; on Debian or Ubuntu: apt-get")


# --- several clients


def test_throughput_beside_onnx_runtime(eqfuse: CommandLine) -> None:
    compile_chain(eqfuse)
    outcome = eqfuse.run("bench", "build", "--throughput", "2", "--against", "ort", "--repeat", "1")
    assert outcome.code == 0
    title, heads, _, own, other, gain = outcome.out.splitlines()[:6]
    assert title == "build: 2 client(s), 1 thread(s) a call, 1 slices, median (interquartile range)"
    assert heads.split()[-2:] == ["p50", "p99"]
    assert (own.split()[0], other.split()[:2], gain.split()[:3]) == (
        "eqfuse", ["ONNX", "Runtime"], ["eqfuse", "/", "ONNX"],
    )  # fmt: skip


def test_throughput_looks_into_no_run(eqfuse: CommandLine) -> None:
    compile_chain(eqfuse)
    outcome = eqfuse.run("bench", "build", "--throughput", "2", "--kernels")
    assert (outcome.code, outcome.error) == (2, "--throughput: cannot be used with --kernels, which looks into one run")
