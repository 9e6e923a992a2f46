"""Steps of branches run only if their condition holds, in an order in which it is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqfuse.engine.bodies.resolve import resolve_bodies
from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.partition.groups import unfused
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.branches import split_branches
from eqfuse.lowering.kernels.compilation import CompiledKernels, compile_kernels
from eqfuse.lowering.plan.plan import Call
from eqfuse.lowering.program.planning import plan_program

from ..linked import linked
from ..small_models import expected


def nested() -> onnx.ModelProto:
    """y = Relu(x); a ? (b ? y * y : Neg(y)) : Exp(x), of whose branches both read x, and the condition b comes late."""
    value = helper.make_tensor_value_info
    inner_then = helper.make_graph([helper.make_node("Mul", ["y", "y"], ["m"])], "m", [], [value("m", 1, [2])])
    inner_else = helper.make_graph([helper.make_node("Neg", ["y"], ["n"])], "n", [], [value("n", 1, [2])])
    inner = helper.make_node("If", ["b"], ["i"], then_branch=inner_then, else_branch=inner_else)
    outer_else = helper.make_graph([helper.make_node("Exp", ["x"], ["e"])], "e", [], [value("e", 1, [2])])
    outer_then = helper.make_graph([inner], "i", [], [value("i", 1, [2])])
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Not", ["c"], ["b"]),
        helper.make_node("If", ["a"], ["chosen"], then_branch=outer_then, else_branch=outer_else),
        helper.make_node("Abs", ["chosen"], ["z"]),
    ]
    inputs = [value("x", 1, [2]), value("a", TensorProto.BOOL, []), value("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "nested", inputs, [value("z", 1, [2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def graph_of_branches() -> OperatorGraph:
    model = resolve_bodies(read(nested()))
    return operator_graph(model, infer(model))


def test_a_group_of_several_branches_is_cut() -> None:
    graph = graph_of_branches()
    operators = [operator.op for operator in graph.operators]
    assert operators == ["Relu", "Not", "Mul", "Neg", "If", "Exp", "If", "Abs"]
    assert split_branches(graph, [(0, 2, 3, 5), (1,), (4,), (6,), (7,)]) == (
        (0,), (5,), (2,), (3,), (1,), (4,), (6,), (7,),
    )  # fmt: skip


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompiledKernels, Path]:
    model = resolve_bodies(read(nested()))
    graph = operator_graph(model, infer(model))
    folder = tmp_path_factory.mktemp("branches")
    return compile_kernels(graph, unfused(graph).members, Weights(model), target_of("host", 1), folder, 2), folder


def test_steps_run_under_the_conditions_of_what_reads_them(compiled: tuple[CompiledKernels, Path]) -> None:
    plan, _ = plan_program(compiled[0])
    names = [buffer.name for buffer in plan.buffers]
    under = {
        step.operators[0]: {(names[buffer], when) for buffer, when in branch.conditions}
        for branch in plan.branches
        for step in plan.steps[branch.first : branch.end]
        if isinstance(step, Call)
    }
    assert under == {
        "Relu": {("a", True)}, "Not": {("a", True)}, "Mul": {("a", True), ("b", True)},
        "Neg": {("a", True), ("b", False)}, "Exp": {("a", False)},
    }  # fmt: skip


@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("c", [False, True])
def test_as_onnx_runtime(compiled: tuple[CompiledKernels, Path], a: bool, c: bool) -> None:
    kernels, folder = compiled
    inputs = {"x": np.array([-1.5, 2.0], np.float32), "a": np.array(a), "c": np.array(c)}
    results = linked(kernels, folder).run(inputs)
    np.testing.assert_allclose(results["z"], expected(nested(), inputs)["z"], rtol=1e-5)
