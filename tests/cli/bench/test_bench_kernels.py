"""``eqfuse bench --kernels``: where the time of a compiled model goes, and what goes wrong on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eqfuse.lowering.bundle.bundle import read_manifest, write_manifest
from eqfuse.lowering.kernels.table import KERNELS

from ..command_line import CommandLine


def compiled(eqfuse: CommandLine, target: str = "host") -> None:
    """Three products of matrices of one shape: one kernel that is called three times."""
    eqfuse.chain(3)
    options = ("--target", target, "--partition", "none", "--precision", "exact", "--threads", "1", "--no-verify", "-q")
    assert eqfuse.run("compile", "in.onnx", "-o", "build", *options).code == 0


def test_kernels_come_with_their_schedule_calls_and_roofline(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    outcome = eqfuse.run("bench", "build", "--kernels", "--repeat", "3")
    assert outcome.code == 0
    title, heads, _, kernel, summary, *_ = outcome.out.splitlines()
    assert title.startswith("build: 3 runs, 1 thread(s), median CPU time: ")
    assert heads.split()[:4] == ["kernel", "operators", "schedule", "calls"]
    assert kernel.split()[:4] == ["kernel_0", "MatMul", "contraction", "3"]
    assert summary.startswith("all kernels")


def test_json_has_all_of_it(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    said = json.loads(eqfuse.run("bench", "build", "--kernels", "--repeat", "3", "--json").out)
    assert (said["threads"], said["repeat"], said["clock"]) == (1, 3, "cpu")
    (kernel,) = said["kernels"]
    assert (kernel["symbol"], kernel["operators"], kernel["calls"]) == ("kernel_0_matmul", ["MatMul"], 3)
    assert kernel["seconds"] == pytest.approx(3 * kernel["seconds_per_call"])


def test_several_threads_are_timed_by_the_wall_clock(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    outcome = eqfuse.run("bench", "build", "--kernels", "--repeat", "1", "--threads", "2")
    assert outcome.out.startswith("build: 1 runs, 2 thread(s), median wall-clock time: ")


def test_kernels_beyond_the_first_are_added_up(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqfuse.cli.bench._SHOWN_KERNELS", 0)
    compiled(eqfuse)
    short, full = (eqfuse.run("bench", "build", "--kernels", "--repeat", "1", *v).out for v in ((), ("-v",)))
    assert ("1 others" in short, "1 others" in full) == (True, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--against", "ort"), "--kernels: cannot be had with --against"),
        (("--emulate",), "--kernels: has no meaning with --emulate"),
        (("--arm64-root", "."), "--arm64-root: is for --emulate --against ort"),
    ],
)
def test_options_that_do_not_go_together(eqfuse: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    outcome = eqfuse.run("bench", "build", "--kernels", *arguments)
    assert outcome.code == 2
    assert outcome.error.startswith(message)


@pytest.mark.conformance
def test_a_bundle_for_arm_says_what_to_do(eqfuse: CommandLine) -> None:
    compiled(eqfuse, "arm-cortex-a76")
    outcome = eqfuse.run("bench", "build", "--kernels")
    assert outcome.code == 1
    assert outcome.error.startswith("build: is a C project for arm-cortex-a76;")
    assert outcome.error.endswith("`eqfuse bench --emulate`")


def test_a_bundle_that_does_not_say_what_its_kernels_are(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    Path("build", KERNELS).unlink()
    manifest = read_manifest(Path("build"))
    files = {name: digest for name, digest in manifest.files.items() if name != KERNELS}
    write_manifest(Path("build"), replace(manifest, files=files))
    outcome = eqfuse.run("bench", "build", "--kernels")
    assert outcome.code == 1
    assert outcome.error == f"build: does not say what its kernels are (no {KERNELS}); compile the model again"


def test_a_folder_that_is_not_there(eqfuse: CommandLine) -> None:
    outcome = eqfuse.run("bench", "build", "--kernels")
    assert outcome.code == 1
    assert outcome.error.startswith("build: no such folder")
