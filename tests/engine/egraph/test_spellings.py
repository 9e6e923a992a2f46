"""Gelu below opset 20, in forms that ONNX Runtime runs as one kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import eqfuse
from eqfuse.engine.egraph.spellings import OPERAND, spell_out

from ..models import model, normal, value

ERF = (("Div", "x", "root"), ("Erf", "n0"), ("Add", "n1", "one"), ("Mul", "x", "n2"), ("Mul", "n3", "half"))
TANH = (
    ("Mul", "x", "half"), ("Pow", "x", "three"), ("Mul", "n1", "small"), ("Add", "x", "n2"), ("Mul", "n3", "large"),
    ("Tanh", "n4"), ("Add", "n5", "one"), ("Mul", "n0", "n6"),
)  # fmt: skip
NUMBERS = {"root": 2**0.5, "one": 1.0, "half": 0.5, "three": 3.0, "small": 0.044715, "large": 0.7978845608028654}


def network(nodes: tuple[tuple[str, ...], ...], path: Path) -> Path:
    """A Gelu, spelled out, and a product whose weights could take its factor 1/2."""
    steps = [helper.make_node(op, list(inputs), [f"n{i}"]) for i, (op, *inputs) in enumerate(nodes)]
    steps.append(helper.make_node("MatMul", [steps[-1].output[0], "w"], ["y"]))
    constants = {name: np.asarray(number, np.float32) for name, number in NUMBERS.items()} | {"w": normal(64, 8)}
    used = {i for step in steps for i in step.input}
    weights = {name: array for name, array in constants.items() if name in used}
    onnx.save(model(steps, [value("x", [16, 64])], [value("y", [16, 8])], weights), path)
    return path


def kernels(path: Path, folder: Path) -> set[str]:
    """The kernels that ONNX Runtime runs."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "run.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return {node.op_type for node in onnx.load(folder / "run.onnx").graph.node}


@pytest.mark.parametrize(("nodes", "kernel"), [(ERF, "Gelu"), (TANH, "FastGelu")])
def test_onnx_runtime_still_runs_one_kernel(
    nodes: tuple[tuple[str, ...], ...], kernel: str, tmp_path: Path
) -> None:
    source = network(nodes, tmp_path / "in.onnx")
    assert kernel in kernels(source, tmp_path)
    result = eqfuse.optimize(source, tmp_path / "out.onnx")
    assert result.verification is not None
    assert result.verification.status == "passed"
    assert kernel in kernels(tmp_path / "out.onnx", tmp_path)


def test_an_opset_that_has_the_operator_needs_no_spelling() -> None:
    assert spell_out("Gelu", {"approximate": "none"}, 20) == ()
    assert spell_out("Relu", {}, 17) == ()


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_lines_read_only_what_is_there(approximate: str) -> None:
    for number, line in enumerate(spell_out("Gelu", {"approximate": approximate}, 17)):
        assert all(i == OPERAND or isinstance(i, float) or int(i) < number for i in line.inputs)
