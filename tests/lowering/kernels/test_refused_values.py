"""What is no tensor of numbers is refused in one line, and chance is no constant."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.base.interface import require_tensors
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.fallback import Fallback, without_kernel

from ..small_models import graph_of

node = helper.make_node


def model_of(*nodes: onnx.NodeProto, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """From a float `x` to `y`."""
    ends = helper.make_tensor_value_info("x", 1, [2, 3]), helper.make_tensor_value_info("y", kind, None)
    stored = [
        numpy_helper.from_array(np.array(True), "yes"),
        numpy_helper.from_array(np.float32(0.5), "half"),
        numpy_helper.from_array(np.array([0, 2**40, 0, 0]), "pads"),
        numpy_helper.from_array(np.array([0, -9, 0, 0]), "cuts"),
        numpy_helper.from_array(np.array(["a", "b"], object), "names"),
    ]
    graph = helper.make_graph(nodes, "refused", ends[:1], ends[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            [node("SequenceConstruct", ["x", "x"], ["s"]), node("ConcatFromSequence", ["s"], ["y"], axis=0)],
            r"value 's' \(SequenceConstruct makes it\) is a sequence or optional",
        ),
        (
            [node("Optional", ["x"], ["o"]), node("OptionalGetElement", ["o"], ["y"])],
            r"value 'o' \(Optional makes it\) is a sequence or optional",
        ),
        (
            [node("Cast", ["x"], ["t"], to=TensorProto.STRING), node("Cast", ["t"], ["y"], to=TensorProto.FLOAT)],
            r"value 't' \(Cast makes it\) is text",
        ),
        (
            [node("ArgMax", ["x"], ["i"], axis=0), node("Gather", ["names", "i"], ["y"])],
            "value 'names' is text",
        ),
        (
            [node("Pad", ["x", "pads"], ["y"])],
            r"value 'y' \(Pad makes it\) has a dimension of 1099511627779; compiled code takes 0 to 2147483647",
        ),
        (
            [node("Pad", ["x", "cuts"], ["y"])],
            r"value 'y' \(Pad makes it\) has a dimension of -6; compiled code takes 0 to 2147483647",
        ),
    ],
)  # fmt: skip
def test_what_is_no_tensor_of_numbers_is_refused(nodes: list[onnx.NodeProto], message: str) -> None:
    proto = model_of(*nodes, kind=TensorProto.STRING if "names" in nodes[-1].input else TensorProto.FLOAT)
    model = read(proto)
    with pytest.raises(LoweringError, match=message):
        require_tensors(operator_graph(model, infer(model)), model)


def test_random_numbers_are_drawn_by_each_run() -> None:
    drawn = node("RandomNormal", [], ["r"], shape=[2, 3])
    graph = graph_of(model_of(drawn, node("Add", ["x", "r"], ["y"])))
    assert [operator.op for operator in graph.operators] == ["RandomNormal", "Add"]


def test_a_dropout_that_drops_is_no_loop() -> None:
    model = read(model_of(node("Dropout", ["x", "half", "yes"], ["y"])))
    step = without_kernel(operator_graph(model, infer(model)), [0], Weights(model), "it has a mask")
    assert isinstance(step, Fallback)
