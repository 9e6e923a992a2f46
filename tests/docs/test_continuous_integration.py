"""The examples for continuous integration do on models what they promise: their shell lines run as they stand there."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx.parser import parse_model

FOLDER = Path(__file__).parents[2] / "examples/continuous_integration"


def _read(name: str) -> Any:
    yaml: Any = pytest.importorskip("yaml")
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def _write_model(path: Path, operator: str) -> None:
    path.parent.mkdir(exist_ok=True)
    text = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        network (float[2, 3] x) => (float[2, 3] y) {{ h = Relu(x) g = Relu(h) y = {operator}(g) }}
    """
    onnx.save(parse_model(text), path)


def _shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script as GitHub Actions does, with the eqfuse of this Python on the PATH."""
    program = folder / "bin/eqfuse"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m eqfuse "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    paths = os.pathsep.join(path for path in sys.path if path)
    variables = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": paths}
    return subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=variables, capture_output=True, text=True)


def _workflow_script() -> str:
    [script] = (step["run"] for step in _read("workflow.yml")["jobs"]["optimize"]["steps"] if "name" in step)
    return str(script)


def _hook_script(files: str) -> str:
    [hook] = _read("pre-commit-config.yaml")["repos"][0]["hooks"]
    return f"{hook['entry']} {files}"


@pytest.mark.conformance
def test_the_workflow_writes_results_and_reports(tmp_path: Path) -> None:
    _write_model(tmp_path / "models/a.onnx", "Sigmoid")
    done = _shell(_workflow_script(), tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "optimized").iterdir()) == ["a.onnx", "a.onnx.html"]


@pytest.mark.conformance
def test_the_workflow_fails_for_a_broken_model(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/broken.onnx").write_bytes(b"no model")
    assert _shell(_workflow_script(), tmp_path).returncode == 1


@pytest.mark.parametrize(("operator", "code"), [pytest.param("Sigmoid", 0, marks=pytest.mark.conformance), ("Tanh", 3)])
def test_the_hook_compares_a_result_with_the_model_beside_it(operator: str, code: int, tmp_path: Path) -> None:
    _write_model(tmp_path / "models/a.onnx", "Sigmoid")
    _write_model(tmp_path / "models/a.optimized.onnx", operator)
    done = _shell(_hook_script("models/a.optimized.onnx"), tmp_path)
    assert done.returncode == code, done.stderr
