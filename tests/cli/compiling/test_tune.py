"""``eqfuse tune``, and ``compile --trials``: a search that goes on where it was stopped, and its records."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse as package
from eqfuse.driver.compiler.compilation import Compilation
from eqfuse.driver.compiler.outcome import tuning_line
from eqfuse.driver.compiler.tune import NOTICEABLE
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.kernels import compilation
from eqfuse.lowering.kernels.compilation import CompiledKernels, compile_kernels
from eqfuse.lowering.plan.manifest import TuningSummary
from eqfuse.lowering.tuning.records import RecordDatabase
from eqfuse.lowering.tuning.runners import builders
from eqfuse.support.database import database_path
from eqfuse.support.processes.program import ToolError

from ...caches import own_cache
from ...lowering.free_size_models import pictures
from ...onnx_runtime import outputs_of
from ..command_line import CommandLine

SHAPE = (1, 16, 12, 12)


@pytest.fixture
def pair(eqfuse: CommandLine) -> Path:
    """A pointwise convolution and a depthwise one: two tasks, which can be joined."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["y"], group=16, pads=[1, 1, 1, 1]),
    ]
    v, w = random.standard_normal((16, 16, 1, 1)), random.standard_normal((16, 1, 3, 3))
    return eqfuse.model("in.onnx", nodes, SHAPE, v=v, w=w)


@pytest.fixture(autouse=True)
def _own_cache(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(eqfuse.folder / "cache"))


def tune(eqfuse: CommandLine, trials: int, *options: object) -> str:
    outcome = eqfuse.run("tune", "in.onnx", "-o", "build", "--threads", 1, "--trials", trials, *options)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out


def records() -> int:
    return len(RecordDatabase.open().all())


@pytest.mark.conformance
def test_a_search_from_the_first_trial_to_a_bundle(eqfuse: CommandLine, pair: Path) -> None:
    """Each search compiles two bundles and compares them, so there is one for all of it."""
    assert "tuning: 8 trials of" in tune(eqfuse, 8)
    x = np.random.default_rng(1).standard_normal(SHAPE, np.float32)
    result = package.load(eqfuse.folder / "build").run({"x": x})["y"]
    np.testing.assert_allclose(result, outputs_of(pair, {"x": x})[0], rtol=1e-4, atol=1e-4)

    found = read_manifest(eqfuse.folder / "build").tuning
    assert found is not None
    assert found.trials == 8
    assert found.kept == ("tuned" if found.ratio > NOTICEABLE else "untuned")
    assert "Conv" in eqfuse.run("profile", "list").out


@pytest.mark.conformance
@pytest.mark.parametrize("typical", [(), ("--typical", "H=14", "--typical", "W=20", "--typical", "N=1")])
def test_kernels_that_run_at_the_typical_sizes_are_tuned(
    eqfuse: CommandLine, typical: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are of kernels of the bundle: those for the named sizes alone, or those for all sizes."""
    compiled: list[CompiledKernels] = []

    def note_compiled(*arguments: Any) -> CompiledKernels:
        compiled.append(compile_kernels(*arguments))
        return compiled[-1]

    monkeypatch.setattr(compilation, "compile_kernels", note_compiled)
    onnx.save(pictures(), eqfuse.folder / "in.onnx")
    tune(eqfuse, 4, *typical)
    inputs = [(each, each.graph.values[each.graph.operators[0].inputs[0] or 0].type) for each in compiled]
    keys = {key for each, type_ in inputs if type_ and type_.is_static is bool(typical) for key in each.keys.values()}
    found = RecordDatabase.open().all()
    assert found
    assert {record.task.partition("/")[0] for record in found} <= keys
    assert all(record.latency for record in found)


@pytest.mark.conformance
@pytest.mark.usefixtures("pair")
def test_a_search_that_is_over_and_its_costs(eqfuse: CommandLine) -> None:
    tune(eqfuse, 12)
    outcome = eqfuse.run("optimize", "in.onnx", "-o", "out.onnx", "--cost", "profile", "--partition", "joint")
    assert outcome.code == 0, outcome.err

    before = records()
    tune(eqfuse, 12)
    assert records() == before
    assert "of 3 kernels" in tune(eqfuse, 4)  # the joined one is known again


@pytest.mark.conformance
@pytest.mark.usefixtures("pair")
def test_a_search_that_is_killed_goes_on(eqfuse: CommandLine) -> None:
    command = eqfuse.command("tune", "in.onnx", "-o", "build", "--threads", 1, "--trials", 48)
    with subprocess.Popen(command, cwd=eqfuse.folder, env=eqfuse.environment(), stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not (database_path("tuning").exists() and records()):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    before = records()
    assert 0 < before < 48
    assert "build" not in eqfuse.files()
    tune(eqfuse, 48)
    assert records() <= 48


@pytest.mark.conformance
@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("variant", ["--no-intensive", "--no-reformer"])
def test_the_variants_of_the_ablation(eqfuse: CommandLine, variant: str) -> None:
    assert "tuning: 8 trials" in tune(eqfuse, 8, variant)


@pytest.mark.conformance
@pytest.mark.usefixtures("pair")
def test_a_limit_of_time_ends_the_search_and_what_cannot_be_compared_is_not_kept(
    eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> float:
        raise ToolError("the device is gone")

    monkeypatch.setattr("eqfuse.driver.compiler.tune._ScheduleSearch._speed_up", fails)
    out = tune(eqfuse, 100_000, "--time-limit", 0.001)
    assert records() == 0
    assert "the tuned model was not compared: the device is gone, so the untuned one is kept" in out
    assert package.load(eqfuse.folder / "build").manifest.tuning is not None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--trials", "4", "--tracker", "127.0.0.1:1"), "--tracker and --device-key: devices are found by both"),
        (("--trials", "4", "--runner", "rpc"), "--runner rpc: say where the devices are"),
        (("--trials", "4", "--runner", "emulate"), "--runner emulate: does not run kernels for this machine"),
        (("--trials", "4", "--runner", "local", "--target", "arm-cortex-a76"), "--runner local: does not run kernels"),
        (("--runner", "local"), "--runner: is for a search for schedules; say how many"),
        (("--no-reformer",), "--no-reformer: is for a search for schedules; say how many"),
        (("--trials", "4", "--target", "dsa-stcp920"), "--trials: is for processors"),
    ],
)
def test_options_that_say_nothing_together(eqfuse: CommandLine, options: tuple[str, ...], error: str) -> None:
    eqfuse.small()
    assert eqfuse.fail(2, "compile", "in.onnx", "-o", "build", *options).startswith(error)


@pytest.mark.parametrize("target", ["dsa-stcp920", "ethos-u55-128"])
def test_accelerators_have_no_schedules_to_search_for(eqfuse: CommandLine, target: str) -> None:
    eqfuse.small()
    error = eqfuse.fail(2, "tune", "in.onnx", "-o", "build", "--target", target)
    assert error.startswith(f"--target {target}: only schedules of processors are tuned")


def test_a_tracker_that_is_not_there(eqfuse: CommandLine, pair: Path) -> None:
    options = ("--tracker", "127.0.0.1:1", "--device-key", "board")
    assert "127.0.0.1:1" in eqfuse.fail(1, "tune", pair, "-o", "build", "--trials", 4, *options)
    assert "build" not in eqfuse.files()


@pytest.mark.parametrize("option", ["--tracker", "--cluster"])
def test_what_a_search_lacks_is_said_before_the_work(
    eqfuse: CommandLine, pair: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Compilation, "optimize")
    monkeypatch.setattr(builders, "_CONNECT_SECONDS", 0.2)
    key = ("--device-key", "board") if option == "--tracker" else ()
    assert eqfuse.fail(1, "tune", pair, "-o", "build", option, "127.0.0.1:1", *key).startswith("127.0.0.1:1: no ")


@pytest.mark.parametrize(("learned", "lines"), [(True, 1), (False, 2)])
def test_a_search_without_a_learned_model_says_so(learned: bool, lines: int) -> None:
    summary = TuningSummary(
        trials=4, failed=0, tasks=1, changed=0, joined=0, seconds=1.0, runner="local", ratio=1.0, kept="untuned",
        learned=learned,
    )  # fmt: skip
    assert len(tuning_line(summary).splitlines()) == lines


@pytest.mark.parametrize(("trials", "says"), [(151, True), (152, False)])
def test_too_few_trials_are_said(trials: int, says: bool) -> None:
    summary = TuningSummary(
        trials=trials, failed=0, tasks=76, changed=0, joined=0, seconds=1.0, runner="local", ratio=1.0, kept="untuned",
        learned=True,
    )  # fmt: skip
    assert ("--trials 152 reaches all" in tuning_line(summary)) == says


def test_a_model_that_needs_no_kernel_is_tuned_too(eqfuse: CommandLine) -> None:
    onnx.save(onnx.parser.parse_model(_IDENTITY), eqfuse.folder / "in.onnx")
    assert "tuning: 0 trials of 0 kernels" in tune(eqfuse, 4)


_IDENTITY = """
<ir_version: 8, opset_import: ["": 17]> graph (float[2, 3] x) => (float[3, 2] y) {
  s = Constant <value_ints = [3, 2]> ()
  y = Reshape (x, s)
}
"""
