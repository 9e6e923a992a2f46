"""Task decomposition across clusters (GraphTurbo, OSDI 2023, sections 2.1 and 5.1, Table 1), and of uneven batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...base.errors import DsaError


@dataclass(frozen=True)
class Segment:
    """Layers `first` to `last`, the latter not included, whose results are divided over clusters along an axis; None if
    the first cluster makes them all."""

    first: int
    last: int
    axis: int | None


class Job(NamedTuple):
    """What a program is made for: samples, how many such programs run at once, and the number of clusters that run one
    together, by segments of the network."""

    samples: int
    working: int
    clusters: int = 1
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True)
class Round:
    """Clusters process `shares` of samples at once, each its own, `times` over; the others are idle.

    If `segments` are given, `split` clusters process each share together.
    """

    times: int
    shares: tuple[int, ...]
    split: int = 1
    segments: tuple[Segment, ...] = ()

    @property
    def jobs(self) -> tuple[Job, ...]:
        """What the program of each share is made for."""
        return tuple(Job(share, len(self.shares), self.split, self.segments) for share in self.shares)

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
        return max(len(each.shares) * each.split for each in self.rounds)

    @property
    def per_cluster(self) -> int:
        """The most samples that a cluster processes at once."""
        return max(max(each.shares) for each in self.rounds)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """What the distinct programs are made for."""
        return tuple(dict.fromkeys(job for each in self.rounds for job in each.jobs))

    def __str__(self) -> str:
        """``6: 1 iteration(s) x 4 cluster(s) x 1 sample(s) + 1 iteration(s) x 2 cluster(s) x 1 sample(s)``."""
        return f"{self.batch}: " + " + ".join(map(_round_text, self.rounds))


def _round_text(each: Round) -> str:
    counts = {share: each.shares.count(share) for share in dict.fromkeys(each.shares)}
    shares = " and ".join(f"{count * each.split} cluster(s) x {share} sample(s)" for share, count in counts.items())
    together = f" by {each.split} together" if each.split > 1 else ""
    return f"{each.times} iteration(s) x {shares}{together}"


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
