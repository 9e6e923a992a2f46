"""Weights that are fetched ahead: which products, what is fetched, and that the numbers stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import te

from eqfuse.costmodels.device import load_device
from eqfuse.lowering.schedules import Draft, Scheduled, Trace, mark_constants
from eqfuse.lowering.schedules.contraction import contraction
from eqfuse.lowering.schedules.prefetch import Weights, cycles_with_weights, is_worthwhile
from eqfuse.lowering.target import target_of

DEVICE = load_device("host")


def product(rows: int, depth: int, columns: int) -> Any:
    x = te.placeholder((rows, depth), "float32", "x")
    w = te.placeholder((depth, columns), "float32", "w")
    k = te.reduce_axis((0, depth), "k")
    y = te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), "y")
    return mark_constants(te.create_prim_func([x, w, y]), (1,))


def scheduled(rows: int, depth: int, columns: int, **decisions: str) -> tuple[Scheduled, dict[str, str]]:
    trace = Trace(decisions)
    found = contraction(Draft.of(product(rows, depth, columns), DEVICE, 1, trace))
    assert found is not None
    return found, {site.name: site.option.label for site in trace.sites}


def executed(found: Scheduled, *arrays: Any) -> Any:
    target = tvm.target.Target(target_of("host", 1).description)
    run = tvm.compile(found.schedule.mod, target=target)["main"]
    x, w, y = arrays
    for repack in found.repack:
        w = repack(w)
    result = tvm.runtime.tensor(y)
    run(tvm.runtime.tensor(x), tvm.runtime.tensor(w), result)
    return result.numpy()


def test_many_weights_are_fetched_ahead_by_default() -> None:
    found, decided = scheduled(16, 192, 1152)
    assert decided["prefetch"] == "1"
    assert "prefetch" in found.schedule.mod.script()


def test_few_weights_are_not() -> None:
    found, _ = scheduled(64, 32, 64)
    assert "prefetch" not in found.schedule.mod.script()


def test_a_single_row_waits_for_its_weights_whatever_is_fetched() -> None:
    _, decided = scheduled(1, 512, 1024)
    assert decided.get("prefetch", "0") == "0"


def test_it_can_be_decided_otherwise() -> None:
    found, _ = scheduled(16, 192, 1152, prefetch="0")
    assert "prefetch" not in found.schedule.mod.script()


@pytest.mark.parametrize(("rows", "depth", "columns"), [(16, 192, 1152), (49, 96, 208), (7, 160, 1000)])
def test_the_numbers_are_the_same(rows: int, depth: int, columns: int) -> None:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape, np.float32) for shape in ((rows, depth), (depth, columns)))
    found, _ = scheduled(rows, depth, columns, prefetch="1")
    result = executed(found, x, w, np.zeros((rows, columns), np.float32))
    np.testing.assert_allclose(result, x @ w, rtol=1e-4, atol=1e-4)


@given(st.floats(0, 1e7), st.integers(1, 1 << 24), st.integers(1, 64), st.integers(1, 64))
def test_fetching_ahead_is_estimated_to_be_worth_it_only_where_it_saves(
    computing: float, size: int, tiles: int, rounds: int
) -> None:
    weights = Weights(size, max(1, size // tiles), rounds)
    together = cycles_with_weights(computing, weights, DEVICE)
    assert computing <= together <= computing + weights.far_cycles(DEVICE)
    assert not is_worthwhile(computing, weights, DEVICE) or together < computing + weights.far_cycles(DEVICE)
