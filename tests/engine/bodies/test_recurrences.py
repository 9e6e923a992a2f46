"""Loops and Scans of a cell become recurrent operators that compute the same, and others do not."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.engine.bodies.flatten import flatten
from eqfuse.engine.bodies.inference import infer_flat
from eqfuse.engine.bodies.nest import nest
from eqfuse.engine.bodies.recurrences import recognize_recurrences
from eqfuse.engine.onnx.model import read

from ...onnx_runtime import outputs_of
from .random_cells import FLAWS, CellModel

seeds = st.integers(0, 2**32)


def recognize(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with recurrent operators; None if it has none."""
    flat = flatten(read(model))
    if not recognize_recurrences(flat, infer_flat(flat)):
        return None
    infer_flat(flat)
    return ir.to_proto(nest(flat.model, flat).ir)


@given(seed=seeds, steps=st.integers(1, 6), batch=st.integers(1, 3))
def test_cells_become_operators_that_compute_the_same(seed: int, steps: int, batch: int) -> None:
    cell = CellModel(seed)
    model = cell.model()
    result = recognize(model)
    assert result is not None
    onnx.checker.check_model(result, full_check=True)
    assert [node.op_type for node in result.graph.node if node.op_type in ("RNN", "GRU", "LSTM", "Loop", "Scan")] == [
        cell.kind
    ]
    feed = cell.feed(steps, batch)
    for one, other in zip(outputs_of(model, feed), outputs_of(result, feed), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


@given(seed=seeds, flaw=st.sampled_from(FLAWS))
def test_what_is_nearly_a_cell_stays(seed: int, flaw: str) -> None:
    assert recognize(CellModel(seed, flaw).model()) is None


@pytest.mark.parametrize(("precision", "operators"), [("real", {"GRU"}), ("exact", {"Scan"})])
def test_bits_stay_the_same_where_they_have_to(precision: str, operators: set[str]) -> None:
    cell = next(c for c in map(CellModel, range(99)) if c.kind == "GRU" and not c.is_loop)
    result = optimize_model(cell.model(), None, Options(verify=False, precision=precision)).model
    assert {node.op_type for node in ir.to_proto(result).graph.node} & {"GRU", "Scan"} == operators
