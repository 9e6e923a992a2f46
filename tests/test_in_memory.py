"""Models in memory: `optimize` gives what it is given, and is a pass of onnx-ir."""

from __future__ import annotations

import pydoc
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, IdentityEliminationPass

import eqfuse
from eqfuse.support.errors import EqfuseError, ModelError

from .engine.models import model, normal, value


def projection(shape: tuple[int, int] = (3, 4)) -> onnx.ModelProto:
    """relu(relu(x w)), through an Identity."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Identity", ["p"], ["i"]),
        helper.make_node("Relu", ["i"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    return model(nodes, [value("x", [2, shape[0]])], [value("y", [2, shape[1]])], {"w": normal(*shape)})


def operators(graph: onnx.GraphProto) -> list[str]:
    return [node.op_type for node in graph.node]


def test_a_message_gives_a_new_message() -> None:
    proto = projection()
    kept = proto.SerializeToString()
    optimized = eqfuse.optimize(proto)
    assert operators(optimized.graph) == ["MatMul", "Relu"]
    assert proto.SerializeToString() == kept


def test_a_message_stays_as_it_is_where_the_result_gives_its_tensors_other_names() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> main (bool c) => (float[2] y) {
        y = If(c) <
            then_branch = g1() => (float[2] w) <float[2] w = {1, 2}> { },
            else_branch = g2() => (float[2] v) { v = Constant<value: tensor = float[2] {3, 4}>() }
        >
    }""")
    kept = proto.SerializeToString()
    onnx.checker.check_model(eqfuse.optimize(proto, verify=False), full_check=True)
    assert proto.SerializeToString() == kept


def test_a_model_of_onnx_ir_gives_a_new_one() -> None:
    given = ir.from_proto(projection())
    optimized = eqfuse.optimize(given)
    assert isinstance(optimized, ir.Model)
    assert [node.op_type for node in optimized.graph] == ["MatMul", "Relu"]
    assert [node.op_type for node in given.graph] == ["MatMul", "Identity", "Relu", "Relu"]


def test_the_figures_of_a_model_in_memory() -> None:
    result = eqfuse.optimize_with_result(projection())
    assert (result.before.layers, result.after.layers) == (4, 2)
    assert operators(result.proto.graph) == ["MatMul", "Relu"]


def test_help_says_what_optimize_returns() -> None:
    text = pydoc.plain(pydoc.render_doc(eqfuse.optimize))
    assert "-> 'ModelProto | onnx_ir.Model | Result'" in text
    assert "Returns a new onnx.ModelProto for a ModelProto" in text


class TestExternalData:
    """A message does not say where its file was: locations count from the working folder."""

    @pytest.fixture
    def message(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
        path = tmp_path / "in.onnx"
        onnx.save(projection((32, 40)), path, save_as_external_data=True, location="w.bin", size_threshold=0)
        monkeypatch.chdir(tmp_path)
        return onnx.load(path, load_external_data=False)

    def test_it_stays_where_it_is(self, message: onnx.ModelProto) -> None:
        (weight,) = eqfuse.optimize(message).graph.initializer
        assert {entry.key: entry.value for entry in weight.external_data}["location"] == "w.bin"

    def test_a_message_from_elsewhere_is_refused_with_a_remedy(
        self, message: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        with pytest.raises(ModelError, match=r"w\.bin of weight w is missing; .*give the path of the model"):
            eqfuse.optimize(message)


class TestOptimizePass:
    def test_it_stands_among_other_passes(self) -> None:
        given = ir.from_proto(projection())
        passes = ir.passes.Sequential(
            eqfuse.OptimizePass(precision="exact"), IdentityEliminationPass(), CommonSubexpressionEliminationPass()
        )
        result = passes(given)
        assert result.modified
        assert [node.op_type for node in result.model.graph] == ["MatMul", "Relu"]
        assert len(given.graph) == 4

    def test_it_says_that_nothing_is_left_to_do(self) -> None:
        optimize = eqfuse.OptimizePass(verify=False)
        first = optimize(ir.from_proto(projection()))
        second = optimize(first)
        assert (first.modified, second.modified) == (True, False)

    def test_an_option_that_cannot_be_used_is_named(self) -> None:
        with pytest.raises(EqfuseError, match=r"^precision: 'bogus' is not one of"):
            eqfuse.OptimizePass(precision="bogus")


@pytest.mark.conformance
def test_the_pass_beside_those_of_onnxscript() -> None:
    rewriter = pytest.importorskip("onnxscript.rewriter")
    common = pytest.importorskip("onnxscript.rewriter.rules.common")
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["a"]),
        helper.make_node("Reshape", ["a", "t"], ["b"]),
        helper.make_node("Mul", ["b", "two"], ["c"]),
        helper.make_node("Mul", ["c", "two"], ["y"]),
    ]
    weights = {"s": np.array([6]), "t": np.array([3, 2]), "two": np.array(2, np.float32)}
    given = model(nodes, [value("x", [2, 3])], [value("y", [3, 2])], weights)
    passes = ir.passes.Sequential(
        rewriter.RewritePass([common.reshape_reshape_rule]), eqfuse.OptimizePass(), IdentityEliminationPass()
    )
    result = passes(ir.from_proto(given))
    assert result.modified
    assert sorted(node.op_type for node in result.model.graph) == ["Mul", "Reshape"]
    assert eqfuse.verify(given, result.model).status == "passed"
