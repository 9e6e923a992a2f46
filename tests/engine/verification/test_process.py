"""Verification in a process of its own: models that crash it or never end cost one line, and nothing else."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqfuse.engine.verification import verify
from eqfuse.support.errors import VerificationError

from ..models import model, value

LEAST = np.iinfo(np.int64).min


def endless() -> onnx.ModelProto:
    """A Loop without a count whose condition stays true."""
    nodes = [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Add", ["sum", "x"], ["more"])]
    counters = [value("i", [], TensorProto.INT64), value("on", [], TensorProto.BOOL), value("sum", [3])]
    body = helper.make_graph(nodes, "body", counters, [value("still", [], TensorProto.BOOL), value("more", [3])])
    return model([helper.make_node("Loop", ["", "true", "x"], ["y"], body=body)], [value("x", [3])], ["y"],
                 {"true": np.asarray(True)})  # fmt: skip


def quotient(*, precomputed: bool) -> onnx.ModelProto:
    """x plus the least integer over -1, which no integer is: x86 processors signal an error."""
    weights = {"a": np.asarray([LEAST]), "b": np.asarray([-1]), "q": np.asarray([float(LEAST)], np.float32)}
    nodes = [helper.make_node("Add", ["x", "q"], ["y"])]
    if not precomputed:
        del weights["q"]
        cast = helper.make_node("Cast", ["d"], ["q"], to=TensorProto.FLOAT)
        nodes = [helper.make_node("Div", ["a", "b"], ["d"]), cast, *nodes]
    return model(nodes, [value("x", [3])], ["y"], weights)


def relu() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [3])], ["y"])


def test_a_model_that_never_ends_meets_the_limit() -> None:
    with pytest.raises(VerificationError, match=r"longer than 0\.5 s; --verify-limit gives it more"):
        verify(endless(), endless(), limit=0.5)
    assert verify(relu(), relu()).status == "passed"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors give some result")
@pytest.mark.parametrize("role", ["original", "candidate"])
def test_a_model_that_crashes_its_runtime_is_named(role: str) -> None:
    pair = [quotient(precomputed=role != which) for which in ("original", "candidate")]
    with pytest.raises(VerificationError, match=f"crashed .SIGFPE. while it ran the {role} model"):
        verify(*pair)
    assert verify(relu(), relu()).status == "passed"


def test_paths_are_those_of_the_caller_wherever_the_process_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verify(relu(), relu()).status == "passed"
    monkeypatch.chdir(tmp_path)
    onnx.save(relu(), "here.onnx")
    assert verify("here.onnx", Path("here.onnx")).status == "passed"


def test_inputs_larger_than_any_memory_are_not_made() -> None:
    large = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", ["N", 2**20])], ["y"])
    verification = verify(large, large, shapes={"x": (2**20, 2**20)})
    assert verification.status == "unverified"
    assert "input 'x' of shape (1048576, 1048576) is too large" in verification.reason


def test_values_larger_than_any_memory_are_not_computed() -> None:
    nodes = [helper.make_node("Expand", ["x", "shape"], ["e"]), helper.make_node("ReduceMax", ["e"], ["y"])]
    large = model(nodes, [value("x", [1])], ["y"], {"shape": np.asarray([2**34])})
    verification = verify(large, large)
    assert verification.status == "unverified"
    assert "value 'e' of shape (17179869184,) is too large" in verification.reason


@pytest.mark.parametrize("name", ["+".join(["N"] * 5000), "(" * 150 + "N" + ")" * 150, "-" * 5000 + "1", "N\0"])
def test_names_of_dimensions_may_be_no_expression_that_can_be_read(name: str) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    strange = model(nodes, [value("x", [name]), value("n", ["N"])], ["y"])
    assert verify(strange, strange).status == "passed"


def test_a_candidate_that_does_not_load_fails_where_the_original_loads_but_does_not_run() -> None:
    inputs, weights = [value("x", [3])], {"i": np.asarray([99])}
    out_of_range = model([helper.make_node("Gather", ["x", "i"], ["y"])], inputs, ["y"], weights)
    unknown = model([helper.make_node("Nothing", ["x"], ["y"])], inputs, ["y"])
    assert verify(out_of_range, out_of_range).status == "unverified"
    verification = verify(out_of_range, unknown)
    assert verification.status == "failed"
    assert "loads the original, but not the candidate" in verification.reason


def test_a_value_of_unknown_type_does_not_end_shape_inference() -> None:
    """The original does not run, for nobody knows its first operator; onnx infers what follows nevertheless."""
    nodes = [
        helper.make_node("Unknown", ["x"], ["u"], domain="nowhere"),
        helper.make_node("EyeLike", ["u"], ["y"], dtype=TensorProto.FLOAT),
    ]
    unknown = model(nodes, [value("x", [3, 3])], ["y"])
    unknown.opset_import.append(helper.make_opsetid("nowhere", 1))
    assert verify(unknown, unknown).status == "unverified"
