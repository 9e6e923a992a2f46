"""Every operator computes in TVM what it computes in ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from eqfuse.ir.operators import STANDARD
from eqfuse.lowering.compute import LOWERINGS, lowerable

from ...ir.onnx_cases import Case, cases, onnx_model
from ...ir.operators.onnx_answers import random_array
from ..in_tvm import Call, assert_as_onnx_runtime, in_tvm, infer_types

NOT_LOWERED = {"If": "only flat graphs have it, and none of those is compiled"}
"""Operators of the rules that have no lowering, and why."""
BY_THEMSELVES = {"Resize": "test_resize.py"}
"""Operators that have no random calls."""


def narrow(case: Case) -> Case:
    """In types that are compiled: random calls try float16 too."""
    dtypes = tuple("float32" if d == "float16" else d for d in case.dtypes)
    literals = {k: "int32" if v == "float16" else v for k, v in case.literals.items()}
    return replace(case, dtypes=dtypes, literals=literals)


def operand(case: Case, position: int, shape: tuple[int, ...]) -> Any:
    """Numbers that the operator is defined for."""
    x = random_array(shape, case.dtype(position), position)
    if case.op == "Gather" and position == 1:
        first = case.shapes[0]
        assert first is not None
        axis = case.literals["axis"]
        assert isinstance(axis, int)
        return np.asarray(x % (2 * first[axis]) - first[axis])
    if case.op == "BatchNormalization" and position == 4:
        return np.asarray(np.abs(x))
    return np.where(x == 0, np.ones_like(x), x) if case.op == "Mod" and position == 1 else x


def call(case: Case) -> Call:
    case = narrow(case)
    feeds = {f"x{i}": operand(case, i, s) for i, s in enumerate(case.shapes) if s is not None}
    return Call(infer_types(onnx_model(case)), feeds)


def draw_cases(op: str, count: int) -> list[Case]:
    """Random calls, the same in every run."""
    drawn: list[Case] = []

    @settings(
        max_examples=count, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
    )
    @given(cases(op))
    def collect(case: Case) -> None:
        drawn.append(case)

    collect()
    return [case for case in drawn if all(0 not in shape for shape in case.shapes if shape is not None)]


def test_every_operator_of_the_rules_is_lowered_or_not_for_a_reason() -> None:
    assert STANDARD.keys() - LOWERINGS.keys() == NOT_LOWERED.keys()


@pytest.mark.representatives(4)
@pytest.mark.parametrize("op", sorted(STANDARD.keys() - BY_THEMSELVES.keys() - NOT_LOWERED.keys()))
def test_random_calls(op: str) -> None:
    calls = [c for c in map(call, draw_cases(op, 18)) if is_plain(c)][:6]
    graphs = [c.graph for c in calls]
    assert [r for g in graphs for o in g.operators if (r := lowerable(o, g))] == []
    assert len(calls) > 1
    assert_as_onnx_runtime(calls)


def is_plain(given: Call) -> bool:
    """Whether the rules know the form of the call, and its results have elements."""
    graph = given.graph
    has_elements = all(v.type is not None and v.type.elements() for v in graph.values)
    return has_elements and not any(o.is_opaque for o in graph.operators)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1", "GlobalAveragePool"])
def test_long_sums_are_rounded_once(op: str) -> None:
    """In float32 numbers that are added one after another would differ in the fifth digit."""
    shape = (1, 2, 160, 200)
    x = np.random.default_rng(0).uniform(1, 2, shape).astype(np.float32)
    axes = {} if op == "GlobalAveragePool" else {"axes": numpy_helper.from_array(np.array([2, 3]), "axes")}
    node = helper.make_node(op, ["x", *axes], ["y"])
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2, 1, 1))
    graph = helper.make_graph([node], "sum", [given], [result], list(axes.values()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    exact = ReferenceEvaluator(model).run(None, {"x": x.astype(np.float64)})[0]
    (outputs,) = in_tvm([Call(model, {"x": x})])
    np.testing.assert_allclose(outputs["y"], exact, rtol=2e-7)
