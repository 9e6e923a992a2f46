"""Which layout a group prefers, and the table that says why."""

from __future__ import annotations

import pytest

from eqfuse.costmodels.device import DEFAULT, load_device
from eqfuse.costmodels.roofline import kernels, layout_share
from eqfuse.extract.partition.groups import partition_of
from eqfuse.extract.partition.kernels import KernelModel
from eqfuse.extract.partition.layouts.feature_maps import CHANNELS_LAST, PLAIN, Layout
from eqfuse.extract.partition.layouts.preferences import Preference, preferences
from eqfuse.ir.graph import OperatorGraph
from eqfuse.ir.operation import Operation

from ..blocks import conv, linear
from ..graphs import Builder

HOST = load_device(DEFAULT)
BLOCKED = Layout("blocked", 16)


def preference(graph: OperatorGraph) -> Preference:
    """Of the whole graph as one group."""
    return preferences(partition_of(graph, [0] * len(graph), "test"), KernelModel(graph, HOST))[0]


def convolution(kernel: int = 3, group: int = 1, channels: int = 64) -> Builder:
    builder = Builder()
    conv(builder, builder.input(1, channels, 28, 28), channels, kernel, group)
    return builder


@pytest.mark.parametrize(("kernel", "group"), [(3, 1), (1, 1), (3, 64), (3, 4)])
def test_a_convolution_prefers_blocks(kernel: int, group: int) -> None:
    assert preference(convolution(kernel, group).graph()).favourite == BLOCKED


@pytest.mark.parametrize(("kernel", "group"), [(3, 1), (1, 64)])
def test_in_its_favourite_a_group_costs_what_the_model_of_kernels_says(kernel: int, group: int) -> None:
    graph = convolution(kernel, group).graph()
    assert preference(graph).seconds[BLOCKED] == KernelModel(graph, HOST).group((0,))


def test_slower_arithmetic_is_hidden_behind_bytes() -> None:
    """A depthwise 1x1 convolution waits for memory in channels last too."""
    found = preference(convolution(1, 64).graph())
    assert found.seconds[BLOCKED] == found.seconds[CHANNELS_LAST] < found.seconds[PLAIN]


def test_channels_that_fill_no_block_leave_nothing_to_prefer_between_plain_and_blocks() -> None:
    builder = Builder()
    conv(builder, builder.input(1, 3, 28, 28), 3)
    assert BLOCKED not in preference(builder.graph()).seconds


def test_a_matrix_product_is_plain() -> None:
    builder = Builder()
    linear(builder, builder.input(2, 8, 16), 16)
    assert set(preference(builder.graph()).seconds) == {PLAIN}


def test_elementwise_operators_take_any() -> None:
    builder = Builder()
    conv(builder, builder.op("Relu", builder.input(1, 64, 28, 28)), 64)
    graph = builder.graph()
    relu = preferences(partition_of(graph, (0, 1), "test"), KernelModel(graph, HOST))[0]
    assert set(relu.seconds) == {PLAIN, CHANNELS_LAST, BLOCKED}
    assert len(set(relu.seconds.values())) == 1


def test_the_operator_with_most_arithmetic_dominates() -> None:
    builder = convolution()
    builder.op("Relu", builder.graph().operators[0].outputs[0])
    assert preference(builder.graph()).dominant == 0


def test_the_shares_are_no_kernels() -> None:
    assert all(kernel.unit != "layout" for kernel in kernels().values())


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("layout", ["plain", "channels_last"])
def test_shares_are_shares(op: str, layout: str) -> None:
    assert 0.0 < layout_share(Operation.of(op, {}, (), None), layout) <= 1.0


def test_what_has_no_share_runs_as_fast_in_any_layout() -> None:
    assert layout_share(Operation.of("Relu", {}, (), None), "plain") == 1.0
