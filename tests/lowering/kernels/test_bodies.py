"""Kernels in the bodies of Loop and Scan, and behind sizes that values decide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqfuse.engine.bodies.resolve import resolve_bodies
from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.partition.groups import unfused
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.compilation import CompiledKernels, compile_kernels
from eqfuse.lowering.kernels.measured import join_measured
from eqfuse.lowering.plan.plan import Call
from eqfuse.lowering.program.planning import plan_program
from eqfuse.lowering.running.context import Context

from ..linked import linked
from ..small_models import expected, weights

value = helper.make_tensor_value_info
node = helper.make_node
HOST = target_of("host", 1)


def recurrent() -> onnx.ModelProto:
    """A Loop over maps, each iteration two convolutions; a Scan over its rows, and a Loop without kernels."""
    maps = [
        node("Conv", ["a", "k"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "k"], ["d"], pads=[1, 1, 1, 1]),
        node("Add", ["d", "a"], ["s"]),
        node("Mul", ["s", "half"], ["next"]),
        node("Add", ["i", "i"], ["twice"]),
        node("Less", ["twice", "most"], ["go"]),
    ]
    flag, count = value("goes", TensorProto.BOOL, []), value("i", TensorProto.INT64, [])
    iteration = helper.make_graph(
        maps, "iteration", [count, flag, value("a", 1, [1, 6, 5, 4])],
        [value("go", TensorProto.BOOL, []), value("next", 1, [1, 6, 5, 4])],
    )  # fmt: skip
    rows = [
        node("MatMul", ["row", "w"], ["m"]),
        node("Add", ["m", "h"], ["n"]),
        node("Tanh", ["n"], ["t"]),
        node("Identity", ["t"], ["out"]),
    ]
    scan = helper.make_graph(
        rows, "rows", [value("h", 1, [6, 4]), value("row", 1, [6, 4])], [value("t", 1, [6, 4]), value("out", 1, [6, 4])]
    )
    nodes = [
        node("Loop", ["trips", "", "x"], ["y"], body=iteration),
        node("Scan", ["h0", "y0"], ["last", "all"], body=scan, num_scan_inputs=1, scan_input_axes=[1]),
    ]
    squeeze = node("Squeeze", ["y", "first"], ["y0"])
    stored = {
        "k": weights(6, 6, 3, 3), "w": weights(4, 4), "half": np.float32(0.5), "most": np.int64(6),
        "first": np.array([0]), "h0": weights(6, 4, seed=3),
    }  # fmt: skip
    inputs = [value("x", 1, [1, 6, 5, 4]), value("trips", TensorProto.INT64, [])]
    outputs = [value("y", 1, [1, 6, 5, 4]), value("last", 1, [6, 4]), value("all", 1, [5, 6, 4])]
    graph = helper.make_graph(
        [nodes[0], squeeze, nodes[1]], "recurrent", inputs, outputs,
        [numpy_helper.from_array(np.asarray(a), n) for n, a in stored.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompiledKernels, Context]:
    model, folder = resolve_bodies(read(recurrent())), tmp_path_factory.mktemp("bodies")
    graph = operator_graph(model, infer(model))
    kernels = compile_kernels(graph, unfused(graph).members, Weights(model), HOST, folder, 2)
    return kernels, linked(kernels, folder)


@pytest.mark.parametrize("trips", [0, 1, 3, 9])
def test_as_onnx_runtime(compiled: tuple[CompiledKernels, Context], trips: int) -> None:
    inputs = {"x": weights(1, 6, 5, 4, seed=trips), "trips": np.array(trips)}
    results = compiled[1].run(inputs)
    for name, wanted in expected(recurrent(), inputs).items():
        np.testing.assert_allclose(results[name], wanted, rtol=1e-5, atol=1e-5)


def test_convolutions_and_products_of_bodies_are_kernels(compiled: tuple[CompiledKernels, Context]) -> None:
    plan, _ = plan_program(compiled[0])
    called = {step.operators[0]: " ".join(step.called) for step in plan.steps if isinstance(step, Call)}
    assert called["Loop"].count("conv") == 2
    assert called["Scan"].count("matmul") == 1
    assert set(plan.kernels) == compiled[0].objects.keys()


def test_constants_that_kernels_pack_are_no_inputs_of_loops(compiled: tuple[CompiledKernels, Context]) -> None:
    plan, _ = plan_program(compiled[0])
    assert not any(plan.buffers[weight].shape == (6, 6, 3, 3) for weight in plan.weights)


@pytest.fixture(scope="module")
def of_free_sizes(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompiledKernels, Context]:
    proto, folder = free_recurrence(), tmp_path_factory.mktemp("free")
    model = resolve_bodies(read(proto))
    graph = operator_graph(model, infer(model)).at_call
    kernels = compile_kernels(graph, unfused(graph).members, Weights(model), HOST, folder, 2)
    return kernels, linked(kernels, folder)


def free_recurrence() -> onnx.ModelProto:
    """A Scan of S steps on a batch of N."""
    rows = [
        node("MatMul", ["row", "w"], ["m"]),
        node("Add", ["m", "h"], ["n"]),
        node("Tanh", ["n"], ["t"]),
        node("Identity", ["t"], ["out"]),
    ]
    body = helper.make_graph(
        rows, "rows", [value("h", 1, ["N", 8]), value("row", 1, ["N", 8])], [value("t", 1, None), value("out", 1, None)]
    )
    scan = node("Scan", ["h0", "x"], ["last", "all"], body=body, num_scan_inputs=1)
    inputs = [value("x", 1, ["S", "N", 8]), value("h0", 1, ["N", 8])]
    outputs = [value("last", 1, ["N", 8]), value("all", 1, ["S", "N", 8])]
    graph = helper.make_graph([scan], "free", inputs, outputs, [numpy_helper.from_array(weights(8, 8), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.representatives(2)
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (3, 5), (7, 2), (2, 40)])
def test_kernels_of_bodies_take_free_sizes(
    of_free_sizes: tuple[CompiledKernels, Context], steps: int, batch: int
) -> None:
    inputs = {"x": weights(steps, batch, 8, seed=steps), "h0": weights(batch, 8, seed=9)}
    results = of_free_sizes[1].run(inputs)
    for name, wanted in expected(free_recurrence(), inputs).items():
        np.testing.assert_allclose(results[name], wanted, rtol=1e-5, atol=1e-5)
    plan, _ = plan_program(of_free_sizes[0])
    assert any("matmul" in kernel for kernel in plan.kernels)


def selected() -> onnx.ModelProto:
    """Rows that are chosen by values, their product, and the product of those whose results are positive."""
    nodes = [
        node("Compress", ["x", "keep"], ["some"], axis=0),
        node("MatMul", ["some", "w"], ["first"]),
        node("ReduceSum", ["first"], ["score"], keepdims=0, axes=[1]),
        node("Greater", ["score", "zero"], ["good"]),
        node("Compress", ["first", "good"], ["better"], axis=0),
        node("MatMul", ["better", "w"], ["second"]),
        node("Tanh", ["second"], ["y"]),
    ]
    inputs = [value("x", 1, ["N", 24]), value("keep", TensorProto.BOOL, ["N"])]
    stored = {"w": weights(24, 24), "zero": np.float32(0)}
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "selected", inputs, [value("y", 1, ["k", 24])], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)


def test_what_meets_sizes_that_values_decide_are_kernels(tmp_path: Path) -> None:
    model = read(selected())
    graph = operator_graph(model, infer(model)).at_call
    kernels = compile_kernels(*join_measured(graph, unfused(graph).members), Weights(model), HOST, tmp_path, 2)
    (program,) = (name for name in kernels.objects if name.startswith("loop"))
    assert program.endswith("_compress_matmul_reducesum_greater")
    assert sum("_matmul" in name for name in kernels.objects if name != program) == 2
    context = linked(kernels, tmp_path)
    for kept in (0, 1, 7, 40):
        inputs = {"x": weights(40, 24, seed=kept), "keep": np.arange(40) < kept}
        np.testing.assert_allclose(context.run(inputs)["y"], expected(selected(), inputs)["y"], rtol=1e-5, atol=1e-5)


def broadcast() -> onnx.ModelProto:
    """A sum of two selections of rows, which broadcast each other if one has a single row, and products behind it."""
    nodes = [
        node("Compress", ["x", "keep"], ["a"], axis=0),
        node("Compress", ["x", "other"], ["b"], axis=0),
        node("Add", ["a", "b"], ["s"]),
        node("MatMul", ["s", "w"], ["first"]),
        node("Relu", ["first"], ["r"]),
        node("MatMul", ["r", "w"], ["second"]),
        node("Add", ["second", "s"], ["y"]),
    ]
    inputs = [value("x", 1, ["N", 24]), *(value(name, TensorProto.BOOL, ["N"]) for name in ("keep", "other"))]
    stored = [numpy_helper.from_array(weights(24, 24), "w")]
    graph = helper.make_graph(nodes, "broadcast", inputs, [value("y", 1, ["k", 24])], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)


def test_products_behind_a_broadcast_of_two_such_sizes_are_kernels(tmp_path: Path) -> None:
    model = read(broadcast())
    graph = operator_graph(model, infer(model)).at_call
    kernels = compile_kernels(*join_measured(graph, unfused(graph).members), Weights(model), HOST, tmp_path, 2)
    assert any("_matmul" in name for name in kernels.objects if not name.startswith("loop"))
    context = linked(kernels, tmp_path)
    for kept, others in ((5, 5), (1, 7), (7, 1), (0, 0), (40, 40)):
        inputs = {"x": weights(40, 24, seed=kept), "keep": np.arange(40) < kept, "other": np.arange(40) < others}
        np.testing.assert_allclose(context.run(inputs)["y"], expected(broadcast(), inputs)["y"], rtol=1e-5, atol=1e-5)


def test_bodies_without_work_for_kernels_stay_loops(tmp_path: Path) -> None:
    proto = recurrent()
    del proto.graph.node[0].attribute[0].g.node[:5]
    proto.graph.node[0].attribute[0].g.node.append(node("Neg", ["a"], ["next"]))
    for tensor in (*proto.graph.input[:1], *proto.graph.output[:1]):
        del tensor.type.tensor_type.shape.dim[:]
    for port in (proto.graph.node[0].attribute[0].g.input[2], proto.graph.node[0].attribute[0].g.output[1]):
        del port.type.tensor_type.shape.dim[:]
    del proto.graph.node[1:], proto.graph.output[1:]
    model = resolve_bodies(read(proto))
    graph = operator_graph(model, infer(model))
    kernels = compile_kernels(graph, unfused(graph).members, Weights(model), HOST, tmp_path, 1)
    assert [name.split("_")[0] for name in kernels.objects] == ["loop"]
    results = linked(kernels, tmp_path).run({"x": np.float32(2.0), "trips": np.array(3)})
    np.testing.assert_allclose(results["y"], -2.0)
