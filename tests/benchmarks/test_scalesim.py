"""The comparison with SCALE-Sim, as far as it needs no SCALE-Sim."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.benchmarks.accelerators.scalesim import Row, as_run, print_table
from eqfuse.costmodels.dsa_device import ComputeUnit, Dataflow
from eqfuse.costmodels.systolic import Product, SystolicArray, best_dataflow

UNIT = ComputeUnit("MME", "matrix", "core", 4, 8, tuple(Dataflow))
EXTENTS = st.integers(1, 40)


@given(EXTENTS, EXTENTS, EXTENTS)
def test_a_product_is_simulated_in_the_form_that_an_array_runs(m: int, n: int, k: int) -> None:
    product = Product(m, n, k)
    form, dataflow, cycles = as_run(UNIT, product)
    assert (cycles, dataflow) == best_dataflow(UNIT, product)
    assert SystolicArray(UNIT.rows, UNIT.columns, dataflow).cycles(form) == cycles
    assert form.k == k
    assert sorted((form.m, form.n)) == sorted((m, n))


def test_the_largest_difference_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row(Product(4, 8, 2), Dataflow.OUTPUT_STATIONARY, 3, 100, 99, 0, 56)]
    print_table([*rows, Row(Product(4, 8, 9), Dataflow.WEIGHT_STATIONARY, 1, 100, 102, 7, 140)])
    said = capsys.readouterr().out
    assert "| 4 x 8 x 2 | os | 3 | 100 | 99 | 0 | 56 | 56 |" in said
    assert "at most 2.00 %" in said
