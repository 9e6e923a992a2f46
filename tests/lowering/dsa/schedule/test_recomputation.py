"""What overlapping instances compute twice, against what they save."""

from __future__ import annotations

import pytest

from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.network.subgraphs import sub_graph
from eqfuse.lowering.dsa.schedule.grouping import Recomputation, recomputation
from eqfuse.lowering.dsa.schedule.pieces import Pieces

from ..graphs import Builder, accelerator


def pair(factors: tuple[int, ...]) -> Recomputation:
    """Two 3 x 3 convolutions of 2 x 8 x 16 x 16."""
    builder = Builder()
    x = builder.value((2, 8, 16, 16))
    y = builder.conv(builder.conv(x, 8, 3), 8, 3)
    network = Network(builder.graph(y))
    cut = Pieces(network, sub_graph(network, builder.layers), factors)
    count = len(cut.places)
    return recomputation(network, cut.subgraph, accelerator(1 << 16), cut.needs(cut.samples[0]), count)


def test_a_batch_is_computed_once() -> None:
    assert pair((2, 1, 1, 1)).spent == 0


def test_rows_under_windows_are_computed_twice() -> None:
    """Four parts of four rows need six rows each of the first convolution, which is half its work again."""
    flops = 2 * (8 * 3 * 3) * 2 * 8 * 16 * 16
    assert pair((1, 1, 4, 1)).spent == pytest.approx(flops / 2 / (2 * accelerator(1).peak_macs), rel=0.01)


def test_saved_is_a_write_and_a_read_of_each_intermediate_tensor() -> None:
    device = accelerator(1 << 16)
    assert pair((2, 1, 1, 1)).saved == 2 * (2 * 2 * 8 * 16 * 16) / device.global_bandwidth


def test_it_is_excessive_once_it_takes_longer_than_it_saves() -> None:
    assert Recomputation(2.0, 1.0).is_excessive
    assert not Recomputation(1.0, 1.0).is_excessive
