"""One form of an operator, however a model writes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from eqfuse.engine.egraph.canonical import canonical
from eqfuse.engine.egraph.encode import encode
from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import Knowledge, infer

from ..models import model, value


@pytest.mark.parametrize("operator", ["ReduceMax", "ArgMax"])
@pytest.mark.parametrize(("written", "kept"), [(1, 1), (0, 0), (2, 0), (-1, 0)])
def test_only_1_keeps_reduced_axes(operator: str, written: int, kept: int) -> None:
    node = helper.make_node(operator, ["x"], ["y"], keepdims=written)
    source = read(model([node], [value("x", [2, 3])], ["y"]))
    call = canonical(source.graph[0], infer(source), source.opset)
    assert call is not None
    assert kept == call.attributes[1]


@pytest.mark.parametrize(("size", "pads"), [(8, (0, 1)), (7, (1, 1)), ("4*k", (0, 1)), ("2*k + 1", (1, 1))])
def test_pads_follow_from_what_is_said_of_a_size(size: int | str, pads: tuple[int, int]) -> None:
    call = canonical(*strided_pool(size))
    assert call is not None
    assert call.attributes[1] == pads


def test_pads_that_depend_on_the_size_are_kept_where_that_is_asked_for() -> None:
    assert canonical(*strided_pool("w")) is None
    call = canonical(*strided_pool("w"), keeps_auto_pad=True)
    assert call is not None
    assert (call.attributes[1], call.auto_pad) == ((1, 1), "SAME_UPPER")


@pytest.mark.parametrize(("directions", "is_known"), [(1, True), ("N", False)])
def test_a_number_of_directions_that_a_call_decides_is_no_call(directions: int | str, is_known: bool) -> None:
    """Inference takes it from the attribute, and analyses from the weights."""
    inputs = [value("x", [2, 1, 2]), value("w", [directions, 9, 2]), value("r", [directions, 9, 3])]
    node = helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=3)
    source = read(model([node], inputs, ["y"]))
    assert (canonical(source.graph[0], infer(source), source.opset) is not None) == is_known


def strided_pool(size: int | str) -> tuple[Any, Knowledge, int]:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3], strides=[2], auto_pad="SAME_UPPER")
    source = read(model([node], [value("x", [1, 3, size])], ["y"]))
    return source.graph[0], infer(source), source.opset


def test_products_of_sizes_that_no_value_has_are_left_out() -> None:
    """Fixed batches leave such ones behind."""
    source = read(model([helper.make_node("Relu", ["x"], ["y"])], [value("x", ["N", 3])], ["y"]))
    knowledge = infer(source)
    products = {("length", 2): "N", ("N", 2): "length", ("N", "N"): "N"}
    encoding = encode(source, replace(knowledge, products=products))
    assert encoding.products == {(encoding.symbols["N"],) * 2: encoding.symbols["N"]}


def test_a_target_that_a_call_decides_is_the_shape_of_the_result_where_that_is_asked_for() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], end=1),
        helper.make_node("Concat", ["n", "rest"], ["target"], axis=0),
        helper.make_node("Expand", ["x", "target"], ["y"]),
    ]
    source = read(model(nodes, [value("x", ["N", 3, 1])], ["y"], {"rest": np.array([3, 4])}))
    node, knowledge = source.graph[-1], replace(infer(source), constants={})
    assert canonical(node, knowledge, source.opset) is None
    call = canonical(node, knowledge, source.opset, follows_result=True)
    assert call is not None
    assert (call.operands, call.attributes) == (("x",), (("N", 3, 4),))
