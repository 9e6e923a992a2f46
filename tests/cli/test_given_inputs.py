"""Inputs that users give to commands, and results that nothing was compared with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqfuse.driver.bench import read_inputs
from eqfuse.lowering.base.ports import Port
from eqfuse.support.errors import UsageError

from ..engine.models import model, value
from .command_line import CommandLine


def choosy(eqfuse: CommandLine, name: str = "in.onnx", factor: float = 2.0) -> Path:
    """A model that runs at a rate of 8000 or 16000 only, which it compares no input with: at others an index is out of
    range."""
    make = helper.make_node
    nodes = [
        make("Sub", ["rate", "one"], ["less"]),
        make("Equal", ["less", "rates"], ["known"]),
        make("Cast", ["known"], ["counted"], to=TensorProto.INT64),
        make("ReduceMax", ["counted"], ["found"], keepdims=0),
        make("Sub", ["one", "found"], ["missing"]),
        make("Gather", ["factors", "missing"], ["factor"]),
        make("Relu", ["x"], ["first"]),
        make("Relu", ["first"], ["second"]),
        make("Mul", ["second", "factor"], ["y"]),
    ]
    weights = {"rates": np.array([7999, 15999]), "one": np.array(1), "factors": np.array([factor], np.float32)}
    inputs = [value("x", [2, 3]), value("rate", [], TensorProto.INT64)]
    return eqfuse.write(name, model(nodes, inputs, [value("y", [2, 3])], weights).SerializeToString())


def sample(eqfuse: CommandLine, name: str = "real.npz", rate: int = 16000) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    np.savez(eqfuse.folder / name, x=x, rate=np.array(rate))


NOTHING = "nothing was verified, the original does not run on drawn inputs: Gather: indices"


@pytest.mark.parametrize(
    "command",
    [("optimize", "-q"), *(pytest.param(c, marks=pytest.mark.conformance) for c in (("optimize",), ("compile", "-q")))],
    ids=" ".join,
)
def test_a_result_that_nothing_was_compared_with_is_not_written(eqfuse: CommandLine, command: tuple[str, ...]) -> None:
    choosy(eqfuse)
    outcome = eqfuse.run(*command, "in.onnx", "-o", "out.onnx")
    assert (outcome.code, outcome.out, eqfuse.files()) == (3, "", ["in.onnx"])
    assert outcome.error.startswith(f"in.onnx: {NOTHING}")
    assert "give real ones: --inputs FILE.npz; nothing was written; --no-verify does without" in outcome.error


def test_it_is_written_where_no_verdict_is_asked_for(eqfuse: CommandLine) -> None:
    choosy(eqfuse)
    outcome = eqfuse.run("optimize", "in.onnx", "out.onnx", "--no-verify")
    assert (outcome.code, eqfuse.files()) == (0, ["in.onnx", "out.onnx"])
    assert "verification: none (--no-verify)" in outcome.out


def test_with_real_inputs_it_is_verified(eqfuse: CommandLine) -> None:
    choosy(eqfuse)
    sample(eqfuse)
    outcome = eqfuse.run("optimize", "in.onnx", "out.onnx", "--inputs", "real.npz")
    assert outcome.code == 0
    assert "verification: passed, 1 output(s)" in outcome.out


@pytest.mark.conformance
def test_every_sample_is_run(eqfuse: CommandLine) -> None:
    choosy(eqfuse)
    sample(eqfuse)
    sample(eqfuse, "wrong.npz", rate=44100)
    error = eqfuse.fail(3, "optimize", "in.onnx", "out.onnx", "--inputs", "real.npz", "--inputs", "wrong.npz")
    assert "does not run on the given inputs: wrong.npz: Gather" in error


def test_what_does_not_fit_is_said_before_the_work(eqfuse: CommandLine) -> None:
    choosy(eqfuse)
    np.savez(eqfuse.folder / "short.npz", x=np.zeros((2, 3), np.float32))
    error = eqfuse.fail(2, "optimize", "in.onnx", "out.onnx", "--inputs", "short.npz")
    assert error == "short.npz: lacks the input 'rate': int64[]; it has 'x'"
    assert eqfuse.run("optimize", "in.onnx", "--inputs", "gone").code == 2


def test_models_are_compared_on_given_inputs(eqfuse: CommandLine) -> None:
    choosy(eqfuse)
    choosy(eqfuse, "other.onnx", factor=2.1)
    assert eqfuse.run("verify", "in.onnx", "in.onnx").code == 3
    sample(eqfuse)
    given = "--inputs", "real.npz", "--json"
    same, other = (eqfuse.run("verify", "in.onnx", name, *given) for name in ("in.onnx", "other.onnx"))
    assert (same.code, json.loads(same.out)["status"]) == (0, "passed")
    assert (other.code, json.loads(other.out)["status"]) == (3, "failed")


@pytest.mark.conformance
def test_bisect_runs_on_given_inputs(eqfuse: CommandLine) -> None:
    choosy(eqfuse)
    sample(eqfuse)
    error = eqfuse.fail(3, "bisect", "in.onnx")
    assert error.startswith("no rule is guilty, the run fails without any: in.onnx: nothing was verified")
    wrong = eqfuse.rule("wrong.egg", '(rewrite (Relu x) (Neg x) :ruleset simplify :name "wrong")')
    outcome = eqfuse.run("bisect", "in.onnx", "--rules", wrong, "--inputs", "real.npz")
    assert outcome.code == 3
    assert "rule wrong makes it fail" in outcome.out


def test_one_set_of_inputs_is_measured_on(tmp_path: Path) -> None:
    ports, paths = [Port("x", "float32", (2,))], [tmp_path / "a.npz", tmp_path / "b.npz"]
    for path in paths:
        np.savez(path, x=np.array([1.5, 2.5], np.float32))
    given = read_inputs(paths[:1], ports)
    assert given["x"].tolist() == [1.5, 2.5]
    with pytest.raises(UsageError, match="2 sets of inputs are given, and one is measured on"):
        read_inputs(paths, ports)


@pytest.mark.conformance
def test_a_bundle_is_verified_and_measured_on_given_inputs(eqfuse: CommandLine) -> None:
    choosy(eqfuse)
    sample(eqfuse)
    made = eqfuse.run("compile", "in.onnx", "-o", "build", "--threads", "1", "--inputs", "real.npz")
    assert (made.code, "verification: passed" in made.out) == (0, True)
    assert eqfuse.run("bench", "build", "--repeat", "2", "--inputs", "real.npz").code == 0
    sample(eqfuse, "wrong.npz", rate=44100)
    wrong = eqfuse.run("bench", "build", "--repeat", "2", "--against", "ort", "--inputs", "wrong.npz")
    assert (wrong.code, "indices element out of data bounds" in wrong.error) == (1, True)
    twice = eqfuse.run("bench", "build", "--inputs", "real.npz", "--inputs", "wrong.npz")
    assert twice.error == "--inputs: 2 sets of inputs are given, and one is measured on; name one file"


def test_a_guard_against_nan_that_a_rule_removes_is_found(eqfuse: CommandLine) -> None:
    """`sqrt(x) > w` is false where x < 0, and the larger of both is then no number."""
    nodes = [
        helper.make_node("Sqrt", ["x"], ["s"]),
        helper.make_node("Greater", ["s", "w"], ["g"]),
        helper.make_node("Where", ["g", "s", "w"], ["y"]),
    ]
    eqfuse.model("in.onnx", nodes, w=[[0.5, 0.5, 0.5]])
    command = '(rewrite (Where (Greater a b) a b) (Max a b) :ruleset simplify :name "larger")'
    trusted = "--trust-rules", "--rules", eqfuse.rule("larger.egg", command)
    outcome = eqfuse.run("optimize", "in.onnx", "out.onnx", *trusted)
    assert (outcome.code, eqfuse.files()) == (3, ["in.onnx", "larger.egg"])
    assert "NaN or infinity on one side only, on zeros, whole and equal numbers" in outcome.error


def test_operators_that_saw_one_side_are_reported(eqfuse: CommandLine) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Max", ["e", "w"], ["y"])]
    eqfuse.model("in.onnx", nodes, w=[[-1.0, -2.0, -3.0]])
    remark = "Max 'y': its first operand was never the smaller"
    assert f"branches not covered: {remark}\n" in eqfuse.run("optimize", "in.onnx", "out.onnx").out
    assert f"branches not covered: {remark}\n" in eqfuse.run("verify", "in.onnx", "out.onnx").out
    assert json.loads(eqfuse.run("verify", "in.onnx", "out.onnx", "--json").out)["one_sided"] == [remark]


def test_what_the_evaluator_of_onnx_cannot_run_is_said_in_plain_words(eqfuse: CommandLine) -> None:
    """A Scan of opset 8 has no float64 kernel; x / -0 is another infinity than x / +0."""
    make = helper.make_node
    body = helper.make_graph([make("Relu", ["row"], ["r"])], "body", [value("row", [1])], [value("r", [1])])
    scan = make("Scan", ["", "x"], ["last"], body=body, num_scan_inputs=1)
    ends = [value("x", [2, 3, 1])], [value("y", [2, 3, 1]), value("last", [2, 3, 1])]
    for name, zero in (("in.onnx", -0.0), ("out.onnx", 0.0)):
        nodes = [scan, make("Div", ["x", "zero"], ["y"])]
        onnx.save(model(nodes, *ends, {"zero": np.float32(zero)}, opset=8), eqfuse.folder / name)
    outcome = eqfuse.run("verify", "in.onnx", "out.onnx")
    assert outcome.code == 3
    assert "output 'y' differs: infinities of opposite signs" in outcome.out
    assert "onnx's reference evaluator does not run it: it fails in Scan 'last'" in outcome.out
    assert "concatenate" not in outcome.out
