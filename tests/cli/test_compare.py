"""``eqfuse verify``, ``inspect`` and ``diff``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from ..engine.models import model, value
from .command_line import CommandLine


def test_a_model_verifies_against_itself(eqfuse: CommandLine) -> None:
    eqfuse.small()
    outcome = eqfuse.run("verify", "in.onnx", "in.onnx")
    assert outcome.code == 0
    assert "passed" in outcome.out


def test_a_difference_has_its_exit_code_and_names_the_tensor(eqfuse: CommandLine) -> None:
    eqfuse.small()
    nodes = [helper.make_node("Exp", ["x"], ["first"]), helper.make_node("Add", ["first", "w"], ["y"])]
    eqfuse.model("other.onnx", nodes, w=[[1.5, -0.3, 0.7]])
    outcome = eqfuse.run("verify", "in.onnx", "other.onnx", "--json")
    assert outcome.code == 3
    assert json.loads(outcome.out)["first_divergent"] == "first"


def test_what_was_not_verified_does_not_pass(eqfuse: CommandLine) -> None:
    eqfuse.model("in.onnx", [helper.make_node("Sub", ["x", "x"], ["y"])])
    assert "in.onnx: was not verified" in eqfuse.fail(1, "verify", "in.onnx", "in.onnx", "-q")


def test_a_tolerance_decides(eqfuse: CommandLine) -> None:
    for name, number in (("a.onnx", 1.0), ("b.onnx", 1.01)):
        eqfuse.model(name, [helper.make_node("Add", ["x", "w"], ["y"])], w=number)
    assert eqfuse.run("verify", "a.onnx", "b.onnx", "-q").code == 3
    assert eqfuse.run("verify", "a.onnx", "b.onnx", "-q", "--atol", "0.1").code == 0


@pytest.mark.parametrize(
    ("shape", "message"),
    [("z:2,3", "no input 'z'"), ("x:batch,3", "--input-shapes x: to run a model every dimension must be a number")],
)
def test_shapes_that_do_not_fit(eqfuse: CommandLine, shape: str, message: str) -> None:
    eqfuse.small()
    assert message in eqfuse.fail(2, "verify", "in.onnx", "in.onnx", "--input-shapes", shape)


def test_inspect_describes_the_model(eqfuse: CommandLine) -> None:
    eqfuse.small()
    printed = eqfuse.run("inspect", "in.onnx").out
    expected = ("ai.onnx 17", "input x", "[2, 3]", "output y", "FLOPs", "predicted latency", "Relu")
    assert [text for text in expected if text not in printed] == []


def test_inspect_as_json(eqfuse: CommandLine) -> None:
    eqfuse.model("in.onnx", [helper.make_node("Relu", ["x"], ["y"])], ("batch", 3))
    content = json.loads(eqfuse.run("inspect", "in.onnx", "--json", "--input-shapes", "x:7x3").out)
    assert content["inputs"] == {"x": "float[7, 3]"}
    assert content["operators"] == {"Relu": 1}


def with_assumptions(path: Path) -> None:
    """x of symbolic sizes, times a weight in a Constant node, then an If."""
    weight = numpy_helper.from_array(np.ones((8, 8), np.float32))
    bodies = {
        name: helper.make_graph([helper.make_node(op, ["h"], ["o"])], name, [], [onnx.ValueInfoProto(name="o")])
        for name, op in (("then_branch", "Neg"), ("else_branch", "Abs"))
    }
    nodes = [
        helper.make_node("Constant", [], ["w"], value=weight),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0),
        helper.make_node("IsNaN", ["largest"], ["c"]),
        helper.make_node("If", ["c"], ["y"], **bodies),
    ]
    onnx.save(model(nodes, *([value(name, ["batch", "length", 8])] for name in "xy")), path)


def test_batches_without_a_name_count_once(eqfuse: CommandLine) -> None:
    ends = ([value(name, [None, 3, "H", None])] for name in "xy")
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])], *ends), eqfuse.folder / "in.onnx")
    assert "assumed sizes: unnamed batches = 1; H, unnamed dimensions = 128" in eqfuse.run("inspect", "in.onnx").out


@pytest.mark.parametrize("command", ["inspect", "optimize"])
def test_figures_name_their_assumptions(eqfuse: CommandLine, command: str) -> None:
    with_assumptions(eqfuse.folder / "in.onnx")
    printed = eqfuse.run(command, "in.onnx").out
    assert "assumed sizes: batch = 1; length = 128 (--input-shapes fixes them)\n" in printed
    assert "counted as run once each: the bodies of 1 If\n" in printed
    assert "layers: nodes that depend on an input; computed once: 1 other(s)\n" in printed
    fixed = eqfuse.run(command, "in.onnx", "--input-shapes", "x:1,4,8").out
    assert "assumed sizes" not in fixed
    content = json.loads(eqfuse.run(command, "in.onnx", "--json").out)
    summary = content if command == "inspect" else content["before"]
    assert (summary["weight_bytes"], summary["counted_bodies"]) == (256, {"If": 1})


def test_values_near_zero_do_not_count_in_units(eqfuse: CommandLine) -> None:
    """x + 3e-8 is many units away from x where x is near zero, and none elsewhere."""
    for name, shift in (("in.onnx", 0.0), ("out.onnx", 3e-8)):
        nodes = [helper.make_node("Mul", ["x", "scale"], ["h"]), helper.make_node("Add", ["h", "shift"], ["y"])]
        eqfuse.model(name, nodes, scale=[[1.0, 1.0, 1e-6]], shift=shift)
    (output,) = json.loads(eqfuse.run("verify", "in.onnx", "out.onnx", "--json").out)["outputs"]
    assert output["bit_identical"] < 1
    assert output["max_ulp"] < 10


def test_diff_shows_what_changed(eqfuse: CommandLine) -> None:
    eqfuse.small()
    eqfuse.run("optimize", "in.onnx", "out.onnx", "-q")
    outcome = eqfuse.run("diff", "in.onnx", "out.onnx")
    assert outcome.code == 0
    assert ["Relu", "2", "1", "-1"] in [line.split() for line in outcome.out.splitlines()]
    content = json.loads(eqfuse.run("diff", "in.onnx", "out.onnx", "--json").out)
    assert (content["before"]["layers"], content["after"]["layers"]) == (3, 2)


def test_inspect_shows_several_models_side_by_side(eqfuse: CommandLine) -> None:
    eqfuse.small()
    eqfuse.chain(3, "chain.onnx")
    outcome = eqfuse.run("inspect", "in.onnx", "chain.onnx", "--partition", "ago")
    rows = [line.split() for line in outcome.out.splitlines()]
    assert outcome.code == 0
    assert ["layers", "3", "3"] in rows
    assert ["MatMul", "0", "3"] in rows
    assert [row[-2:] for row in rows if row[:3] == ["kernels", "of", "the"]] == [["1", "1"]]
    content = json.loads(eqfuse.run("inspect", "in.onnx", "chain.onnx", "--json").out)
    assert [each["model"] for each in content["models"]] == ["in.onnx", "chain.onnx"]
    assert "missing.onnx: no such file" in eqfuse.fail(1, "inspect", "in.onnx", "missing.onnx")
