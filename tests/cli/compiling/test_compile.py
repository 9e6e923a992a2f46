"""``eqfuse compile``, ``run`` and ``bench``: from a model to numbers and times, and what goes wrong on the way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO

import numpy as np
import onnx
import pytest
from onnx import helper

from eqfuse.driver.compiler.outcome import measurement_lines
from eqfuse.engine.verification import Verification
from eqfuse.lowering.bundle import check
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.plan.manifest import KernelTrials, MeasurementSummary, Trial

from ...onnx_runtime import outputs_of
from ..command_line import CommandLine


def max_roi_pool(eqfuse: CommandLine, name: str = "in.onnx") -> Path:
    """A MaxRoiPool, times two: nothing lowers a MaxRoiPool."""
    nodes = [
        helper.make_node("MaxRoiPool", ["x", "regions"], ["v"], pooled_shape=[2, 3]),
        helper.make_node("Mul", ["v", "w"], ["y"]),
    ]
    return eqfuse.model(name, nodes, (1, 1, 2, 3), w=[[2.0, 3.0, 4.0]], regions=[[0.0, 0.0, 0.0, 2.0, 1.0]])


def compiled(eqfuse: CommandLine) -> None:
    eqfuse.small()
    outcome = eqfuse.run("compile", "in.onnx", "-o", "build", "-q")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def ort(path: Path, x: np.ndarray) -> np.ndarray:
    return outputs_of(path, {"x": x})[0]


# --- compile


def test_the_summary_says_all_that_matters(eqfuse: CommandLine) -> None:
    eqfuse.small()
    outcome = eqfuse.run("compile", "in.onnx", "-o", "build", "--threads", "1")
    expected = (
        "host", "1 thread(s)", "x: float32[2, 3]", "y: float32[2, 3]", "1, 1 distinct",
        "fallback: none, every kernel is compiled", "verification: passed", "written: build",
    )  # fmt: skip
    assert outcome.code == 0
    assert [text for text in expected if text not in outcome.out] == []


def test_copies_of_feature_maps_are_counted_apart(eqfuse: CommandLine) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    eqfuse.model("in.onnx", [conv], (1, 16, 32, 32), w=np.ones((8, 16, 3, 3)).tolist())
    outcome = eqfuse.run("compile", "in.onnx", "-o", "build", "--threads", "1", "--no-measure", "--no-verify")
    assert "1, 1 distinct, and 2 that copy feature maps" in outcome.out


def test_a_device_file_without_the_name_of_a_system_is_no_target(eqfuse: CommandLine) -> None:
    eqfuse.small()
    error = eqfuse.fail(2, "compile", "in.onnx", "-o", "build", "--target", "arm64")
    assert error.startswith("--target arm64: its device file has no mtriple")


@pytest.mark.conformance
def test_what_onnx_runtime_runs_is_reported(eqfuse: CommandLine) -> None:
    max_roi_pool(eqfuse)
    assert "fallback: 1 op (MaxRoiPool) run in ONNX Runtime" in eqfuse.run("compile", "in.onnx", "-o", "build").out


@pytest.mark.conformance
def test_json_holds_the_manifest(eqfuse: CommandLine) -> None:
    eqfuse.small()
    said = json.loads(eqfuse.run("compile", "in.onnx", "-o", "build", "--json", "--partition", "none").out)
    assert said["manifest"]["provenance"]["partition"] == "none"
    assert said["manifest"]["files"].keys() == {"model.so", "kernels.json", "plan.json", "weights.bin"}


def test_the_second_compile_comes_from_the_cache(eqfuse: CommandLine) -> None:
    eqfuse.chain(2)
    first = json.loads(eqfuse.run("compile", "in.onnx", "-o", "one", "--json").out)
    second = json.loads(eqfuse.run("compile", "in.onnx", "-o", "two", "--json").out)
    assert (first["from_cache"], second["from_cache"]) == (False, True)
    assert first["manifest"] == second["manifest"]


@pytest.mark.conformance
@pytest.mark.parametrize("option", [("--precision", "exact"), ("--threads", "1"), ("--partition", "fuseops")])
def test_other_options_are_compiled_anew(eqfuse: CommandLine, option: tuple[str, str]) -> None:
    eqfuse.chain(2)
    eqfuse.run("compile", "in.onnx", "-o", "one", "--threads", "2")
    assert not json.loads(eqfuse.run("compile", "in.onnx", "-o", "two", "--json", *option).out)["from_cache"]


@pytest.mark.conformance
def test_an_earlier_bundle_is_replaced(eqfuse: CommandLine) -> None:
    eqfuse.small()
    eqfuse.run("compile", "in.onnx", "-o", "build")
    eqfuse.chain(2)
    assert eqfuse.run("compile", "in.onnx", "-o", "build").code == 0
    assert [str(port) for port in read_manifest(eqfuse.folder / "build").inputs] == ["x: float32[4, 4]"]
    assert eqfuse.files() == ["build", "in.onnx"]


def test_nothing_is_written_where_verification_fails(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    eqfuse.small()
    wrong = Verification("failed", (), None, "output 'y' differs", 0.0)
    monkeypatch.setattr(check, "verify_compiled", lambda original, compiled, *_: (wrong, compiled))
    error = eqfuse.fail(3, "compile", "in.onnx", "-o", "build", "--seed", "7")
    assert "output 'y' differs; each kernel by itself is right" in error
    assert eqfuse.files() == ["in.onnx"]


@pytest.mark.conformance
def test_verification_may_be_left_out(eqfuse: CommandLine) -> None:
    eqfuse.small()
    outcome = eqfuse.run("compile", "in.onnx", "-o", "build", "--no-verify")
    assert "verification: none (--no-verify)" in outcome.out


@pytest.mark.conformance
def test_a_fixed_shape_helps(eqfuse: CommandLine) -> None:
    path = eqfuse.model("in.onnx", [helper.make_node("Softplus", ["x"], ["y"])], ("N", 3))
    assert eqfuse.run("compile", "in.onnx", "-o", "build", "--input-shapes", "x:2,3").code == 0
    np.save("x.npy", np.ones((2, 3), np.float32))
    eqfuse.run("run", "build", "--input", "x.npy", "--output", "y.npy")
    np.testing.assert_allclose(np.load("y.npy"), ort(path, np.ones((2, 3), np.float32)), rtol=1e-6)


def test_an_unknown_target_comes_with_what_was_meant(eqfuse: CommandLine) -> None:
    eqfuse.small()
    error = eqfuse.fail(2, "compile", "in.onnx", "-o", "build", "--target", "arm-cortex-a67")
    assert "the targets are host, arm-" in error
    assert "did you mean 'arm-cortex-a" in error


@pytest.mark.parametrize("model", ["missing.onnx", "text.onnx"])
def test_what_is_no_model_is_named(eqfuse: CommandLine, model: str) -> None:
    eqfuse.write("text.onnx", "hello")
    assert eqfuse.fail(1, "compile", model, "-o", "build").startswith(model)


def test_a_file_is_no_place_for_a_bundle(eqfuse: CommandLine) -> None:
    eqfuse.small()
    outcome = eqfuse.run("compile", "in.onnx", "-o", "in.onnx")
    assert outcome.code == 2
    assert onnx.load("in.onnx").graph.node


# --- run


def test_it_runs_as_onnx_runtime_does(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    np.save("x.npy", x)
    outcome = eqfuse.run("run", "build", "--input", "x=x.npy", "--output", "out.npz")
    assert outcome.code == 0
    np.testing.assert_allclose(np.load("out.npz")["y"], ort(Path("in.onnx"), x), rtol=1e-6)


def test_inputs_may_come_in_one_file(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    np.savez("all.npz", x=np.zeros((2, 3), np.float32))
    said = json.loads(eqfuse.run("run", "build", "--input", "all.npz", "--json").out)
    assert said["outputs"]["y"] == {"type": "float32", "shape": [2, 3], "min": -0.3, "max": 1.5, "mean": 0.633333}


def test_random_inputs_follow_their_seed(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    printed = [eqfuse.run("run", "build", "--random", seed).out for seed in (1, 1, 2)]
    assert printed[0] == printed[1] != printed[2]


@pytest.mark.conformance
def test_an_output_may_have_any_name(eqfuse: CommandLine) -> None:
    x, file = ([helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])] for name in ("x", "file"))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["file"])], "graph", x, file)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "in.onnx")
    eqfuse.run("compile", "in.onnx", "-o", "build", "-q")
    assert eqfuse.run("run", "build", "--random", 0, "--output", "out.npz").code == 0
    assert np.load("out.npz").files == ["file"]


def test_numbers_replace_a_file_once_they_are_all_written(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def half_written(stream: IO[bytes], *_: object, **__: object) -> None:
        stream.write(b"half of it")
        raise OSError("No space left on device")

    compiled(eqfuse)
    eqfuse.write("out.npz", "earlier")
    monkeypatch.setattr("numpy.lib.format.write_array", half_written)
    outcome = eqfuse.run("run", "build", "--random", 0, "--output", "out.npz")
    assert (outcome.code, outcome.error) == (1, "out.npz: cannot be written: No space left on device")
    assert Path("out.npz").read_text() == "earlier"
    assert eqfuse.files() == ["build", "in.onnx", "out.npz"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "build: input 'x' is missing"),
        (("--input", "z.npy"), "--input z.npy: no such file"),
        (("--input", "in.onnx"), "--input in.onnx: is no .npy or .npz file"),
        (("--input", "z=x.npy", "--random", 0), "build: there is no input 'z'"),
        (("--input", "x.npy", "--input", "x.npy"), "2 files without a name, and 1 inputs are left"),
        (("--input", "x.npy"), "input 'x': must be float32, not float64"),
        (("--random", 0, "--output", "nowhere/y.npz"), "nowhere does not exist"),
        (("--random", 0, "--output", "y.txt"), "name an .npz or .npy file"),
    ],
)
def test_inputs_and_outputs_that_do_not_fit(eqfuse: CommandLine, arguments: tuple[object, ...], message: str) -> None:
    compiled(eqfuse)
    np.save("x.npy", np.zeros((2, 3)))
    assert message in eqfuse.fail(2, "run", "build", *arguments)


# --- bench


def test_times_are_printed(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    outcome = eqfuse.run("bench", "build", "--repeat", "3", "--threads", "1")
    assert outcome.code == 0
    assert "build: 3 runs, 1 thread(s)" in outcome.out


def test_it_takes_turns_with_onnx_runtime(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    said = json.loads(eqfuse.run("bench", "build", "--against", "ort", "--repeat", "3", "--json").out)
    assert said.keys() - {"eqfuse_version", "schema"} == {"threads", "repeat", "eqfuse", "ONNX Runtime", "speed-up"}
    assert said["speed-up"]["wall"]["lower"] <= said["speed-up"]["wall"]["median"]


def test_the_original_has_to_be_the_same(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    eqfuse.chain(2)
    assert "is not the model that build was compiled from" in eqfuse.fail(2, "bench", "build", "--against", "ort")


def test_the_original_may_have_moved(eqfuse: CommandLine) -> None:
    compiled(eqfuse)
    Path("in.onnx").rename("moved.onnx")
    assert "say where it is by --model FILE" in eqfuse.run("bench", "build", "--against", "ort").error
    assert eqfuse.run("bench", "build", "--against", "ort", "--model", "moved.onnx", "--repeat", "1").code == 0


# --- the program as a whole


def test_commands_that_compile_nothing_do_not_import_tvm(eqfuse: CommandLine) -> None:
    eqfuse.small()
    program = (
        "import sys; from eqfuse.cli import main; main(['optimize', 'in.onnx', '-q']); sys.exit('tvm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=eqfuse.environment(), check=False)
    assert done.returncode == 0


def test_a_layout_may_save_more_than_its_kernel_takes() -> None:
    trials = (Trial("feature maps in ONNX's order", -2e-5),)
    slow = KernelTrials("kernel_1f_conv", ("Conv",), 1e-4, 2e-5, "", trials, "feature maps in ONNX's order")
    _, line = measurement_lines(MeasurementSummary(7, 0.5, (slow,)))
    assert "tried: feature maps in ONNX's order saves its neighbours 20 us more than it takes; now" in line


def test_a_plain_loop_that_was_compared_is_named() -> None:
    loop = KernelTrials("loop_1f_loop", ("Loop",), 0.3, 0.0, "", (Trial("ONNX Runtime", 0.03),), "ONNX Runtime")
    assert list(measurement_lines(MeasurementSummary(7, 0.5, (loop,)))) == [
        "measured: 7 steps; no slow kernel, 1 plain loop(s) compared, 1 replaced; 500 ms",
        "  loop_1f_loop: 300 ms, a plain loop; tried: ONNX Runtime 30 ms; now ONNX Runtime",
    ]


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [
        (None, ", since nothing that was tried ran"),
        (2e-3, ", since nothing is faster"),
        (9e-4, ", since the model is not clearly faster with it"),
    ],
)
def test_a_slow_kernel_that_was_left_has_a_reason(seconds: float | None, reason: str) -> None:
    slow = KernelTrials("kernel_1f_conv", ("Conv",), 1e-3, 2e-4, "", (Trial("ONNX Runtime", seconds),), "")
    _, line = measurement_lines(MeasurementSummary(7, 0.5, (slow,)))
    assert line.endswith(f"; left as it was{reason}")


def test_what_was_tried_for_a_slow_kernel_is_said() -> None:
    trials = (Trial("divided into 2 kernels", 1e-4), Trial("ONNX Runtime", None, "cannot be linked"))
    slow = KernelTrials("kernel_1f_conv_split", ("Conv", "Split"), 1e-3, 2e-4, "", trials, "divided into 2 kernels")
    wrong = KernelTrials("kernel_2_relu", ("Relu",), 0.0, 1e-6, "is off", trials, "divided into 2 kernels")
    assert list(measurement_lines(MeasurementSummary(7, 0.5, (slow, wrong)))) == [
        "measured: 7 steps; 1 kernel(s) compared, 1 replaced; 500 ms",
        "  kernel_1f_conv_split: 1 ms, estimated 200 us; tried: divided into 2 kernels 100 us, ONNX Runtime failed; "
        "now divided into 2 kernels",
    ]
    assert list(measurement_lines(MeasurementSummary(0, 0.0, problem="--no-measure"))) == [
        "measured: nothing (--no-measure)"
    ]
