"""Softmax of before opset 13, which flattened everything from its axis on."""

from __future__ import annotations

import pytest
from onnx import helper

from eqfuse.engine.egraph.canonical import Call, canonical
from eqfuse.engine.egraph.emit import emit_node
from eqfuse.engine.egraph.graph import ENode
from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.types import TensorType

from .models import model, value


def call(shape: tuple[int, ...], **attributes: int) -> Call | None:
    node = helper.make_node("Softmax", ["x"], ["y"], **attributes)
    source = read(model([node], [value("x", shape)], [value("y", shape)], opset=9, ir_version=4))
    return canonical(source.graph[0], infer(source), source.opset)


@pytest.mark.parametrize(
    ("shape", "attributes", "axis"),
    [((1, 10, 1, 1), {}, 1), ((2, 1, 7, 1), {}, 2), ((2, 3, 5), {"axis": 2}, 2), ((4, 6), {"axis": -1}, 1)],
)
def test_one_long_axis_is_that_of_today(shape: tuple[int, ...], attributes: dict[str, int], axis: int) -> None:
    softmax = call(shape, **attributes)
    assert softmax is not None
    assert softmax.attributes == (axis,)


@pytest.mark.parametrize("axis", [0, 1])
def test_several_long_axes_are_none(axis: int) -> None:
    assert call((2, 3, 5), axis=axis) is None


@pytest.mark.parametrize(
    ("shape", "opset", "said"), [((1, 9, 1), 9, True), ((1, 9, 2), 9, False), ((1, 9, 2), 13, True)]
)
def test_a_node_is_written_where_it_means_the_same(shape: tuple[int, ...], opset: int, said: bool) -> None:
    type_ = TensorType("float32", shape)
    assert (emit_node(ENode("Softmax", (1,), (0,)), (type_,), type_, opset, {}) is not None) == said
