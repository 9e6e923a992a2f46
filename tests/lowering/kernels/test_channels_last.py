"""Functions on feature maps with their channels last compute what they compute on those of ONNX."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import helper
from tvm import te, topi

from eqfuse.engine.onnx.inference import infer
from eqfuse.engine.onnx.model import read
from eqfuse.extract.partition.operator_graph import operator_graph
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.kernels.channels_last import channels_last, channels_last_values, from_last, last_shape, to_last
from eqfuse.lowering.kernels.epilogues import move_epilogues
from eqfuse.lowering.kernels.steps import Kernel, View, steps
from eqfuse.lowering.schedules import schedule

from ..schedules.functions import HOST, TARGET, convolution, pool
from ..small_models import model, weights

pytestmark = pytest.mark.usefixtures("shared_by_threads")

Array = np.ndarray[Any, Any]


def arrays(function: Any) -> list[Array]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal([int(e) for e in buffer.shape]).astype("float32") for buffer in function.params]


def run(function: Any, given: list[Array], threads: int = 1) -> tuple[Array, str]:
    """The last array, as the scheduled function fills it, and the rule of the schedule."""
    scheduled = schedule(function, HOST, threads)
    packed = list(given)
    for repack in scheduled.repack:
        packed[repack.parameter] = repack(packed[repack.parameter])
    tensors = [tvm.runtime.tensor(array) for array in packed]
    tvm.compile(scheduled.schedule.mod, target=tvm.target.Target(TARGET))["main"](*tensors)
    return tensors[-1].numpy(), scheduled.rule


def assert_same(function: Any, moved: Collection[int], rule: str, threads: int = 1) -> None:
    given = arrays(function)
    expected, _ = run(function, given)
    stored = [to_last(array) if n in moved else array for n, array in enumerate(given)]
    found, chosen = run(channels_last(function, moved), stored, threads)
    np.testing.assert_allclose(from_last(found) if len(given) - 1 in moved else found, expected, rtol=1e-4, atol=1e-4)
    assert chosen == rule
    assert np.ptp(expected) > 0


CONVOLUTIONS = {
    "1x1": ((1, 24, 7, 9), 40, 1, 1, 0, 1),
    "narrow 1x1": ((1, 24, 7, 9), 5, 1, 1, 0, 1),
    "1x1 with stride": ((1, 16, 9, 9), 32, 1, 2, 0, 1),
    "3x3": ((2, 8, 9, 9), 24, 3, 1, 1, 1),
    "3x3 with stride": ((1, 8, 9, 9), 20, 3, 2, 1, 1),
}
DEPTHWISE = {
    "3x3": ((1, 40, 9, 9), 40, 3, 1, 1, 40),
    "5x5 with stride": ((2, 58, 9, 11), 58, 5, 2, 2, 58),
    "one pixel": ((1, 48, 2, 2), 48, 3, 2, 1, 48),
    "few channels": ((1, 3, 9, 9), 3, 3, 1, 1, 3),
}


@pytest.mark.representatives(4)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case: str, threads: int) -> None:
    assert_same(convolution(*CONVOLUTIONS[case]), {0, 3}, "contraction", threads)


@pytest.mark.representatives(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", DEPTHWISE)
def test_depthwise_convolution(case: str, threads: int) -> None:
    assert_same(convolution(*DEPTHWISE[case]), {0, 3}, "channels", threads)


@pytest.mark.representatives(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("channels", "outputs", "kernel"), [(16, 16, 3), (24, 68, 1), (12, 96, 1), (6, 6, 1)])
def test_grouped_convolution(channels: int, outputs: int, kernel: int, threads: int) -> None:
    function = convolution((1, channels, 6, 7), outputs, kernel, 1, kernel // 2, 2)
    assert_same(function, {0, 3}, "contraction", threads)
    assert_same(function, {3}, "contraction", threads)


def test_only_the_result_is_moved() -> None:
    assert_same(convolution((1, 3, 12, 12), 32, 3, 2, 1), {3}, "contraction")


@pytest.mark.parametrize(("outputs", "kernel"), [(16, 3), (10, 1), (48, 1)])
def test_only_the_operand_is_moved(outputs: int, kernel: int) -> None:
    assert_same(convolution((1, 32, 6, 6), outputs, kernel, 1, kernel // 2), {0}, "contraction")


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pool(kind: str) -> None:
    assert_same(pool((1, 24, 9, 9), 3, 2, 1, kind), {0, 1}, "channels")


def test_global_pool() -> None:
    x = te.placeholder((1, 24, 5, 5), name="x")
    assert_same(te.create_prim_func([x, topi.sum(x, (2, 3), True)]), {0}, "channels")


def test_shapes_and_elements() -> None:
    array = np.arange(24.0).reshape(1, 2, 3, 4)
    assert to_last(array).shape == last_shape(array.shape) == (1, 3, 4, 2)
    assert np.array_equal(from_last(to_last(array)), array)


# --- which values, and where element-wise operators go

NODES = [
    helper.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[1, 1]),
    helper.make_node("Relu", ["a"], ["b"]),
    helper.make_node("Conv", ["b", "w"], ["c"], kernel_shape=[1, 1]),
    helper.make_node("Sigmoid", ["b"], ["s"]),
    helper.make_node("Add", ["c", "s"], ["d"]),
    helper.make_node("Conv", ["d", "w"], ["e"], kernel_shape=[1, 1]),
    helper.make_node("Flatten", ["e"], ["y"]),
]


@pytest.fixture
def graph() -> OperatorGraph:
    found = read(model(NODES, {"x": (1, 4, 5, 5)}, {"y": (1, 100)}, w=weights(4, 4, 1, 1)))
    return operator_graph(found, infer(found))


def names(graph: OperatorGraph, kernels: Collection[Collection[int]]) -> list[list[str]]:
    return [[graph.operators[m].op for m in kernel] for kernel in kernels]


def test_values_between_kernels_are_moved(graph: OperatorGraph) -> None:
    order = tuple(steps(graph, [(n,) for n in range(len(graph))]))
    moved = {graph.values[v].name for v in channels_last_values(graph, order)}
    assert any(isinstance(step, View) for step in order)
    assert moved == {"a", "b", "c", "s", "d"}


def test_what_is_viewed_stays(graph: OperatorGraph) -> None:
    flat = [Kernel((0,)), View(graph.operators[0].outputs[0], 0)]
    moved = {graph.values[v].name for v in channels_last_values(graph, flat)}
    assert "a" not in moved


def test_an_activation_moves_behind_the_convolution_before(graph: OperatorGraph) -> None:
    found = move_epilogues(graph, [(0,), (1, 2), (3,), (4,), (5, 6)])
    assert names(graph, found) == [["Conv", "Relu"], ["Conv"], ["Sigmoid"], ["Add"], ["Conv", "Flatten"]]


def test_a_sum_moves_behind_what_is_made_last(graph: OperatorGraph) -> None:
    found = move_epilogues(graph, [(0, 1), (3,), (2,), (4, 5, 6)])
    assert names(graph, found) == [["Conv", "Relu"], ["Sigmoid"], ["Conv", "Add"], ["Conv", "Flatten"]]


def test_a_sum_stays_where_no_anchor_makes_its_last_operand(graph: OperatorGraph) -> None:
    kernels = ((0, 1), (2,), (3,), (4, 5, 6))
    assert move_epilogues(graph, kernels) == kernels


def test_operators_that_share_a_value_move_together(graph: OperatorGraph) -> None:
    found = move_epilogues(graph, [(0,), (1,), (2,), (3, 4, 5, 6)])
    assert names(graph, found) == [["Conv", "Relu"], ["Conv", "Sigmoid", "Add"], ["Conv", "Flatten"]]
