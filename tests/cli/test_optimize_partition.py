"""``eqfuse optimize --partition``: what it prints and writes, and how it fails."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from eqfuse.api import optimize
from eqfuse.cli import main
from eqfuse.costmodels.measuring.measurement import Measurement
from eqfuse.costmodels.measuring.profile import ProfileDatabase
from eqfuse.driver import partition
from eqfuse.extract.partition.canonical_key import subgraph_key
from eqfuse.support.options import OptionError

ROOT = Path(__file__).parents[2]
METHODS = ("joint", "ago", "dnnfusion", "fuseops")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    runpy.run_path(str(ROOT / "examples/rules/models.py"))["main"](folder)
    return folder / "swish.onnx"


def optimized(model: Path, folder: Path, *options: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code = main(["optimize", str(model), "-o", str(folder / "out.onnx"), "--json", *options])
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == 0
    return printed


@pytest.mark.representatives(2)
@pytest.mark.parametrize("method", METHODS)
def test_groups_are_written_into_the_model(
    method: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = optimized(model, tmp_path, "--partition", method, capsys=capsys)["partition"]
    written = onnx.load(tmp_path / "out.onnx")
    groups = [p.value for n in written.graph.node for p in n.metadata_props if p.key == "eqfuse.group"]
    assert len(groups) == printed["operators"]
    assert {int(g) for g in groups} == set(range(int(printed["subgraphs"])))
    assert printed["method"] == method
    assert printed["certificate"]["groups"] == printed["subgraphs"]


def test_joint_is_at_most_rewriting_and_fusing_in_sequence(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = optimized(model, tmp_path, "--partition", "joint", capsys=capsys)["partition"]["costs"]
    assert costs["bound"] <= costs["joint"] <= min(costs["sequence"], costs["fused"])
    assert costs["sequence"] <= costs["rewritten"]
    assert costs["fused"] <= costs["original"]


def test_sub_graphs_as_functions_run_and_compute_the_same(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    optimized(model, tmp_path, "--partition", "joint", "--as-functions", capsys=capsys)
    written = onnx.load(tmp_path / "out.onnx")
    assert written.functions
    x = np.random.default_rng(1).standard_normal((16, 64), np.float32)
    first, second = [
        onnxruntime.InferenceSession(p, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for p in (model, tmp_path / "out.onnx")
    ]
    assert np.allclose(first, second, rtol=1e-4, atol=1e-5)


def test_the_options_of_fuse_ops_shape_the_functions_that_are_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = ("--as-functions", "--partition", "fuseops", "--max-function-args")
    optimized(model, tmp_path, *limited, "3", capsys=capsys)
    few = onnx.load(tmp_path / "out.onnx").functions
    assert few
    assert all(len(function.input) + len(function.output) <= 3 for function in few)
    optimized(model, tmp_path, *limited, "3", "--link-params", capsys=capsys)
    linked = onnx.load(tmp_path / "out.onnx").functions
    assert sum(len(function.node) for function in linked) > sum(len(function.node) for function in few)
    assert main(["inspect", str(model), "--partition", "fuseops", "--fuse-opt-level", "0", "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["partition"]["groups"]
    assert all(len(group["operators"]) == 1 for group in groups)


def test_the_tables_say_what_fusing_did(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", str(model), "-o", str(tmp_path / "out.onnx"), "--partition", "joint"]) == 0
    printed = capsys.readouterr().out
    for text in ("partition: joint", "fused kernels", "checked by z3", "lower bound for any rewrite and partition"):
        assert text in printed


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--certify",), 1)])
def test_a_proof_that_takes_too_long_is_missing_unless_the_user_insists(
    options: tuple[str, ...], code: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "CERTIFY_SECONDS", 0.0)
    monkeypatch.setattr(partition, "DEFAULT_CERTIFY_SECONDS", 0.0)
    result = tmp_path / "out.onnx"
    assert main(["optimize", str(model), "-o", str(result), "--partition", "fuseops", *options]) == code
    assert result.exists() == (code == 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--as-functions",), "--as-functions: is about sub-graphs, and partition is none"),
        (("--certify",), "--certify: is about sub-graphs, and partition is none"),
        (("--partition", "joint", "--cost", "flops"), "--partition: joint minimises time; it cannot be used with cost"),
        (("--partition", "ago", "--link-params"), "--link-params: is for partition fuseops, which was not asked for"),
    ],
)
def test_options_that_say_nothing_together(
    options: tuple[str, ...], message: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["optimize", str(model), *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.conformance
def test_a_kernel_that_was_measured_slow_is_not_made_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fused = fused_kernels(model)
    assert fused
    ProfileDatabase.open().add(*(Measurement(key, "host", 1.0, 0.0, 1, {"eqfuse": "test"}) for key in fused))
    assert fused.isdisjoint(fused_kernels(model, cost="profile"))
    assert fused_kernels(model) == fused


def test_pairs_are_profiled_for_dnnfusions_plan_alone(model: Path) -> None:
    with pytest.raises(OptionError, match="profile_pairs: is for partition dnnfusion with cost profile"):
        optimize(model, partition="dnnfusion", profile_pairs=1.0)


@pytest.mark.conformance
def test_what_a_plan_compares_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yellow = tmp_path / "yellow.onnx"
    text = """<ir_version: 10, opset_import: ["" : 21]> yellow (float[64, 64] x) => (float[64, 64] y) {
        s = Softmax (x) r = Sqrt (s) y = Transpose <perm = [1, 0]> (r)
    }"""
    onnx.save(onnx.parser.parse_model(text), yellow)
    options = ("--partition", "dnnfusion", "--cost", "profile", "--profile-pairs", "60")
    first, second = (optimized(yellow, tmp_path, *options, capsys=capsys)["partition"]["profiled"] for _ in range(2))
    assert first["measured"] >= 2
    assert (first["known"], first["missing"]) == (0, 0)
    assert (second["known"], second["measured"], second["missing"]) == (first["measured"], 0, 0)


def fused_kernels(model: Path, **options: Any) -> set[str]:
    """The keys of the kernels of several operators."""
    found = optimize(model, partition="joint", verify=False, **options).partition
    assert found is not None
    keys = {subgraph_key(found.partition.graph, kernel) for kernel in found.kernels if len(kernel) > 1}
    return {key for key in keys if key is not None}


@pytest.mark.parametrize("options", [(), ("--as-functions",)])
def test_a_certificate_that_was_written_is_checked_by_inspect(
    options: tuple[str, ...], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate = str(tmp_path / "c.json")
    optimized(model, tmp_path, "--partition", "joint", "--certificate", certificate, *options, capsys=capsys)
    assert main(["inspect", str(tmp_path / "out.onnx"), "--certificate", certificate, "--certify"]) == 0
    assert "checked by z3" in capsys.readouterr().out


def test_an_optimised_model_forgets_how_it_was_cut_before(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    optimized(model, tmp_path, "--partition", "ago", "--as-functions", capsys=capsys)
    assert main(["optimize", str(tmp_path / "out.onnx"), "-o", str(tmp_path / "again.onnx")]) == 0
    again = onnx.load(tmp_path / "again.onnx")
    assert not again.functions
    assert not [p for n in again.graph.node for p in n.metadata_props if p.key == "eqfuse.group"]
