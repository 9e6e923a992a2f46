"""C projects for Arm of every kind of model beside ONNX Runtime: loops, control flow, recurrences, free sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.toolchain import Tool, missing
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.running.emulated_model import EmulatedModel
from eqfuse.support.errors import UsageError

from ..small_models import FLOAT, Array, expected, model, saved, weights

ABSENT = missing(Tool.CROSS_COMPILER, Tool.EMULATOR)
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
TARGET = "arm-cortex-a76"
node, port = helper.make_node, helper.make_tensor_value_info


def emulated(proto: onnx.ModelProto, folder: Path, **options: Any) -> EmulatedModel:
    """The model in a C project, built for QEMU."""
    bundle = folder / "build"
    eqfuse.compile(saved(proto, folder / "in.onnx"), bundle, target=TARGET, verify=False, **options)
    return EmulatedModel.build(bundle, read_manifest(bundle), target_of(TARGET, 1), folder)


def check(compiled: EmulatedModel, proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> None:
    """The results are those of ONNX Runtime."""
    results = compiled.run(feeds)
    for name, wanted in expected(proto, feeds).items():
        assert (results[name].shape, results[name].dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(results[name], wanted, rtol=1e-4, atol=1e-5)


def long_tail() -> onnx.ModelProto:
    """Operators that are plain loops, between kernels; the size of an output depends on values."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("CumSum", ["a", "axis"], ["c"]),
        node("TopK", ["c", "k"], ["v", "indices"]),
        node("Relu", ["a"], ["r"]),
        node("NonZero", ["r"], ["places"]),
        node("Mod", ["v", "v"], ["m"], fmod=1),
        node("Add", ["v", "m"], ["y"]),
    ]
    ends = {"y": (4, 3), "indices": (4, 3), "places": (2, None)}
    return model(nodes, {"x": (4, 8)}, ends, ["indices", "places"], w=weights(8, 6), k=np.array([3]),
                 axis=np.array(1))  # fmt: skip


def _if() -> onnx.NodeProto:
    then = helper.make_graph([node("MatMul", ["x", "w"], ["t"])], "then", [], [port("t", FLOAT, [4, 8])])
    other = helper.make_graph([node("Neg", ["x"], ["o"])], "other", [], [port("o", FLOAT, [4, 8])])
    return node("If", ["c"], ["i"], then_branch=then, else_branch=other)


def _scan() -> onnx.NodeProto:
    states, results = ([port(name, FLOAT, [8]) for name in names] for names in (("state", "row"), ("next", "said")))
    nodes = [node("Add", ["state", "row"], ["next"]), node("Tanh", ["next"], ["said"])]
    body = helper.make_graph(nodes, "body", states, results)
    return node("Scan", ["zeros", "p"], ["last", "z"], body=body, num_scan_inputs=1)


def control_flow() -> onnx.ModelProto:
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        _if(),
        node("Exp", ["i"], ["p"]),
        _scan(),
    ]
    stored = {"w": weights(8, 8), "zero": np.zeros((), np.float32), "zeros": np.zeros(8, np.float32)}
    return model(nodes, {"x": (4, 8)}, {"last": (8,), "z": (4, 8)}, **stored)


def recurrence() -> onnx.ModelProto:
    nodes = [node("LSTM", ["x", "w", "r", "b"], ["y", "h"], hidden_size=12, direction="bidirectional")]
    ends = {"y": (5, 2, 1, 12), "h": (2, 1, 12)}
    return model(nodes, {"x": (5, 1, 9)}, ends, w=weights(2, 48, 9), r=weights(2, 48, 12), b=weights(2, 96))


def free_sizes() -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w2"], ["d"], pads=[1, 1, 1, 1], group=20),
        node("Add", ["d", "r"], ["y"]),
        node("GlobalAveragePool", ["y"], ["z"]),
    ]
    stored = {"w1": weights(20, 3, 3, 3), "b1": weights(20), "w2": weights(20, 1, 3, 3)}
    return model(nodes, {"x": ["N", 3, "H", "W"]}, {"y": ["N", 20, None, None], "z": ["N", 20, 1, 1]}, **stored)


@pytest.mark.parametrize(
    "build", [long_tail, *(pytest.param(build, marks=pytest.mark.conformance) for build in (control_flow, recurrence))]
)
def test_is_right(build: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    proto = build()
    compiled = emulated(proto, tmp_path)
    for sign in (1, -1):
        feeds = {
            i.name: sign * weights(*(d.dim_value for d in i.type.tensor_type.shape.dim), seed=n)
            for n, i in enumerate(proto.graph.input)
        }
        check(compiled, proto, feeds)


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> EmulatedModel:
    return emulated(free_sizes(), tmp_path_factory.mktemp("maps"))


@pytest.mark.parametrize("shape", [(1, 3, 16, 24), (2, 3, 7, 1)])
def test_free_sizes_are_known_at_the_call(maps: EmulatedModel, shape: tuple[int, ...]) -> None:
    check(maps, free_sizes(), {"x": weights(*shape)})


def test_a_size_that_the_model_refuses_is_the_users_error(maps: EmulatedModel) -> None:
    with pytest.raises(UsageError, match="shapes of the inputs"):
        maps.run({"x": np.zeros((1, 3, 0, 8), np.float32)})
