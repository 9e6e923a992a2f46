"""The numeric effect of the precision modes, as ``eqfuse verify`` shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper

from eqfuse.costmodels.device import load_device
from eqfuse.engine.onnx.provenance import stamp

from .command_line import CommandLine

RECORD = """\
; (a b) c = a (b c), which rounds otherwise, whatever the record says
; @property associative
; @sound exact
; @requires none
; @source derived
; @example (MatMul (MatMul a b) c) => (MatMul a (MatMul b c))
"""
REGROUPED = """(rewrite (MatMul (MatMul a b) c) (MatMul a (MatMul b c)) :ruleset explore :name "regroup")"""


def mark(path: Path, precision: Any) -> None:
    """Let a model say that it was made with a precision."""
    model = onnx.load(path)
    metadata: dict[str, str] = {}
    stamp(metadata, precision, 5, load_device("arm64"))
    helper.set_model_props(model, metadata)
    onnx.save(model, path)


def sum_of(eqfuse: CommandLine, name: str, first: float, second: float) -> Path:
    """y = (x + first) + second."""
    nodes = [helper.make_node("Add", ["x", "a"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    return eqfuse.model(name, nodes, (4, 40), a=first, b=second)


def figures(eqfuse: CommandLine, *arguments: object) -> Any:
    return json.loads(eqfuse.run("verify", "in.onnx", "out.onnx", "--json", *arguments).out)


@pytest.mark.conformance
@pytest.mark.parametrize("precision", ["real", "fast"])
def test_the_effect_of_rounding_is_shown(eqfuse: CommandLine, precision: str) -> None:
    eqfuse.chain(4)
    eqfuse.run("optimize", "in.onnx", "out.onnx", "--precision", precision, "-q")
    outcome = eqfuse.run("verify", "in.onnx", "out.onnx")
    assert outcome.code == 0
    assert f"made with --precision {precision}, " in outcome.out
    assert "% of elements bit-identical, others up to " in outcome.out
    assert "accuracy: errors up to " in outcome.out


def test_the_effect_as_json(eqfuse: CommandLine) -> None:
    eqfuse.chain(4)
    eqfuse.run("optimize", "in.onnx", "out.onnx", "-q")
    content = figures(eqfuse)
    (output,) = content["outputs"]
    assert (content["precision"], content["rules"] > 0, output["elements"]) == ("real", True, 32)
    assert 0 <= output["bit_identical"] < 1
    assert output["max_ulp"] >= 1
    for side in ("original", "result"):
        assert 0 < output["float64_error"][side]["rms"] <= output["float64_error"][side]["max"] < 1e-4


def test_optimize_shows_the_effect(eqfuse: CommandLine) -> None:
    eqfuse.chain(4)
    assert "numeric effect: " in eqfuse.run("optimize", "in.onnx").out


def test_a_result_less_accurate_than_the_original_is_seen(eqfuse: CommandLine) -> None:
    """(x + 3000) - 3000 loses digits that x keeps."""
    sum_of(eqfuse, "in.onnx", 0.0, 0.0)
    sum_of(eqfuse, "out.onnx", 3000.0, -3000.0)
    (output,) = figures(eqfuse, "--atol", "1")["outputs"]
    assert output["float64_error"]["original"]["max"] == 0
    assert output["float64_error"]["result"]["max"] > 1e-5


def test_an_exact_result_is_bit_identical(eqfuse: CommandLine) -> None:
    eqfuse.small()
    eqfuse.run("optimize", "in.onnx", "out.onnx", "--precision", "exact", "-q")
    outcome = eqfuse.run("verify", "in.onnx", "out.onnx")
    assert outcome.code == 0
    assert "made with --precision exact, " in outcome.out
    assert "numeric effect: 100 % of elements bit-identical\n" in outcome.out


@pytest.mark.parametrize(("precision", "code"), [("exact", 3), ("real", 0), ("fast", 0)])
def test_rounding_fails_only_what_is_marked_exact(eqfuse: CommandLine, precision: str, code: int) -> None:
    sum_of(eqfuse, "in.onnx", 0.1, 0.3)
    mark(sum_of(eqfuse, "out.onnx", 0.3, 0.1), precision)
    assert eqfuse.run("verify", "in.onnx", "out.onnx", "-q").code == code


def test_other_bits_are_named_with_their_first_value(eqfuse: CommandLine) -> None:
    sum_of(eqfuse, "in.onnx", 0.1, 0.3)
    mark(sum_of(eqfuse, "out.onnx", 0.1 + 1e-8, 0.3), "exact")
    content = figures(eqfuse)
    assert "output 'y' differs: made with --precision exact, but " in content["reason"]
    assert content["first_divergent"] == "h"


def test_a_given_tolerance_is_final_for_exact_results_too(eqfuse: CommandLine) -> None:
    sum_of(eqfuse, "in.onnx", 0.1, 0.3)
    mark(sum_of(eqfuse, "out.onnx", 0.3, 0.1), "exact")
    assert eqfuse.run("verify", "in.onnx", "out.onnx", "--rtol", "1e-3", "-q").code == 0


def test_a_rule_that_calls_itself_exact_and_rounds_is_found(eqfuse: CommandLine) -> None:
    eqfuse.chain(4)
    eqfuse.rule("mine.egg", REGROUPED, RECORD)
    arguments = ("in.onnx", "--precision", "exact", "--rules", "mine.egg", "--trust-rules")
    assert "differ in their bits" in eqfuse.fail(3, "optimize", *arguments, "-o", "out.onnx")
    assert "out.onnx" not in eqfuse.files()
    assert "regroup" in eqfuse.run("bisect", *arguments).out


def test_constants_of_an_exact_result_are_what_the_runtime_computes(eqfuse: CommandLine) -> None:
    """A product of two weights, large enough for the runtime to have several kernels for it."""
    generator = np.random.default_rng(0)
    nodes = [helper.make_node("MatMul", ["v", "w"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])]
    weights = {"v": generator.standard_normal((98, 512)), "w": generator.standard_normal((512, 256))}
    eqfuse.model("in.onnx", nodes, (98, 256), **weights)
    eqfuse.run("optimize", "in.onnx", "out.onnx", "--precision", "exact", "-q")
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["Add"]
    assert eqfuse.run("verify", "in.onnx", "out.onnx", "-q").code == 0


def two_outputs(
    eqfuse: CommandLine, name: str, operator: str, kind: int, shape: list[int], **weights: ArrayLike
) -> None:
    """y = -x, and z by another operator of x and the weights, in a model marked exact."""
    tensor = helper.make_tensor_value_info
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node(operator, ["x", *weights], ["z"])]
    ends = [tensor("x", TensorProto.FLOAT, [4, 5])], [tensor("y", TensorProto.FLOAT, [4, 5]), tensor("z", kind, shape)]
    stored = [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "graph", *ends, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    mark(eqfuse.write(name, model.SerializeToString()), "exact")


def second_output(eqfuse: CommandLine, *, differs: bool = False) -> Any:
    """The report on z, where both models pass."""
    outcome = eqfuse.run("verify", "in.onnx", "out.onnx")
    assert outcome.code == (3 if differs else 0), outcome
    return figures(eqfuse)["outputs"][1]


@pytest.mark.parametrize(
    ("operator", "kind", "shape", "weights"),
    [
        ("ArgMax", TensorProto.INT64, [1, 5], {}),
        ("IsNaN", TensorProto.BOOL, [4, 5], {}),
        ("Greater", TensorProto.BOOL, [4, 5], {"zero": np.float32(0)}),
    ],
)
def test_outputs_that_are_no_floats_have_no_units(
    eqfuse: CommandLine, operator: str, kind: int, shape: list[int], weights: dict[str, ArrayLike]
) -> None:
    for name in ("in.onnx", "out.onnx"):
        two_outputs(eqfuse, name, operator, kind, shape, **weights)
    report = second_output(eqfuse)
    assert (report["bit_identical"], report["max_ulp"]) == (1.0, None)


def test_an_integer_output_that_differs_is_counted(eqfuse: CommandLine) -> None:
    two_outputs(eqfuse, "in.onnx", "Greater", TensorProto.BOOL, [4, 5], limit=np.float32(0))
    two_outputs(eqfuse, "out.onnx", "Greater", TensorProto.BOOL, [4, 5], limit=np.float32(0.5))
    assert 0 < second_output(eqfuse, differs=True)["bit_identical"] < 1


def test_outputs_without_elements_have_no_share(eqfuse: CommandLine) -> None:
    ends = {"starts": np.array([0]), "ends": np.array([0])}
    for name in ("in.onnx", "out.onnx"):
        two_outputs(eqfuse, name, "Slice", TensorProto.FLOAT, [0, 5], **ends)
    report = second_output(eqfuse)
    assert (report["elements"], report["bit_identical"], report["max_ulp"]) == (0, None, 0.0)


@pytest.mark.parametrize(
    ("operator", "weights"), [("Log", {}), ("Sqrt", {}), ("Div", {"zero": np.float32(0)})], ids=["log", "sqrt", "div"]
)
def test_nan_and_infinity_on_both_sides_are_identical(
    eqfuse: CommandLine, operator: str, weights: dict[str, ArrayLike]
) -> None:
    for name in ("in.onnx", "out.onnx"):
        two_outputs(eqfuse, name, operator, TensorProto.FLOAT, [4, 5], **weights)
    report = second_output(eqfuse)
    assert (report["bit_identical"], report["max_ulp"]) == (1.0, 0.0)


def test_infinity_on_one_side_is_infinitely_far(eqfuse: CommandLine) -> None:
    two_outputs(eqfuse, "in.onnx", "Div", TensorProto.FLOAT, [4, 5], divisor=np.float32(2))
    two_outputs(eqfuse, "out.onnx", "Div", TensorProto.FLOAT, [4, 5], divisor=np.float32(0))
    report = second_output(eqfuse, differs=True)
    assert (report["max_ulp"], report["bit_identical"]) == ("inf", 0.0)
