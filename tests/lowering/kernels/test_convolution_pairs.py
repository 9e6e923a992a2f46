"""Which kernels are joined to one: those of a known pattern, where the device gains by it, that have a schedule."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from eqfuse.costmodels.device import load_device
from eqfuse.engine.onnx.inference import infer
from eqfuse.engine.onnx.model import read
from eqfuse.extract.partition.operator_graph import operator_graph
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.kernels.convolution_pairs import join_pairs

from ..small_models import model, weights

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


def graph_of(proto: onnx.ModelProto) -> OperatorGraph:
    found = read(proto)
    return operator_graph(found, infer(found))


def always(members: tuple[int, ...]) -> bool:
    return True


def test_what_the_cache_does_not_hold_is_joined() -> None:
    found = join_pairs(graph_of(inverted_residual(112)), KERNELS, SERVER, always)
    assert found in (((0, 1, 2), (3,)), ((0, 1), (2, 3)))


def test_what_the_cache_holds_stays_apart() -> None:
    assert join_pairs(graph_of(inverted_residual(14)), KERNELS, SERVER, always) == KERNELS


def test_what_has_no_schedule_stays_apart() -> None:
    assert join_pairs(graph_of(inverted_residual(112)), KERNELS, SERVER, lambda members: False) == KERNELS


def test_another_pair_is_joined_where_the_best_has_no_schedule() -> None:
    graph = graph_of(inverted_residual(112))
    best = next(kernel for kernel in join_pairs(graph, KERNELS, SERVER, always) if len(kernel) > 1 and kernel != (0, 1))
    others = join_pairs(graph, KERNELS, SERVER, lambda members: members != best)
    assert best not in others
    assert len(others) == 2


def test_what_others_read_too_stays_apart() -> None:
    found = join_pairs(graph_of(inverted_residual(112, output="b")), KERNELS, SERVER, always)
    assert found == ((0, 1), (2, 3))


@pytest.mark.parametrize("kernels", [((0,), (1,), (2,), (3,)), ((0, 1), (2, 3))])
def test_kernels_of_several_anchor_ops_or_none_are_left(kernels: tuple[tuple[int, ...], ...]) -> None:
    found = join_pairs(graph_of(inverted_residual(14)), kernels, SERVER, always)
    assert found == kernels
