"""Costs of the layout that a runtime runs convolutions in."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx
import pytest
from onnx import helper

import eqfuse

from ...engine.models import model, normal, value


def node(op: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], **attributes)


def mean_of_a_map(pool: str) -> onnx.ModelProto:
    """A convolution, the mean of its result, and a convolution of that."""
    mean = node("ReduceMean", ["a"], "m", axes=[2, 3]) if pool == "ReduceMean" else node(pool, ["a"], "m")
    nodes = [node("Conv", ["x", "w"], "a"), mean, node("Conv", ["m", "v"], "s"), node("Mul", ["a", "s"], "y")]
    weights = {"w": normal(32, 32, 3, 3), "v": normal(32, 32, 1, 1)}
    return model(nodes, [value("x", [1, 32, 24, 24])], ["y"], weights)


def operators(result: onnx.ModelProto) -> Counter[str]:
    return Counter(each.op_type for each in result.graph.node)


@pytest.mark.parametrize("pool", ["ReduceMean", "GlobalAveragePool"])
def test_a_mean_is_taken_where_it_leaves_no_layout(pool: str) -> None:
    assert operators(eqfuse.optimize(mean_of_a_map(pool)))["GlobalAveragePool"] == 1


@pytest.mark.representatives(2)
@pytest.mark.parametrize("options", [{"device": "arm64"}, {"runtime": "none"}, {"cost": "flops"}])
def test_where_nothing_runs_in_blocks_no_layout_is_left(options: dict[str, Any]) -> None:
    assert operators(eqfuse.optimize(mean_of_a_map("ReduceMean"), **options))["GlobalAveragePool"] == 0


def test_readers_of_both_layouts_share_a_value() -> None:
    nodes = [
        node("Conv", ["x", "w"], "a"),
        node("Relu", ["a"], "b"),
        node("Exp", ["b"], "plain"),
        node("Conv", ["b", "v"], "c"),
        node("Relu", ["c"], "y"),
    ]
    weights = {"w": normal(32, 32, 3, 3), "v": normal(32, 32, 1, 1)}
    result = eqfuse.optimize(model(nodes, [value("x", ["n", 32, 24, 24])], ["y", "plain"], weights))
    assert operators(result) == Counter(Conv=2, Relu=2, Exp=1)
