"""Tensors of every element type, wherever they stand: a result, or one line that names the operator and the type."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import eqfuse
from eqfuse.engine.onnx.runtime_values import run_on_arrays
from eqfuse.support.errors import EqfuseError

from .engine.models import value

FLOAT = TensorProto.FLOAT
OPSETS = {"INT2": 25, "UINT2": 25, "FLOAT8E8M0": 25}
KINDS = [name for name, number in TensorProto.DataType.items() if number and not name.startswith(("COMPLEX", "FLOAT6"))]
PLACES = ("input", "output", "weight", "between", "moved", "passed on")
HELD = (
    "FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64",
    "BOOL", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ",
)  # fmt: skip
"""Types that compiled code holds in its tensors; others only in weights."""


def build(kind: str, place: str) -> onnx.ModelProto:
    """A model that has a tensor of a type at a place; casts of small numbers lead there and away."""
    number = getattr(TensorProto, kind)
    bound = helper.make_node("HardSigmoid", ["x"], ["b"])  # ONNX leaves open what numbers beyond a type's become
    to, back = {"to": number}, {"to": FLOAT}
    shape, weights = ["N", 4], []
    ends = FLOAT, FLOAT
    if place == "input":
        nodes, ends = [helper.make_node("Cast", ["x"], ["y"], **back)], (number, FLOAT)
    elif place == "output":
        nodes, ends = [bound, helper.make_node("Cast", ["b"], ["y"], **to)], (FLOAT, number)
    elif place == "passed on":
        nodes, ends = [helper.make_node("Identity", ["x"], ["y"])], (number, number)
    elif place == "weight":
        numbers = [b"1", b"0", b"1", b"0"] if kind == "STRING" else [1, 0, 1, 0]
        weights = [helper.make_tensor("w", number, [4], numbers)]
        nodes = [helper.make_node("Cast", ["w"], ["c"], **back), helper.make_node("Mul", ["x", "c"], ["y"])]
    else:
        nodes = [bound, helper.make_node("Cast", ["b"], ["c"], **to), helper.make_node("Cast", ["c"], ["y"], **back)]
        if place == "moved":
            nodes[-1].input[0] = "t"
            nodes.insert(2, helper.make_node("Transpose", ["c"], ["t"]))
    result = value("y", shape[::-1] if place == "moved" else shape, ends[1])
    graph = helper.make_graph(nodes, f"{kind} {place}", [value("x", shape, ends[0])], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSETS.get(kind, 21))], ir_version=11)


def loads(proto: onnx.ModelProto) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # the runtime's exceptions share no base class of their own
        return False
    return True


@pytest.mark.representatives(3)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_runtime_loads_it_loads_still(kind: str, place: str) -> None:
    proto = build(kind, place)
    runs = loads(proto)
    with nullcontext() if runs and kind != "STRING" else suppress(EqfuseError):  # text that is drawn is no number
        assert loads(eqfuse.optimize(proto)) or not runs


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        pytest.param(kind, place, marks=() if (kind, place) in {
            ("FLOAT8E4M3FN", "between"), ("BFLOAT16", "passed on"), ("INT4", "between"), ("STRING", "weight"),
        } else pytest.mark.conformance)
        for kind in KINDS for place in PLACES if loads(build(kind, place))
    ],
)  # fmt: skip
def test_it_is_compiled_or_named(kind: str, place: str, tmp_path: Path) -> None:
    proto = build(kind, place)
    onnx.save(proto, tmp_path / "in.onnx")
    if kind not in HELD and place != "weight":
        type_ = (
            "text|no tensor of numbers"
            if kind == "STRING"
            else helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind)).name
        )
        named = {"input": "'x'", "passed on": "'x'", "output": r"'y' \(Cast makes it\)"}.get(place, r"'c' \(Cast makes")
        with pytest.raises(EqfuseError, match=f"{named}.*{type_}"):
            eqfuse.compile(tmp_path / "in.onnx", tmp_path / "bundle", threads=1, measure=False)
        return
    eqfuse.compile(tmp_path / "in.onnx", tmp_path / "bundle", threads=1, measure=False)
    dtype = helper.tensor_dtype_to_np_dtype(proto.graph.input[0].type.tensor_type.elem_type)
    x = np.random.default_rng(0).uniform(0, 3, (3, 4)).astype(dtype)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = run_on_arrays(session, {"x": x})
    result = eqfuse.load(tmp_path / "bundle").run({"x": x})["y"]
    assert result.dtype == wanted.dtype
    held_as_float32 = kind == "FLOAT16" and place in ("between", "moved")
    rtol = 2.0**-11 if held_as_float32 else 1e-6
    np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), rtol=rtol)
    assert "speed-up" in eqfuse.bench(tmp_path / "bundle", repeat=1, against="ort").as_dict()
