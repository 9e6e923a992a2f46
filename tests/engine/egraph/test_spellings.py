"""Operators that an opset lacks, in forms that ONNX Runtime runs as one kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import eqfuse
from eqfuse.costmodels.runtime import load_runtime
from eqfuse.engine.egraph.spellings import Earlier, Operand, find_spelled, spell_out
from eqfuse.engine.onnx.model import read
from eqfuse.ir.types import TensorType

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
def test_onnx_runtime_still_runs_one_kernel(nodes: tuple[tuple[str, ...], ...], kernel: str, tmp_path: Path) -> None:
    source = network(nodes, tmp_path / "in.onnx")
    assert kernel in kernels(source, tmp_path)
    result = eqfuse.optimize(source, tmp_path / "out.onnx")
    assert result.verification is not None
    assert result.verification.status == "passed"
    assert kernel in kernels(tmp_path / "out.onnx", tmp_path)


X = TensorType("float32", (2, 3, 8))
RUNTIME = load_runtime("onnxruntime")
CASES = [
    ("Gelu", {"approximate": "none"}, (X,), 11),
    ("Gelu", {"approximate": "tanh"}, (X,), 19),
    ("LayerNormalization", {"axis": 2, "epsilon": 1e-5, "stash_type": 1}, (X, X, X), 13),
    ("RMSNormalization", {"axis": 2, "epsilon": 1e-6, "stash_type": 1}, (X, X), 18),
]


@pytest.mark.parametrize(("op", "literals", "opset"), [("Gelu", {"approximate": "none"}, 20), ("Relu", {}, 17)])
def test_an_operator_that_the_opset_has_needs_no_spelling(op: str, literals: dict[str, object], opset: int) -> None:
    assert spell_out(RUNTIME, op, literals, (X,), opset) == ()


@pytest.mark.parametrize(("op", "literals", "operands", "opset"), CASES)
def test_lines_read_only_what_is_there(
    op: str, literals: dict[str, object], operands: tuple[TensorType, ...], opset: int
) -> None:
    lines = spell_out(RUNTIME, op, literals, operands, opset)
    assert lines
    for number, line in enumerate(lines):
        assert all(source.line < number for source in line.inputs if isinstance(source, Earlier))
        assert all(source.position < len(operands) for source in line.inputs if isinstance(source, Operand))


@pytest.mark.parametrize(
    ("axis", "type_"), [(1, X), (2, TensorType("float16", (2, 3, 8))), (2, TensorType("float32", None)), (2, None)]
)
def test_what_the_form_is_not_for_cannot_be_written(axis: int, type_: TensorType | None) -> None:
    literals = {"axis": axis, "epsilon": 1e-5, "stash_type": 1}
    assert spell_out(RUNTIME, "LayerNormalization", literals, (type_, X, X), 13) is None


def test_a_runtime_that_fuses_nothing_has_no_forms() -> None:
    assert spell_out(load_runtime("none"), "Gelu", {"approximate": "none"}, (X,), 11) == ()


def residual(*shape: int) -> onnx.ModelProto:
    """layernorm(x + b), b of that shape."""
    nodes = [
        helper.make_node("Add", ["x", "b"], ["s"]),
        helper.make_node("LayerNormalization", ["s", "scale", "shift"], ["n"], axis=-1),
    ]
    inputs = [value("x", [2, 4, 64]), value("b", shape)]
    return model(nodes, inputs, [value("n", [2, 4, 64])], {"scale": normal(64), "shift": normal(64, seed=1)})


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("shape", "runtime", "sum_", "kernel"),
    [
        ((2, 4, 64), "onnxruntime", "Sum", "LayerNormalization"),
        ((2, 4, 64), "none", "Add", "SkipLayerNormalization"),
        ((64,), "onnxruntime", "Add", "LayerNormalization"),
    ],
)
def test_a_sum_before_a_normalization_stays_apart(
    shape: tuple[int, ...], runtime: str, sum_: str, kernel: str, tmp_path: Path
) -> None:
    """ONNX Runtime's kernel for both takes longer than both; that of a bias it makes in another place."""
    onnx.save(residual(*shape), tmp_path / "in.onnx")
    eqfuse.optimize(tmp_path / "in.onnx", tmp_path / "out.onnx", runtime=runtime)
    written = onnx.load(tmp_path / "out.onnx")
    assert [node.op_type for node in written.graph.node] == [sum_, "LayerNormalization"]
    assert kernel in kernels(tmp_path / "out.onnx", tmp_path)
    again = eqfuse.optimize(written, runtime=runtime)
    assert again.graph == written.graph


def spelled_in(nodes: tuple[tuple[str, ...], ...], path: Path) -> list[tuple[str, tuple[str, ...], int]]:
    """The operators that nodes are recognised as, their operands, and how many nodes each takes."""
    source = read(network(nodes, path))
    found = find_spelled(list(source.graph), RUNTIME, 17, NUMBERS.get)
    return [(spelled.op, spelled.operands, len(spelled.nodes)) for spelled in found]


@pytest.mark.parametrize(
    "nodes", [ERF, TANH, (*ERF[:3], ("Mul", "n2", "x"), ERF[4]), (*TANH[:3], ("Add", "n2", "x"), *TANH[4:])]
)
def test_nodes_are_recognised_either_way(nodes: tuple[tuple[str, ...], ...], tmp_path: Path) -> None:
    assert spelled_in(nodes, tmp_path / "in.onnx") == [("Gelu", ("x",), len(nodes))]


@pytest.mark.parametrize(
    "nodes",
    [
        (("Div", "x", "half"), *ERF[1:]),
        (*ERF[:3], ("Mul", "w", "n2"), ERF[4]),
        (*ERF, ("Add", "n4", "n1")),
        (("Div", "x", "root"), ("Tanh", "n0"), *ERF[2:]),
    ],
    ids=["another constant", "another operand", "a value that others read", "another operator"],
)
def test_other_nodes_are_not(nodes: tuple[tuple[str, ...], ...], tmp_path: Path) -> None:
    assert spelled_in(nodes, tmp_path / "in.onnx") == []


def test_a_prediction_is_of_what_the_runtime_runs(tmp_path: Path) -> None:
    """It recognises these nodes, and other forms of them have the sum of their costs."""
    path = network(TANH, tmp_path / "in.onnx")
    whole, apart = (eqfuse.optimize(path, tmp_path / "out.onnx", runtime=name) for name in ("onnxruntime", "none"))
    assert whole.before.predicted < apart.before.predicted / 2
    assert whole.before.nodes == apart.before.nodes
