"""Task decomposition across clusters (GraphTurbo, OSDI 2023, sections 2.1 and 5.1, Table 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...base.errors import DsaError


@dataclass(frozen=True)
class Allocation:
    """`clusters` process `per_cluster` samples each, `iterations` times over."""

    iterations: int
    clusters: int
    per_cluster: int

    @property
    def batch(self) -> int:
        """Samples in all."""
        return self.iterations * self.clusters * self.per_cluster


def allocations(batch: int, clusters: int) -> Iterator[Allocation]:
    """All ways to share a batch evenly, the fewest iterations first. As many clusters work as divide the batch.

    Raises DsaError if the batch is not divisible by the clusters, unless it is smaller.
    """
    if batch < 1 or (batch % clusters and batch > clusters):
        raise DsaError(f"batch {batch}: not divisible over {clusters} clusters; use a multiple of {clusters}")
    busy = min(batch, clusters)
    share = batch // busy
    yield from (Allocation(n, busy, share // n) for n in range(1, share + 1) if share % n == 0)
