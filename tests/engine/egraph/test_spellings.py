"""Gelu below opset 20: written in the forms that ONNX Runtime runs as one kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqfuse
from eqfuse.engine.egraph.spellings import OPERAND, spell_out

ERF = (("Div", "x", "root"), ("Erf", "n0"), ("Add", "n1", "one"), ("Mul", "x", "n2"), ("Mul", "n3", "half"))
TANH = (
    ("Mul", "x", "half"), ("Pow", "x", "three"), ("Mul", "n1", "small"), ("Add", "x", "n2"), ("Mul", "n3", "large"),
    ("Tanh", "n4"), ("Add", "n5", "one"), ("Mul", "n0", "n6"),
)  # fmt: skip
NUMBERS = {"root": 2**0.5, "one": 1.0, "half": 0.5, "three": 3.0, "small": 0.044715, "large": 0.7978845608028654}


def network(nodes: tuple[tuple[str, ...], ...], path: Path) -> Path:
    """A Gelu, spelled out, and a product whose weights could take its factor 1/2."""
    made = [helper.make_node(op, list(inputs), [f"n{i}"]) for i, (op, *inputs) in enumerate(nodes)]
    made.append(helper.make_node("MatMul", [made[-1].output[0], "w"], ["y"]))
    weights = {name: np.asarray(value, np.float32) for name, value in NUMBERS.items()}
    weights["w"] = np.random.default_rng(0).standard_normal((64, 8), np.float32)
    used = {i for node in made for i in node.input}
    graph = helper.make_graph(
        made, "gelu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [16, 8])],
        [numpy_helper.from_array(array, name) for name, array in weights.items() if name in used],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def kernels(model: Path, folder: Path) -> set[str]:
    """What ONNX Runtime runs."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "run.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
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
