"""What is refused or stopped, and leaves nothing behind: files that are no models, unsound and runaway rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.engine.egraph.saturate import UnsoundRuleError
from eqfuse.engine.onnx.model import read, write
from eqfuse.support.errors import ModelError, RuleError, UsageError, VerificationError

from .engine.models import convnet, model, value

X = value("x", [2, 3])
RECORD = """\
; {formula}
; @property {property}
; @sound real
; @requires none
; @source derived
; @example {left} => {right}
(rewrite {left} {right} :ruleset explore :name "{name}")
"""


def rule(folder: Path, name: str, left: str, right: str, property_: str = "identity") -> Path:
    path = folder / f"{name}.egg"
    text = RECORD.format(formula="made up", property=property_, left=left, right=right, name=name)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), (b"", "empty"), (b"\xff" * 99, "not an ONNX file"), (b"hello, world", "not an ONNX")],
)
def test_files_that_are_no_models(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        read(path)


def test_a_cut_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(convnet().SerializeToString()[:200])
    with pytest.raises(ModelError, match=r"cut short|malformed|holds no graph"):
        read(path)


def test_missing_external_data(tmp_path: Path) -> None:
    onnx.save(convnet(), tmp_path / "in.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"w\.bin"):
        read(tmp_path / "in.onnx")


def test_a_model_that_fails_the_checker() -> None:
    with pytest.raises(ModelError, match="checker"):
        eqfuse.optimize(model([helper.make_node("Relu", ["x"], ["y"], slope=2)], [X], ["y"]))


@pytest.mark.parametrize(
    "text",
    [
        "(float[1, n, 4] b, float[1, 2, n] s) => (int64[m, 3] y) <int8 k = {3}> { y = NonMaxSuppression (b, s, k) }",
        "(float[n, m] x) => (float[n, k] y) <int64[2] times = {1, -1}> { y = Tile (x, times) }",
        '(float[n, m] x) => (float[k, m] y) { h = Concat <axis = 0> (x, "") y = Relu (h) }',
    ],
    ids=["types", "negative_repeats", "absent_operand"],
)
def test_operands_that_an_operator_cannot_take_stay(text: str) -> None:
    broken = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> broken {text}')
    kept = eqfuse.optimize(broken, verify=False)
    assert [node.op_type for node in kept.graph.node] == [node.op_type for node in broken.graph.node]


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("onnx_ir.save", full)
    with pytest.raises(ModelError, match="No space left"):
        write(read(convnet()), tmp_path / "out.onnx")
    assert list(tmp_path.iterdir()) == []


def test_writing_over_the_input_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "in.onnx"
    onnx.save(convnet(), source)
    with pytest.raises(UsageError, match="the input itself"):
        eqfuse.optimize(source, source)


@pytest.mark.parametrize("option", ["output", "certificate"])
def test_writing_over_the_weights_is_refused(tmp_path: Path, option: str) -> None:
    weights = tmp_path / "w.bin"
    onnx.save(convnet(), tmp_path / "in.onnx", save_as_external_data=True, location=weights.name, size_threshold=0)
    before = weights.read_bytes()
    destinations = {"output": tmp_path / "out.onnx", option: weights}
    with pytest.raises(UsageError, match=r"w\.bin: is the input itself, or holds its weights"):
        eqfuse.optimize(tmp_path / "in.onnx", partition="ago", **destinations)  # type: ignore[call-overload]
    assert weights.read_bytes() == before


def test_a_certificate_in_the_place_of_the_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be both model and certificate"):
        eqfuse.optimize(convnet(), tmp_path / "out", partition="ago", certificate=tmp_path / "out")


def test_an_older_opset_is_refused() -> None:
    with pytest.raises(UsageError, match="already uses opset 17"):
        eqfuse.optimize(convnet(), opset=13)


def test_an_unsound_rule_is_caught_by_verification(tmp_path: Path) -> None:
    bad = rule(tmp_path, "wrong", "(Exp x)", "(Relu x)")
    source = model([helper.make_node("Exp", ["x"], ["y"])], [X], ["y"])
    with pytest.raises(VerificationError, match="differs from the original"):
        eqfuse.optimize(source, tmp_path / "out.onnx", rules=(bad,), trust_rules=True)
    assert not (tmp_path / "out.onnx").exists()


def test_an_unsound_rule_is_caught_by_its_shapes(tmp_path: Path) -> None:
    bad = rule(tmp_path, "shapes", "(ReduceSum x a k)", "x")
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"])]
    with pytest.raises(UnsoundRuleError, match=r"shapes\.egg:\d+:1: rule shapes united two terms of different shape"):
        eqfuse.optimize(model(nodes, [X], ["y"], {"axes": np.array([1])}), rules=(bad,), trust_rules=True)


def test_a_rule_file_with_an_unbound_variable_names_the_place(tmp_path: Path) -> None:
    bad = rule(tmp_path, "unbound", "(Exp x)", "(Relu z)")
    with pytest.raises(RuleError, match=r"unbound\.egg:\d+:\d+"):
        eqfuse.optimize(convnet(), rules=(bad,))


@pytest.mark.conformance
def test_a_runaway_rule_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "runaway.egg"
    rules = [
        ("swap", "(Add a b)", "(Add b a)"),
        ("left", "(Add a (Add b c))", "(Add (Add a b) c)"),
        ("right", "(Add (Add a b) c)", "(Add a (Add b c))"),
    ]
    text = "".join(
        RECORD.format(formula="f", property="associative", left=left, right=right, name=f"run-{name}")
        for name, left, right in rules
    )
    path.write_text(text, encoding="utf-8")
    nodes = [helper.make_node("Sin" if i % 2 else "Cos", ["x" if i < 2 else f"t{i - 2}"], [f"t{i}"]) for i in range(24)]
    total = "t0"
    for i in range(1, 24):
        nodes.append(helper.make_node("Add", [total, f"t{i}"], [f"s{i}"]))
        total = f"s{i}"
    nodes.append(helper.make_node("Identity", [total], ["y"]))
    result = eqfuse.optimize_with_result(
        model(nodes, [X], ["y"]), rules=(path,), trust_rules=True, node_limit=1500, time_limit=3.0, verify_limit=120.0
    )
    assert result.saturation.stop_reason in ("node limit", "time limit")
    assert result.verification is not None
    assert result.verification.status == "passed"


def test_a_softmax_without_an_axis_has_a_cost() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> broken (float x) => (float y) { y = Softmax (x) }'
    kept = eqfuse.optimize(onnx.parser.parse_model(text), verify=False)
    assert [node.op_type for node in kept.graph.node] == ["Softmax"]
