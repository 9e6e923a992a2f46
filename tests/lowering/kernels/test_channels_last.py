"""Functions on feature maps with their channels last compute what they compute on those of ONNX."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tvm import te, tirx, topi

from eqfuse.engine.onnx.model import read
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.channels_last import channels_last, channels_last_values, from_last, last_shape, to_last
from eqfuse.lowering.kernels.compilation import compile_kernels
from eqfuse.lowering.kernels.messages import Choices
from eqfuse.lowering.kernels.steps import Kernel, View, steps
from eqfuse.lowering.schedules import CONSTANTS, schedule

from ..linked import linked
from ..schedules.functions import HOST, REFERENCE, Shape, convolution, execute, inputs, pool, run
from ..small_models import expected, graph_of, model, random_inputs, weights

pytestmark = pytest.mark.usefixtures("shared_by_threads")

Array = np.ndarray[Any, Any]


def assert_same(function: Any, moved: Collection[int], rule: str, threads: int = 1) -> None:
    arrays = inputs(function)
    expected = run(function, arrays, REFERENCE)
    stored = [to_last(array) if n in moved else array for n, array in enumerate(arrays)]
    scheduled = schedule(channels_last(function, moved), HOST, threads)
    result = execute(scheduled, stored)
    np.testing.assert_allclose(from_last(result) if len(arrays) - 1 in moved else result, expected, 1e-4, 1e-4)
    assert scheduled.rule == rule
    assert {repack.parameter for repack in scheduled.repack} <= set(map(int, function.attrs.get(CONSTANTS, ())))
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


@pytest.mark.representatives(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case: str, threads: int) -> None:
    assert_same(convolution(*CONVOLUTIONS[case]), {0, 3}, "contraction", threads)


@pytest.mark.representatives(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("moved", [{0, 3}, {3}])
@pytest.mark.parametrize("case", DEPTHWISE)
def test_depthwise_convolution(case: str, moved: set[int], threads: int) -> None:
    assert_same(convolution(*DEPTHWISE[case]), moved, "channels", threads)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("moved", [{0, 3}, {3}])
@pytest.mark.parametrize(("channels", "side"), [(4, 5), (3, 9)])
def test_depthwise_convolution_of_single_pixels(channels: int, side: int, moved: set[int]) -> None:
    """The last of the tiles that the reduction is in may not overlap the one before: it would be added twice."""
    assert_same(convolution((1, channels, side, side), channels, 1, group=channels), moved, "fallback")


@pytest.mark.representatives(1)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("channels", "outputs", "kernel"), [(16, 16, 3), (24, 68, 1), (12, 96, 1), (6, 6, 1)])
def test_grouped_convolution(channels: int, outputs: int, kernel: int, threads: int) -> None:
    function = convolution((1, channels, 6, 7), outputs, kernel, 1, kernel // 2, 2)
    assert_same(function, {0, 3}, "contraction", threads)
    assert_same(function, {3}, "contraction", threads)


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("shape", "outputs", "kernel", "stride", "moved"),
    [
        ((1, 3, 12, 12), 32, 3, 2, 3),
        ((1, 32, 6, 6), 16, 3, 1, 0),
        ((1, 32, 6, 6), 10, 1, 1, 0),
        ((1, 32, 6, 6), 48, 1, 1, 0),
    ],
)
def test_only_one_end_is_moved(shape: Shape, outputs: int, kernel: int, stride: int, moved: int) -> None:
    assert_same(convolution(shape, outputs, kernel, stride, kernel // 2), {moved}, "contraction")


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pool(kind: str) -> None:
    assert_same(pool((1, 24, 9, 9), 3, 2, 1, kind), {0, 1}, "channels")


def test_global_pool() -> None:
    x = te.placeholder((1, 24, 5, 5), name="x")
    assert_same(te.create_prim_func([x, topi.sum(x, (2, 3), True)]), {0}, "channels")


@pytest.mark.parametrize(("channels", "pixels", "threads"), [(32, 5, 1), (24, 64, 2)])
def test_a_mean_in_a_map_of_one_pixel(channels: int, pixels: int, threads: int) -> None:
    x = te.placeholder((1, channels, pixels, pixels), name="x")
    sums = topi.sum(x, (2, 3), True)
    mean = te.compute(sums.shape, lambda *i: sums(*i) * 0.04, name="mean")
    assert_same(te.create_prim_func([x, mean]), {0}, "channels", threads)


def test_only_the_shape_of_a_map_is_read() -> None:
    x = te.placeholder((1, 4, 7, 33), name="x")
    few, many = tirx.const(4.0, "float32"), tirx.const(7.0, "float32")
    sizes = te.compute((4,), lambda i: tirx.Select(i < 2, few, many), name="sizes")
    function = channels_last(te.create_prim_func([x, sizes]), {0})
    assert execute(schedule(function, HOST, 1), inputs(function)).tolist() == [4, 4, 7, 7]
    assert tuple(map(int, function.params[0].shape)) == (1, 7, 33, 4)


def test_shapes_and_elements() -> None:
    array = np.arange(24.0).reshape(1, 2, 3, 4)
    assert to_last(array).shape == last_shape(array.shape) == (1, 3, 4, 2)
    assert np.array_equal(from_last(to_last(array)), array)


# --- which values

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
    return graph_of(model(NODES, {"x": (1, 4, 5, 5)}, {"y": (1, 100)}, w=weights(4, 4, 1, 1)))


def test_values_between_kernels_are_moved(graph: OperatorGraph) -> None:
    order = tuple(steps(graph, [(n,) for n in range(len(graph))]))
    moved = {graph.values[v].name for v in channels_last_values(graph, order)}
    assert any(isinstance(step, View) for step in order)
    assert moved == {"a", "b", "c", "s", "d"}


def test_what_is_viewed_stays(graph: OperatorGraph) -> None:
    flat = [Kernel((0,)), View(graph.operators[0].outputs[0], 0)]
    moved = {graph.values[v].name for v in channels_last_values(graph, flat)}
    assert "a" not in moved


@pytest.mark.representatives(1)
@pytest.mark.parametrize("plain", [(), ("b",), ("a", "b", "c", "s", "d")])
def test_maps_in_either_order_give_the_same_numbers(plain: tuple[str, ...], tmp_path: Path) -> None:
    proto = model(NODES, {"x": (1, 4, 5, 5)}, {"y": (1, 100)}, w=weights(4, 4, 1, 1))
    graph, given = graph_of(proto), random_inputs(proto)
    choices = Choices(plain=frozenset(n for n, value in enumerate(graph.values) if value.name in plain))
    kernels = [(n,) for n in range(len(graph))]
    compiled = compile_kernels(graph, kernels, Weights(read(proto)), target_of("host", 1), tmp_path, 1, choices=choices)
    assert {graph.values[v].name for v in compiled.channels_last} == {"a", "b", "c", "s", "d"}.difference(plain)
    np.testing.assert_allclose(linked(compiled, tmp_path).run(given)["y"], expected(proto, given)["y"], rtol=1e-4)
