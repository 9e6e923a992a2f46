"""What users say of dynamic dimensions."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper

import eqfuse
from eqfuse.engine.onnx.model import read
from eqfuse.engine.preparation.overrides import state_dimensions
from eqfuse.engine.shapes.inference import infer
from eqfuse.support.errors import UsageError

from ..models import model, value


def test_multiples_come_out_even() -> None:
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    source = read(model([pool], [value("x", ["N", 3, "H", "W"])], ["y"]))
    assert infer(source).types["y"].shape == ("N", 3, "(H + 1)//2", "(W + 1)//2")
    stated = state_dimensions(source, ["H=32k", "W = 8*k + 1", "N=4"])
    assert infer(stated).types["y"].shape == (4, 3, "16*k", "4*k + 1")
    assert [str(d) for d in stated.graph.inputs[0].shape or ()] == ["4", "3", "32*k", "8*k + 1"]


@pytest.mark.representatives(2)
@pytest.mark.parametrize(("facts", "is_constant"), [([], True), (["N>=1"], True), (["N>=0"], False), (["N>=2"], True)])
def test_empty_batches_keep_the_computed_target_of_a_reshape(facts: list[str], is_constant: bool) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "zero", "one"], ["n"]),
        helper.make_node("Slice", ["s", "one", "three"], ["hw"]),
        helper.make_node("ReduceProd", ["hw"], ["area"], keepdims=1),
        helper.make_node("Concat", ["n", "one", "area"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["r"]),
    ]
    integers = {name: np.asarray([number]) for name, number in {"zero": 0, "one": 1, "three": 3}.items()}
    proto = model(nodes, [value("x", ["N", "H", "W"])], ["r"], integers)
    result = eqfuse.optimize_with_result(proto, dim=facts)
    assert (result.after.layers == 1) == is_constant
    assert result.verification is not None
    assert result.verification.status == "passed"


@pytest.mark.parametrize("batch", [0, 3])
def test_what_joins_all_axes_but_the_batch_is_right_for_an_empty_one(batch: int) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "zero", "one"], ["n"]),
        helper.make_node("Concat", ["n", "free"], ["target"], axis=0),
        helper.make_node("Reshape", ["a", "target"], ["y"]),
    ]
    integers = {name: np.asarray([number]) for name, number in {"zero": 0, "one": 1, "free": -1}.items()}
    result = eqfuse.optimize_with_result(model(nodes, [value("x", ["N", 3, "W"])], ["y"], integers))
    assert result.after.operators == {"Relu": 1, "Flatten": 1}
    session = onnxruntime.InferenceSession(ir.to_proto(result.model).SerializeToString())
    (output,) = session.run(None, {"x": np.ones((batch, 3, 5), np.float32)})
    assert output.shape == (batch, 15)


def test_results_are_verified_at_sizes_that_users_state() -> None:
    """The windows fit, and the halves can be joined, at these sizes only."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[16], strides=[2], pads=[7, 7]),
        helper.make_node("Resize", ["p", "", "scales"], ["r"], mode="nearest"),
        helper.make_node("Concat", ["r", "x"], ["y"], axis=1),
    ]
    scales = np.asarray([1, 1, 2], np.float32)
    proto = model(nodes, [value("x", ["N", 3, "T"]), value("z", ["U"])], ["y", "u"], {"scales": scales})
    proto.graph.node.append(helper.make_node("Relu", ["z"], ["u"]))
    result = eqfuse.optimize_with_result(proto, dim=["T=2k + 16", "N=2", "U>=17"])
    shapes = [[str(d) for d in each.shape or ()] for each in result.model.graph.inputs]
    assert shapes == [["2", "3", "2*k + 16"], ["U_more + 17"]]
    assert result.verification is not None
    assert result.verification.status == "passed"


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        ("H", "--dim: 'H' is no fact such as H=32k, N=4 or N>=1"),
        ("H=", "--dim: 'H=' is no fact such as H=32k, N=4 or N>=1"),
        ("H=a*b", "--dim: 'H=a*b': a size is a number, or a multiple of one name and a number more"),
        ("H>=W", "--dim: 'H>=W': the bound has to be a number"),
        ("Hight=4", "--dim: graph has no dimension 'Hight'; it has H, N"),
    ],
)
def test_facts_that_cannot_be_used(fact: str, message: str) -> None:
    source = read(model([helper.make_node("Relu", ["x"], ["y"])], [value("x", ["N", "H"])], ["y"]))
    with pytest.raises(UsageError) as refused:
        state_dimensions(source, [fact])
    assert str(refused.value) == message
