"""Algorithm 1 and equation 1."""

from __future__ import annotations

import pytest

from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.network.subgraphs import SubGraph, lifetimes, peak_bytes, structure_of, sub_graph
from eqfuse.lowering.dsa.program.instructions import Level
from eqfuse.lowering.dsa.schedule.grouping import SplitInfo, best_split, factors_to_try, splits_of

from ..graphs import HALVING_LOCAL_BYTES, Builder, accelerator, halving_stages

IMAGE = 2 * 8 * 32 * 8
"""Bytes of one image of the first stage, in float16."""


def stage(number: int) -> tuple[Network, SubGraph]:
    builder, result = halving_stages()
    network = Network(builder.graph(result))
    return network, sub_graph(network, [(number,)])


@pytest.mark.parametrize(("number", "factor"), [(0, 8), (1, 4), (2, 2), (3, 1)])
def test_the_stages_of_figure_3_are_split_into_8_4_2_and_1(number: int, factor: int) -> None:
    best = splits_of(*stage(number), accelerator(HALVING_LOCAL_BYTES))[0]
    assert (best.level, best.factors) == (Level.LB, (factor, 1, 1, 1))
    assert best.info == SplitInfo(1, 1, factor, 0)
    assert best.footprint <= HALVING_LOCAL_BYTES


def test_the_tuples_are_of_all_dimensions_that_suffice() -> None:
    """Of 2 x 8 x 16 x 8: the batch of 2 does not suffice for a quarter; channels, rows and columns do."""
    network, subgraph = stage_of_two()
    found = splits_of(network, subgraph, accelerator(2 * (8 * 32 * 8 + 8 * 16 * 8) * 2 // 4))
    assert [split.path for split in found] == [(1,), (2,), (3,)]
    assert {split.factor for split in found} == {4}


def stage_of_two() -> tuple[Network, SubGraph]:
    builder, result = halving_stages(2)
    network = Network(builder.graph(result))
    return network, sub_graph(network, [(0,)])


def test_line_4_tries_what_divides_cores_first_and_then_every_number() -> None:
    assert list(factors_to_try(16, 8)) == [1, 2, 4, 8, 16]
    assert list(factors_to_try(36, 8)) == [1, 2, 4, 9, 12, 18, 36]
    assert list(factors_to_try(7, 8)) == [1, 7]
    assert list(factors_to_try(1, 8)) == [1]


def test_equation_1_prefers_more_operators_then_smaller_factors_then_outer_dimensions() -> None:
    assert best_split([SplitInfo(1, 2, 8, 1), SplitInfo(1, 3, 16, 2)]) == SplitInfo(1, 3, 16, 2)
    assert best_split([SplitInfo(1, 3, 16, 0), SplitInfo(1, 3, 14, 2)]) == SplitInfo(1, 3, 14, 2)
    assert best_split([SplitInfo(1, 3, 4, 2), SplitInfo(1, 3, 4, 1)]) == SplitInfo(1, 3, 4, 1)
    assert best_split([]) is None


def two_convolutions(kernel: int) -> tuple[Network, SubGraph]:
    builder = Builder()
    x = builder.value((4, 8, 16, 16))
    y = builder.conv(builder.conv(x, 8, 3), 8, kernel)
    network = Network(builder.graph(y))
    return network, sub_graph(network, builder.layers)


def ops_by_dimension(kernel: int) -> dict[int, int]:
    splits = splits_of(*two_convolutions(kernel), accelerator(1 << 20))
    return {split.path[0]: split.ops for split in splits}


def test_a_dimension_splits_the_operators_whose_tensors_move_with_it() -> None:
    """Output channels split the last convolution only, rows also the one before a pointwise convolution."""
    assert ops_by_dimension(1) == {0: 2, 1: 1, 2: 2, 3: 2}


def test_a_dimension_does_not_split_where_windows_overlap() -> None:
    assert ops_by_dimension(3) == {0: 2, 1: 1, 2: 1, 3: 1}


def test_dimensions_are_split_gradually_where_one_does_not_suffice() -> None:
    best = splits_of(*two_convolutions(1), accelerator(2048))[0]
    assert best.path == (0, 2)
    assert best.factors == (4, 1, 8, 1)
    assert best.footprint <= 2048


def test_what_does_not_fit_local_buffers_is_split_for_the_global_one() -> None:
    """All input channels are needed for one pixel: 16 bytes and more in any case."""
    best = splits_of(*two_convolutions(1), accelerator(8, global_buffer=1 << 20))[0]
    assert (best.level, best.factor) == (Level.GB, 1)


def test_what_fits_neither_stays_in_ddr() -> None:
    (only,) = splits_of(*two_convolutions(1), accelerator(8, global_buffer=8))
    assert (only.level, only.factor, only.info) == (Level.DDR, 1, None)


def test_what_would_be_computed_too_often_is_not_split_so() -> None:
    """Output channels split: each instance would compute all of the first convolution again."""
    builder = Builder()
    x = builder.value((1, 512, 2, 2))
    y = builder.conv(builder.conv(x, 512, 1), 4096, 1)
    network = Network(builder.graph(y))
    subgraph = sub_graph(network, builder.layers)
    found = splits_of(network, subgraph, accelerator(10240))
    assert found
    assert all(split.factors[1] == 1 for split in found)


def test_the_peak_counts_what_lives_at_the_same_time() -> None:
    """x and a, then a and b; the constants do not count."""
    network, subgraph = two_convolutions(1)
    boxes = {v: tuple((0, n) for n in network.shapes[v]) for v in subgraph.stored}
    assert peak_bytes(network, lifetimes(network, subgraph), boxes) == 2 * 2 * 4 * 8 * 16 * 16


def test_an_instance_is_as_large_as_what_it_needs() -> None:
    """One image of four, of two tensors."""
    network, subgraph = two_convolutions(3)
    split = next(s for s in splits_of(network, subgraph, accelerator(2 * 2 * 8 * 16 * 16)) if s.path == (0,))
    assert (split.factor, split.footprint) == (4, 2 * 2 * 8 * 16 * 16)


def test_blocks_that_repeat_have_one_structure() -> None:
    """Those of other windows or sizes, or of other layers, have another."""
    builder = Builder()
    x = builder.value((1, 8, 16, 16))
    for kernel in (1, 1, 3):
        x = builder.relu(builder.conv(x, 8, kernel))
    network = Network(builder.graph(builder.relu(builder.conv(builder.pool(x, 2, 2), 8))))
    first, again, wide, smaller, apart = (
        structure_of(network, sub_graph(network, layers))
        for layers in ([(0, 1)], [(2, 3)], [(4, 5)], [(7, 8)], [(0,), (1,)])
    )
    assert first == again
    assert len({first, wide, smaller, apart}) == 4
