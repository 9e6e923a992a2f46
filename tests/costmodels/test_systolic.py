"""SCALE-Sim's published cycle counts, and a cell-by-cell array that takes as many."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.costmodels.dsa_device import ComputeUnit, Dataflow
from eqfuse.costmodels.systolic import Product, SystolicArray, best_dataflow

EXTENTS = st.integers(1, 40)
SIDES = st.integers(1, 9)


@given(EXTENTS, EXTENTS, EXTENTS, SIDES, SIDES)
def test_output_stationary_as_published(m: int, n: int, k: int, rows: int, columns: int) -> None:
    cycles = SystolicArray(rows, columns).cycles(Product(m, n, k))
    assert cycles == ceil(m / rows) * ceil(n / columns) * (k + rows + columns - 2)


@given(EXTENTS, EXTENTS, EXTENTS, SIDES, SIDES)
def test_weight_stationary_as_published(m: int, n: int, k: int, rows: int, columns: int) -> None:
    cycles = SystolicArray(rows, columns, Dataflow.WEIGHT_STATIONARY).cycles(Product(m, n, k))
    assert cycles == ceil(k / rows) * ceil(n / columns) * (2 * rows + columns + m - 2)


@given(EXTENTS, EXTENTS, EXTENTS, SIDES, SIDES)
def test_input_stationary_as_published(m: int, n: int, k: int, rows: int, columns: int) -> None:
    cycles = SystolicArray(rows, columns, Dataflow.INPUT_STATIONARY).cycles(Product(m, n, k))
    assert cycles == ceil(k / rows) * ceil(m / columns) * (2 * rows + columns + n - 2)


@pytest.mark.parametrize("loads_ahead", [False, True])
@pytest.mark.parametrize("dataflow", Dataflow)
def test_products_of_a_batch_follow_one_another(dataflow: Dataflow, loads_ahead: bool) -> None:
    array = SystolicArray(4, 8, dataflow, loads_ahead)
    assert array.cycles(Product(5, 9, 7, count=3)) == 3 * array.cycles(Product(5, 9, 7))


@pytest.mark.parametrize("loads_ahead", [False, True])
@pytest.mark.parametrize("dataflow", Dataflow)
@given(EXTENTS, EXTENTS, EXTENTS, SIDES, SIDES)
def test_never_above_the_peak(
    dataflow: Dataflow, loads_ahead: bool, m: int, n: int, k: int, rows: int, columns: int
) -> None:
    product = Product(m, n, k)
    assert SystolicArray(rows, columns, dataflow, loads_ahead).cycles(product) * rows * columns >= product.macs


@given(EXTENTS, EXTENTS, EXTENTS, SIDES, SIDES)
def test_weights_that_are_loaded_ahead_leave_the_rows_of_each_fold_and_one_way_across(
    m: int, n: int, k: int, rows: int, columns: int
) -> None:
    array, long = SystolicArray(rows, columns, Dataflow.WEIGHT_STATIONARY, True), m + rows
    folds = ceil(k / rows) * ceil(n / columns)
    assert array.cycles(Product(long, n, k)) == folds * long + rows + columns - 2


def test_fewer_rows_than_the_array_has_wait_for_the_next_weights() -> None:
    array = SystolicArray(8, 4, Dataflow.WEIGHT_STATIONARY, True)
    assert array.cycles(Product(3, 4, 24)) == array.cycles(Product(8, 4, 24))


def test_an_array_that_keeps_sums_has_nothing_to_load_ahead() -> None:
    product = Product(20, 9, 7)
    assert SystolicArray(4, 8, loads_ahead=True).cycles(product) == SystolicArray(4, 8).cycles(product)


def test_a_unit_that_loads_ahead_runs_its_products_so() -> None:
    unit = ComputeUnit("u", "matrix", "core", 4, 8, (Dataflow.WEIGHT_STATIONARY,), loads_ahead=True)
    assert best_dataflow(unit, Product(40, 8, 12))[0] == 3 * 40 + 10


@given(EXTENTS, EXTENTS, EXTENTS, SIDES, SIDES, st.lists(st.sampled_from(Dataflow), min_size=1, unique=True))
def test_no_dataflow_of_a_unit_is_faster_than_the_best(
    m: int, n: int, k: int, rows: int, columns: int, dataflows: list[Dataflow]
) -> None:
    unit, product = ComputeUnit("u", "matrix", "core", rows, columns, tuple(dataflows)), Product(m, n, k)
    cycles, best = best_dataflow(unit, product)
    both = product, Product(n, m, k)
    assert cycles in {SystolicArray(rows, columns, best).cycles(each) for each in both}
    assert cycles == min(SystolicArray(rows, columns, flow).cycles(each) for flow in dataflows for each in both)


@pytest.mark.parametrize("dataflow", Dataflow)
def test_integers_of_8_bits_have_a_shorter_reduction(dataflow: Dataflow) -> None:
    unit = ComputeUnit("u", "matrix", "core", 4, 8, (dataflow,), int8=2)
    assert best_dataflow(unit, Product(40, 48, 31, eight_bits=True)) == best_dataflow(unit, Product(40, 48, 16))
    assert best_dataflow(unit, Product(40, 48, 31))[0] > best_dataflow(unit, Product(40, 48, 16))[0]


@pytest.mark.parametrize(
    ("product", "best"),
    [(Product(4, 8, 999), "os"), (Product(999, 8, 4), "ws"), (Product(8, 999, 4), "ws")],
)
def test_the_longest_extent_is_streamed_transposed_where_that_helps(product: Product, best: str) -> None:
    unit = ComputeUnit("u", "matrix", "core", 4, 8, tuple(Dataflow))
    assert best_dataflow(unit, product)[1] == Dataflow(best)


@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 1, 1), (4, 8, 5), (8, 4, 1), (3, 3, 16)])
def test_output_stationary_as_an_array_of_cells(rows: int, columns: int, depth: int) -> None:
    random = np.random.default_rng(1)
    left, right = random.integers(-9, 9, (rows, depth)), random.integers(-9, 9, (depth, columns))
    cycles = SystolicArray(rows, columns).cycles(Product(rows, columns, depth))
    assert (_cells(left, right, cycles) == left @ right).all()
    if cycles > 1:
        assert _busy_in(left, right, cycles - 1)


def _cells(left: np.ndarray, right: np.ndarray, cycles: int) -> np.ndarray:
    """What an array has accumulated: operands enter at the left and top edge, skewed by one cycle a row or column."""
    (rows, depth), columns = left.shape, right.shape[1]
    sums, across, down = (np.zeros((rows, columns), int) for _ in range(3))
    for cycle in range(cycles):
        across, down = np.roll(across, 1, axis=1), np.roll(down, 1, axis=0)
        across[:, 0] = [left[r, cycle - r] if 0 <= cycle - r < depth else 0 for r in range(rows)]
        down[0, :] = [right[cycle - c, c] if 0 <= cycle - c < depth else 0 for c in range(columns)]
        sums += across * down
    return sums


def _busy_in(left: np.ndarray, right: np.ndarray, cycle: int) -> bool:
    """Whether the last cell still accumulates in that cycle."""
    ones = np.ones_like(left), np.ones_like(right)
    return bool((_cells(*ones, cycle + 1) != _cells(*ones, cycle)).any())
