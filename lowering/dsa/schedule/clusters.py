"""Task decomposition across clusters (GraphTurbo, OSDI 2023, sections 2.1 and 5.1, Table 1), and of uneven batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...base.errors import DsaError


@dataclass(frozen=True)
class Round:
    """Clusters process `shares` of samples at once, each its own, `times` over; the others are idle."""

    times: int
    shares: tuple[int, ...]

    @property
    def samples(self) -> int:
        """Samples in all."""
        return self.times * sum(self.shares)


@dataclass(frozen=True)
class Allocation:
    """Rounds that process a batch, one after another."""

    rounds: tuple[Round, ...]

    @classmethod
    def even(cls, iterations: int, clusters: int, per_cluster: int) -> Allocation:
        """`clusters` process `per_cluster` samples each, `iterations` times over."""
        return cls((Round(iterations, (per_cluster,) * clusters),))

    @property
    def batch(self) -> int:
        """Samples in all."""
        return sum(each.samples for each in self.rounds)

    @property
    def iterations(self) -> int:
        """How many times the clusters work."""
        return sum(each.times for each in self.rounds)

    @property
    def clusters(self) -> int:
        """The most clusters that work at once."""
        return max(len(each.shares) for each in self.rounds)

    @property
    def per_cluster(self) -> int:
        """The most samples that a cluster processes at once."""
        return max(max(each.shares) for each in self.rounds)

    @property
    def programs(self) -> tuple[tuple[int, int], ...]:
        """The distinct programs, as the samples of each and the number of clusters that work at once."""
        return tuple(dict.fromkeys((share, len(each.shares)) for each in self.rounds for share in each.shares))

    def __str__(self) -> str:
        """``12: 2 iteration(s) x 4 cluster(s) x 1 sample(s) + 2 cluster(s) x 2 sample(s)``."""
        return f"{self.batch}: " + " + ".join(map(_round_text, self.rounds))


def _round_text(each: Round) -> str:
    counts = {share: each.shares.count(share) for share in dict.fromkeys(each.shares)}
    shares = " and ".join(f"{count} cluster(s) x {share} sample(s)" for share, count in counts.items())
    return f"{each.times} iteration(s) x {shares}"


def allocations(batch: int, clusters: int) -> Iterator[Allocation]:
    """Ways to share a batch, the fewest iterations first. In all, clusters process numbers of samples that differ by at
    most one: if the batch is not divisible, some process one sample more in the last iteration, or one more in another.

    Raises DsaError for a batch of less than one sample.
    """
    if batch < 1:
        raise DsaError(f"batch {batch}: must be at least 1")
    share, rest = divmod(batch, clusters)
    if share == 0:
        yield Allocation.even(1, rest, 1)
    for count in (n for n in range(1, share + 1) if share % n == 0):
        each = share // count
        even, alone = Round(count, (each,) * clusters), Round(1, (1,) * rest)
        if rest == 0:
            yield Allocation((even,))
            continue
        uneven = Round(1, (each + 1,) * rest + (each,) * (clusters - rest))
        fewer = Round(count - 1, even.shares)
        yield Allocation((fewer, uneven) if fewer.times else (uneven,))
        yield Allocation((even, alone))


def allocation_of(batch: int, clusters: int, per_cluster: int) -> Allocation:
    """Shares of `per_cluster` samples, of which the last has what is left. Raises DsaError if the batch is smaller."""
    if not 1 <= per_cluster <= batch:
        raise DsaError(f"batch {batch}: has no {per_cluster} samples for a program")
    iterations, left = divmod(batch, clusters * per_cluster)
    full = Round(iterations, (per_cluster,) * clusters)
    whole, rest = divmod(left, per_cluster)
    last = Round(1, (per_cluster,) * whole + (rest,) * bool(rest))
    return Allocation(tuple(each for each in (full, last) if each.samples))
