"""``domains``: operators of ONNX Runtime's own domain, made only where they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import eqfuse
from eqfuse.cli import main
from eqfuse.engine.choices import PartitionMethod
from eqfuse.support.errors import UsageError

from .engine.models import model, normal, value

MICROSOFT = "com.microsoft"


def residual() -> onnx.ModelProto:
    """s = x + y; n = layernorm(s), both of which are outputs."""
    nodes = [
        helper.make_node("Add", ["x", "y"], ["s"]),
        helper.make_node("LayerNormalization", ["s", "scale", "shift"], ["n"], axis=-1),
    ]
    ends = [value(name, ["batch", 4, 8]) for name in ("x", "y", "s", "n")]
    return model(nodes, ends[:2], ends[2:], {"scale": normal(8), "shift": normal(8, seed=1)})


def attention(*batch_and_length: int | str, mask: bool = False) -> onnx.ModelProto:
    """Attention of two heads as PyTorch exports it, on one tensor as query, key and value."""
    shape = [*batch_and_length, 16]
    orders = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
    nodes = []
    for name, order in orders.items():
        nodes.append(helper.make_node("MatMul", ["x", f"w{name}"], [f"p{name}"]))
        nodes.append(helper.make_node("Reshape", [f"p{name}", "split"], [f"r{name}"]))
        nodes.append(helper.make_node("Transpose", [f"r{name}"], [name], perm=order))
    nodes.append(helper.make_node("MatMul", ["q", "k"], ["scores"]))
    nodes.append(helper.make_node("Div", ["scores", "root"], ["scaled"]))
    if mask:
        nodes.append(helper.make_node("Add", ["scaled", "mask"], ["masked"]))
    nodes.append(helper.make_node("Softmax", ["masked" if mask else "scaled"], ["shares"], axis=-1))
    nodes.append(helper.make_node("MatMul", ["shares", "v"], ["heads"]))
    nodes.append(helper.make_node("Transpose", ["heads"], ["beside"], perm=[0, 2, 1, 3]))
    nodes.append(helper.make_node("Reshape", ["beside", "join"], ["y"]))
    weights = {f"w{name}": normal(16, 16, seed=seed) for seed, name in enumerate("qkv")}
    weights |= {"split": np.array([0, 0, 2, 8]), "join": np.array([0, 0, 16]), "root": np.array(2.8284, np.float32)}
    inputs = [value("x", shape)] + ([value("mask", [batch_and_length[0], 1, 1, batch_and_length[1]])] if mask else [])
    return model(nodes, inputs, [value("y", shape)], weights)


def convolutions() -> onnx.ModelProto:
    """relu(conv(relu(conv(x))) + x)"""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["x", "d"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    weights = {"w": normal(4, 4, 3, 3), "v": normal(4, 4, 3, 3, seed=1)}
    return model(nodes, [value("x", [1, 4, 6, 6])], [value("y", [1, 4, 6, 6])], weights)


def perceptron() -> onnx.ModelProto:
    """gelu(x w + b), spelled out as PyTorch does at opset 17."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["a"]),
        helper.make_node("Div", ["a", "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["f"]),
        helper.make_node("Mul", ["a", "f"], ["m"]),
        helper.make_node("Mul", ["m", "half"], ["y"]),
    ]
    numbers = {"root": 2**0.5, "one": 1.0, "half": 0.5}
    weights = {"w": normal(8, 16), "b": normal(16)} | {n: np.asarray(v, np.float32) for n, v in numbers.items()}
    return model(nodes, [value("x", [2, 4, 8])], [value("y", [2, 4, 16])], weights)


def operators(given: onnx.ModelProto, domains: Sequence[str] = (MICROSOFT,)) -> list[str]:
    """The operators of the result, which is verified."""
    optimized = eqfuse.optimize(given, domains=domains)
    imports = {each.domain: each.version for each in optimized.opset_import}
    nodes = optimized.graph.node
    assert imports.get(MICROSOFT) == (1 if any(node.domain == MICROSOFT for node in nodes) else None)
    return [node.op_type for node in nodes]


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (residual(), ["SkipLayerNormalization"]),
        (attention(2, 32), ["MatMul", "MatMul", "MatMul", "MultiHeadAttention"]),
        (attention("batch", "length"), ["MatMul", "MatMul", "MatMul", "MultiHeadAttention"]),
        (attention(2, 32, mask=True), ["MatMul", "MatMul", "MatMul", "Expand", "MultiHeadAttention"]),
        (convolutions(), ["FusedConv", "FusedConv"]),
        (perceptron(), ["MatMul", "BiasGelu"]),
    ],
)
def test_kernels_of_the_runtime_take_the_place_of_several_nodes(given: onnx.ModelProto, expected: list[str]) -> None:
    assert sorted(operators(given)) == sorted(expected)


@pytest.mark.representatives(2)
@pytest.mark.parametrize("given", [residual(), attention(2, 32), convolutions(), perceptron()])
def test_results_are_portable_unless_a_domain_is_asked_for(given: onnx.ModelProto) -> None:
    assert {node.domain for node in eqfuse.optimize(given).graph.node} == {""}


@pytest.mark.parametrize("partition", ["joint", "ago"])
def test_sub_graphs_have_kernels_of_the_runtime(partition: PartitionMethod) -> None:
    result = eqfuse.optimize_with_result(convolutions(), domains=(MICROSOFT,), partition=partition)
    assert result.verification is not None
    assert result.verification.status == "passed"
    assert [node.op_type for node in result.model.graph] == ["FusedConv", "FusedConv"]


@pytest.mark.conformance
def test_a_compiled_model_has_kernels_of_the_runtime(tmp_path: Path) -> None:
    """ONNX Runtime runs the kernels that TVM has no lowering for."""
    eqfuse.compile(convolutions(), tmp_path / "bundle", domains=(MICROSOFT,), threads=1)
    x = normal(1, 4, 6, 6)
    expected = ort.InferenceSession(convolutions().SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(eqfuse.load(tmp_path / "bundle")(x), expected[0], rtol=1e-4, atol=1e-5)


def test_an_output_that_nobody_reads_has_no_name() -> None:
    """The kernel leaves out mean and deviation, which are for training."""
    (node,) = eqfuse.optimize(residual(), domains=MICROSOFT).graph.node
    assert list(node.output) == ["n", "", "", "s"]


def test_a_group_of_them_can_be_left_out() -> None:
    optimized = eqfuse.optimize(residual(), domains=MICROSOFT, skip="contributed")
    assert [node.op_type for node in optimized.graph.node] == ["Sum", "LayerNormalization"]


def test_a_domain_without_rules_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^no rules are for the domain 'com\.example'; there are some for com\.mic"):
        eqfuse.optimize(residual(), domains="com.example")


def test_the_command_line(tmp_path: Path) -> None:
    onnx.save(residual(), tmp_path / "in.onnx")
    assert main(["optimize", str(tmp_path / "in.onnx"), str(tmp_path / "out.onnx"), "-q", "--domain", MICROSOFT]) == 0
    assert [node.domain for node in onnx.load(tmp_path / "out.onnx").graph.node] == [MICROSOFT]
