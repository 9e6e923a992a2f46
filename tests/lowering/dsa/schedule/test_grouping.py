"""Algorithm 2: patterns, rules and the sub-graphs that come out."""

from __future__ import annotations

import pytest

from eqfuse.costmodels.dsa_device import load_dsa_device
from eqfuse.lowering.base.choices import UpSampling
from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.program.instructions import Level
from eqfuse.lowering.dsa.schedule.grouping import (
    Quotient,
    Rank,
    branches,
    diamonds,
    group,
    rule_one,
    rule_two,
    straights,
)

from ..graphs import HALVING_LOCAL_BYTES, Builder, accelerator, block, halving_stages, resnet50

LB, GB = Level.LB, Level.GB


def test_figure_4a_is_straight() -> None:
    assert list(straights(Quotient({1: [2], 2: []}))) == [(1, 2)]


@pytest.mark.parametrize("edges", [{1: [2, 3], 2: [], 3: []}, {1: [3], 2: [3], 3: []}])
def test_a_fork_or_a_join_is_not_straight(edges: dict[int, list[int]]) -> None:
    assert list(straights(Quotient(edges))) == []


def test_figure_4b_is_a_diamond_with_connections_at_its_ends() -> None:
    graph = Quotient({0: [1], 1: [2, 3, 5], 2: [4], 3: [4], 4: [6, 7], 5: [], 6: [], 7: []})
    assert list(diamonds(graph)) == [(2, 3, 4)]


def test_a_direct_edge_is_a_path_of_a_diamond() -> None:
    assert list(diamonds(Quotient({1: [2, 3], 2: [3], 3: []}))) == [(2, 3)]


def test_a_way_out_of_the_inside_makes_no_diamond() -> None:
    assert list(diamonds(Quotient({1: [2, 3], 2: [4, 5], 3: [4], 4: [], 5: []}))) == []


def test_without_an_entry_there_is_no_diamond() -> None:
    assert list(diamonds(Quotient({1: [3], 2: [3], 3: []}))) == []


def test_figure_4c_is_a_branch() -> None:
    """SG1 may be a producer of SG2; the latest producer comes first."""
    assert list(branches(Quotient({1: [2, 3], 2: [3], 3: []}))) == [(2, 3)]
    assert list(branches(Quotient({1: [3], 2: [3], 3: []}))) == [(2, 3), (1, 3)]


def test_merged_nodes_keep_their_edges() -> None:
    graph = Quotient({1: [2, 3], 2: [4], 3: [4], 4: [5], 5: []})
    assert graph.merge((2, 3, 4)) == 4
    assert graph.consumers == {1: {4}, 4: {5}, 5: set()}
    assert graph.producers == {1: set(), 4: {1}, 5: {4}}


@pytest.mark.parametrize(
    ("first", "second", "merged", "allowed"),
    [
        ((LB, 4), (LB, 4), (LB, 4), True),
        ((LB, 2), (LB, 4), (LB, 4), True),
        ((LB, 8), (LB, 4), (LB, 4), False),  # the first precondition: down-sampling
        ((LB, 4), (LB, 4), (LB, 8), False),  # the second: LB would be used worse
        ((GB, 1), (GB, 1), (GB, 1), False),  # nothing that does not fit LB
    ],
)
def test_rule_one(first: Rank, second: Rank, merged: Rank, allowed: bool) -> None:
    assert rule_one(first, second, merged) is allowed


def test_rule_one_is_turned_around_for_up_sampling() -> None:
    assert rule_one((LB, 8), (LB, 4), (LB, 8), up_sampling=True)
    assert not rule_one((LB, 4), (LB, 8), (LB, 8), up_sampling=True)
    assert not rule_one((LB, 8), (LB, 4), (LB, 16), up_sampling=True)


def test_rule_two_bounds_the_factor_by_the_largest() -> None:
    assert rule_two([(LB, 1), (LB, 4), (LB, 2)], (LB, 4))
    assert not rule_two([(LB, 1), (LB, 4), (LB, 2)], (LB, 8))


def test_stages_that_halve_their_tensor_stay_apart() -> None:
    builder, result = halving_stages()
    groups = group(Network(builder.graph(result)), builder.layers, accelerator(HALVING_LOCAL_BYTES))
    assert [g.split.factor for g in groups] == [8, 4, 2, 1]


def test_figure_5_the_blocks_become_one() -> None:
    """A conv block and an identity block that follows."""
    builder = Builder()
    x = builder.value((8, 64, 16, 16))
    y = block(builder, block(builder, x, 16, shortcut=True), 16)
    groups = group(Network(builder.graph(y)), builder.layers, accelerator(1 << 18))
    assert [len(g.subgraph.layers) for g in groups] == [len(builder.layers)]
    assert groups[0].split.path == (0,)


def test_figure_3_resnet_50_becomes_its_four_stages() -> None:
    builder, result = resnet50(8)
    groups = group(Network(builder.graph(result)), builder.layers, load_dsa_device("stcp920-1mb"))
    assert [g.split.factor for g in groups] == [8, 4, 2, 1]
    assert all(g.split.path == (0,) for g in groups)


def doubling_stages() -> tuple[Builder, int]:
    """Three stages, each of which doubles rows and columns: 4, 8, 16 of each and 8 images."""
    builder = Builder()
    x = builder.value((8, 8, 4, 4))
    for _ in range(3):
        x = builder.relu(builder.resize(x, 2), joined=True)
    return builder, x


def test_small_stages_are_not_split_like_the_large_ones_that_follow() -> None:
    builder, result = doubling_stages()
    network, device = Network(builder.graph(result)), accelerator(2 * 8 * 16 * 16 * 8)
    plain = group(network, builder.layers, device, up_sampling="nowhere")
    up = group(network, builder.layers, device, up_sampling="everywhere")
    assert [g.split.factor for g in plain] == [8]
    assert [g.split.factor for g in up] == [1, 2, 8]


def test_the_part_of_a_network_that_samples_up_is_detected() -> None:
    """Stages halve the maps, others double them again: the rule is turned around for the latter alone."""
    builder, middle = halving_stages()
    small = builder.relu(builder.conv(middle, 8, kernel=1))
    result = builder.relu(builder.resize(builder.relu(builder.resize(small, 2), joined=True), 2), joined=True)
    network, device = Network(builder.graph(result)), accelerator(HALVING_LOCAL_BYTES)

    def factors(up_sampling: UpSampling) -> list[int]:
        return [g.split.factor for g in group(network, builder.layers, device, up_sampling=up_sampling)]

    assert factors("detect") == [8, 4, 2, 1, 2, 8]
    assert factors("everywhere") == factors("nowhere") == [8]


def test_layers_that_are_no_partition_are_refused() -> None:
    builder, result = halving_stages()
    network = Network(builder.graph(result))
    with pytest.raises(DsaError, match="the layers hold 2 operators, not each of 4 once"):
        group(network, [(0,), (1,)], accelerator(1 << 16))
