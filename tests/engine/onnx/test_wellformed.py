"""Malformed models: the message names the fault and its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from eqfuse.engine.onnx.model import read
from eqfuse.support.errors import ModelError

Damage = Callable[[onnx.ModelProto], object]


def sound() -> onnx.ModelProto:
    """Concat of x and a weight, an If with a weight in its branch, a Cast."""
    tensor = helper.make_tensor_value_info
    stored = numpy_helper.from_array(np.ones((1, 3), np.float32), "w")
    inner = numpy_helper.from_array(np.ones((2, 3), np.float32), "v")
    branch = helper.make_graph(
        [helper.make_node("Add", ["c", "v"], ["b"], name="add")], "branch", [], [tensor("b", 1, [2, 3])], [inner]
    )
    nodes = [
        helper.make_node("Concat", ["x", "w"], ["c"], axis=0),
        helper.make_node("If", ["t"], ["i"], name="if", then_branch=branch, else_branch=branch),
        helper.make_node("Cast", ["i"], ["y"], name="cast", to=TensorProto.FLOAT),
    ]
    truth = numpy_helper.from_array(np.asarray(True), "t")
    graph = helper.make_graph(nodes, "g", [tensor("x", 1, [1, 3])], [tensor("y", 1, [2, 3])], [stored, truth])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def attribute(model: onnx.ModelProto, node: int = 0) -> Any:
    return model.graph.node[node].attribute[0]


def branch(model: onnx.ModelProto) -> Any:
    return next(a.g for a in model.graph.node[1].attribute if a.name == "then_branch")


def external(model: onnx.ModelProto, element_type: int = TensorProto.FLOAT, **entries: str) -> None:
    tensor = model.graph.initializer[0]
    tensor.data_type = element_type
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in entries.items():
        tensor.external_data.add(key=key, value=entry)


def dimension(value: onnx.ValueInfoProto) -> Any:
    return value.type.tensor_type.shape.dim[0]


DAMAGES: dict[str, tuple[Damage, str]] = {
    "attribute without a type": (
        lambda m: setattr(attribute(m), "type", 0),
        "node of 'c' (Concat): attribute 'axis': has no type",
    ),
    "attribute of another type": (
        lambda m: setattr(attribute(m), "type", AttributeProto.GRAPH),
        "attribute 'axis': is of type GRAPH, but has no such value",
    ),
    "attribute of no function": (
        lambda m: setattr(attribute(m), "ref_attr_name", "other"),
        "attribute 'axis': refers to attribute 'other' of a function, but is in none",
    ),
    "attribute twice": (lambda m: m.graph.node[0].attribute.append(attribute(m)), "attribute 'axis': is given twice"),
    "text that is none": (
        lambda m: m.graph.node[0].attribute.append(helper.make_attribute("note", b"\xff")),
        "attribute 'note': b'\\xff' is no text in UTF-8",
    ),
    "element type of a Cast": (lambda m: setattr(attribute(m, 2), "i", 2**62), "node 'cast' (Cast): attribute 'to': "),
    "element type of an input": (
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 99),
        "input 'x': 99 is no element type",
    ),
    "too few operands": (
        lambda m: branch(m).node[0].input.pop(),
        "then_branch': node 'add' (Add): has 1 operands and needs 2",
    ),
    "operand from nowhere": (
        lambda m: m.graph.node[0].input.append("lost"),
        "node of 'c' (Concat): reads 'lost', which nothing makes",
    ),
    "operand from nowhere in a branch": (
        lambda m: branch(m).node[0].input.__setitem__(1, "lost"),
        "then_branch': node 'add' (Add): reads 'lost', which nothing makes",
    ),
    "branch without results": (
        lambda m: branch(m).ClearField("output"),
        "node 'if' (If): attribute 'then_branch': the graph gives 0 results, and the node has 1",
    ),
    "branch with an input": (
        lambda m: branch(m).input.append(helper.make_tensor_value_info("z", 1, [2, 3])),
        "node 'if' (If): attribute 'then_branch': the graph takes 1 values, and the node gives it 0",
    ),
    "operands of a Scan": (
        lambda m: m.graph.node.append(
            helper.make_node("Scan", ["x"], ["s"], num_scan_inputs=5, body=m.graph.node[1].attribute[0].g)
        ),
        "node of 's' (Scan): attribute 'body': the graph takes 0 values, and the node gives it 1",
    ),
    "equation that is none": (
        lambda m: m.graph.node.append(helper.make_node("Einsum", ["x"], ["e"], equation="i-j>")),
        "node of 'e' (Einsum): attribute 'equation': 'i-j>' is no equation",
    ),
    "result twice": (
        lambda m: m.graph.node.append(helper.make_node("Relu", ["x"], ["i"])),
        "node of 'i' (Relu): makes 'i', which is a result of node 'if' (If) already",
    ),
    "result twice in a branch": (
        lambda m: branch(m).node.append(helper.make_node("Relu", ["c"], ["v"])),
        "node of 'v' (Relu): makes 'v', which is an input or a weight already",
    ),
    "no element type of an input": (
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 0),
        "input 'x': has no element type",
    ),
    "element type of a weight": (
        lambda m: setattr(m.graph.initializer[0], "data_type", 0),
        "initializer 'w': 0 is no element type",
    ),
    "negative dimension": (
        lambda m: setattr(dimension(m.graph.input[0]), "dim_value", -3),
        "input 'x': a dimension is -3",
    ),
    "shape beyond 64 bits": (
        lambda m: setattr(dimension(m.graph.output[0]), "dim_value", 2**62),
        "output 'y': the shape 4611686018427387904x3 is larger than any memory",
    ),
    "negative dimension of a weight": (
        lambda m: m.graph.initializer[0].dims.append(-1),
        "initializer 'w': a dimension is -1",
    ),
    "too little data": (
        lambda m: setattr(m.graph.initializer[0], "raw_data", b"1234"),
        "initializer 'w': holds 4 bytes of data, but its shape wants 12",
    ),
    "no data": (
        lambda m: m.graph.initializer[0].ClearField("raw_data"),
        "initializer 'w': holds 0 elements of data, but its shape wants 3",
    ),
    "weight inside a branch": (
        lambda m: setattr(branch(m).initializer[0], "raw_data", b""),
        "node 'if' (If): attribute 'then_branch': initializer 'v': holds 0 bytes",
    ),
    "external data nowhere": (lambda m: external(m, location=""), "initializer 'w': external data in the file ''"),
    "external strings": (
        lambda m: external(m, TensorProto.STRING, location="w.bin"),
        "initializer 'w': strings as external data",
    ),
    "external data at no place": (
        lambda m: external(m, location="w.bin", offset="-4"),
        "initializer 'w': external data of offset '-4'",
    ),
    "output that is an input of another shape": (
        lambda m: setattr(m.graph.output[0], "name", "x"),
        "output 'x': is an input that is declared with another type or shape",
    ),
    "map": (
        lambda m: m.graph.output[0].type.sequence_type.elem_type.map_type.SetInParent(),
        "output 'y': is a map, and only outputs that a ZipMap makes may be; skl2onnx writes tensors ",
    ),
    "cycle": (
        lambda m: m.graph.node[0].input.append("y"),
        "nodes read each other's results in a circle: ",
    ),
    "node without outputs": (
        lambda m: m.graph.node[2].ClearField("output"),
        "node 'cast' (Cast): has no outputs",
    ),
    "no outputs": (lambda m: m.graph.ClearField("output"), "the graph has no outputs"),
}


def test_the_sound_model_is_read() -> None:
    assert [node.op_type for node in read(sound()).graph] == ["Concat", "If", "Cast"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_and_where(damage: str) -> None:
    change, message = DAMAGES[damage]
    model = sound()
    change(model)
    with pytest.raises(ModelError) as raised:
        read(model)
    assert str(raised.value).startswith("g: ")
    assert message in str(raised.value)


@pytest.mark.parametrize("name", ["y", "Cast", "w", "x", "branch"])
def test_names_are_text(name: str) -> None:
    model = sound()
    text, other = (bytes([len(name)]) + content for content in (name.encode(), b"\xff" * len(name)))
    damaged = model.SerializeToString().replace(text, other)
    with pytest.raises(ModelError, match="is no text in UTF-8"):
        read(onnx.ModelProto.FromString(damaged))


@pytest.mark.parametrize("element_type", sorted(set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}))
def test_tensors_of_every_type_are_well_formed(element_type: int) -> None:
    model = sound()
    zeros: list[Any] = [""] * 3 if element_type == TensorProto.STRING else [0] * 3
    if element_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        zeros = [0j] * 3
    model.graph.initializer.append(helper.make_tensor("further", element_type, [3], zeros))
    assert "further" in read(model).graph.initializers


def test_size_of_minus_one_is_one_that_nobody_knows() -> None:
    model = sound()
    dimension(model.graph.input[0]).dim_value = -1
    (shape,) = (value.shape for value in read(model).graph.inputs)
    assert shape is not None
    assert not isinstance(shape[0], int)
