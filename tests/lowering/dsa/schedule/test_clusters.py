"""Task decomposition across clusters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.schedule.clusters import Allocation, Round, allocation_of, allocations

BATCHES, CLUSTERS = st.integers(1, 300), st.integers(1, 9)


@pytest.mark.parametrize(("batch", "each"), [(8, 2), (16, 4), (32, 8), (64, 16), (12, 3), (1024, 256)])
def test_one_iteration_gives_each_of_four_clusters_its_share(batch: int, each: int) -> None:
    """As in Tables 1 and 2."""
    assert next(iter(allocations(batch, 4))) == Allocation.even(1, 4, each)


def test_an_even_batch_is_shared_evenly_in_every_iteration() -> None:
    assert list(allocations(64, 4)) == [Allocation.even(n, 4, 16 // n) for n in (1, 2, 4, 8, 16)]


def test_a_small_batch_leaves_clusters_idle() -> None:
    assert list(allocations(3, 4)) == [Allocation.even(1, 3, 1)]


def test_an_uneven_batch_is_shared_in_one_iteration_or_has_one_for_the_rest() -> None:
    assert list(allocations(6, 4)) == [
        Allocation((Round(1, (2, 2, 1, 1)),)),
        Allocation((Round(1, (1, 1, 1, 1)), Round(1, (1, 1)))),
    ]


@given(BATCHES, CLUSTERS)
def test_every_allocation_processes_the_batch(batch: int, clusters: int) -> None:
    assert {each.batch for each in allocations(batch, clusters)} == {batch}


@given(BATCHES, CLUSTERS)
def test_no_cluster_processes_two_samples_more_than_another(batch: int, clusters: int) -> None:
    for allocation in allocations(batch, clusters):
        each = [0] * clusters
        for part in allocation.rounds:
            for cluster, share in enumerate(part.shares):
                each[cluster] += part.times * share
        assert max(each) - min(each) <= 1


@given(BATCHES, CLUSTERS)
def test_clusters_that_work_have_samples(batch: int, clusters: int) -> None:
    for allocation in allocations(batch, clusters):
        for part in allocation.rounds:
            assert part.times >= 1
            assert 1 <= len(part.shares) <= clusters
            assert min(part.shares) >= 1


@given(BATCHES, CLUSTERS, st.data())
def test_shares_of_a_given_size_process_the_batch(batch: int, clusters: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, batch))
    allocation = allocation_of(batch, clusters, size)
    shares = [share for part in allocation.rounds for share in part.shares * part.times]
    assert allocation.batch == batch
    assert shares[:-1] == [size] * (len(shares) - 1)
    assert allocation.clusters <= clusters


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(DsaError, match="batch 0: must be at least 1"):
        list(allocations(0, 4))


def test_shares_larger_than_the_batch_are_refused() -> None:
    with pytest.raises(DsaError, match="batch 2: has no 3 samples for a program"):
        allocation_of(2, 4, 3)
