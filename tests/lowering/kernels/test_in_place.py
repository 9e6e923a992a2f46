"""Kernels that write parts of a Concat, and read parts of what is cut, beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from eqfuse.engine.onnx.model import read
from eqfuse.extract.partition.groups import unfused
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels import compilation
from eqfuse.lowering.kernels.compilation import CompiledKernels, compile_kernels
from eqfuse.lowering.kernels.fallback import LoopCall
from eqfuse.lowering.kernels.messages import Answer, Part
from eqfuse.lowering.kernels.prim_funcs import DistinctKernels
from eqfuse.lowering.kernels.steps import InPlace, Kernel
from eqfuse.lowering.plan.manifest import LIBRARY
from eqfuse.lowering.plan.plan import PlanError
from eqfuse.lowering.program.planning import plan_program
from eqfuse.lowering.running.blame import suspects

from ..linked import linked
from ..small_models import expected, graph_of, model, weights


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def maps(height: int | str = 5) -> onnx.ModelProto:
    """Maps of 12 and 20 channels made in a Concat, which is an operand of another; one of them is cut, too."""
    nodes = [
        node("Conv", "x w1", "a"),
        node("Conv", "x w2", "b", pads=[1, 1, 1, 1]),
        node("Split", "b", "b1 b2", axis=1),
        node("Concat", "a b", "c", axis=1),
        node("MaxPool", "b2", "d", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Concat", "c d", "e", axis=1),
        node("Conv", "e w3", "f"),
        node("Add", "b1 f", "y"),
    ]
    stored = {"w1": weights(12, 8, 1, 1), "w2": weights(20, 8, 3, 3), "w3": weights(10, 42, 1, 1)}
    return model(nodes, {"x": (1, 8, height, 7)}, {"y": (1, 10, height, 7)}, **stored)


def compiled_at(folder: Path, proto: onnx.ModelProto, threads: int = 1) -> CompiledKernels:
    graph = graph_of(proto).at_call
    return compile_kernels(graph, unfused(graph).members, Weights(read(proto)), target_of("host", threads), folder, 2)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompiledKernels, Path]:
    folder = tmp_path_factory.mktemp("in_place")
    return compiled_at(folder, maps()), folder


def check(kernels: CompiledKernels, folder: Path, proto: onnx.ModelProto, height: int = 5, threads: int = 1) -> None:
    inputs = {"x": weights(1, 8, height, 7, seed=1)}
    result = linked(kernels, folder, threads).run(inputs)["y"]
    np.testing.assert_allclose(result, expected(proto, inputs)["y"], rtol=1e-4, atol=1e-5)


def test_what_is_in_place_moves_nothing(compiled: tuple[CompiledKernels, Path]) -> None:
    kernels, folder = compiled
    operators = [kernels.graph.operators[step.members[0]].op for step in kernels.steps if isinstance(step, InPlace)]
    assert operators == ["Split", "Concat", "Concat"]
    assert [call.symbol.rpartition("_")[2] for call in kernels.calls][:2] == ["0of42", "12of42"]
    check(kernels, folder, maps())


def test_parts_are_filled_once_each(compiled: tuple[CompiledKernels, Path]) -> None:
    plan, _ = plan_program(compiled[0])
    joined = {part for call in plan.calls for part in call.parts}
    assert [plan.buffers[b].shape for b in joined] == [(1, 5, 7, 42)]
    assert sum(bool(call.parts) for call in plan.calls) == 3
    whole = plan.calls[0].__class__("again", (), tuple(joined))
    with pytest.raises(PlanError, match="filled a second time"):
        type(plan)(plan.buffers, (*plan.steps, whole), plan.inputs, plan.outputs, plan.weights, plan.views)


def test_each_kernel_by_itself_is_right(compiled: tuple[CompiledKernels, Path]) -> None:
    kernels, folder = compiled
    linked(kernels, folder)
    assert not list(suspects(kernels, folder / LIBRARY, 1))


@pytest.mark.conformance
def test_sizes_of_a_call_and_threads(tmp_path: Path) -> None:
    kernels = compiled_at(tmp_path, maps("h"), threads=2)
    assert len(kernels.in_place) == 3
    check(kernels, tmp_path, maps("h"), height=6, threads=2)


def test_what_cannot_be_compiled_takes_dense_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("Neg", "x", "a"), node("Abs", "x", "b"), node("Concat", "a b", "c", axis=1), node("Exp", "c", "y")]
    proto = model(nodes, {"x": (2, 3)}, {"y": (2, 6)})
    compile_all = compilation._compile_all

    def fail_abs(*arguments: object) -> dict[str, Answer]:
        answers = compile_all(*arguments)
        return {name: Answer(name, 0.0, problem="no") if "_abs" in name else each for name, each in answers.items()}

    monkeypatch.setattr(compilation, "_compile_all", fail_abs)
    kernels = compiled_at(tmp_path, proto)
    assert not kernels.in_place
    assert any(isinstance(step, LoopCall) for step in kernels.steps)
    inputs = {"x": np.array([[1, -2, 3], [-4, 5, -6]], np.float32)}
    np.testing.assert_allclose(linked(kernels, tmp_path).run(inputs)["y"], expected(proto, inputs)["y"], rtol=1e-5)


def test_values_in_onnx_order_beside_others_are_copied(tmp_path: Path) -> None:
    kernels = compiled_at(tmp_path, model(
        [node("Conv", "x w", "a"), node("Neg", "x", "b"), node("Concat", "a b", "y", axis=1)],
        {"x": (1, 8, 3, 3)}, {"y": (1, 16, 3, 3)}, w=weights(8, 8, 1, 1),
    ))  # fmt: skip
    assert not kernels.in_place  # the output has its channels first


def test_a_function_that_hands_a_part_on_is_refused() -> None:
    from tvm import te, tirx

    from eqfuse.lowering.kernels.build import place_parts

    x = te.placeholder((4, 8), name="x")
    function = te.create_prim_func([x, te.compute((4, 8), lambda i, j: x[i, j] + 1, name="y")])
    placed = place_parts(function, [Part(0, 1, 4, 16), Part(1, 0, 2, 9)])
    assert [[int(n) for n in buffer.shape] for buffer in placed.params] == [[4, 16], [9, 8]]
    handing = tirx.SeqStmt([function.body, tirx.Evaluate(tirx.call_extern("int32", "f", function.params[0]))])
    with pytest.raises(RuntimeError, match="part of a tensor"):
        place_parts(function.with_body(handing), [Part(0, 1, 4, 16)])


@pytest.mark.parametrize(("parts", "axes"), [({}, 2), ({"x": 24}, 1)])
def test_vectors_do_not_go_on_in_the_next_row_of_a_part(parts: dict[str, int], axes: int) -> None:
    from tvm import te

    from eqfuse.lowering.schedules.base.blocks import PARTS
    from eqfuse.lowering.schedules.base.draft import Draft
    from eqfuse.lowering.schedules.rules.pointwise import count_contiguous_axes

    x = te.placeholder((4, 12), name="x")
    function = te.create_prim_func([x, te.compute((4, 12), lambda i, j: x[i, j] + 1, name="y")])
    target = target_of("host", 1)
    (block,) = Draft.of(function.with_attr(PARTS, parts), target.device).blocks()
    assert count_contiguous_axes(block, 16) == axes


def test_whether_a_kernel_has_a_lowering_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(_: DistinctKernels, step: Kernel) -> str:
        asked.append(step)
        return "no lowering"

    monkeypatch.setattr(DistinctKernels, "_function_or_reason", ask)
    proto = maps()
    graph = graph_of(proto)
    kernel = Kernel(tuple(range(len(graph.operators))))
    DistinctKernels.of(graph, [kernel.members], Weights(read(proto))).find_places([kernel], {}, ())
    assert asked == [kernel]
