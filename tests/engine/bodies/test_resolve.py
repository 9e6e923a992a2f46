"""Bodies as the partition takes them: Ifs that remain choose between operands of known types."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
from onnx import TensorProto, helper

from eqfuse.engine.bodies.flatten import flatten
from eqfuse.engine.bodies.inference import infer_form
from eqfuse.engine.bodies.resolve import resolve_bodies
from eqfuse.engine.onnx.model import read
from eqfuse.engine.onnx.nodes import has_body, is_flat_if
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.types import TensorType


def branching(condition: onnx.NodeProto) -> onnx.ModelProto:
    """Relu or Neg of x, which are outputs of the model, by a condition."""
    value = helper.make_tensor_value_info
    bodies = {
        name: helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [value(name, 1, [2, 3])])
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    choice = helper.make_node("If", ["condition"], ["y"], **bodies)
    inputs = [value("x", 1, [2, 3]), value("c", TensorProto.BOOL, [])]
    graph = helper.make_graph([condition, choice], "branching", inputs, [value("y", 1, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_an_if_chooses_between_operands_and_has_their_type() -> None:
    model = resolve_bodies(read(branching(helper.make_node("Not", ["c"], ["condition"]))))
    assert [is_flat_if(node) for node in model.graph if node.op_type == "If"] == [True]
    assert infer(model).types["y"] == TensorType("float32", (2, 3))


def test_an_if_of_a_constant_condition_is_gone() -> None:
    truth = helper.make_tensor("truth", TensorProto.BOOL, [], [False])
    model = resolve_bodies(read(branching(helper.make_node("Constant", [], ["condition"], value=truth))))
    assert {node.op_type for node in model.graph} - {"Identity", "Constant"} == {"Neg"}


def test_a_model_without_bodies_stays_itself() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "plain",
        [helper.make_tensor_value_info("x", 1, [2])], [helper.make_tensor_value_info("y", 1, [2])],
    )  # fmt: skip
    model = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert resolve_bodies(model) is model


def test_a_loop_keeps_its_body() -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["go"], ["on"])], "body",
        [value("i", 7, []), value("go", TensorProto.BOOL, []), value("s", 1, [2])],
        [value("on", TensorProto.BOOL, []), value("t", 1, [2])],
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], "loop",
        [value("x", 1, [2]), value("n", 7, [])], [value("y", 1, [2])],
    )  # fmt: skip
    model = resolve_bodies(read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)))
    assert [node.op_type for node in model.graph if has_body(node)] == ["Loop"]


def test_an_if_whose_branches_return_different_sizes_keeps_them() -> None:
    """There is no operand that has the size of either."""
    proto = branching(helper.make_node("Not", ["c"], ["condition"]))
    longer = helper.make_node("Concat", ["x", "x"], ["then_branch"], axis=0)
    proto.graph.node[1].attribute[0].g.node[0].CopyFrom(longer)
    proto.graph.node[1].attribute[0].g.output[0].CopyFrom(helper.make_tensor_value_info("then_branch", 1, None))
    model = resolve_bodies(read(proto))
    assert [has_body(node) for node in model.graph if node.op_type == "If"] == [True]
    rows, columns = infer(model).types["y"].shape or ()
    assert rows not in (2, 4)
    assert columns == 3


def test_a_branch_with_a_pool_that_keeps_the_size_has_the_type_of_the_other() -> None:
    value = helper.make_tensor_value_info
    ends = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("MaxPool", ["x"], ["b"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    then, otherwise = (helper.make_graph([end], "b", [], [onnx.ValueInfoProto(name=end.output[0])]) for end in ends)
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)]
    sizes = ["N", 4, "H", "W"]
    graph = helper.make_graph(nodes, "pool", [value("x", 1, sizes), value("c", 9, [])], [value("y", 1, sizes)])
    model = resolve_bodies(read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)))
    assert any(map(is_flat_if, model.graph))
    assert infer(model).types["y"].shape == tuple(sizes)


def rows_of(condition: onnx.NodeProto, trips: onnx.NodeProto) -> object:
    """The number of rows that a Loop collects for an input of N numbers."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Gather", ["x", "i"], ["row"]), condition]
    inputs = [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, [])]
    outputs = [value("on", TensorProto.BOOL, []), value("row", 1, None)]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    loop = helper.make_node("Loop", ["trips", ""], ["rows"], body=body)
    graph = helper.make_graph(
        [helper.make_node("Size", ["x"], ["size"]), trips, loop], "collect",
        [value("x", 1, ["N"]), value("given", 7, [])], [value("rows", 1, ["rows"])],
    )  # fmt: skip
    model = resolve_bodies(read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)))
    knowledge = infer(model)
    (rows,) = knowledge.types["rows"].shape or ()
    return rows if isinstance(rows, int) or rows in knowledge.symbols else None


def test_a_loop_collects_as_many_rows_as_it_has_trips() -> None:
    onwards, stops = helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Greater", ["row", "row"], ["on"])
    size, given = helper.make_node("Add", ["size", "size"], ["trips"]), helper.make_node("Abs", ["given"], ["trips"])
    five = helper.make_node("Constant", [], ["trips"], value_int=5)
    assert rows_of(onwards, size) == "2*N"
    assert rows_of(onwards, five) == 5
    assert rows_of(onwards, given) is None
    assert rows_of(stops, size) is None


CHOICE_AND_LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
graph (float[2, 3] x, bool c, int64 n) => (float[2, 3] y, float[2, 3] z) {
    y = If (c) <
        then_branch = yes () => (float[2, 3] r) { r = Relu(x) },
        else_branch = no () => (float[2, 3] r) { r = Neg(x) }
    >
    z = Loop (n, c, y) <
        body = trip (int64 i, bool go, float[2, 3] s) => (bool on, float[2, 3] t) { on = Identity(go) t = Add(s, y) }
    >
}
"""


def test_a_model_that_keeps_a_loop_can_be_resolved_again() -> None:
    """Its Ifs are flat already, and nobody knows the scopes of their branches any more."""
    once = resolve_bodies(read(onnx.parser.parse_model(CHOICE_AND_LOOP)))
    again = resolve_bodies(once)
    assert [node.op_type for node in again.graph] == [node.op_type for node in once.graph]
    assert [node.op_type for node in again.graph if is_flat_if(node) or has_body(node)] == ["If", "Loop"]


def test_a_flat_if_is_gone_once_its_condition_is_known() -> None:
    model = resolve_bodies(read(onnx.parser.parse_model(CHOICE_AND_LOOP)))
    condition = next(value for value in model.graph.inputs if value.name == "c")
    condition.const_value = ir.tensor(np.array(False), name="c")
    model.graph.inputs.remove(condition)
    model.graph.initializers.add(condition)
    assert {node.op_type for node in resolve_bodies(model).graph} - {"Identity"} == {"Neg"}


COLLECTING = """
<ir_version: 8, opset_import: ["" : 17]>
graph (float x, int64 n) => (float[m] rows) {
    last, rows = Loop (n, , x) <
        body = trip (int64 i, bool go, float s) => (bool on, float t, float r)
        { on = Identity(go) t = Add(s, x) r = Identity(s) }
    >
}
"""


def test_what_a_body_takes_needs_no_types() -> None:
    """ONNX asks for types of the inputs of a model alone; expansions of its own functions have none in bodies."""
    proto = onnx.parser.parse_model(COLLECTING)
    body = proto.graph.node[0].attribute[0].g
    for value in (*body.input, *body.output):
        value.ClearField("type")
    flat = flatten(read(proto)).model
    assert infer_form(flat)[1].types["n"] == TensorType("int64", ())
