"""Copies of feature maps at the ends of a model and in front of views: where there are some, and that graphs stay
graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.driver.compiler.compile import compile_model
from eqfuse.driver.compiler.options import CompileOptions
from eqfuse.engine.onnx.model import read
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.compilation import CompiledKernels, SpecialKernels, compile_kernels
from eqfuse.lowering.kernels.fallback import fallback
from eqfuse.lowering.kernels.map_copies import copy_maps
from eqfuse.lowering.running.blame import suspects

from ..linked import linked
from ..small_models import expected, graph_of, model, weights

SHAPE = (1, 16, 6, 5)


def depthwise(reads: str, gives: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [reads, "w"], [gives], group=16, pads=[1, 1, 1, 1])


def pointwise(reads: str, gives: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [reads, "v"], [gives])


def filtered(reads: str, gives: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node("Conv", [reads, "f"], [gives], pads=[1, 1, 1, 1], **attributes)


def flat(reads: str, gives: str) -> onnx.NodeProto:
    return helper.make_node("Flatten", [reads], [gives])


def doubled(mode: str) -> onnx.NodeProto:
    return helper.make_node("Resize", ["a", "", "s"], ["y"], mode=mode)


def sampled() -> onnx.NodeProto:
    return helper.make_node("GridSample", ["x", "g"], ["y"])


def model_of(*nodes: onnx.NodeProto, **outputs: tuple[int, ...]) -> onnx.ModelProto:
    names = {name for node in nodes for name in node.input}
    stored = {"w": weights(16, 1, 3, 3), "v": weights(16, 16, 1, 1), "s": np.array([1, 1, 2, 2], np.float32)}
    stored["f"] = weights(16, 16, 3, 3)
    stored["g"] = np.tanh(weights(1, 6, 5, 2))
    return model(nodes, {"x": SHAPE}, outputs or {"y": SHAPE}, **{n: a for n, a in stored.items() if n in names})


Y_INSIDE = "y (channels last)"
"""What the kernel in front of the copy to the output y gives."""


def find(graph: OperatorGraph, name: str) -> int:
    return next(number for number, value in enumerate(graph.values) if value.name == name)


def copy(graph: OperatorGraph) -> tuple[OperatorGraph, tuple[tuple[int, ...], ...]]:
    after, kernels = copy_maps(graph, [(member,) for member in range(len(graph))])
    assert sorted(member for kernel in kernels for member in kernel) == list(range(len(after)))
    return after, kernels


@pytest.mark.parametrize(
    ("nodes", "operators"),
    [
        ([depthwise("x", "y")], ["Concat", "Conv", "Concat"]),
        ([pointwise("x", "y")], ["Conv", "Concat"]),  # a product reads its input in any order
        ([helper.make_node("Relu", ["x"], ["y"])], ["Relu"]),
        ([pointwise("x", "a"), doubled("linear")], ["Conv", "Resize", "Concat"]),
        ([sampled()], ["Concat", "GridSample", "Concat"]),
        ([pointwise("x", "a"), doubled("nearest")], ["Conv", "Resize"]),  # which only moves elements
        ([pointwise("x", "a"), depthwise("a", "b"), pointwise("b", "y")], ["Conv", "Conv", "Conv", "Concat"]),
        ([filtered("x", "y")], ["Concat", "Conv", "Concat"]),
        ([filtered("x", "a"), flat("a", "y")], ["Concat", "Conv", "Concat", "Flatten"]),
        ([filtered("x", "a", dilations=[2, 2]), flat("a", "y")], ["Conv", "Flatten"]),
        ([depthwise("x", "a"), flat("a", "y")], ["Concat", "Conv", "Flatten"]),
    ],
)
def test_copies_of_what_windows_read_and_give(nodes: list[onnx.NodeProto], operators: list[str]) -> None:
    outputs = {"y": (1, 480)} if nodes[-1].op_type == "Flatten" else {}
    after, kernels = copy(graph_of(model_of(*nodes, **outputs)))
    assert [after.operators[member].op for kernel in kernels for member in kernel] == operators
    assert [value.name for value in after.values if value.is_output] == ["y"]


@pytest.mark.parametrize(("dtype", "copies"), [(onnx.TensorProto.FLOAT, 1), (onnx.TensorProto.FLOAT16, 0)])
def test_an_output_of_a_type_that_kernels_only_convert_is_not_copied(dtype: int, copies: int) -> None:
    proto = model_of(depthwise("x", "a"), helper.make_node("Cast", ["a"], ["y"], to=dtype))
    proto.graph.output[0].type.tensor_type.elem_type = dtype
    after, _ = copy_maps(graph_of(proto), [(0, 1)])
    assert [operator.op for operator in after.operators][-1:] == (["Concat"] if copies else ["Cast"])


def test_operators_stay_in_an_order_in_which_they_can_run() -> None:
    after, _ = copy(graph_of(model_of(depthwise("x", "a"), depthwise("a", "y"))))
    for number, operator in enumerate(after.operators):
        assert all(after.values[v].producer == number for v in operator.outputs)
        producers = [after.values[v].producer for v in operator.inputs if v is not None]
        assert all(producer is None or producer < number for producer in producers)


def test_an_output_that_is_also_read_inside_is_read_before_the_copy() -> None:
    after, _ = copy(graph_of(model_of(depthwise("x", "a"), pointwise("a", "y"), a=SHAPE, y=SHAPE)))
    copies = {v for operator in after.operators if operator.op == "Concat" for v in operator.outputs}
    readers = [operator for operator in after.operators if operator.op == "Conv"]
    outputs = {v for v in copies if after.values[v].is_output}
    assert len(outputs) == 2
    assert all(outputs.isdisjoint(operator.inputs) for operator in readers)


def test_only_views_read_the_copy_in_front_of_them() -> None:
    nodes = filtered("x", "a"), flat("a", "z"), pointwise("a", "y")
    after, _ = copy(graph_of(model_of(*nodes, z=(1, 480), y=SHAPE)))
    view, reader = (next(o for o in after.operators if o.outputs == (find(after, name),)) for name in ("z", Y_INSIDE))
    assert [after.values[v].name for v in view.inputs if v is not None] == ["a"]
    assert reader.inputs[0] == find(after, "a (channels last)")


def test_convolutions_by_filters_read_copies_of_what_views_give() -> None:
    spread = helper.make_node("Reshape", ["x", "r"], ["a"])
    proto = model(
        [spread, filtered("a", "b"), helper.make_node("Relu", ["b"], ["y"])], {"x": (1, 480)}, {"y": SHAPE},
        r=np.array(SHAPE), f=weights(16, 16, 3, 3),
    )  # fmt: skip
    after, kernels = copy(graph_of(proto))
    operators = [after.operators[member].op for kernel in kernels for member in kernel]
    assert operators == ["Reshape", "Concat", "Conv", "Relu"]


def test_what_onnx_runtime_reads_keeps_its_name() -> None:
    sequence = helper.make_node("SequenceConstruct", ["y"], ["s"])
    after, _ = copy(graph_of(model_of(depthwise("x", "y"), sequence, y=SHAPE)))
    reader = next(operator for operator in after.operators if operator.op == "SequenceConstruct")
    assert [after.values[v].name for v in reader.inputs if v is not None] == ["y"]


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "nodes",
    [
        (depthwise("x", "y"),), (depthwise("x", "a"), pointwise("a", "y")),
        (filtered("x", "a"), helper.make_node("Shape", ["a"], ["t"]), flat("a", "b"),
         helper.make_node("Softmax", ["b"], ["c"]), helper.make_node("Reshape", ["c", "t"], ["d"]),
         helper.make_node("Add", ["d", "a"], ["y"])),
    ],
)  # fmt: skip
def test_the_numbers_are_those_of_the_model(nodes: tuple[onnx.NodeProto, ...], tmp_path: Path) -> None:
    proto = model_of(*nodes)
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    compile_model(proto, tmp_path / "build", CompileOptions(threads=1))
    result = eqfuse.load(tmp_path / "build").run({"x": x})["y"]
    np.testing.assert_allclose(result, expected(proto, {"x": x})["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.conformance
def test_kernels_around_copies_can_be_compared_with_onnx_runtime(tmp_path: Path) -> None:
    proto = model_of(depthwise("x", "a"), depthwise("a", "y"))
    graph, kernels = copy(graph_of(proto))
    target = target_of("host", 1)
    compiled = compile_kernels(graph, kernels, Weights(read(proto)), target, tmp_path, 1)
    linked(compiled, tmp_path)
    assert [call.members for call in compiled.calls] == [(0,), (1,), (2,), (3,)]
    assert list(suspects(compiled, tmp_path / "model.so", 1)) == []
    crashed = compiled.calls[1].symbol
    assert [suspect.symbol for suspect in suspects(compiled, tmp_path / "model.so", 1, crashed)] == [crashed]


def test_a_kernel_for_certain_sizes_is_blamed_as_the_one_in_whose_place_it_runs(tmp_path: Path) -> None:
    def compile_relu(graph: OperatorGraph, folder: str) -> CompiledKernels:
        (tmp_path / folder).mkdir()
        return compile_kernels(graph, [(0,)], weights_of_model, target_of("host", 1), tmp_path / folder, 1)

    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", 8]}, {"y": ["N", 8]})
    graph, weights_of_model = graph_of(proto).at_call, Weights(read(proto))
    free, fixed = compile_relu(graph, "free"), compile_relu(graph.at_sizes({"N": 4}), "fixed")
    negated = replace(fixed.graph, operators=(replace(fixed.graph.operators[0], op="Neg"),))
    wrong = SpecialKernels({"N": 4}, replace(fixed, graph=negated, weights=Weights(read(negate(proto)))))
    linked(replace(free, special=(SpecialKernels({"N": 4}, fixed),)), tmp_path)
    assert list(suspects(replace(free, special=(SpecialKernels({"N": 4}, fixed),)), tmp_path / "model.so", 1)) == []
    (suspect,) = suspects(replace(free, special=(wrong,)), tmp_path / "model.so", 1)
    assert suspect.symbol == free.calls[0].symbol != fixed.calls[0].symbol
    assert suspect.difference.endswith("(for N=4)")


def negate(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with another operator."""
    other = onnx.ModelProto()
    other.CopyFrom(proto)
    other.graph.node[0].op_type = "Neg"
    return other


def test_a_copy_that_cannot_be_compiled_runs_elsewhere() -> None:
    proto = model_of(depthwise("x", "y"))
    graph, kernels = copy(graph_of(proto))
    last = {graph.operators[1].outputs[0]}
    entry = fallback(graph, kernels[2], Weights(read(proto)), "test", last)
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    (name,) = (value.name for value in entry.model.graph.input)
    (result,) = expected(entry.model, {name: np.ascontiguousarray(x.transpose(0, 2, 3, 1))}).values()
    np.testing.assert_array_equal(result, x)


def test_maps_of_free_sizes_go_elsewhere_with_channels_last() -> None:
    shape = ("N", 16, "H", "W")
    proto = model([depthwise("x", "y")], {"x": shape}, {"y": shape}, w=weights(16, 1, 3, 3))
    graph = graph_of(proto).at_call
    (read_value,) = (value for value in graph.operators[0].inputs[:1] if value is not None)
    entry = fallback(graph, (0,), Weights(read(proto)), "test", {read_value, *graph.operators[0].outputs})
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    (name,) = (value.name for value in entry.model.graph.input)
    (result,) = expected(entry.model, {name: np.ascontiguousarray(x.transpose(0, 2, 3, 1))}).values()
    np.testing.assert_allclose(result.transpose(0, 3, 1, 2), expected(proto, {"x": x})["y"], rtol=1e-5, atol=1e-6)
