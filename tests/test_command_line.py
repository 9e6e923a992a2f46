"""The command line as a user meets it: what it prints, its exit codes, its errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqfuse.cli import main
from eqfuse.cli.parser import build_parser, input_shape

UNSOUND = """\
; exp(x) = relu(x), which it is not
; @property identity
; @sound real
; @requires none
; @source derived
; @example (Exp x) => (Relu x)
(rewrite (Exp x) (Relu x) :ruleset explore :name "made-up")
"""


def small(folder: Path, length: int = 2) -> Path:
    """Exp and a chain of MatMuls."""
    generator = np.random.default_rng(0)
    nodes = [helper.make_node("Exp", ["x"], ["h0"])]
    nodes += [helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"h{i + 1}"]) for i in range(length)]
    nodes.append(helper.make_node("Relu", [f"h{length}"], ["r"]))
    nodes.append(helper.make_node("Relu", ["r"], ["y"]))
    weights = [
        numpy_helper.from_array(generator.standard_normal((4, 4)).astype(np.float32), f"w{i}") for i in range(length)
    ]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "small", [tensor("x", TensorProto.FLOAT, [3, 4])], [tensor("y", TensorProto.FLOAT, [3, 4])], weights
    )
    path = folder / "in.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return path


def call(*arguments: object) -> int:
    return main([str(a) for a in arguments])


def only_error(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error."""
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "Traceback" not in lines[0]
    return lines[0]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@pytest.mark.parametrize("form", [("-o",), ()])
def test_optimize_writes_a_model(tmp_path: Path, form: tuple[str, ...]) -> None:
    assert call("optimize", small(tmp_path), *form, tmp_path / "out.onnx", "-q") == 0
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))


def test_optimize_prints_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("optimize", small(tmp_path)) == 0
    printed = capsys.readouterr().out
    for word in ("layers", "FLOPs", "intermediate bytes", "predicted", "relu-relu", "saturated", "optimal", "passed"):
        assert word in printed


def test_json_is_all_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("optimize", small(tmp_path), "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["after"]["layers"] < json.loads(printed.out)["before"]["layers"]
    assert printed.err == ""


def test_two_outputs_are_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("optimize", small(tmp_path), tmp_path / "a.onnx", "-o", tmp_path / "b.onnx") == 2
    assert "give one" in only_error(capsys)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("optimize", "nothing.onnx"), 1, "nothing.onnx: no such file"),
        (("optimize", "."), 1, "is a folder"),
        (("optimize", "in.onnx", "-o", "."), 1, "is a folder"),
        (("optimize", "in.onnx", "-o", "no/such/out.onnx"), 1, "does not exist"),
        (("optimize", "in.onnx", "-o", "in.onnx"), 2, "the input itself"),
        (("optimize", "in.onnx", "--device", "toaster"), 2, "toaster"),
        (("optimize", "in.onnx", "--only", "distributiv"), 2, "distributive"),
        (("optimize", "in.onnx", "--rules", "no.egg"), 4, "no.egg"),
        (("optimize", "in.onnx", "--input-shapes", "z:1,2"), 2, "no input 'z'"),
        (("rules", "show", "relu-rel"), 2, "relu-relu"),
        (("rules", "check", "no.egg"), 4, "no.egg"),
    ],
)
def test_errors_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    small(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert call(*arguments) == code
    assert message in only_error(capsys)
    assert [p.name for p in tmp_path.iterdir()] == ["in.onnx"]


def test_a_wrong_result_is_not_written_and_the_rule_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, bad = small(tmp_path), tmp_path / "bad.egg"
    bad.write_text(UNSOUND, encoding="utf-8")
    assert call("optimize", source, "-o", tmp_path / "out.onnx", "--rules", bad) == 3
    assert "h0" in only_error(capsys)
    assert not (tmp_path / "out.onnx").exists()
    assert call("bisect", source, "--rules", bad, "--only", "made-up", "--only", "relu-relu") == 3
    assert "bad.egg:7:1: rule made-up" in capsys.readouterr().out


def test_rules_check_names_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.egg"
    bad.write_text(UNSOUND.replace("(Relu x) :ruleset", "(Relu z) :ruleset"), encoding="utf-8")
    assert call("rules", "check", bad) == 4
    assert f"{bad}:7:" in capsys.readouterr().err


def test_rules_check_accepts_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("rules", "check") == 0
    assert "no problem found" in capsys.readouterr().out


def test_rules_list_counts_by_property(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("rules", "list", "--tag", "bounds", "--json") == 0
    assert {r["topic"] for r in json.loads(capsys.readouterr().out)} == {"bounds"}


def test_verify_passes_a_model_against_itself(tmp_path: Path) -> None:
    source = small(tmp_path)
    assert call("verify", source, source, "-q") == 0


def test_verify_fails_with_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = small(tmp_path)
    made = onnx.load(source)
    made.graph.node[0].op_type = "Sigmoid"
    other = tmp_path / "other.onnx"
    other.write_bytes(made.SerializeToString())
    assert call("verify", source, other) == 3
    assert "failed" in capsys.readouterr().out


def test_inspect_and_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = small(tmp_path)
    assert call("inspect", source, "--json") == 0
    assert json.loads(capsys.readouterr().out)["operators"]["MatMul"] == 2
    assert call("diff", source, source) == 0
    assert "layers" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["x:1,3,8,8", "x:[1,3,8,8]", "x:1x3x8x8"])
def test_shapes_in_three_spellings(text: str) -> None:
    assert input_shape(text) == ("x", (1, 3, 8, 8))


def test_shapes_of_names_with_colons() -> None:
    assert input_shape("image:0:batch,3") == ("image:0", ("batch", 3))


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'onnx', 'numpy', 'z3', 'onnxruntime', 'egglog', 'rich'}"
    script = f"import sys; from eqfuse.cli import parser; parser.build_parser(); print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.strip() == "set()"


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        build_parser().parse_args(["--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    for command in ("optimize", "verify", "inspect", "diff", "bisect", "rules"):
        assert command in printed


def test_interruption_leaves_nothing(tmp_path: Path) -> None:
    source = small(tmp_path, length=400)
    command = [sys.executable, "-m", "eqfuse", "optimize", source, "-o", tmp_path / "out.onnx"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True)
    time.sleep(1.2)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    if process.returncode != 0:  # a fast machine may be done before the signal
        assert process.returncode == 130
        assert "interrupted" in errors.strip().splitlines()[-1]
        assert [p.name for p in tmp_path.iterdir()] == ["in.onnx"]
