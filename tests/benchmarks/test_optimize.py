"""The comparison of optimisers: which models, which sizes, and the report on a wrong result."""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from eqfuse.benchmarks.measuring.results import judge_result, sample_of
from eqfuse.benchmarks.optimize import (
    ModelRecord,
    Process,
    Size,
    count_layers,
    geometric_mean,
    layers_text,
    models,
    named_size,
)

from ..engine.models import model, value


def save(path: Path, *operators: str) -> Path:
    names = ["x", *(f"h{n}" for n in range(1, len(operators))), "y"]
    nodes = [helper.make_node(op, [names[n]], [names[n + 1]]) for n, op in enumerate(operators)]
    onnx.save(model(nodes, *([value(name, ["n", "m"])] for name in "xy")), path)
    return path


@pytest.mark.parametrize(
    ("operators", "status"), [(["Relu"], "right"), (["Abs"], "wrong"), (["Relu", "NoSuchOperator"], "invalid")]
)
def test_a_result_is_judged_beside_its_original(tmp_path: Path, operators: list[str], status: str) -> None:
    original, result = save(tmp_path / "a.onnx", "Relu", "Relu"), save(tmp_path / "b.onnx", *operators)
    assert judge_result(original, result, None).status == status


def test_free_dimensions_have_the_sizes_that_are_given(tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", "Relu")
    sample = sample_of(path, {"m": 7})
    assert sample is not None
    assert sample.values["x"].shape == (1, 7)
    assert sample_of(path, {}) is None


def test_layers_in_bodies_are_counted() -> None:
    body = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Constant", [], ["c"], value_float=1.0)]
    branch = helper.make_graph(body, "branch", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)])
    node = helper.make_node("If", ["condition"], ["y"], then_branch=branch, else_branch=branch)
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])], [helper.make_empty_tensor_value_info("y")]
    assert count_layers(helper.make_graph([node], "graph", *ends), set()) == 3


def test_sizes_are_typed_by_name() -> None:
    assert named_size("height=64") == ("height", 64)
    with pytest.raises(argparse.ArgumentTypeError, match="'64' is not NAME=SIZE"):
        named_size("64")


def test_models_are_those_in_folders_and_packages(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    large, small = save(tmp_path / "deep" / "b.onnx", "Relu", "Relu"), save(tmp_path / "a.onnx", "Relu")
    assert models([tmp_path, small]) == [small, large]
    assert models([], ["pytest"]) == []


def test_means_are_geometric_and_failures_and_wrong_results_are_named() -> None:
    record = ModelRecord("model", Size(3, 3, 10))
    tools = record.tools
    tools["eqfuse"].processes, tools["onnxsim"].processes = [Process(1, 1, 1)], [Process(4, 1, 1)]
    tools["onnxslim"].processes = [Process(1, 1, 1, "it fell over")]
    assert record.ratio("onnxsim", "cpu") == 0.25
    assert geometric_mean([0.25, 4.0]) == "1.000"
    assert geometric_mean([]) == "-"
    assert layers_text(tools["onnxslim"]) == "failed"
