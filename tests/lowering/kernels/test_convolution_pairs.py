"""Which kernels are joined to one: those of a known pattern, where the device gains by it, that have a schedule."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from eqfuse.costmodels.device import load_device
from eqfuse.lowering.kernels.convolution_pairs import join_pairs

from ..small_models import graph_of, model, weights

SERVER = load_device("x86-64-v4")
KERNELS = ((0, 1), (2,), (3,))


def inverted_residual(size: int, output: str = "y") -> onnx.ModelProto:
    """Pointwise with relu, depthwise, pointwise: kernels 0 1, 2 and 3."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], group=96, pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "w3"], ["y"]),
    ]
    shapes = {"y": (1, 16, size, size), "b": (1, 96, size, size)}
    stored = {"w1": weights(96, 16, 1, 1), "w2": weights(96, 1, 3, 3), "w3": weights(16, 96, 1, 1)}
    outputs = {name: shapes[name] for name in dict.fromkeys(("y", output))}
    return model(nodes, {"x": (1, 16, size, size)}, outputs, **stored)


@pytest.mark.parametrize(
    ("size", "output", "kernels", "joined"),
    [
        (14, "y", KERNELS, {KERNELS}),  # the cache holds all
        (112, "y", KERNELS, {((0, 1, 2), (3,)), ((0, 1), (2, 3))}),
        (112, "b", KERNELS, {((0, 1), (2, 3))}),  # others read the first map, too
        (14, "y", ((0,), (1,), (2,), (3,)), {((0,), (1,), (2,), (3,))}),  # a kernel without an anchor op
        (14, "y", ((0, 1), (2, 3)), {((0, 1), (2, 3))}),  # one with two
    ],
)
def test_which_kernels_are_joined(
    size: int, output: str, kernels: tuple[tuple[int, ...], ...], joined: set[tuple[tuple[int, ...], ...]]
) -> None:
    assert join_pairs(graph_of(inverted_residual(size, output)), kernels, SERVER, lambda members: True) in joined


def test_pairs_without_a_schedule_stay_apart_and_another_is_joined() -> None:
    graph = graph_of(inverted_residual(112))
    assert join_pairs(graph, KERNELS, SERVER, lambda members: False) == KERNELS
    kernels = join_pairs(graph, KERNELS, SERVER, lambda members: True)
    best = next(kernel for kernel in kernels if len(kernel) > 1 and kernel != (0, 1))
    others = join_pairs(graph, KERNELS, SERVER, lambda members: members != best)
    assert best not in others
    assert len(others) == 2
