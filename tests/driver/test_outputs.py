"""`outputs`: only the values that are asked for are computed."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.support.errors import UsageError

from ..engine.models import model, value


def two_branches() -> onnx.ModelProto:
    """y = relu(exp(x)), z = neg(w) + y; the input u is used by nobody."""
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Relu", ["e"], ["y"]),
        helper.make_node("Neg", ["w"], ["n"]),
        helper.make_node("Add", ["n", "y"], ["z"]),
    ]
    inputs = [value(name, ["batch", 3]) for name in "xwu"]
    return model(nodes, inputs, [value(name, ["batch", 3]) for name in "yz"])


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("outputs", "inputs", "nodes"),
    [
        (("y",), ["x", "u"], ["Exp"]),
        (("e",), ["x", "u"], ["Exp"]),
        (("n", "y"), ["x", "w", "u"], ["Exp", "Neg"]),
        (("z",), ["x", "w", "u"], ["Exp", "Sub"]),
    ],
)
def test_only_the_given_outputs_are_computed(
    tmp_path: Path, outputs: tuple[str, ...], inputs: list[str], nodes: list[str]
) -> None:
    """An input goes with the last node that reads it; one that nobody read stays."""
    result = eqfuse.optimize_with_result(two_branches(), tmp_path / "out.onnx", outputs=outputs)
    written = onnx.load(tmp_path / "out.onnx")
    assert [end.name for end in written.graph.output] == list(outputs)
    assert [end.name for end in written.graph.input] == inputs
    assert sorted(node.op_type for node in written.graph.node) == nodes
    assert result.verification is not None
    assert result.verification.status == "passed"
    onnx.checker.check_model(written, full_check=True)


@pytest.mark.parametrize(
    ("name", "advice"), [("yy", "did you mean y?"), ("nothing", "it has y, z"), ("x", "it has y, z")]
)
def test_a_wrong_output_is_refused(name: str, advice: str) -> None:
    with pytest.raises(UsageError, match=rf"^--outputs: graph computes no value '{name}'; {re.escape(advice)}$"):
        eqfuse.optimize(two_branches(), outputs=name)
