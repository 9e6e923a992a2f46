"""Operators that read the shape of their result from a tensor that is computed from sizes of the call."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper, numpy_helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.graph import OperatorGraph
from eqfuse.ir.types import TensorType
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.compute import Extents
from eqfuse.lowering.kernels.fallback import fallback
from eqfuse.lowering.kernels.prim_funcs import lower_kernel

from ..small_models import Array, expected, model

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
        node("Cast", ["width"], ["end"], to=onnx.TensorProto.FLOAT),
        node("Range", ["zero", "end", "step"], ["counted"]),
        node("Slice", ["x", "begin", "plane", "beside", "steps"], ["s"]),
    ]
    results = {"z": ["N", 6, "K", "L"], "r": ["N", 2, 3, "H", "W"], "s": ["N", 6, None, None], "counted": ["W"]}
    inputs = {"x": ["N", 6, "H", "W"], "y": ["N", 1, "K", "L"]}
    numbers = {"heads": [2, 3], "first": 1, "begin": [1, 0], "beside": [2, 3], "steps": [2, 1]}
    stored = {name: np.array(values) for name, values in numbers.items()}
    return model(nodes, inputs, results, zero=np.array(0, np.float32), step=np.array(1, np.float32), **stored)


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
    assert len(graph) == 12
    assert [operator.op for operator in graph.operators if operator.is_opaque] == ["Resize", "Reshape", "Slice"]


@pytest.mark.representatives(2)
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
    stored = {1: [x], 2: [np.array(0, np.float32), np.array(1, np.float32)], 3: [x]}[place]
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


def cut() -> onnx.ModelProto:
    """Slices that begin and end by the size of a map, and rows that are repeated as often as another one has."""
    nodes = [
        node("Slice", ["x", "first", "minus", "last"], ["a"]),
        node("Slice", ["x", "minus_three", "end", "last"], ["b"]),
        node("Shape", ["y"], ["k"]),
        node("Add", ["k", "first"], ["behind"]),
        node("Slice", ["table", "first", "behind"], ["c"]),
        node("Concat", ["k", "first"], ["repeats"], axis=0),
        node("Tile", ["table", "repeats"], ["d"]),
    ]
    stored = {
        "first": np.array([1]), "minus": np.array([-1]), "last": np.array([-1]), "minus_three": np.array([-3]),
        "end": np.array([2**62]), "table": np.arange(80, dtype=np.float32).reshape(40, 2),
    }  # fmt: skip
    results = {"a": ["N", None], "b": ["N", None], "c": [None, 2], "d": [None, 2]}
    return model(nodes, {"x": ["N", "W"], "y": ["K"]}, results, **stored)


def test_slices_and_tiles_of_the_call_as_in_onnx_runtime() -> None:
    proto = cut()
    graph = kernel_graph(proto)
    assert [(o.op, len(o.inputs), o.is_opaque) for o in graph.operators if o.op != "Slice"] == [("Tile", 1, False)]
    for width, count in ((5, 3), (2, 1), (9, 7)):
        feeds = {"x": np.random.default_rng(0).standard_normal((2, width)).astype(np.float32)}
        feeds["y"] = np.zeros(count, np.float32)
        for place, (name, wanted) in enumerate(expected(proto, feeds).items()):
            loops = fallback(graph, (place,), Weights(read(proto)), "test").model
            computed = expected(loops, {port.name: feeds[port.name] for port in loops.graph.input})
            np.testing.assert_array_equal(computed[name], wanted)
            lowered = lower_kernel(graph, [place], "kernel")
            kernel = tvm.compile(tvm.IRModule({"kernel": lowered.prim_func}), target="llvm")["kernel"]
            given = [feeds.get(graph.values[v].name, proto_table(proto)) for v in lowered.inputs]
            result = tvm.runtime.tensor(np.empty(wanted.shape, np.float32))
            kernel(*map(tvm.runtime.tensor, given), result)
            np.testing.assert_array_equal(result.numpy(), wanted)


def proto_table(proto: onnx.ModelProto) -> Array:
    return next(numpy_helper.to_array(t) for t in proto.graph.initializer if t.name == "table")


def padded() -> onnx.ModelProto:
    """A map padded to the size of another one."""
    nodes = [
        node("Shape", ["y"], ["wanted"], start=2),
        node("Shape", ["x"], ["given"], start=2),
        node("Sub", ["wanted", "given"], ["missing"]),
        node("Div", ["missing", "two"], ["before"]),
        node("Sub", ["missing", "before"], ["after"]),
        node("Concat", ["none", "before", "none", "after"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["p"]),
        node("Concat", ["p", "y"], ["z"], axis=1),
    ]
    inputs = {"x": ["N", 6, "H", "W"], "y": ["N", 6, "K", "L"]}
    return model(nodes, inputs, {"z": ["N", 12, "K", "L"]}, two=np.array([2]), none=np.array([0, 0]))


@pytest.mark.parametrize(("before", "after"), [((4, 5), (7, 10)), ((1, 3), (1, 6)), ((6, 7), (5, 9))])
def test_paddings_that_a_call_decides(before: tuple[int, int], after: tuple[int, int]) -> None:
    proto = padded()
    graph = kernel_graph(proto)
    (pad,) = (n for n, operator in enumerate(graph.operators) if operator.op == "Pad")
    function = lower_kernel(graph, [pad], "kernel").prim_func
    kernel = tvm.compile(tvm.IRModule({"kernel": function}), target="llvm")["kernel"]
    x = np.random.default_rng(0).standard_normal((2, 6, *before)).astype(np.float32)
    missing = np.array(after) - before
    begins = np.trunc(missing / 2).astype(np.int64)
    pads = np.array([0, 0, *begins, 0, 0, *(missing - begins)])
    result = tvm.runtime.tensor(np.empty((2, 6, *after), np.float32))
    kernel(tvm.runtime.tensor(x), tvm.runtime.tensor(pads), result)
    wanted = expected(proto, {"x": x, "y": np.zeros((2, 6, *after), np.float32)})["z"][:, :6]
    np.testing.assert_array_equal(result.numpy(), wanted)


def test_a_part_of_a_size_of_several_terms_follows_from_it() -> None:
    padded = "7*(H//4) - 7*((6*(H//4))//7)"
    extents = Extents.of([TensorType("float32", (padded,))])
    rest = extents.extent(f"{padded} - min({padded}, 3)")
    assert [str(variable) for variable in tvm.tirx.analysis.undefined_vars(rest)] == list(extents.variables)
