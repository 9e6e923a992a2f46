"""How balanced a partition is: the figures of AGO's Fig. 14 (Xu et al., INFOCOM 2023, section VI.B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, log2
from statistics import median

from eqfuse.extract.partition.baselines.weights import weights as operator_weights
from eqfuse.extract.partition.groups import Partition

TRIVIAL = 20.0
"""A sub-graph that weighs less is not worth tuning."""

BINS = 10
"""Bin i holds the weights from 2^i up to 2^(i+1); the first also lighter ones, the last also heavier ones."""


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """Sub-graphs by weight, that of a sub-graph being the sum of those of its operators, Eq. (1).

    `trivial` counts those lighter than `TRIVIAL`; `jain` is Jain's fairness index ``(sum w)^2 / (n sum w^2)``, from
    1/n (one sub-graph has all the weight) to 1 (all weigh the same; also if there are none); `histogram` counts
    them in `BINS` bins of a logarithmic scale.
    """

    count: int
    trivial: int
    total: float
    mean: float
    median: float
    jain: float
    histogram: tuple[int, ...]


def statistics(partition: Partition, weights: Sequence[float] | None = None) -> PartitionStatistics:
    """The figures of `partition`; `weights` of operators replace those of Eq. (1)."""
    weighed = operator_weights(partition.graph) if weights is None else weights
    sums = [fsum(weighed[member] for member in members) for members in partition.members]
    total = fsum(sums)
    return PartitionStatistics(
        count=len(sums),
        trivial=sum(weight < TRIVIAL for weight in sums),
        total=total,
        mean=total / max(1, len(sums)),
        median=median(sums) if sums else 0.0,
        jain=jain(sums),
        histogram=histogram(sums),
    )


def jain(weights: Sequence[float]) -> float:
    """Jain's fairness index; 1 if all are zero or there are none."""
    largest = max(weights, default=0.0)
    if not largest:
        return 1.0
    shares = [weight / largest for weight in weights]  # the squares of very small weights would lose their digits
    return fsum(shares) ** 2 / (len(shares) * fsum(share * share for share in shares))


def histogram(weights: Sequence[float]) -> tuple[int, ...]:
    """How many weights there are in each bin."""
    counts = [0] * BINS
    for weight in weights:
        counts[min(BINS - 1, int(log2(max(1.0, weight))))] += 1
    return tuple(counts)
