"""Plans with sizes that are known at the call: memory, shapes, and calls that fit no model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from eqfuse.ir.operators.graph_relations import find_relations
from eqfuse.lowering.plan.plan import Buffer, Call, Measure, Plan, PlanError, View
from eqfuse.lowering.plan.sizes import Demand, Solution, extents_of, solve_sizes, upper_bound
from eqfuse.lowering.program.requirements import list_requirements
from eqfuse.lowering.running.context import Context
from eqfuse.support.errors import UsageError

from ...extract.partition.graphs import Builder
from ..small_models import graph_of, model
from .handmade import floats, load_plan, size

SIZES = st.integers(0, 40)


def increments() -> Plan:
    """Three increments, of which the second sees its input under another shape, and the third half of it."""
    buffers = (
        floats("x", "H", "2*W"),
        floats("a", "H", "2*W"),
        floats("flat", "2*H*W"),
        floats("b", "2*H*W"),
        floats("y", "max(H, W)", "min(H, 3)", "W//2"),
        floats("z", "2*W", "H"),
        floats("c", "2*H*W"),
    )
    steps = (
        Call("increment", (0,), (1,)),
        Call("increment", (2,), (3,)),
        Call("increment", (3,), (4,)),
        Call("increment", (3,), (6,)),
        Call("increment", (6,), (5,)),
    )
    return Plan(buffers, steps, (0,), (4, 5), (), (View(2, 1),))


def positives() -> Plan:
    """The positive elements of a vector, incremented twice."""
    buffers = (
        floats("x", "N"),
        floats("all", "count"),
        Buffer("number", "int64", (1,)),
        floats("more", "count"),
        floats("y", "count"),
    )
    steps = (
        Call("select_positive", (0,), (1, 2)),
        Measure("count", 2, 0, size("N")),
        Call("increment", (1,), (3,)),
        Call("increment", (3,), (4,)),
    )
    return Plan(buffers, steps, (0,), (4,), ())


@pytest.fixture(scope="module")
def incrementing(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return load_plan(increments(), tmp_path_factory.mktemp("increments"))


@pytest.fixture(scope="module")
def selecting(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return load_plan(positives(), tmp_path_factory.mktemp("positives"))


@given(SIZES, SIZES)
def test_memory_and_shapes_follow_from_the_inputs(incrementing: Context, height: int, width: int) -> None:
    x = np.random.default_rng(0).standard_normal((height, 2 * width)).astype(np.float32)
    results = incrementing.run({"x": x})
    assert results["y"].shape == (max(height, width), min(height, 3), width // 2)
    np.testing.assert_array_equal(results["z"].ravel(), x.ravel() + 1 + 1 + 1 + 1)
    elements = min(x.size, results["y"].size)
    np.testing.assert_array_equal(results["y"].ravel()[:elements], x.ravel()[:elements] + 1 + 1 + 1)


@given(st.lists(st.floats(-1, 1, width=32), max_size=60))
def test_a_size_that_is_computed_is_that_of_the_output(selecting: Context, elements: list[float]) -> None:
    x = np.array(elements, np.float32)
    for tried in (x, -x, x):  # memory is laid out for the largest, whatever the run before measured
        np.testing.assert_array_equal(selecting.run({"x": tried})["y"], tried[tried > 0] + 1 + 1)
        selecting.bind({"x": tried})


def test_results_stay_when_other_sizes_are_given(selecting: Context) -> None:
    """Small tensors of all sizes have the same memory in a context."""
    first = selecting.run({"x": np.arange(4, dtype=np.float32)})["y"]
    large = selecting.run({"x": np.ones(9000, np.float32)})["y"]
    selecting.run({"x": np.full(2, 9, np.float32)})
    np.testing.assert_array_equal(first, [3, 4, 5])
    np.testing.assert_array_equal(large, np.full(9000, 3))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 5), "the shapes of the inputs give the size W no value: 5 is no multiple of 2"),
        ((3,), "must have the shape"),
        ((1 << 40, 0), "more than 2147483647 elements"),
        ((0, 1 << 31), "more than 2147483647 elements"),
        ((0, 1 << 30), ""),
    ],
)
def test_shapes_that_do_not_fit_are_refused_and_the_next_call_is_answered(
    incrementing: Context, shape: tuple[int, ...], message: str
) -> None:
    x = np.zeros(shape, np.float32)
    if message:
        with pytest.raises(UsageError, match=message):
            incrementing.run({"x": x})
    else:
        assert incrementing.run({"x": x})["z"].shape == (1 << 30, 0)
    assert incrementing.run({"x": np.zeros((3, 4), np.float32)})["z"].shape == (4, 3)


@pytest.mark.parametrize("length", [1 << 16, 1 << 22, (1 << 31) - 1])
def test_products_that_32_bits_do_not_hold_are_refused(length: int, tmp_path: Path) -> None:
    buffers = (floats("x", "N", 0), floats("y", "N*N", "N*N"), floats("z", "N*N*N*N - 1"))
    steps = (Call("increment", (0,), (1,)), Call("increment", (1,), (2,)))
    context = load_plan(Plan(buffers, steps, (0,), (1, 2), ()), tmp_path)
    with pytest.raises(UsageError, match="more than 2147483647 elements"):
        context.run({"x": np.zeros((length, 0), np.float32)})


def test_results_inside_of_kernels_are_counted() -> None:
    """The products of all pairs of rows are no tensor if they are summed at once."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "first"], ["a"]),
        helper.make_node("Unsqueeze", ["x", "second"], ["b"]),
        helper.make_node("Mul", ["a", "b"], ["p"]),
        helper.make_node("ReduceSum", ["p", "second"], ["y"], keepdims=0),
    ]
    proto = model(nodes, {"x": ["N"]}, {"y": ["N"]}, first=np.array([0]), second=np.array([1]))
    texts = [requirement.text for requirement, _ in list_requirements(graph_of(proto).at_call)]
    assert "a size of N*N is above 2147483647" in " ".join(texts)


def test_a_result_of_padding_behind_is_longer_than_the_operand() -> None:
    """The padding has a value, so there are two operands, but not two that have to be as long as each other."""
    node, value = helper.make_node("Pad", ["x", "pads", "value"], ["y"]), np.asarray(0.5, np.float32)
    proto = model([node], {"x": ["N", 3]}, {"y": ["N + 2", 3]}, pads=np.array([0, 0, 2, 0]), value=value)
    relations = [requirement.relation for requirement, _ in list_requirements(graph_of(proto).at_call)]
    assert all(relation.holds({"N": 5}) for relation in relations)


@pytest.mark.parametrize(
    ("operator", "attributes", "inputs", "result", "expected"),
    [
        ("Gemm", {}, {"x": ["M", "K"], "w": ["K", "N"], "b": ["P"]}, ["M", "N"], "P is neither 1 nor N"),
        (
            "MatMul",
            {},
            {"x": ["B", "M", "K"], "w": ["P", "K", 4]},
            ["B", "M", 4],
            "P is neither 1 nor max(B, P)*min(1, B, P)",
        ),
        ("Conv", {"kernel_shape": [3]}, {"x": [1, "C", 8], "w": [4, "P", 3]}, [1, 4, 6], "P is not C"),
        ("Conv", {"kernel_shape": [3]}, {"x": [1, 2, 8], "w": ["O", 2, 3], "b": ["P"]}, [1, "O", 6], "P is not O"),
        ("Conv", {"kernel_shape": [3], "group": 4}, {"x": [1, "C", 8], "w": [4, 1, 3]}, [1, 4, 6], "4 is not C"),
        ("Conv", {"kernel_shape": [3], "group": 2}, {"x": [1, "C", 8], "w": [4, "P", 3]}, [1, 4, 6], "2*P is not C"),
        ("ConvTranspose", {"kernel_shape": [3]}, {"x": [1, "C", 8], "w": ["P", 4, 3]}, [1, 4, 10], "P is not C"),
        (
            "ConvTranspose",
            {"kernel_shape": [3]},
            {"x": [1, 2, 8], "w": [2, "O", 3], "b": ["P"]},
            [1, "O", 10],
            "P is not O",
        ),
        (
            "ConvTranspose",
            {"kernel_shape": [3], "group": 2},
            {"x": [1, "C", 8], "w": ["P", 2, 3]},
            [1, 4, 10],
            "P is not C",
        ),
        ("LayerNormalization", {}, {"x": ["M", "K"], "s": ["P"]}, ["M", "K"], "P is not K"),
        ("InstanceNormalization", {}, {"x": ["M", "C", 8], "s": ["P"], "b": ["C"]}, ["M", "C", 8], "P is not C"),
        ("GRU", {"hidden_size": 3}, {"x": [5, 2, "I"], "w": [1, 9, "P"], "r": [1, 9, 3]}, [5, 1, 2, 3], "P is not I"),
        ("RNN", {"hidden_size": 3}, {"x": ["T", 2, 4], "w": [1, "P", 4], "r": [1, 3, 3]}, ["T", 1, 2, 3], "P is not 3"),
        (
            "LSTM",
            {"hidden_size": 3},
            {"x": ["T", 2, 4], "w": [1, 12, 4], "r": [1, 12, 3], "b": [1, "P"]},
            ["T", 1, 2, 3],
            "P is not 24",
        ),
        ("GridSample", {}, {"x": ["N", 1, 4, 4], "g": ["P", 2, 2, 2]}, ["N", 1, 2, 2], "P is not N"),
        ("GridSample", {}, {"x": [3, 1, "H", 4], "g": [3, "P", 2, 2]}, [3, 1, "P", 2], "H is below min(1, 6*P)"),
        ("GridSample", {}, {"x": [3, 1, 4, 4], "g": [3, 2, 2, "P"]}, [3, 1, 2, 2], "P is not 2"),
        ("GlobalMaxPool", {}, {"x": ["N", 1, "H", 4]}, ["N", 1, 1, 1], "H is below 1"),
        ("DepthToSpace", {"blocksize": 2}, {"x": [1, "C", 4, 4]}, [1, "C//4", 8, 8], "16*C is not 64*(C//4)"),
    ],
)
def test_weights_and_biases_of_dynamic_sizes_fit(
    operator: str, attributes: Any, inputs: Any, result: list[Any], expected: str
) -> None:
    """What a kernel reads along an axis of its result has as many elements: a shorter one would be read beyond."""
    proto = model([helper.make_node(operator, list(inputs), ["y"], **attributes)], inputs, {"y": result})
    texts = [requirement.text for requirement, _ in list_requirements(graph_of(proto).at_call)]
    assert f"a size of {expected} " in "\n".join(texts)


def test_padding_may_stand_for_data_of_the_only_window() -> None:
    builder = Builder()
    x, weights = builder.input(1, 4, "N"), builder.constant(4, 4, 2)
    window = {"kernel_shape": (2,), "pads": (0, 1), "strides": (2,), "dilations": (1,), "group": 1}
    builder.op("Conv", x, weights, shape=(1, 4, 1), **window)
    relations = [relation for _, relation in find_relations(builder.graph())]
    assert all(relation.holds({"N": size}) for relation in relations for size in (1, 2))


@pytest.mark.parametrize(
    ("operator", "attributes", "data", "indices", "expected"),
    [
        ("GatherElements", {"axis": 1}, ["N", 4], ["P", 4], "N is below P"),
        ("GatherND", {"batch_dims": 1}, ["N", 4], ["P", 1], "N is not P"),
        ("Gather", {"axis": 1}, [3, "N"], ["P"], "N is below min(1, 3*P)"),
        ("ReverseSequence", {"batch_axis": 0, "time_axis": 1}, ["N", 4], ["P"], "P is not N"),
    ],
)
def test_indices_of_dynamic_sizes_fit(
    operator: str, attributes: Any, data: list[Any], indices: list[Any], expected: str
) -> None:
    node = helper.make_node(operator, ["x", "i"], ["y"], **attributes)
    proto = model([node], {"x": data, "i": indices}, {"y": []}, integers=["i"])
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    texts = [requirement.text for requirement, _ in list_requirements(graph_of(proto).at_call)]
    assert f"a size of {expected} " in "\n".join(f"{text} " for text in texts)


@pytest.mark.parametrize("channels", ["C", 4])
def test_scales_of_groups_of_channels_fit(channels: str | int) -> None:
    inputs = {"x": ["M", channels, 8], "s": ["P"], "b": ["P"]}
    node = helper.make_node("GroupNormalization", list(inputs), ["y"], num_groups=2)
    proto = model([node], inputs, {"y": inputs["x"]})
    proto.opset_import[0].version = 21  # since then there is one for each channel
    texts = [requirement.text for requirement, _ in list_requirements(graph_of(proto).at_call)]
    assert f"a size of P is not {channels} " in "\n".join(texts)


def test_tensors_that_32_bits_do_not_count_are_refused() -> None:
    buffers = (floats("x", 1 << 16, 1 << 15), floats("y", 4))
    with pytest.raises(PlanError, match=r"buffer 0 \(x\): has 2147483648 elements; .* at most 2147483647"):
        Plan(buffers, (Call("increment", (0,), (1,)),), (0,), (1,), ())


def test_inputs_share_sizes(tmp_path: Path) -> None:
    buffers = (floats("x", "N"), floats("w", 2, "N + 1"), floats("y", "N"))
    context = load_plan(Plan(buffers, (Call("increment", (0,), (2,)),), (0, 1), (2,), ()), tmp_path)
    context.run({"x": np.zeros(3, np.float32), "w": np.zeros((2, 4), np.float32)})
    with pytest.raises(UsageError, match="input w: axis 1 is 3 long, and must be 4"):
        context.run({"x": np.zeros(3, np.float32), "w": np.zeros((2, 3), np.float32)})


def test_sizes_are_solved_in_an_order_that_can_be_computed() -> None:
    shapes = [extents_of(("2*A*B", 3)), extents_of(("B + 1", "3*A")), extents_of(("B//2",))]
    assert [(type(step), step.port, step.axis) for step in solve_sizes(shapes)] == [
        (Solution, 1, 0), (Solution, 1, 1), (Demand, 0, 0), (Demand, 2, 0)
    ]  # fmt: skip


@given(SIZES, SIZES, SIZES)
def test_no_size_is_above_its_upper_bound(n: int, count: int, other: int) -> None:
    values = {"n": n, "count": min(count, n), "other": min(other, 2 * n)}
    bounds = {"count": size("n"), "other": size("2*n")}
    texts = ("count + 1", "n - count", "2*count*other + n", "(count + 3)//2", "max(count, other)", "9*n - count*other")
    for text in texts:
        bound = upper_bound(size(text), bounds)
        assert not isinstance(bound, int)
        assert bound.names() <= {"n"}
        assert size(text).value(values.__getitem__) <= bound.value(values.__getitem__)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (lambda: Plan((floats("x", "N//2"),), (), (0,), (), ()), "the size N of an input does not follow"),
        (lambda: Plan((floats("x", "N"), floats("y", "M")), (), (0,), (), ()), r"buffer 1 \(y\): the size M"),
        (lambda: Plan((floats("x", "N"),), (Measure("M", 0, 0, size("N")),), (0,), (), ()), "M is no element"),
        (lambda: Plan((floats("x", "N"), floats("w", "N")), (), (0,), (), (1,)), "weight 1"),
    ],
)
def test_plans_with_sizes_that_nothing_tells_are_refused(plan: object, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan()  # type: ignore[operator]
