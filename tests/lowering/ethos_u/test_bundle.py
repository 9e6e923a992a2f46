"""Models compiled for an Ethos-U by Vela, if it is installed; the bits are those of Arm's reference model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from eqfuse.costmodels.ethos_device import ethos_names
from eqfuse.driver.bench import Estimation, bench_model
from eqfuse.driver.compiler.compile import compile_model
from eqfuse.driver.compiler.options import CompileOptions
from eqfuse.driver.html_report.bundle import write_bundle_report
from eqfuse.driver.html_report.ethos import layers_of
from eqfuse.driver.options import BenchOptions
from eqfuse.lowering.base.errors import BundleError
from eqfuse.lowering.base.toolchain import Tool, missing
from eqfuse.lowering.ethos_u.tosa.evaluation import evaluate_graph
from eqfuse.lowering.ethos_u.tosa.flatbuffer import to_bytes
from eqfuse.lowering.ethos_u.tosa.graph import Array, Builder
from eqfuse.lowering.ethos_u.verification import run_reference
from eqfuse.lowering.running.runner import load
from eqfuse.support.errors import UsageError

from ...onnx_runtime import outputs_of
from .networks import float_model, quantised, with_front, with_tail
from .test_emission import NETWORKS


def compiled(folder: Path, name: str, target: str, **options: object) -> Path:
    pytest.importorskip("ethosu.regor", reason="pip install 'eqfuse[ethos-u]'")
    model = quantised(float_model(*NETWORKS[name]), folder)
    output = folder / "bundle"
    compile_model(model, output, CompileOptions(target=target, time_limit=1.0, verify_limit=60.0, **options))
    return output


def test_a_bundle_runs_as_the_model(tmp_path: Path) -> None:
    bundle = load(compiled(tmp_path, "classifier", "ethos-u55-128", verify=False))
    assert bundle.manifest.ethos_u is not None
    x = np.random.default_rng(3).standard_normal(NETWORKS["classifier"][1]).astype(np.float32)
    (expected,) = outputs_of(tmp_path / "quantised.onnx", {"x": x}, as_written=True)
    steps = np.abs(bundle(x) - expected) / bundle.manifest.ethos_u["outputs"][0]["scale"]
    assert steps.max() < 1.5
    assert np.abs(expected).max() > 0


def test_a_bundle_has_the_files_of_a_board(tmp_path: Path) -> None:
    bundle = compiled(tmp_path, "convolution", "ethos-u65-256", verify=False)
    assert (bundle / "commands.bin").read_bytes().startswith(b"COP1")
    assert "#define MODEL_INPUT_0_OFFSET" in (bundle / "model.h").read_text()
    report = json.loads((bundle / "vela.json").read_text())
    assert report["chosen"]["cycles"] <= report["plain"]["cycles"]
    assert report["chosen"]["cpu_operators"] == 0


def test_a_report_shows_cycles_by_layer_and_memory_over_time(tmp_path: Path) -> None:
    bundle = compiled(tmp_path, "residual", "ethos-u65-256", verify=False)
    page = tmp_path / "page.html"
    write_bundle_report(page, bundle, BenchOptions())
    text = page.read_text(encoding="utf-8")
    report = json.loads((bundle / "vela.json").read_text())
    layers = layers_of(report["layers"])
    assert sum(layer.cycles for layer in layers) == report["chosen"]["cycles"]
    assert max(layer.sram for layer in layers) == report["chosen"]["memory"]["Sram"]
    bars = re.findall(r'<i class="c\d" style="left:([\d.]+)%;width:([\d.]+)%([^"]*)"', text)
    assert len(bars) == 2 * len(layers)
    assert sum(float(width) for _, width, more in bars if not more) == pytest.approx(100, abs=0.01 * len(layers))
    assert all(layer.name in text for layer in layers)
    with pytest.raises(UsageError, match="nothing is run here"):
        write_bundle_report(page, bundle, BenchOptions(repeat=3))
    (bundle / "vela.json").write_text("{}")
    with pytest.raises(BundleError):
        write_bundle_report(page, bundle, BenchOptions())


def test_bench_compares_with_vela_on_the_original(tmp_path: Path) -> None:
    bundle = compiled(tmp_path, "convolution", "ethos-u55-128", verify=False)
    alone, beside = (bench_model(bundle, BenchOptions(against=against)) for against in (None, "vela"))
    assert isinstance(alone, Estimation)
    assert isinstance(beside, Estimation)
    report = json.loads((bundle / "vela.json").read_text())
    assert beside.variants["vela"].cycles == report["plain"]["cycles"]
    assert beside.variants["eqfuse"] == alone.variants["eqfuse"]
    assert beside.speed_up == report["plain"]["cycles"] / report["chosen"]["cycles"]


def test_bench_refuses_what_a_program_for_an_npu_has_not(tmp_path: Path) -> None:
    bundle = compiled(tmp_path, "convolution", "ethos-u55-128", verify=False)
    with pytest.raises(UsageError, match=r"--kernels: .* is a program for an Ethos-U"):
        bench_model(bundle, BenchOptions(kernels=True))
    with pytest.raises(UsageError, match=r"--against ort: nothing here runs .*; add --against vela"):
        bench_model(bundle, BenchOptions(against="ort"))
    (tmp_path / "quantised.onnx").unlink()
    with pytest.raises(UsageError, match="say where it is by --model FILE"):
        bench_model(bundle, BenchOptions(against="vela"))


@pytest.mark.conformance
@pytest.mark.parametrize("target", ethos_names())
@pytest.mark.parametrize("name", NETWORKS)
def test_bits_are_those_of_the_reference_model(name: str, target: str, tmp_path: Path) -> None:
    bundle = load(compiled(tmp_path, name, target))
    assert "bits equal to Arm's reference model on 20 inputs" in bundle.manifest.provenance.verification


@pytest.mark.conformance
def test_a_processor_computes_what_the_npu_has_not(tmp_path: Path) -> None:
    pytest.importorskip("ethosu.regor", reason="pip install 'eqfuse[ethos-u]'")
    path = with_tail(quantised(float_model(*NETWORKS["convolution"]), tmp_path))
    options = CompileOptions(target="ethos-u55-128", time_limit=5.0, verify_limit=120.0)
    made = compile_model(path, tmp_path / "bundle", options)
    bundle = load(made.path)
    x = np.random.default_rng(3).standard_normal(NETWORKS["convolution"][1]).astype(np.float32)
    expected = outputs_of(path, {"x": x}, as_written=True)
    results = bundle.run({"x": x})
    assert [*results] == ["y", "z"]
    np.testing.assert_allclose(results["z"], expected[1], atol=0.1)
    assert np.ptp(expected[1]) > 0.5
    assert (made.path / "cpu" / "cpu_model.h").is_file()
    section = bundle.manifest.ethos_u
    assert section is not None
    assert section["processor"]["target"] == "arm-cortex-m55"
    absent = missing(Tool.BARE_COMPILER, Tool.BARE_EMULATOR)
    assert f"; processor: {'none' if absent else 'passed'}" in made.manifest.provenance.verification
    assert isinstance(bench_model(made.path, BenchOptions(against="vela")), Estimation)


@pytest.mark.conformance
def test_what_vela_refuses_goes_to_a_processor(tmp_path: Path) -> None:
    pytest.importorskip("ethosu.regor", reason="pip install 'eqfuse[ethos-u]'")
    text = (
        "a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w, b) c = Relu(a) "
        "d = Conv<kernel_shape=[3,3], group=8, strides=[4,4], pads=[1,1,1,1]>(c, v) y = Relu(d)"
    )
    shape, weights = (1, 4, 13, 9), {"w": (8, 4, 3, 3), "b": (8,), "v": (8, 1, 3, 3)}
    path = quantised(float_model(text, shape, weights), tmp_path)
    options = CompileOptions(target="ethos-u55-128", time_limit=5.0, verify_limit=120.0)
    bundle = load(compile_model(path, tmp_path / "bundle", options).path)
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    (expected,) = outputs_of(path, {"x": x}, as_written=True)
    np.testing.assert_allclose(bundle(x), expected, atol=0.1)
    assert bundle.manifest.ethos_u is not None
    assert "could not run on NPU" in bundle.manifest.ethos_u["processor"]["reason"]


@pytest.mark.conformance
@pytest.mark.parametrize("has_tail", [False, True])
def test_a_processor_computes_what_stands_in_front(tmp_path: Path, *, has_tail: bool) -> None:
    pytest.importorskip("ethosu.regor", reason="pip install 'eqfuse[ethos-u]'")
    text, shape, weights = NETWORKS["convolution"]
    path = quantised(float_model(text, shape, weights), tmp_path)
    path = with_front(with_tail(path) if has_tail else path, shape)
    options = CompileOptions(target="ethos-u55-128", time_limit=5.0, verify_limit=120.0)
    made = compile_model(path, tmp_path / "bundle", options)
    bundle = load(made.path)
    raw = 3 + np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    session = onnxruntime.InferenceSession(path)
    expected = dict(zip([each.name for each in session.get_outputs()], session.run(None, {"raw": raw}), strict=True))
    results = bundle.run({"raw": raw})
    assert [*results] == [*expected]
    for name, array in expected.items():
        np.testing.assert_allclose(results[name], array, atol=0.1, err_msg=name)
        assert np.ptp(array) > 0.5
    assert (made.path / "front" / "front_model.h").is_file()
    assert (made.path / "cpu").is_dir() == has_tail
    assert "; in front: " in made.manifest.provenance.verification
    assert isinstance(bench_model(made.path, BenchOptions(against="vela")), Estimation)


@pytest.mark.conformance
@pytest.mark.parametrize("count", [64, 65, 4100])
def test_any_number_of_maps_is_concatenated(count: int) -> None:
    """The reference model refuses lists of more than 64."""
    pytest.importorskip("ethosu.regor", reason="pip install 'eqfuse[ethos-u]'")
    builder = Builder()
    x, y = (builder.input(name, "int8", (1, 1, 1, 3)) for name in "xy")
    parts = [x if number % 3 else y for number in range(count)]
    graph = builder.finish([builder.add("CONCAT", parts, "int8", (1, 1, count, 3), axis=2)])
    feed: dict[str, Array] = {
        name: np.array(each, np.int8).reshape(1, 1, 1, 3) for name, each in {"x": [1, 2, 3], "y": [-4, 5, 6]}.items()
    }
    (made,) = run_reference(to_bytes(graph), graph, [feed], 60.0)
    (name,) = graph.outputs
    np.testing.assert_array_equal(made[name], evaluate_graph(graph, feed)[name])
