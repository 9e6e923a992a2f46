"""The columns of the operator table that say something about every operator hold in ONNX and ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state as capi

from eqfuse.engine.onnx.runtime_values import session_options
from eqfuse.ir.operators import FILTERS, OPERATORS, SCHEMAS, TO_SHAPES, Array

from ..onnx_cases import OPSET, Case, Draw, cases, onnx_model, shapes

REFUSALS = (capi.InvalidGraph, capi.NotImplemented)
"""What ONNX Runtime raises for a type that an operator does not take, or for which it has no kernel."""
TRIALS = 8
"""Draws of elements for one call: a scalar is likely to have each of the extremes in one of them."""
SAMPLES = settings(
    max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def extreme_array(shape: tuple[int, ...], dtype: str, *seed: int) -> Array:
    """Elements from the ends of a type: not a number, infinities and both zeros of floats, zero and -1 of integers."""
    random = np.random.default_rng([*seed, *shape])
    if dtype == "bool":
        return np.asarray(random.random(shape) < 0.5)
    kind = np.dtype(dtype)
    ends = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    special = [np.nan, np.inf, -np.inf, -0.0] if kind.kind == "f" else [-1] if kind.kind == "i" else []
    return np.asarray(random.choice(np.array([0, 1, ends.min, ends.max, *special], kind), shape))


@st.composite
def calls(draw: Draw, op: str) -> Case:
    case: Case = draw(cases(op)) if op in OPERATORS else Case(op, (draw(shapes()),))
    dtypes = (draw(st.sampled_from(["float32", "int32"])),) if case.dtypes == ("float32",) else case.dtypes
    return replace(case, dtypes=dtypes)


def model_of(case: Case) -> onnx.ModelProto:
    if case.op in OPERATORS:
        return onnx_model(case)
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(case.dtype(0)))
    ports = [helper.make_tensor_value_info("x0", element_type, case.shapes[0]), onnx.ValueInfoProto(name="y0")]
    graph = helper.make_graph([helper.make_node(case.op, ["x0"], ["y0"])], "case", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


@pytest.mark.representatives(16)
@pytest.mark.parametrize("head", sorted(name for name, row in SCHEMAS.items() if row.is_total))
def test_a_total_operator_runs_on_any_elements(head: str) -> None:
    ran = False

    @SAMPLES
    @given(calls(head))
    def check(case: Case) -> None:
        nonlocal ran
        try:
            session = onnxruntime.InferenceSession(model_of(case).SerializeToString(), session_options())
        except REFUSALS:
            return
        operands = [(i, shape) for i, shape in enumerate(case.shapes) if shape is not None]
        for trial in range(TRIALS):
            assert session.run(None, {f"x{i}": extreme_array(s, case.dtype(i), trial, i) for i, s in operands})
        ran = True

    check()
    assert ran


def test_filters_are_the_weights_of_onnx_convolutions() -> None:
    named = {
        schema.name: next((i for i, value in enumerate(schema.inputs) if value.name.lower() == "w"), 0)
        for schema in onnx.defs.get_all_schemas()
        if "kernel_shape" in schema.attributes and "output_padding" not in schema.attributes
    }
    convolutions = {name: place for name, place in named.items() if place}
    assert convolutions.pop("DeformConv") == 1  # its windows are no grid, so it has no row
    assert convolutions == FILTERS


def test_operators_to_shapes_have_that_shape() -> None:
    assert {"Reshape", "Expand"} == TO_SHAPES
    for head in TO_SHAPES:
        assert [a.name for a in OPERATORS[head].attributes if a.position == 1] == ["shape"]


def test_stacks_of_matrices_are_operands_of_products() -> None:
    assert {name for name, row in OPERATORS.items() if row.takes_stacks} == {"MatMul", "MatMulInteger", "FusedMatMul"}
    assert [OPERATORS[name].broadcasts for name in ("Add", "MatMul", "Gemm")] == [True, True, False]
