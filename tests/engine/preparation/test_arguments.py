"""Arguments that are computed from sizes become constants where these mean the same for every size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.engine.onnx.model import read
from eqfuse.engine.preparation.arguments import simplify_arguments
from eqfuse.engine.shapes.inference import infer

from ..models import model, value

NODES = helper.make_node
X = ["N", 6, "H", "W"]


def size_of(axis: int, name: str) -> list[onnx.NodeProto]:
    """The size of an axis of x, as a vector."""
    return [NODES("Gather", ["shape", f"axis{axis}"], [name])]


def simplified(nodes: Sequence[onnx.NodeProto], weights: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The constants that a model's last node reads once they are simplified, by position; absent ones are None."""
    axes = {f"axis{axis}": np.asarray([axis]) for axis in range(4)}
    shape = NODES("Shape", ["x"], ["shape"])
    source = read(model([shape, *nodes], [value("x", X)], [nodes[-1].output[0]], {**axes, **(weights or {})}))
    result, knowledge = simplify_arguments(source, infer(source))
    (last,) = (node for node in result.graph if node.outputs[0].name == nodes[-1].output[0])
    constants = [None if v is None else knowledge.constants.get(v.name or "", "computed") for v in last.inputs]
    inputs = {str(i): c if c is None or isinstance(c, str) else c.tolist() for i, c in enumerate(constants)}
    return inputs | {"operator": last.op_type}


@pytest.mark.parametrize(
    ("parts", "target"),
    [
        (["n", "c", "hw"], [0, 6, -1]),
        (["n", "free"], "flattened"),
        (["nhw", "c"], [-1, 6]),
        (["n", "c", "w", "h"], "computed"),
        (["n", "two", "three", "h", "w"], "computed"),
    ],
)
def test_targets_of_reshapes(parts: list[str], target: object) -> None:
    nodes = [*size_of(0, "n"), *size_of(2, "h"), *size_of(3, "w")]
    nodes += [NODES("Mul", ["h", "w"], ["hw"]), NODES("Mul", ["n", "hw"], ["nhw"])]
    nodes += [NODES("Concat", parts, ["target"], axis=0), NODES("Reshape", ["x", "target"], ["y"])]
    weights = {"c": np.asarray([6]), "free": np.asarray([-1]), "two": np.asarray([2]), "three": np.asarray([3])}
    inputs = simplified(nodes, weights)
    assert inputs.get("1", "flattened") == target
    assert inputs["operator"] == ("Flatten" if target == "flattened" else "Reshape")


def test_zeros_that_mean_zero_give_way_to_copies() -> None:
    nodes = [NODES("Reshape", ["x", "shape"], ["y"], allowzero=1)]
    assert simplified(nodes)["1"] == [0, 6, 0, 0]


@pytest.mark.parametrize(("distance", "end"), [(0, 2**63 - 1), (2, "computed")])
def test_ends_of_slices(distance: int, end: object) -> None:
    """The end of an axis is one for every size; what lies before it may be counted from the end or not."""
    nodes = [
        *size_of(2, "h"),
        NODES("Sub", ["h", "distance"], ["end"]),
        NODES("Slice", ["x", "zero", "end", "axis2"], ["y"]),
    ]
    assert simplified(nodes, {"distance": np.asarray([distance]), "zero": np.asarray([0])})["2"] == (
        end if isinstance(end, str) else [end]
    )


def test_scales_take_the_place_of_sizes() -> None:
    nodes = [
        NODES("Mul", ["shape", "factors"], ["sizes"]),
        NODES("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest"),
    ]
    inputs = simplified(nodes, {"factors": np.asarray([1, 1, 2, 3])})
    assert inputs == {"operator": "Resize", "0": "computed", "1": None, "2": [1.0, 1.0, 2.0, 3.0]}


def test_expansions_keep_dimensions() -> None:
    nodes = [
        *size_of(0, "n"), *size_of(2, "h"), *size_of(3, "w"),
        NODES("Slice", ["x", "zero", "axis1", "axis1"], ["first"]),
        NODES("Concat", ["n", "c", "h", "w"], ["target"], axis=0), NODES("Expand", ["first", "target"], ["y"]),
    ]  # fmt: skip
    assert simplified(nodes, {"c": np.asarray([6]), "zero": np.asarray([0])})["1"] == [1, 6, 1, 1]


def test_equal_values_are_computed_once() -> None:
    nodes = [
        NODES("Relu", ["x"], ["r"]),
        NODES("Shape", ["r"], ["s"]),
        NODES("Cast", ["s"], ["t"], to=onnx.TensorProto.INT64),
        NODES("Concat", ["t", "shape"], ["y"], axis=0),
    ]
    source = read(model([NODES("Shape", ["x"], ["shape"]), *nodes], [value("x", X)], ["y"]))
    result, _ = simplify_arguments(source, infer(source))
    (join,) = (node for node in result.graph if node.op_type == "Concat")
    assert [v.name for v in join.inputs if v is not None] == ["shape", "shape"]


def test_a_model_without_computed_arguments_stays() -> None:
    source = read(model([NODES("Relu", ["x"], ["y"])], [value("x", X)], ["y"]))
    knowledge = infer(source)
    assert simplify_arguments(source, knowledge) == (source, knowledge)


def test_chains_of_shapes_die() -> None:
    nodes = [
        NODES("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        NODES("Shape", ["p"], ["s"]),
        NODES("Gather", ["s", "zero"], ["n"]),
        NODES("Unsqueeze", ["n", "zeros"], ["batch"]),
        NODES("Concat", ["batch", "rest"], ["target"], axis=0),
        NODES("Reshape", ["p", "target"], ["r"]),
        NODES("Relu", ["r"], ["y"]),
    ]
    weights = {"zero": np.asarray(0), "zeros": np.asarray([0]), "rest": np.asarray([6, -1])}
    result = eqfuse.optimize_with_result(model(nodes, [value("x", X)], ["y"], weights))
    assert sorted(node.op_type for node in result.model.graph) == ["MaxPool", "Relu", "Reshape"]
    assert result.verification is not None
    assert result.verification.status == "passed"
