"""Task decomposition across clusters."""

from __future__ import annotations

import pytest

from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.schedule.clusters import Allocation, allocations


@pytest.mark.parametrize(("batch", "each"), [(8, 2), (16, 4), (32, 8), (64, 16), (12, 3), (1024, 256)])
def test_one_iteration_gives_each_of_four_clusters_its_share(batch: int, each: int) -> None:
    """As in Tables 1 and 2."""
    assert next(iter(allocations(batch, 4))) == Allocation(1, 4, each)


def test_every_allocation_processes_the_batch() -> None:
    found = list(allocations(64, 4))
    assert [a.per_cluster for a in found] == [16, 8, 4, 2, 1]
    assert {a.batch for a in found} == {64}


def test_a_small_batch_leaves_clusters_idle() -> None:
    assert list(allocations(3, 4)) == [Allocation(1, 3, 1)]


def test_a_batch_that_is_not_divisible_is_refused() -> None:
    with pytest.raises(DsaError, match="batch 10: not divisible over 4 clusters; use a multiple of 4"):
        list(allocations(10, 4))
