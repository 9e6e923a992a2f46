"""Small models that would take much memory, end the process in a library, or keep files from being closed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike
from onnx import NodeProto, TensorProto, helper, numpy_helper

from eqfuse.api import optimize_with_result
from eqfuse.engine.onnx.evaluation import evaluate
from eqfuse.engine.onnx.model import read
from eqfuse.engine.onnx.nodes import blame_node
from eqfuse.engine.shapes.inference import infer
from eqfuse.support.errors import ModelError, UsageError

from .models import model, value

LEAST = np.iinfo(np.int64).min


def from_x_to_y(nodes: Sequence[NodeProto], shape: Sequence[int], **weights: ArrayLike) -> onnx.ModelProto:
    return model(nodes, [value("x", shape)], ["y"], {name: np.asarray(array) for name, array in weights.items()})


def external(folder: Path, count: int, *nodes: NodeProto) -> Path:
    """A model whose weight `w` of `count` floats is the file `w.bin`."""
    np.arange(count, dtype=np.float32).tofile(folder / "w.bin")
    proto = from_x_to_y(nodes, [count], w=np.zeros(count, np.float32))
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    path = folder / "in.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("count", [4, 6000])
@pytest.mark.parametrize("verify", [True, False])
def test_external_weights_are_written_anew_whatever_their_size(tmp_path: Path, count: int, verify: bool) -> None:
    source = external(tmp_path, count, helper.make_node("Add", ["x", "w"], ["y"]))
    optimize_with_result(source, tmp_path / "out.onnx", verify=verify)
    written = onnx.load(tmp_path / "out.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(written.graph.initializer[0]), np.arange(count))


def test_external_weights_that_are_also_folded_are_written(tmp_path: Path) -> None:
    """The result holds the weight and its reshaped elements, which lie in the same map of the file."""
    nodes = [
        helper.make_node("Reshape", ["w", "s"], ["r"]),
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "r"], ["y"]),
    ]
    source = external(tmp_path, 6000, *nodes)
    proto = onnx.load(source, load_external_data=False)
    proto.graph.initializer.append(numpy_helper.from_array(np.asarray([1, 6000]), "s"))
    source.write_bytes(proto.SerializeToString())
    optimize_with_result(source, tmp_path / "out.onnx", verify=False)
    assert onnx.load(tmp_path / "out.onnx").graph.initializer


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_external_data_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    source = external(tmp_path, 4, helper.make_node("Add", ["x", "w"], ["y"]))
    (tmp_path / "w.bin").unlink()
    (os.mkfifo if kind == "pipe" else os.mkdir)(tmp_path / "w.bin")
    with pytest.raises(ModelError, match=r"w\.bin of weight w is no file"):
        read(source)


def test_a_model_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "in.onnx")
    with pytest.raises(ModelError, match="is a device or a pipe, not an ONNX file"):
        read(tmp_path / "in.onnx")


def test_long_vectors_are_not_taken_for_shapes() -> None:
    """Propagation of values would make a list of as many dimensions."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Add", ["a", "a"], ["y"])]
    assert infer(read(from_x_to_y(nodes, [2**40]))).types["y"].shape == (2**40,)


def test_a_tensor_of_unknown_type_does_not_end_shape_inference() -> None:
    """onnx infers no type for the sum, whose shapes do not fit, and then reads it all the same."""
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("EyeLike", ["a"], ["y"], dtype=TensorProto.FLOAT),
    ]
    assert "a" not in infer(read(from_x_to_y(nodes, [3, 4], w=np.zeros((2, 4), np.float32)))).types


def test_the_type_of_an_operator_with_delicate_inference_is_known() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("EyeLike", ["a"], ["e"], dtype=TensorProto.DOUBLE),
        helper.make_node("Cast", ["e"], ["y"], to=TensorProto.FLOAT),
    ]
    assert infer(read(from_x_to_y(nodes, [3, 4]))).types["e"].dtype == "float64"


def test_integers_that_cannot_be_divided_do_not_end_the_process() -> None:
    nodes = [
        helper.make_node("Neg", ["b"], ["minus"]),
        helper.make_node("Div", ["a", "minus"], ["q"]),
        helper.make_node("Mod", ["q", "a"], ["r"]),
        helper.make_node("Sqrt", ["f"], ["s"]),
    ]
    constants = {"a": np.asarray([LEAST, 6]), "b": np.asarray([1, 2]), "f": np.asarray([4.0], np.float32)}
    values = evaluate(nodes, constants, ["q", "s"], {"": 17})
    assert (values["q"][1], values["s"][0]) == (-3, 2)


def test_a_division_that_nobody_can_compute_is_left_out() -> None:
    nodes = [helper.make_node("Div", ["a", "b"], ["q"]), helper.make_node("Neg", ["a"], ["n"])]
    values = evaluate(nodes, {"a": np.asarray([4, 6]), "b": np.asarray([1, 2, 3])}, ["q", "n"], {"": 17})
    np.testing.assert_array_equal(values.pop("n"), [-4, -6])
    assert not values


@pytest.mark.parametrize(("name", "content"), [("value", ["a", "b"]), ("value_float", "text"), ("value_ints", 1.5)])
def test_a_constant_of_another_kind_than_its_attribute_is_refused(name: str, content: object) -> None:
    nodes = [helper.make_node("Constant", [], ["c"], **{name: content}), helper.make_node("Add", ["x", "c"], ["y"])]
    with pytest.raises(ModelError, match=r"fails the ONNX checker: .*Mismatched attribute type"):
        infer(read(from_x_to_y(nodes, [2])))


def test_a_constant_that_rules_cannot_compute_is_a_clear_line() -> None:
    """Reference kernels accept a scale of the wrong rank, and weights folded with it fit no operator."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "zeros", "zeros", "ones"], ["y"]),
    ]
    ones = np.ones(4, np.float32)
    kernel = np.arange(12, dtype=np.float32).reshape(4, 3, 1, 1)
    weights = {"w": kernel, "scale": np.arange(4, dtype=np.float32).reshape(4, 1, 1) + 2, "zeros": ones - 1}
    with pytest.raises(ModelError, match="rules make a constant by Mul that cannot be computed"):
        optimize_with_result(from_x_to_y(nodes, [1, 3, 2, 2], ones=ones, **weights), verify=False)


def test_a_transpose_over_no_axes_is_left_as_it_is() -> None:
    """ONNX infers a scalar, ONNX Runtime refuses to run it; as no output needs it, the model is valid all the same."""
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0])]
    nodes[1].attribute[0].ClearField("ints")
    proto = from_x_to_y([*nodes, helper.make_node("Neg", ["t"], ["n"])], [2, 3])
    assert optimize_with_result(proto, verify=False).after.nodes == 1


def test_an_output_that_is_listed_twice_stays_one_value() -> None:
    proto = from_x_to_y([helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Relu", ["r"], ["y"])], [4])
    proto.graph.output.append(proto.graph.output[0])
    result = optimize_with_result(proto)
    assert [output.name for output in result.model.graph.outputs] == ["y", "y"]
    assert result.after.nodes == 1


def test_a_value_without_element_type_says_nothing() -> None:
    """As the types that exporters write for sequences."""
    nodes = [
        helper.make_node("SplitToSequence", ["x", "size"], ["parts"]),
        helper.make_node("ConcatFromSequence", ["parts"], ["y"], axis=0),
    ]
    proto = from_x_to_y(nodes, [4], size=np.asarray(2))
    proto.graph.value_info.append(helper.make_tensor_value_info("parts", TensorProto.UNDEFINED, [2]))
    assert optimize_with_result(proto, verify=False).after.nodes == 1  # parts that are joined again are x


def test_a_constant_that_takes_too_much_is_left_to_the_runtime() -> None:
    nodes = [
        helper.make_node("Expand", ["w", "s"], ["e"]),
        helper.make_node("Gather", ["e", "i"], ["c"], name="gather", axis=1),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    weights = {"w": np.asarray([[1], [2]], np.float32), "s": np.asarray([2, 2**33]), "i": np.asarray([0, 1, 2])}
    result = optimize_with_result(from_x_to_y(nodes, [2, 3], **weights), verify=False)
    assert [node.op_type for node in result.model.graph] == ["Expand", "Gather", "Add"]


def test_errors_of_libraries_name_the_node_and_others_keep_their_message() -> None:
    node = read(from_x_to_y([helper.make_node("Relu", ["x"], ["y"], name="relu")], [3])).graph[0]
    with pytest.raises(ModelError, match=r"^m: node 'relu' \(Relu\): .* \(KeyError: 'perm'\)"), blame_node(node, "m"):
        {}["perm"]
    with pytest.raises(UsageError, match=r"^its own$"), blame_node(node, "m"):
        raise UsageError("its own")


def test_a_constant_that_is_a_sum_and_a_difference_keeps_its_number() -> None:
    """Of `x + x - x` rules make 2 - 1 and 2 + -1, which are one class: each formula takes its own operands."""
    nodes = [helper.make_node("Add", ["x", "x"], ["v"]), helper.make_node("Sub", ["v", "x"], ["y"])]
    verification = optimize_with_result(from_x_to_y(nodes, [5])).verification
    assert verification is not None
    assert verification.status == "passed"


def with_functions(bodies: Sequence[Sequence[str]]) -> onnx.ModelProto:
    """A model that calls the last of some functions; each calls the functions that are given, in a chain."""
    functions = []
    for number, called in enumerate(bodies):
        names = ["a", *(f"t{place}" for place in range(1, len(called))), "b"]
        nodes = [
            helper.make_node(op, [first], [second], domain="" if op == "Neg" else "f")
            for op, first, second in zip(called, names, names[1:], strict=False)
        ]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
        functions.append(helper.make_function("f", f"F{number}", ["a"], ["b"], nodes, imports))
    proto = from_x_to_y([helper.make_node(f"F{len(bodies) - 1}", ["x"], ["y"], domain="f")], [2])
    proto.opset_import.append(helper.make_opsetid("f", 1))
    proto.functions.extend(functions)
    return proto


def test_functions_that_call_the_one_before_them_twice_have_a_limit() -> None:
    read(with_functions([["Neg"], *([f"F{n}"] * 2 for n in range(10))]))
    with pytest.raises(ModelError, match=r"the calls of its functions stand for 1\.65e\+12 nodes, more than 1,048,576"):
        read(with_functions([["Neg"], *([f"F{n}"] * 2 for n in range(39))]))


@pytest.mark.parametrize("bodies", [[["F0"]], [["F1"], ["Neg", "F0"]]])
def test_functions_that_call_each_other_in_a_circle_are_refused(bodies: list[list[str]]) -> None:
    with pytest.raises(ModelError, match="functions call each other in a circle: f::F"):
        read(with_functions(bodies))
