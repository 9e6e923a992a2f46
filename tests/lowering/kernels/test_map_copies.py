"""Copies of feature maps at the ends of a model: where there are some, and that graphs stay graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import eqfuse
from eqfuse.driver.compile import compile_model
from eqfuse.driver.options import Options
from eqfuse.engine.onnx.inference import infer
from eqfuse.engine.onnx.model import read
from eqfuse.extract.partition.operator_graph import operator_graph
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.kernels.compilation import compile_kernels
from eqfuse.lowering.kernels.fallback import fallback
from eqfuse.lowering.kernels.map_copies import copy_maps
from eqfuse.lowering.module import link
from eqfuse.lowering.running.blame import suspects
from eqfuse.lowering.target import target_of
from eqfuse.lowering.weights import Weights

from ..small_models import model, weights

SHAPE = (1, 16, 6, 5)
WINDOW = weights(16, 1, 3, 3)


def depthwise(reads: str, gives: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [reads, "w"], [gives], group=16, pads=[1, 1, 1, 1])


def pointwise(reads: str, gives: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [reads, "v"], [gives])


def graph_of(*nodes: onnx.NodeProto, **outputs: tuple[int, ...]) -> OperatorGraph:
    names = {name for node in nodes for name in node.input}
    stored = {"w": weights(16, 1, 3, 3), "v": weights(16, 16, 1, 1)}
    made = model(nodes, {"x": SHAPE}, outputs or {"y": SHAPE}, **{n: a for n, a in stored.items() if n in names})
    found = read(made)
    return operator_graph(found, infer(found))


def copied(graph: OperatorGraph) -> tuple[OperatorGraph, list[str]]:
    after, kernels = copy_maps(graph, [(member,) for member in range(len(graph))])
    assert sorted(member for kernel in kernels for member in kernel) == list(range(len(after)))
    return after, [after.operators[member].op for kernel in kernels for member in kernel]


def test_a_depthwise_convolution_gets_copies_of_what_comes_and_goes() -> None:
    _, operators = copied(graph_of(depthwise("x", "y")))
    assert operators == ["Concat", "Conv", "Concat"]


def test_a_product_reads_its_input_as_it_is() -> None:
    _, operators = copied(graph_of(pointwise("x", "y")))
    assert operators == ["Conv", "Concat"]


def test_what_is_no_window_is_left_alone() -> None:
    graph = graph_of(helper.make_node("Relu", ["x"], ["y"]))
    assert copied(graph)[0] is graph


def test_a_map_inside_of_the_model_is_not_copied() -> None:
    after, operators = copied(graph_of(pointwise("x", "a"), depthwise("a", "b"), pointwise("b", "y")))
    assert operators == ["Conv", "Conv", "Conv", "Concat"]
    assert [value.name for value in after.values if value.is_output] == ["y"]


def test_operators_stay_in_an_order_in_which_they_can_run() -> None:
    after, _ = copied(graph_of(depthwise("x", "a"), depthwise("a", "y")))
    for number, operator in enumerate(after.operators):
        assert all(after.values[v].producer == number for v in operator.outputs)
        producers = [after.values[v].producer for v in operator.inputs if v is not None]
        assert all(producer is None or producer < number for producer in producers)


def test_an_output_that_is_also_read_inside_is_read_before_the_copy() -> None:
    after, _ = copied(graph_of(depthwise("x", "a"), pointwise("a", "y"), a=SHAPE, y=SHAPE))
    copies = {v for operator in after.operators if operator.op == "Concat" for v in operator.outputs}
    readers = [operator for operator in after.operators if operator.op == "Conv"]
    outputs = {v for v in copies if after.values[v].is_output}
    assert len(outputs) == 2
    assert all(outputs.isdisjoint(operator.inputs) for operator in readers)


def test_what_onnx_runtime_reads_keeps_its_name() -> None:
    graph = graph_of(depthwise("x", "y"), helper.make_node("SequenceConstruct", ["y"], ["s"]), y=SHAPE)
    after, _ = copied(graph)
    reader = next(operator for operator in after.operators if operator.op == "SequenceConstruct")
    assert [after.values[v].name for v in reader.inputs if v is not None] == ["y"]


@pytest.mark.representatives(1)
@pytest.mark.parametrize("nodes", [(depthwise("x", "y"),), (depthwise("x", "a"), pointwise("a", "y"))])
def test_the_numbers_are_those_of_the_model(nodes: tuple[onnx.NodeProto, ...], tmp_path: Path) -> None:
    stored = {"w": weights(16, 1, 3, 3), "v": weights(16, 16, 1, 1)}
    names = {name for node in nodes for name in node.input}
    made = model(nodes, {"x": SHAPE}, {"y": SHAPE}, **{n: a for n, a in stored.items() if n in names})
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    compile_model(made, tmp_path / "build", Options(partition="joint"), threads=1)
    result = eqfuse.load(tmp_path / "build").run({"x": x})["y"]
    np.testing.assert_allclose(result, session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


@pytest.mark.conformance
def test_kernels_around_copies_can_be_compared_with_onnx_runtime(tmp_path: Path) -> None:
    graph, kernels = copy_maps(*_kernels(graph_of(depthwise("x", "a"), depthwise("a", "y"))))
    stored = Weights(read(model([depthwise("x", "a"), depthwise("a", "y")], {"x": SHAPE}, {"y": SHAPE}, w=WINDOW)))
    target = target_of("host", 1)
    prepared = compile_kernels(graph, kernels, stored, target, tmp_path, 1)
    link(prepared, target, tmp_path / "model.so")
    assert [call.members for call in prepared.calls] == [(0,), (1,), (2,), (3,)]
    assert list(suspects(prepared, tmp_path / "model.so", 1)) == []
    crashed = prepared.calls[1].symbol
    assert [found.symbol for found in suspects(prepared, tmp_path / "model.so", 1, crashed)] == [crashed]


def test_a_copy_that_cannot_be_compiled_runs_elsewhere() -> None:
    graph, kernels = copy_maps(*_kernels(graph_of(depthwise("x", "y"))))
    stored = Weights(read(model([depthwise("x", "y")], {"x": SHAPE}, {"y": SHAPE}, w=WINDOW)))
    made, copy = graph.operators[1].outputs[0], kernels[2]
    entry = fallback(graph, copy, stored, "test", {made})
    session = onnxruntime.InferenceSession(entry.model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    (given,) = (value.name for value in session.get_inputs())
    (result,) = session.run(None, {given: np.ascontiguousarray(x.transpose(0, 2, 3, 1))})
    np.testing.assert_array_equal(result, x)


def _kernels(graph: OperatorGraph) -> tuple[OperatorGraph, list[tuple[int, ...]]]:
    return graph, [(member,) for member in range(len(graph))]
