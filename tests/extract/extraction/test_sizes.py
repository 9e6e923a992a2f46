"""The sizes that costs assume for dimensions that the model leaves open."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.engine.egraph.encode import encode
from eqfuse.engine.egraph.saturate import Budget, saturate
from eqfuse.engine.egraph.worker import Worker
from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.extraction.sizes import assume_types
from eqfuse.rules.vocabulary import RuleSelection

from ...engine.models import model, normal, value

IMAGE = ["batch", 3, "height", "width"]


def node(op: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], **attributes)


def squeeze_and_excite() -> onnx.ModelProto:
    """A map of unknown height and width, its mean, and a convolution of the mean."""
    nodes = [
        node("Conv", ["x", "w"], "map", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("ReduceMean", ["map"], "mean", axes=[2, 3], keepdims=1),
        node("Conv", ["mean", "v"], "scale", kernel_shape=[1, 1]),
        node("Mul", ["map", "scale"], "y"),
    ]
    return model(nodes, [value("x", IMAGE)], ["y"], {"w": normal(8, 3, 3, 3), "v": normal(8, 8, 1, 1)})


@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("halved", (1, 8, 64, 64)),
        ("pooled", (1, 8, 32, 32)),
        ("joined", (1, 16, 32, 32)),
        ("part", (1, 4, 32, 32)),
        ("rows", (1, 4, 1024)),
    ],
)
def test_sizes_follow_from_those_of_the_inputs(name: str, shape: tuple[int, ...]) -> None:
    nodes = [
        node("Conv", ["x", "w"], "halved", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("MaxPool", ["halved"], "pooled", kernel_shape=[2, 2], strides=[2, 2]),
        node("Sigmoid", ["pooled"], "bent"),
        node("Concat", ["pooled", "bent"], "joined", axis=1),
        helper.make_node("Split", ["joined", "sizes"], ["part", "rest"], axis=1),
        node("Reshape", ["part", "shape"], "rows"),
    ]
    integers = {"sizes": onnx.numpy_helper.to_array(helper.make_tensor("sizes", 7, [2], [4, 12]))}
    integers["shape"] = onnx.numpy_helper.to_array(helper.make_tensor("shape", 7, [3], [0, 4, -1]))
    source = read(model(nodes, [value("x", IMAGE)], ["rows", "rest"], {"w": normal(8, 3, 3, 3), **integers}))
    knowledge = infer(source)
    encoding = encode(source, knowledge)
    with Worker(RuleSelection(only=("add-zero",))) as worker:
        egraph = saturate(encoding, worker, Budget())
    types = assume_types(egraph, encoding, source.opset, knowledge, {})
    type_ = types[egraph.terms[encoding.values[name]]]
    assert type_ is not None
    assert type_.shape == shape
    larger = assume_types(egraph, encoding, source.opset, knowledge, {"height": 256})
    doubled = larger[egraph.terms[encoding.values[name]]]
    assert doubled is not None
    assert prod(map(int, doubled.shape or ())) == 2 * prod(shape)


def test_a_convolution_of_a_mean_is_not_moved_to_the_whole_map() -> None:
    result = eqfuse.optimize_with_result(squeeze_and_excite())
    order = [n.op_type for n in result.model.graph]
    assert order.index("ReduceMean") < len(order) - 1 - order[::-1].index("Conv")


def test_gelu_of_a_map_of_unknown_size_stays_one_operator() -> None:
    nodes = [
        node("Conv", ["x", "w"], "a", kernel_shape=[3, 3], strides=[2, 2]),
        node("Div", ["a", "root"], "b"),
        node("Erf", ["b"], "c"),
        node("Add", ["c", "one"], "d"),
        node("Mul", ["a", "d"], "e"),
        node("Mul", ["e", "half"], "f"),
        node("Conv", ["f", "v"], "y", kernel_shape=[1, 1]),
    ]
    scalars = {"root": normal() * 0 + 2**0.5, "one": normal() * 0 + 1, "half": normal() * 0 + 0.5}
    weights = {"w": normal(8, 3, 3, 3), "v": normal(8, 8, 1, 1), **{k: v.astype("float32") for k, v in scalars.items()}}
    result = eqfuse.optimize_with_result(model(nodes, [value("x", IMAGE)], ["y"], weights, opset=20))
    assert Counter(n.op_type for n in result.model.graph) == Counter(Conv=2, Gelu=1)


def test_values_that_a_rule_makes_anew_have_names_for_their_sizes() -> None:
    nodes = [
        node("Conv", ["x", "w"], "a", kernel_shape=[3, 3], strides=[2, 2]),
        node("Add", ["a", "c"], "b"),
        node("Relu", ["b"], "y"),
    ]
    source = model(nodes, [value("x", IMAGE)], ["y"], {"w": normal(8, 3, 3, 3), "c": normal(1, 8, 1, 1)})
    source.graph.value_info.extend(value(name, ["batch", 8, "rows", "columns"]) for name in ("a", "b"))
    result = eqfuse.optimize_with_result(source)
    (conv,) = (n for n in result.model.graph if n.op_type == "Conv")
    assert len(conv.inputs) == 3
    assert [str(d) for d in conv.outputs[0].shape or ()] == ["batch", "8", "(height + 1)//2 - 1", "(width + 1)//2 - 1"]
