"""Kernels for another machine as a C project: the plan of its calls, and what it cannot do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.lowering.base.errors import BundleError
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.toolchain import Tool, missing
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.kernels.compilation import compile_kernels
from eqfuse.lowering.plan.plan import Copy, Plan
from eqfuse.lowering.program.planning import plan_program

from ..small_models import chain, model, saved, weights

ABSENT = missing(Tool.CROSS_COMPILER, Tool.EMULATOR)


def plan_of(proto: onnx.ModelProto, groups: list[tuple[int, ...]], folder: Path) -> Plan:
    model = read(proto)
    graph = operator_graph(model, infer(model))
    (folder / "kernels").mkdir()
    compiled = compile_kernels(graph, groups, Weights(model), target_of("host", 1), folder / "kernels", 2)
    return plan_program(compiled)[0]


def test_equal_kernels_are_called_with_their_own_weights(tmp_path: Path) -> None:
    plan = plan_of(chain(), [(0, 1), (2, 3)], tmp_path)
    first, second = plan.calls
    assert first.kernel == second.kernel
    assert first.outputs[0] == second.inputs[0]
    assert {first.inputs[1], second.inputs[1]} == set(plan.weights)


@pytest.mark.conformance
def test_views_are_no_calls(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    plan = plan_of(model(nodes, {"x": (2, 8)}, {"y": (16,)}, shape=np.array([16])), [(0,), (1,), (2,)], tmp_path)
    assert (len(plan.calls), len(plan.views)) == (2, 1)


def test_an_output_that_nothing_computes_is_a_copy(tmp_path: Path) -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3)}, {"y": (2, 3), "w": (2,)}, w=weights(2))
    plan = plan_of(proto, [(0,)], tmp_path)
    assert plan.steps[1] == Copy(plan.weights[0], plan.outputs[1])


@pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
def test_it_is_verified_under_emulation(tmp_path: Path) -> None:
    eqfuse.compile(saved(chain(), tmp_path / "in.onnx"), tmp_path / "build", target="arm-cortex-a76")
    assert read_manifest(tmp_path / "build").provenance.verification.startswith("passed, 1 output(s)")
    with pytest.raises(
        BundleError, match=r"was compiled for aarch64 \(arm-cortex-a76\), and this machine is|C project"
    ):
        eqfuse.load(tmp_path / "build")
