"""Quantised models in ONNX Runtime: activations lose their sign where products of bytes stay exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqfuse
from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.engine.onnx.model import read
from eqfuse.extract.extraction.quantised import have_wide_pairs
from eqfuse.rules.vocabulary import Precision

from ...runtime_kernels import runtime_kernels

PRECISIONS: tuple[Precision, ...] = ("real", "fast")
Array = np.ndarray[Any, Any]


def dequantised(name: str, array: Array, zero: int = 0) -> list[onnx.NodeProto | onnx.TensorProto]:
    """The nodes and constants that make a number of a constant of integers."""
    constants = {"integers": array, "scale": np.asarray(0.01, np.float32), "zero": np.asarray(zero, array.dtype)}
    tensors = [numpy_helper.from_array(value, f"{name}_{key}") for key, value in constants.items()]
    return [*tensors, helper.make_node("DequantizeLinear", [tensor.name for tensor in tensors], [name])]


def rounded(source: str, result: str, zero: int, scale: float = 0.02) -> list[onnx.NodeProto | onnx.TensorProto]:
    """The nodes and constants that round a number to integers with a sign, and make a number of these again."""
    constants = {"scale": np.asarray(scale, np.float32), "zero": np.asarray(zero, np.int8)}
    tensors = [numpy_helper.from_array(value, f"{result}_{key}") for key, value in constants.items()]
    names = [tensor.name for tensor in tensors]
    return [
        *tensors,
        helper.make_node("QuantizeLinear", [source, *names], [f"{result}_q"]),
        helper.make_node("DequantizeLinear", [f"{result}_q", *names], [result]),
    ]


def network(largest: int) -> onnx.ModelProto:
    """Two products and the sum of one with a constant, weights up to a number, all integers with a sign."""
    random = np.random.default_rng(0)
    filters, weights = (random.integers(-largest, largest + 1, s).astype(np.int8) for s in ((8, 4, 3, 3), (5, 7)))
    parts = [
        *rounded("x", "a", 3),
        *dequantised("filters", filters),
        helper.make_node("Conv", ["a", "filters"], ["b"]),
        *rounded("b", "c", -5),
        *dequantised("addend", random.integers(-128, 128, (8, 1, 1)).astype(np.int8), 7),
        helper.make_node("Add", ["c", "addend"], ["d"]),
        *rounded("d", "e", 0),
        *dequantised("weights", weights),
        helper.make_node("MatMul", ["e", "weights"], ["f"]),
        *rounded("f", "y", 1, 0.1),
    ]
    nodes = [part for part in parts if isinstance(part, onnx.NodeProto)]
    constants = [part for part in parts if isinstance(part, onnx.TensorProto)]
    shapes: dict[str, list[int]] = {"x": [1, 4, 7, 7], "y": [1, 8, 5, 7]}
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    graph = helper.make_graph(nodes, "signed", [given], [made], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def moved_network() -> onnx.ModelProto:
    """A product of activations with a sign, behind a Transpose, which rules move past both conversions."""
    weights = np.random.default_rng(0).integers(-127, 128, (5, 7)).astype(np.int8)
    parts = [
        *rounded("x", "a", 3),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        *dequantised("weights", weights),
        helper.make_node("MatMul", ["b", "weights"], ["y"]),
    ]
    nodes = [part for part in parts if isinstance(part, onnx.NodeProto)]
    constants = [part for part in parts if isinstance(part, onnx.TensorProto)]
    shapes: dict[str, list[int]] = {"x": [5, 6], "y": [6, 7]}
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    graph = helper.make_graph(nodes, "moved", [given], [made], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def flattened_network() -> onnx.ModelProto:
    """A product of activations with a sign behind a Flatten, which conversions of one scale surround."""
    weights = np.random.default_rng(0).integers(-127, 128, (196, 50)).astype(np.int8)
    parts = [
        *rounded("x", "a", 3),
        helper.make_node("Flatten", ["a"], ["b"]),
        *rounded("b", "c", 3),
        *dequantised("weights", weights),
        helper.make_node("MatMul", ["c", "weights"], ["d"]),
        *rounded("d", "y", 1, 0.1),
    ]
    nodes = [part for part in parts if isinstance(part, onnx.NodeProto)]
    constants = [part for part in parts if isinstance(part, onnx.TensorProto)]
    shapes: dict[str, list[int]] = {"x": [1, 4, 7, 7], "y": [1, 50]}
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    graph = helper.make_graph(nodes, "flattened", [given], [made], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def zero_points(model: onnx.ModelProto, op_type: str) -> set[str]:
    """The types of the zero points of all nodes of an operator."""
    types = {tensor.name: helper.tensor_dtype_to_np_dtype(tensor.data_type).name for tensor in model.graph.initializer}
    return {types[node.input[2]] for node in model.graph.node if node.op_type == op_type}


def test_activations_that_are_moved_keep_their_sign_where_products_saturate() -> None:
    result = eqfuse.optimize(moved_network(), runtime="onnxruntime")
    assert zero_points(result, "QuantizeLinear") == {"int8"}


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("largest", "runtime", "expected"),
    [(64, "onnxruntime", "uint8"), (127, "onnxruntime", "int8"), (127, "onnxruntime-vnni", "uint8")],
)
def test_activations_lose_their_sign_unless_products_saturate(largest: int, runtime: str, expected: str) -> None:
    source = network(largest)
    result = eqfuse.optimize(source, runtime=runtime, precision="exact")
    assert zero_points(result, "QuantizeLinear") == {expected}
    assert {node.op_type for node in result.graph.node} == {node.op_type for node in source.graph.node}
    filters = {"int8"}
    assert zero_points(result, "DequantizeLinear") == filters | {expected}


def test_a_product_of_integers_that_the_runtime_takes_the_sign_from_stays_one() -> None:
    """Without the conversions behind the Flatten its weights would be numbers: 1.1 of a MobileNet's time with AVX2."""
    result = eqfuse.optimize(flattened_network(), runtime="onnxruntime")
    assert "QLinearMatMul" in runtime_kernels(result)


def test_flops_do_not_say_that_products_may_saturate() -> None:
    assert zero_points(eqfuse.optimize(network(127), cost="flops"), "QuantizeLinear") == {"int8"}


def test_products_of_integers_are_left_to_the_runtime() -> None:
    made = {node.op_type for node in eqfuse.optimize(network(127)).graph.node}
    assert made.isdisjoint({"ConvInteger", "MatMulInteger", "Cast"})
    assert {"Conv", "MatMul"} <= made


def test_numbers_stay_rounded_in_a_runtime() -> None:
    """It recognises what it runs on integers by conversions, whatever the precision."""
    results = [eqfuse.optimize(network(127), precision=precision) for precision in PRECISIONS]
    rounded_, fast = (sorted(node.op_type for node in result.graph.node) for result in results)
    assert rounded_ == fast
    assert "QuantizeLinear" in fast


def test_numbers_stay_unrounded_in_kernels_with_the_precision_fast() -> None:
    """A sum of two rounded numbers; without the option, its gain is predicted."""
    parts = [*rounded("x", "a", 3), *rounded("w", "b", -5), helper.make_node("Add", ["a", "b"], ["y"])]
    nodes = [part for part in parts if isinstance(part, onnx.NodeProto)]
    constants = [part for part in parts if isinstance(part, onnx.TensorProto)]
    x, w, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in "xwy")
    graph = helper.make_graph(nodes, "sum", [x, w], [y], constants)
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    plain, fast = (
        optimize_model(source, None, Options(partition="joint", precision=precision)) for precision in PRECISIONS
    )
    assert plain.unrounded is not None
    assert fast.unrounded is None
    assert plain.partition is not None
    assert fast.partition is not None
    assert plain.unrounded.chosen == plain.partition.seconds > fast.partition.seconds
    assert {node.op_type for node in plain.proto.graph.node} >= {"QuantizeLinear", "DequantizeLinear"}
    assert {node.op_type for node in fast.proto.graph.node} == {"Clip", "Add"}


def test_addends_of_32_bits_stay_integers() -> None:
    random = np.random.default_rng(0)
    weights = random.integers(-127, 128, (49, 6)).astype(np.int8)
    addends = random.integers(-999, 999, 6).astype(np.int32)
    parts = [
        *rounded("x", "a", 3),
        *dequantised("weights", weights),
        *dequantised("addends", addends),
        helper.make_node("Gemm", ["a", "weights", "addends"], ["b"]),
        *rounded("b", "y", 3, 0.1),
    ]
    nodes = [part for part in parts if isinstance(part, onnx.NodeProto)]
    constants = [part for part in parts if isinstance(part, onnx.TensorProto)]
    shapes: dict[str, list[int]] = {"x": [4, 49], "y": [4, 6]}
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    graph = helper.make_graph(nodes, "product", [given], [made], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    result = eqfuse.optimize(model)
    integers = {t.name for t in result.graph.initializer if t.data_type == TensorProto.INT32}
    assert any(node.op_type == "DequantizeLinear" and node.input[0] in integers for node in result.graph.node)


def test_a_concat_stays_between_the_conversions_with_which_it_is_one_kernel() -> None:
    parts = [*rounded("x", "a", 3), helper.make_node("Concat", ["a", "a"], ["b"], axis=1), *rounded("b", "y", 3)]
    nodes = [part for part in parts if isinstance(part, onnx.NodeProto)]
    constants = [part for part in parts if isinstance(part, onnx.TensorProto)]
    shapes: dict[str, list[int]] = {"x": [1, 4, 7, 7], "y": [1, 8, 7, 7]}
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    graph = helper.make_graph(nodes, "joined", [given], [made], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    result = eqfuse.optimize(model)
    makers = {name: node for node in result.graph.node for name in node.output}
    (joined,) = (node for node in result.graph.node if node.op_type == "Concat")
    assert {makers[name].op_type for name in joined.input} == {"DequantizeLinear"}


def small_model(parts: list[onnx.NodeProto | onnx.TensorProto], shapes: dict[str, list[int]]) -> onnx.ModelProto:
    """The model of nodes and constants, from x to y."""
    nodes = [part for part in parts if isinstance(part, onnx.NodeProto)]
    constants = [part for part in parts if isinstance(part, onnx.TensorProto)]
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    graph = helper.make_graph(nodes, "small", [given], [made], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_gather_stays_behind_the_sum_that_is_one_kernel_with_its_conversions() -> None:
    """Moved before the sum, it would part both conversions from it: a few floats less, and three kernels more."""
    rows = numpy_helper.from_array(np.arange(6), "rows")
    addend = np.random.default_rng(0).integers(0, 255, 64).astype(np.uint8)
    parts = [
        *rounded("x", "a", 3),
        *dequantised("b", addend.view(np.int8)),
        helper.make_node("Add", ["a", "b"], ["c"]),
        *rounded("c", "d", 5),
        rows,
        helper.make_node("Gather", ["d", "rows"], ["y"]),
    ]
    model = small_model(parts, {"x": [7, 64], "y": [6, 64]})
    made = runtime_kernels(eqfuse.optimize(model))
    assert made["QLinearAdd"] == 1


@pytest.mark.parametrize(("scale", "expected"), [(0.3, "Softmax"), (0.4, "QLinearSoftmax")])
def test_a_softmax_of_near_numbers_runs_on_numbers(scale: float, expected: str) -> None:
    parts = [
        *rounded("x", "a", 3, scale),
        helper.make_node("Softmax", ["a"], ["b"]),
        *rounded("b", "y", -128, 1 / 256),
    ]
    model = small_model(parts, {"x": [4, 64], "y": [4, 64]})
    result = eqfuse.optimize(model)
    assert expected in runtime_kernels(result)
    again = eqfuse.optimize(result)
    assert [node.op_type for node in again.graph.node] == [node.op_type for node in result.graph.node]


@pytest.mark.representatives(1)
@pytest.mark.parametrize("kind", ["Pad", "Resize", "Expand"])
def test_integers_are_moved_instead_of_numbers(kind: str) -> None:
    """Both conversions around the movement vanish, for its integers have the scale of its result."""
    choices: dict[str, list[onnx.TensorProto | None]] = {
        "Pad": [numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads")],
        "Resize": [None, numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")],
        "Expand": [numpy_helper.from_array(np.array([1, 4, 6, 6]), "sizes")],
    }
    operands = choices[kind]
    names = ["" if each is None else each.name for each in operands]
    shapes = {"Pad": [1, 4, 8, 8], "Resize": [1, 4, 12, 12], "Expand": [1, 4, 6, 6]}
    parts = [
        *rounded("x", "a", 3, 0.02),
        *(each for each in operands if each is not None),
        helper.make_node(kind, ["a", *names], ["b"]),
        *rounded("b", "y", 3, 0.02),
    ]
    given = [1, 1, 6, 6] if kind == "Expand" else [1, 4, 6, 6]
    result = eqfuse.optimize(small_model(parts, {"x": given, "y": shapes[kind]}))
    assert [node.op_type for node in result.graph.node].count("QuantizeLinear") == 1


@pytest.mark.representatives(2)
@pytest.mark.parametrize(("factor", "expected"), [(0.5, 0), (0.50001, 0), (0.6, 1)])
def test_a_factor_that_the_scales_undo_vanishes(factor: float, expected: int) -> None:
    parts = [
        *rounded("x", "a", 3, 0.02),
        numpy_helper.from_array(np.asarray(factor, np.float32), "factor"),
        helper.make_node("Mul", ["a", "factor"], ["b"]),
        *rounded("b", "y", 3, 0.01),
    ]
    result = eqfuse.optimize(small_model(parts, {"x": [4, 64], "y": [4, 64]}))
    assert [node.op_type for node in result.graph.node].count("QuantizeLinear") == 1 + expected


@pytest.mark.parametrize(("largest", "expected"), [(64, False), (65, True), (128, True)])
def test_two_of_the_largest_weights_decide(largest: int, expected: bool) -> None:
    model = network(1)
    (filters,) = (tensor for tensor in model.graph.initializer if tensor.name == "filters_integers")
    array = numpy_helper.to_array(filters).copy()
    array[0, 0, 0, :2] = -largest
    filters.CopyFrom(numpy_helper.from_array(array, filters.name))
    assert have_wide_pairs(read(model)) is expected
