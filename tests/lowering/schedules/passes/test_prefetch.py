"""Weights that are fetched ahead: in which products, and that the numbers stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.schedules import Draft, Scheduled, Trace, apply_rule
from eqfuse.lowering.schedules.passes.prefetch import Weights, cycles_with_weights, is_worthwhile
from eqfuse.lowering.schedules.rules.contraction import contraction

from ..functions import HOST, execute, matmul


def schedule(rows: int, depth: int, columns: int, **decisions: str) -> tuple[Scheduled, dict[str, str]]:
    trace = Trace(decisions)
    scheduled = apply_rule(contraction, Draft.of(matmul(rows, depth, columns), HOST, 1, trace))
    assert scheduled is not None
    return scheduled, {site.name: site.option.label for site in trace.sites}


@pytest.mark.parametrize(
    ("sizes", "decisions", "prefetches"),
    [((16, 192, 1152), {}, True), ((16, 192, 1152), {"prefetch": "0"}, False), ((64, 32, 64), {}, False)],
    ids=["many weights", "decided otherwise", "few weights"],
)
def test_weights_are_fetched_ahead(sizes: tuple[int, int, int], decisions: dict[str, str], prefetches: bool) -> None:
    scheduled, taken = schedule(*sizes, **decisions)
    assert ("prefetch" in scheduled.schedule.mod.script()) == prefetches == (taken.get("prefetch", "0") == "1")


def test_a_single_row_waits_for_its_weights_whatever_is_fetched() -> None:
    assert schedule(1, 512, 1024)[1].get("prefetch", "0") == "0"


@pytest.mark.representatives(2)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(16, 192, 1152), (49, 96, 208), (7, 160, 1000)])
def test_the_numbers_are_the_same(rows: int, depth: int, columns: int) -> None:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape, np.float32) for shape in ((rows, depth), (depth, columns)))
    scheduled, _ = schedule(rows, depth, columns, prefetch="1")
    result = execute(scheduled, [x, w, np.zeros((rows, columns), np.float32)])
    np.testing.assert_allclose(result, x @ w, rtol=1e-4, atol=1e-4)


@given(st.floats(0, 1e7), st.integers(1, 1 << 24), st.integers(1, 64), st.integers(1, 64))
def test_fetching_ahead_is_estimated_to_be_worth_it_only_where_it_saves(
    computing: float, size: int, tiles: int, rounds: int
) -> None:
    weights = Weights(size, max(1, size // tiles), rounds)
    together = cycles_with_weights(computing, weights, HOST)
    assert computing <= together <= computing + weights.far_cycles(HOST)
    assert not is_worthwhile(computing, weights, HOST) or together < computing + weights.far_cycles(HOST)
