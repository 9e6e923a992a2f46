"""Results whose size depends on values: one program of loops, with a bound, and the size that it has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from eqfuse.engine.bodies.resolve import resolve_bodies
from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.partition.groups import unfused
from eqfuse.ir.sizes import number, symbol
from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.compilation import CompiledKernels, compile_kernels
from eqfuse.lowering.kernels.fallback import LoopCall
from eqfuse.lowering.kernels.measured import find_bounds, join_measured
from eqfuse.lowering.plan.plan import Measure
from eqfuse.lowering.program.planning import plan_program
from eqfuse.lowering.running.context import Context

from ..linked import linked
from ..small_models import Array, expected, weights
from ..small_models import model as small_model


def filtered(height: int | str = 3, width: int | str = 4) -> onnx.ModelProto:
    """The positive elements of x, doubled, their places, and their sum, of which another operator reads."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Neg", ["x"], ["m"]),
        helper.make_node("Greater", ["x", "zero"], ["positive"]),
        helper.make_node("NonZero", ["positive"], ["n"]),
        helper.make_node("Transpose", ["n"], ["places"]),
        helper.make_node("GatherND", ["x", "places"], ["v"]),
        helper.make_node("ReduceSum", ["v"], ["total"], keepdims=0),
        helper.make_node("Sub", ["m", "total"], ["rest"]),
    ]
    outputs = [value("v", 1, ["k"]), value("places", 7, ["k", 2]), value("rest", 1, [height, width])]
    zero = helper.make_tensor("zero", 1, [], [0.0])
    graph = helper.make_graph(nodes, "filtered", [value("x", 1, [height, width])], outputs, [zero])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_what_meets_an_unknown_size_is_one_group_and_what_follows_comes_behind() -> None:
    model = read(filtered())
    graph = operator_graph(model, infer(model))
    joined, groups = join_measured(graph, [(0, 6), (1,), (2,), (3,), (4,), (5,)])
    assert groups == ((0,), (1,), (2, 3, 4, 5), (6,))
    shapes = {value.name: value.type.shape for value in joined.values if value.is_output and value.type}
    assert shapes["rest"] == (3, 4)
    assert [str(extent).startswith("measured_") for extent in shapes["places"] or ()] == [True, False]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return _compiled(filtered(), tmp_path_factory.mktemp("measured"))


def _compiled(proto: onnx.ModelProto, folder: Path) -> Context:
    return linked(_kernels(proto, folder), folder)


def _kernels(proto: onnx.ModelProto, folder: Path) -> CompiledKernels:
    model = resolve_bodies(read(proto))
    graph = operator_graph(model, infer(model)).at_call
    graph, groups = join_measured(graph, unfused(graph).members)
    return compile_kernels(graph, groups, Weights(model), target_of("host", 1), folder, 2)


@pytest.fixture(scope="module")
def free_context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return _compiled(filtered("H", "W"), tmp_path_factory.mktemp("free"))


@given(seed=st.integers(0, 2**32 - 1), shift=st.sampled_from([-9.0, 0.0, 9.0]))
def test_as_onnx_runtime(context: Context, seed: int, shift: float) -> None:
    x = (np.random.default_rng(seed).standard_normal((3, 4)) + shift).astype(np.float32)
    results = context.run({"x": x})
    for name, wanted in expected(filtered(), {"x": x}).items():
        assert results[name].shape == wanted.shape
        np.testing.assert_allclose(results[name], wanted, rtol=1e-5, atol=1e-5)


@given(seed=st.integers(0, 2**32 - 1), height=st.integers(1, 9), width=st.integers(1, 9))
def test_free_sizes_as_onnx_runtime(free_context: Context, seed: int, height: int, width: int) -> None:
    x = np.random.default_rng(seed).standard_normal((height, width)).astype(np.float32)
    results = free_context.run({"x": x})
    for name, wanted in expected(filtered("H", "W"), {"x": x}).items():
        assert results[name].shape == wanted.shape
        np.testing.assert_allclose(results[name], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [1.3, 2.5])
def test_results_whose_size_rounds_to_a_number(scale: float, tmp_path: Path) -> None:
    """A product with 1.3 is rounded before its fraction is dropped, which no polynomial says; one with 2.5 is exact."""
    node, scales = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear"), np.float32([1, 1, scale])
    proto = small_model([node], {"x": [1, "C", "H"]}, {"y": [1, "C", "J"]}, scales=np.asarray(scales))
    context = _compiled(proto, tmp_path)
    for size in (1, 7, 10, 23):
        x = np.random.default_rng(size).standard_normal((1, 2, size)).astype(np.float32)
        (wanted,) = expected(proto, {"x": x}).values()
        np.testing.assert_allclose(context.run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-5, strict=True)


def _bounds(nodes: Sequence[onnx.NodeProto], rank: int, **stored: Array) -> str:
    """The bounds of the sizes of `y` for an `x` of H rows and W columns."""
    value = helper.make_tensor_value_info
    output = value("y", 1, [f"measured_0_{axis}" for axis in range(rank)])
    constants = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "bounds", [value("x", 1, ["H", "W"])], [output], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ", ".join(map(str, find_bounds(proto).values()))


def test_bounds_are_polynomials_of_free_sizes() -> None:
    node, places = helper.make_node, helper.make_node("NonZero", ["x"], ["n"])
    assert _bounds([places, node("Transpose", ["n"], ["t"]), node("Cast", ["t"], ["y"], to=1)], 2) == "H*W, 2"
    doubled = [places, node("Concat", ["n", "n"], ["t"], axis=1), node("Cast", ["t"], ["y"], to=1)]
    assert _bounds(doubled, 2) == "2, 2*H*W"
    repeated = [places, node("Shape", ["n"], ["s"]), node("ConstantOfShape", ["s"], ["y"])]
    assert _bounds(repeated, 2) == "2, H*W"
    flags = [node("Greater", ["x", "x"], ["f"]), node("Reshape", ["f", "all"], ["c"])]
    chosen = [node("Compress", ["x", "c"], ["v"]), node("Compress", ["x", "c"], ["u"])]
    added = [*flags, *chosen, node("Add", ["v", "u"], ["y"])]
    assert _bounds(added, 1, all=np.array([-1])) == "H*W"


def regulated() -> onnx.ModelProto:
    """Rows of h, each as often as its duration says, and their products with w; then those that are not zero."""
    node = helper.make_node
    nodes = [
        node("CumSum", ["durations", "zero"], ["ends"]),
        node("Sub", ["ends", "durations"], ["starts"]),
        node("ReduceMax", ["ends"], ["count"], keepdims=0),
        node("Range", ["zero", "count", "one"], ["t"]),
        node("Unsqueeze", ["t", "last"], ["times"]),
        node("Less", ["times", "ends"], ["before"]),
        node("GreaterOrEqual", ["times", "starts"], ["behind"]),
        node("And", ["before", "behind"], ["is_row"]),
        node("Cast", ["is_row"], ["chosen"], to=1),
        node("MatMul", ["chosen", "h"], ["rows"]),
        node("MatMul", ["rows", "w"], ["y"]),
        node("NonZero", ["y"], ["places"]),
        node("Transpose", ["places"], ["n"]),
        node("GatherND", ["y", "n"], ["v"]),
        node("Unsqueeze", ["v", "last"], ["column"]),
        node("MatMul", ["column", "u"], ["z"]),
    ]
    stored = {
        "zero": np.int64(0), "one": np.int64(1), "last": np.array([1]), "w": weights(24, 40), "u": weights(1, 16),
    }  # fmt: skip
    inputs = {"durations": ["S"], "h": ["S", 24]}
    return small_model(nodes, inputs, {"y": [None, 40], "z": [None, 16]}, ["durations"], **stored)


def test_kernels_take_the_sizes_that_values_decide(tmp_path: Path) -> None:
    """Between the operators that decide sizes, products are kernels: plain loops take 30 times as long."""
    kernels = _kernels(regulated(), tmp_path)
    loops = [step for step in kernels.steps if isinstance(step, LoopCall)]
    plain = {node.op_type for step in loops for node in step.part.model.graph.node if not node.domain}
    assert plain == {"CumSum", "Range", "NonZero", "Constant"}
    assert any("matmul" in symbol for step in loops for symbol in step.called)
    context = linked(kernels, tmp_path)
    for durations in ([3], [2, 0, 5], [40, 1], [0, 0]):
        inputs = {"durations": np.array(durations), "h": weights(len(durations), 24)}
        for name, wanted in expected(regulated(), inputs).items():
            result = context.run(inputs)[name]
            assert result.shape == wanted.shape
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_what_runs_in_onnx_runtime_alone_behind_an_unknown_size_is_named(tmp_path: Path) -> None:
    value, node = helper.make_tensor_value_info, helper.make_node
    nodes = [
        node("NonZero", ["x"], ["n"]),
        node("Cast", ["n"], ["f"], to=1),
        node("Bernoulli", ["f"], ["y"], "noise"),
    ]
    graph = helper.make_graph(nodes, "noisy", [value("x", 1, [3, 4])], [value("y", 1, [2, "k"])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(LoweringError, match=r"^noise: Bernoulli has no plain loop, .*`eqfuse optimize` takes"):
        _kernels(proto, tmp_path)


def branching(then: Sequence[onnx.NodeProto], otherwise: Sequence[onnx.NodeProto]) -> onnx.NodeProto:
    """An If by `flag` with these branches, whose last nodes compute the results."""
    bodies = [helper.make_graph(nodes, "b", [], [onnx.ValueInfoProto(name=nodes[-1].output[0])]) for nodes in
              (then, otherwise)]  # fmt: skip
    return helper.make_node("If", ["flag"], ["chosen"], then_branch=bodies[0], else_branch=bodies[1])


def test_the_bound_of_an_if_is_that_of_its_larger_branch() -> None:
    node = helper.make_node
    flag = [node("ReduceMax", ["x"], ["m"], keepdims=0), node("Cast", ["m"], ["flag"], to=9)]
    places = [node("NonZero", ["x"], ["n"]), node("Transpose", ["n"], ["t"]), node("Cast", ["t"], ["p"], to=1)]
    choice = branching(places, [node("Expand", ["zero", "shape"], ["q"])])
    stored = {"zero": np.zeros((1, 1), np.float32), "shape": np.array([7, 2])}
    assert _bounds([*flag, choice, node("Neg", ["chosen"], ["y"])], 2, **stored) == "max(7, H*W), 2"


def test_limits_of_loops_that_are_computed_before_bound_what_they_collect() -> None:
    value, node = helper.make_tensor_value_info, helper.make_node
    body = helper.make_graph(
        [node("Cast", ["i"], ["on"], to=9), node("Identity", ["x"], ["r"])], "body",
        [value("i", 7, []), value("go", 9, [])], [value("on", 9, []), value("r", 1, ["H"])],
    )  # fmt: skip
    loop, output = node("Loop", ["trips", ""], ["rows"], body=body), value("rows", 1, ["measured_0_0", "H"])
    graph = helper.make_graph([loop], "rows", [value("x", 1, ["H"]), value("trips", 7, [])], [output])
    graph.value_info.append(value("rows", 1, [None, "H"]))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert find_bounds(proto, {"trips": symbol("H")}) == {"measured_0_0": symbol("H")}
    assert find_bounds(proto) == {"measured_0_0": None}


def chosen() -> onnx.ModelProto:
    """The upper rows of x times w, or all of x twice."""
    value, node = helper.make_tensor_value_info, helper.make_node
    choice = branching(
        [node("Slice", ["x", "first", "last"], ["s"]), node("MatMul", ["s", "w"], ["p"])],
        [node("Concat", ["x", "x"], ["q"], axis=0)],
    )
    stored = {"first": np.array([0]), "last": np.array([2]), "w": np.ones((4, 4), np.float32)}
    graph = helper.make_graph(
        [choice, node("Relu", ["chosen"], ["y"])], "chosen", [value("x", 1, ["N", 4]), value("flag", 9, [])],
        [value("y", 1, ["k", 4])], [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_branches_of_different_sizes_as_onnx_runtime(tmp_path: Path) -> None:
    context = _compiled(chosen(), tmp_path)
    for flag, rows in ((True, 3), (False, 3), (True, 1), (False, 5)):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        inputs = {"x": x, "flag": np.array(flag)}
        (wanted,) = expected(chosen(), inputs).values()
        result = context.run(inputs)["y"]
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_rows_of_a_loop_that_does_not_run_may_have_no_known_shape(tmp_path: Path) -> None:
    value, node = helper.make_tensor_value_info, helper.make_node
    body = helper.make_graph(
        [node("Relu", ["x"], ["row"]), node("Identity", ["go"], ["on"])], "body",
        [value("i", 7, []), value("go", 9, [])], [value("on", 9, []), value("row", 1, None)],
    )  # fmt: skip
    nodes = [node("Loop", ["trips", "may"], ["y"], body=body)]
    inputs = [value("x", 1, ["N", 4]), value("may", 9, [])]
    trips = numpy_helper.from_array(np.int64(3), "trips")
    graph = helper.make_graph(nodes, "rows", inputs, [value("y", 1, ["k", "N", 4])], [trips])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    context = _compiled(proto, tmp_path)
    shapes = [context.run({"x": np.ones((2, 4), np.float32), "may": np.array(may)})["y"].shape for may in (True, False)]
    assert shapes == [(3, 2, 4), (0, 2, 4)]


def test_boxes_that_are_left_are_no_more_than_asked_for() -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["x", "first"], ["boxes"]),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["n"]),
        helper.make_node("Cast", ["n"], ["y"], to=1),
    ]
    stored = {"first": np.array([0]), "scores": np.ones((1, 3, 40), np.float32), "most": np.array([7])}
    assert _bounds(nodes, 2, **stored) == "21, 3"


def test_scores_of_another_rank_bound_no_boxes() -> None:
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("NonMaxSuppression", ["boxes", "scores"], ["measured"])]
    inputs = [value("boxes", 1, [1, 4, 4]), value("scores", 1, [4])]
    graph = helper.make_graph(nodes, "boxes", inputs, [value("measured", 7, ["measured_0_0", 3])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert find_bounds(proto) == {"measured_0_0": None}


def decoded() -> onnx.ModelProto:
    """A state after at most `most` steps, fewer if its mean leaves 0.3, the steps' products, and their numbers."""
    value, node = helper.make_tensor_value_info, helper.make_node
    steps = [
        node("MatMul", ["s", "w"], ["p"]), node("Tanh", ["p"], ["next"]), node("Neg", ["next"], ["row"]),
        node("ReduceMean", ["next"], ["m"], keepdims=0), node("Less", ["m", "limit"], ["on"]),
    ]  # fmt: skip
    body = helper.make_graph(
        steps, "body", [value("i", 7, []), value("go", 9, []), value("s", 1, ["N", 4])],
        [value("on", 9, []), value("next", 1, ["N", 4]), value("row", 1, ["N", 4])],
    )  # fmt: skip
    nodes = [
        node("Loop", ["most", "", "x"], ["last", "rows"], body=body), node("MatMul", ["rows", "w"], ["y"]),
        node("Range", ["first", "most", "one"], ["numbers"]),
    ]  # fmt: skip
    w = 0.4 * np.random.default_rng(0).standard_normal((4, 4))  # contracts: else 500 steps make rounding larger
    stored = {"w": w.astype(np.float32), "limit": np.float32(0.3), "first": np.int64(0), "one": np.int64(1)}
    graph = helper.make_graph(
        nodes, "decoded", [value("x", 1, ["N", 4]), value("most", 7, [])],
        [value("y", 1, ["steps", "N", 4]), value("last", 1, ["N", 4]), value("numbers", 7, ["most"])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return _compiled(decoded(), tmp_path_factory.mktemp("decoded"))


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 3), most=st.one_of(st.integers(0, 9), st.just(500)))
def test_rows_that_nothing_bounds_as_onnx_runtime(decoder: Context, seed: int, rows: int, most: int) -> None:
    x = np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)
    inputs = {"x": x, "most": np.array(most)}
    results = decoder.run(inputs)
    for name, wanted in expected(decoded(), inputs).items():
        assert results[name].shape == wanted.shape or not (wanted.size or results[name].size)
        np.testing.assert_allclose(results[name].reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)


def test_sizes_are_measured_behind_the_loops(tmp_path: Path) -> None:
    model = read(filtered())
    graph = operator_graph(model, infer(model))
    graph, groups = join_measured(graph, unfused(graph).members)
    kernels = compile_kernels(graph, groups, Weights(model), target_of("host", 1), tmp_path, 2)
    plan, _ = plan_program(kernels)
    assert [step.bound for step in plan.steps if isinstance(step, Measure)] == [number(12), number(12)]
