"""Kernels of a graph as one library: shared kernels, views, and the rest in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels import compilation
from eqfuse.lowering.kernels.compilation import CompiledKernels, compile_kernels
from eqfuse.lowering.kernels.fallback import LoopCall
from eqfuse.lowering.kernels.messages import Answer
from eqfuse.lowering.kernels.steps import Kernel, View, steps
from eqfuse.lowering.program.planning import plan_program

from ..linked import linked
from ..small_models import chain, expected, model, random_inputs, weights, with_fallback, with_loops

Groups = list[tuple[int, ...]]


def graph_of(proto: onnx.ModelProto) -> OperatorGraph:
    model_ = read(proto)
    return operator_graph(model_, infer(model_))


def compile_groups(proto: onnx.ModelProto, groups: Groups, folder: Path, target: str = "host") -> CompiledKernels:
    model_ = read(proto)
    graph = operator_graph(model_, infer(model_))
    return compile_kernels(graph, groups, Weights(model_), target_of(target, 1), folder, 2)


def reshapes() -> onnx.ModelProto:
    """Reshape -> Relu -> Reshape -> Sigmoid -> Reshape."""
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Reshape", ["b", "square"], ["c"]),
        helper.make_node("Sigmoid", ["c"], ["d"]),
        helper.make_node("Reshape", ["d", "flat"], ["y"]),
    ]
    return model(nodes, {"x": (2, 8)}, {"y": (16,)}, flat=np.array([16]), square=np.array([4, 4]))


def assert_right(proto: onnx.ModelProto, groups: Groups, folder: Path) -> CompiledKernels:
    compiled = compile_groups(proto, groups, folder)
    results = linked(compiled, folder).run(random_inputs(proto)).values()
    for result, wanted in zip(results, expected(proto, random_inputs(proto)).values(), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    return compiled


def test_a_view_by_itself_is_no_kernel() -> None:
    result = [type(step) for step in steps(graph_of(reshapes()), [(0,), (1, 2), (3,), (4,)])]
    assert result == [View, Kernel, Kernel, View]


@pytest.mark.representatives(1)
@pytest.mark.parametrize("groups", [[(0, 1, 2, 3, 4)], [(0, 1), (2, 3), (4,)], [(0,), (1,), (2,), (3,), (4,)]])
def test_views_give_the_same_numbers_however_the_graph_is_cut(tmp_path: Path, groups: Groups) -> None:
    assert_right(reshapes(), groups, tmp_path)


@pytest.mark.conformance
def test_kernels_that_differ_in_their_weights_only_are_compiled_once(tmp_path: Path) -> None:
    compiled = assert_right(chain(), [(0, 1), (2, 3)], tmp_path)
    first, second = (call.symbol for call in compiled.calls)
    assert first == second == f"kernel_{compiled.keys[first][:8]}_matmul_relu"


def test_a_constant_that_is_computed_is_computed_once_and_before(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    assert_right(model(nodes, {"x": (4, 8)}, {"y": (4, 6)}, w=weights(6, 8)), [(0,)], tmp_path)


def test_integers_of_64_bits_stay_so(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["x", "indices"], ["y"], axis=0)]
    assert_right(model(nodes, {"x": (4, 8)}, {"y": (2, 8)}, indices=np.array([3, -1])), [(0,)], tmp_path)


def test_an_output_may_be_a_constant(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    compiled = model(nodes, {"x": (2, 3)}, {"y": (2, 3), "w": (2,)}, w=weights(2))
    assert_right(compiled, [(0,)], tmp_path)


@pytest.mark.conformance
def test_the_reason_for_a_fallback_names_the_operator(tmp_path: Path) -> None:
    compiled = compile_groups(with_fallback(), [(0,), (1,), (2,)], tmp_path)
    assert [(entry.operators, entry.reason) for entry in compiled.fallbacks] == [
        (("MaxRoiPool",), "MaxRoiPool has no lowering")
    ]


@pytest.mark.conformance
def test_there_is_no_fallback_on_another_machine(tmp_path: Path) -> None:
    with pytest.raises(LoweringError, match=r"arm-cortex-a76: 1 kernel\(s\) cannot be compiled: MaxRoiPool"):
        compile_groups(with_fallback(), [(0,), (1,), (2,)], tmp_path, "arm-cortex-a76")


def test_a_reason_that_several_kernels_have_is_said_once(tmp_path: Path) -> None:
    pools = [helper.make_node("MaxRoiPool", [x, "regions"], [y], pooled_shape=[1, 1]) for x, y in ("xy", "zt")]
    ends = {"x": (1, 1, 2, 2), "z": (1, 1, 3, 3)}, {"y": (1, 1, 1, 1), "t": (1, 1, 1, 1)}
    proto = model(pools, *ends, regions=np.zeros((1, 5), np.float32))
    message = r": 2 kernel\(s\) cannot be compiled: MaxRoiPool: MaxRoiPool has no lowering$"
    with pytest.raises(LoweringError, match=message):
        compile_groups(proto, [(0,), (1,)], tmp_path, "arm-cortex-a76")


def test_operators_without_a_kernel_are_plain_loops(tmp_path: Path) -> None:
    assert assert_right(with_loops(), [(0,), (1,), (2,)], tmp_path).fallbacks == ()


def test_a_kernel_that_tvm_cannot_compile_is_a_plain_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = "the compiler crashed (exit code -11)"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        compilation, "compile_requests", lambda requests, _: (Answer(r.name, 0.0, problem=problem) for r in requests)
    )
    compiled = compile_groups(chain(), [(0, 1), (2, 3)], tmp_path)
    first, second = (step.reason for step in compiled.steps if isinstance(step, LoopCall))
    assert first == second
    assert first.endswith(f"_matmul_relu: {problem}")


def test_a_size_that_depends_on_values_is_an_error_that_names_the_operator(tmp_path: Path) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Neg", ["n"], ["y"])]
    proto = model(nodes, {"x": (2, 3)}, {"y": (2, 1)}, ["y"])
    del proto.graph.output[0].type.tensor_type.shape.dim[1]
    proto.graph.output[0].type.tensor_type.shape.dim.add(dim_param="count")
    with pytest.raises(LoweringError, match=r"\(NonZero makes it\).*depends on the values"):
        compile_groups(proto, [(0,), (1,)], tmp_path)


def test_a_constant_that_cannot_be_computed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def refuse(self: Weights, name: str) -> None:
        raise LoweringError(f"the constant {name!r} cannot be computed here")

    compiled = compile_groups(chain(), [(0, 1), (2, 3)], tmp_path)
    monkeypatch.setattr(Weights, "__getitem__", refuse)
    with pytest.raises(LoweringError, match="cannot be computed here"):
        plan_program(compiled)
