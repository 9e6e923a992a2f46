"""Lists of tensors, as exporters write them, become tensors that are the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqfuse.engine.bodies.flatten import flatten
from eqfuse.engine.bodies.inference import infer_flat
from eqfuse.engine.bodies.nest import nest
from eqfuse.engine.bodies.sequences import replace_sequences
from eqfuse.engine.onnx.model import read

from ...onnx_runtime import outputs_of

value, node = helper.make_tensor_value_info, helper.make_node
STORED = {"two": np.int64(2), "last": np.int64(-1), "sizes": np.array([1, 2, 1]), "always": np.array(True),
          "neither": np.int64(0)}  # fmt: skip


def model(nodes: Sequence[onnx.NodeProto], rank: int, opset: int = 17, dtype: int = 1) -> onnx.ModelProto:
    """A model of x [N, 4, M], a state h [N, 4] and a number n, whose result y has that rank."""
    inputs = [value("x", 1, ["N", 4, "M"]), value("h", 1, ["N", 4]), value("n", TensorProto.INT64, [])]
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in STORED.items()]
    output = value("y", dtype, [f"y{axis}" for axis in range(rank)])
    graph = helper.make_graph(nodes, "lists", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def appended(begin: Sequence[onnx.NodeProto], end: Sequence[onnx.NodeProto], rank: int, **more: int) -> onnx.ModelProto:
    """A list `s` to which each of n iterations appends the state, `rows` after them."""
    body = helper.make_graph(
        [node("Tanh", ["a"], ["b"]), node("SequenceInsert", ["l", "b"], ["m"]), node("Identity", ["go"], ["on"])],
        "body",
        [value("i", 7, []), value("go", 9, []), value("a", 1, ["N", 4]),
         helper.make_tensor_sequence_value_info("l", 1, ["N", 4])],
        [value("on", 9, []), value("b", 1, ["N", 4]), helper.make_tensor_sequence_value_info("m", 1, ["N", 4])],
    )  # fmt: skip
    return model([*begin, node("Loop", ["n", "always", "h", "s"], ["f", "rows"], body=body), *end], rank, **more)


EMPTY, FIRST = [node("SequenceEmpty", [], ["s"])], [node("SequenceConstruct", ["h"], ["s"])]


def join(source: str, axis: int, new: int) -> onnx.NodeProto:
    return node("ConcatFromSequence", [source], ["y"], axis=axis, new_axis=new)


PLACES = [node("SplitToSequence", ["x"], ["s"], axis=2, keepdims=0)]
KEPT = [node("SplitToSequence", ["x"], ["s"], axis=1)]
PARTS = [node("SplitToSequence", ["x", "sizes"], ["s"], axis=1)]
HALVES = [node("SplitToSequence", ["x", "two"], ["s"], axis=-2)]
LISTED = [node("SequenceConstruct", ["h", "h"], ["p"]), node("Tanh", ["h"], ["t"]),
          node("SequenceInsert", ["p", "t", "last"], ["s"])]  # fmt: skip
CASES = [
    *(appended(begin, [join("rows", axis, 1)], 3) for begin, axis in product((EMPTY, FIRST), (0, 1, 2, -1))),
    *(appended(begin, [join("rows", axis, 0)], 2) for begin, axis in product((EMPTY, FIRST), (0, 1, -1))),
    appended(EMPTY, [node("SequenceAt", ["rows", "last"], ["y"])], 2),
    appended(EMPTY, [node("SequenceAt", ["rows", "neither"], ["y"])], 2),
    appended(FIRST, [node("SequenceLength", ["rows"], ["y"])], 0, dtype=TensorProto.INT64),
    *(model([*PLACES, join("s", axis, 1)], 3) for axis in (0, 1, -1)),
    *(model([*PLACES, join("s", axis, 0)], 2) for axis in (0, -1)),
    *(model([*KEPT, join("s", axis, 0)], 3) for axis in (0, 1, 2)),
    *(model([*KEPT, join("s", axis, 1)], 4) for axis in (0, 2, -1)),
    *(model([*begin, node("SequenceAt", ["s", place], ["y"])], rank, opset) for place, opset in
      (("neither", 17), ("last", 11)) for begin, rank in
      ((PLACES, 2), (KEPT, 3), (PARTS, 3), (HALVES, 3), (LISTED, 2))),
    *(model([*begin, join("s", 1, 0)], rank) for begin, rank in ((PARTS, 3), (HALVES, 3), (LISTED, 2))),
    *(model([*begin, node("SequenceLength", ["s"], ["y"])], 0, dtype=TensorProto.INT64) for begin in
      (PLACES, PARTS, LISTED)),
]  # fmt: skip


def rewrite(proto: onnx.ModelProto) -> onnx.ModelProto:
    flat = flatten(read(proto))
    replace_sequences(flat, infer_flat(flat))
    infer_flat(flat)
    return ir.to_proto(nest(flat.model, flat).ir)


def operators(graph: onnx.GraphProto) -> set[str]:
    inner = (operators(a.g) for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH)
    return {n.op_type for n in graph.node}.union(*inner)


def run(proto: onnx.ModelProto, steps: int) -> np.ndarray:
    random = np.random.default_rng(steps)
    feed = {"x": random.standard_normal((2, 4, 3)).astype(np.float32), "n": np.array(steps),
            "h": random.standard_normal((2, 4)).astype(np.float32)}  # fmt: skip
    (result,) = outputs_of(proto, feed)
    return result


@pytest.mark.representatives(17)
@pytest.mark.parametrize("proto", CASES, ids=range(len(CASES)))
def test_lists_are_tensors(proto: onnx.ModelProto) -> None:
    result = rewrite(proto)
    assert not any("Sequence" in operator for operator in operators(result.graph))
    for steps in (1, 4):
        np.testing.assert_array_equal(run(result, steps), run(proto, steps))


def test_a_list_that_its_loop_reads_stays() -> None:
    body = helper.make_graph(
        [node("SequenceAt", ["l", "last"], ["a"]), node("Tanh", ["a"], ["b"]),
         node("SequenceInsert", ["l", "b"], ["m"]), node("Identity", ["go"], ["on"])], "body",
        [value("i", 7, []), value("go", 9, []), helper.make_tensor_sequence_value_info("l", 1, ["N", 4])],
        [value("on", 9, []), helper.make_tensor_sequence_value_info("m", 1, ["N", 4])],
    )  # fmt: skip
    proto = model([*FIRST, node("Loop", ["n", "always", "s"], ["rows"], body=body), join("rows", 0, 1)], 3)
    assert "SequenceInsert" in operators(rewrite(proto).graph)


def test_a_place_that_is_no_whole_number_is_left_to_onnx_runtime() -> None:
    """It refuses such a model; the place of an element is then not known."""
    proto = model([node("SequenceConstruct", ["h", "h"], ["l"]), node("SequenceAt", ["l", "neither"], ["y"])], 2)
    (place,) = (tensor for tensor in proto.graph.initializer if tensor.name == "neither")
    place.CopyFrom(numpy_helper.from_array(np.complex64(1), "neither"))
    flat = flatten(read(proto))
    assert not replace_sequences(flat, infer_flat(flat))
