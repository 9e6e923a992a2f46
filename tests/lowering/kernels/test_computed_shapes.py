"""Operators that read the shape of their result from a tensor, where that is computed from sizes of the call."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper

from eqfuse.engine.onnx.inference import infer
from eqfuse.engine.onnx.model import read
from eqfuse.extract.partition.operator_graph import operator_graph
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.kernels.fallback import fallback
from eqfuse.lowering.kernels.prim_funcs import lower_kernel
from eqfuse.lowering.weights import Weights

from ..small_models import expected, model

node = helper.make_node
SETTINGS: list[dict[str, Any]] = [
    {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"},
    {"mode": "nearest", "coordinate_transformation_mode": "align_corners", "nearest_mode": "round_prefer_ceil"},
    {"mode": "nearest", "coordinate_transformation_mode": "pytorch_half_pixel", "nearest_mode": "ceil"},
    {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
]


def enlarged(**settings: Any) -> onnx.ModelProto:
    """A map resized to the size of another one, and one cut into heads."""
    nodes = [
        node("Shape", ["x"], ["head"], end=2),
        node("Shape", ["y"], ["size"], start=2),
        node("Concat", ["head", "size"], ["target"], axis=0),
        node("Resize", ["x", "", "", "target"], ["z"], **settings),
        node("Shape", ["x"], ["batch"], end=1),
        node("Shape", ["x"], ["plane"], start=2),
        node("Concat", ["batch", "heads", "plane"], ["cut"], axis=0),
        node("Reshape", ["x", "cut"], ["r"]),
        node("Gather", ["plane", "first"], ["width"]),
        node("Range", ["zero", "width", "step"], ["counted"]),
        node("Slice", ["x", "begin", "plane", "beside", "steps"], ["s"]),
    ]
    results = {"z": ["N", 6, "K", "L"], "r": ["N", 2, 3, "H", "W"], "s": ["N", 6, None, None], "counted": ["W"]}
    inputs = {"x": ["N", 6, "H", "W"], "y": ["N", 1, "K", "L"]}
    numbers = {"heads": [2, 3], "first": 1, "zero": 0, "step": 1, "begin": [1, 0], "beside": [2, 3], "steps": [2, 1]}
    stored = {name: np.array(values) for name, values in numbers.items()}
    return model(nodes, inputs, results, ["counted"], **stored)


def kernel_graph(proto: onnx.ModelProto) -> OperatorGraph:
    source = read(proto)
    return operator_graph(source, infer(source), for_kernels=True).at_call


def test_kernels_read_no_shapes() -> None:
    graph = kernel_graph(enlarged(**SETTINGS[0]))
    assert [operator.op for operator in graph.operators] == ["Resize", "Reshape", "Range", "Slice"]
    assert not any(operator.is_opaque for operator in graph.operators)
    assert all(graph.values[v].producer is None for o in graph.operators for v in o.inputs if v is not None)


def test_models_are_cut_with_all_that_they_compute() -> None:
    source = read(enlarged(**SETTINGS[0]))
    graph = operator_graph(source, infer(source))
    assert len(graph) == 11
    assert [operator.op for operator in graph.operators if operator.is_opaque] == ["Resize", "Reshape", "Slice"]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s.values()))
def test_resized_to_sizes_of_the_call_as_in_onnx_runtime(settings: dict[str, Any]) -> None:
    proto = enlarged(**settings)
    graph = kernel_graph(proto)
    function = lower_kernel(graph, [0], "kernel").prim_func
    kernel = tvm.compile(tvm.IRModule({"kernel": function}), target="llvm")["kernel"]
    for before, after in (((4, 5), (7, 10)), ((10, 3), (14, 1)), ((1, 9), (3, 4)), ((6, 11), (6, 33))):
        x = np.random.default_rng(0).standard_normal((2, 6, *before)).astype(np.float32)
        result = tvm.runtime.tensor(np.empty((2, 6, *after), np.float32))
        kernel(tvm.runtime.tensor(x), result)
        wanted = expected(proto, {"x": x, "y": np.zeros((2, 1, *after), np.float32)})["z"]
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_kernels_compute_what_onnx_runtime_does(place: int) -> None:
    proto = enlarged(**SETTINGS[0])
    graph = kernel_graph(proto)
    x = np.random.default_rng(0).standard_normal((2, 6, 4, 5)).astype(np.float32)
    wanted = expected(proto, {"x": x, "y": np.zeros((2, 1, 7, 9), np.float32)})
    stored = {1: [x], 2: [np.array(0), np.array(1)], 3: [x]}[place]
    function = lower_kernel(graph, [place], "kernel")
    kernel = tvm.compile(tvm.IRModule({"kernel": function.prim_func}), target="llvm")["kernel"]
    answer = wanted[graph.values[function.outputs[0]].name]
    result = tvm.runtime.tensor(np.empty(answer.shape, answer.dtype))
    kernel(*map(tvm.runtime.tensor, stored), result)
    np.testing.assert_array_equal(result.numpy(), answer)


@pytest.mark.parametrize("place", range(4))
def test_what_no_kernel_does_computes_them(place: int) -> None:
    proto = enlarged(**SETTINGS[0])
    graph = kernel_graph(proto)
    entry = fallback(graph, (place,), Weights(read(proto)), "test")
    feeds = {
        "x": np.random.default_rng(0).standard_normal((2, 6, 4, 5)).astype(np.float32),
        "y": np.zeros((2, 1, 7, 9), np.float32),
    }
    results = expected(entry.model, {port.name: feeds[port.name] for port in entry.model.graph.input})
    wanted = expected(proto, feeds)
    for name, result in results.items():
        np.testing.assert_array_equal(result, wanted[name])
