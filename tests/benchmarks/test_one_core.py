"""Layers on an accelerator with one core, as comparisons with other simulators run them."""

from __future__ import annotations

import pytest

from eqfuse.benchmarks.accelerators.one_core import Core, layer, simulated
from eqfuse.costmodels.dsa_device import Dataflow
from eqfuse.costmodels.systolic import Product, best_dataflow

PRODUCT = Product(64, 96, 64)
WORDS = 3 * 64 * 1024


def test_a_layer_moves_each_element_once() -> None:
    assert simulated(layer(PRODUCT), Core(WORDS, 10)).moved == 64 * 64 + 64 * 96 + 64 * 96


@pytest.mark.parametrize("dataflow", Dataflow)
def test_a_layer_takes_the_cycles_of_its_array_and_more(dataflow: Dataflow) -> None:
    core = Core(WORDS, 10, dataflow)
    ours = simulated(layer(PRODUCT), core)
    assert ours.computing == best_dataflow(core.array, PRODUCT)[0]
    assert ours.total > ours.computing


def test_an_array_that_loads_ahead_computes_a_layer_in_less_time() -> None:
    cores = (Core(WORDS, 10, Dataflow.WEIGHT_STATIONARY, ahead) for ahead in (True, False))
    with_two, with_one = (simulated(layer(PRODUCT), core) for core in cores)
    assert with_two.computing < with_one.computing
