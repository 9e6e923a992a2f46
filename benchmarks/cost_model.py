"""What the learned cost model of the search knows about kernels that it never saw, from a database of measurements.

    python benchmarks/cost_model.py                       # the user's tuning database
    python benchmarks/cost_model.py some/tuning.db --top 8

Of each kernel with enough candidates all records are taken away, the trees learn from the others, and put its
candidates in an order; the best of the first few, as measured, is held against the best of all. Beside it the same for
the order of the schedule rules' own estimates, and for what a random order gives in expectation. Records of the
device and runner with the most are used; a kernel under other versions is judged apart.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from eqfuse.lowering.tuning.cost_model import AnalyticModel, CostModel, Learner
from eqfuse.lowering.tuning.records import Record, RecordDatabase

FEWEST = 16
"""Candidates of a kernel that is judged."""


@dataclass(frozen=True)
class Loss:
    """How many times as slow as the best of a kernel's candidates the best of the first few is, by who orders them."""

    learned: float
    estimates: float
    chance: float


def records_of(path: Path | None) -> list[Record]:
    """Those of the device and runner with the most, the oldest first."""
    found = RecordDatabase.open(path).all()
    if not found:
        raise SystemExit("no records: run `eqfuse tune` first, or name another database")
    ((place, _),) = Counter((record.device, record.runner) for record in found).most_common(1)
    return [r for r in reversed(found) if (r.device, r.runner) == place and r.latency is not None]


def losses(records: Sequence[Record], tops: Sequence[int]) -> dict[int, list[Loss]]:
    """By how many are the first few, of each kernel with enough candidates."""
    kernels = Counter((record.task, record.versions) for record in records)
    found: dict[int, list[Loss]] = {top: [] for top in tops}
    for task, versions in (kernel for kernel, count in kernels.items() if count >= FEWEST):
        own = [record for record in records if (record.task, record.versions) == (task, versions)]
        model = Learner().learn(record for record in records if record.task != task)
        for top in tops:
            found[top].append(Loss(_loss(own, model, top), _loss(own, AnalyticModel(), top), _by_chance(own, top)))
    return found


def _loss(own: Sequence[Record], model: CostModel, top: int) -> float:
    scores = model.score([record.features for record in own])
    ranked = [latency for _, latency in sorted(zip(scores, _latencies(own), strict=True), key=lambda pair: -pair[0])]
    return min(ranked[:top]) / min(ranked)


def _by_chance(own: Sequence[Record], top: int) -> float:
    """The expected loss of `top` candidates that are drawn: the k-th best is the best of them with this probability."""
    latencies = sorted(_latencies(own))
    draws = math.comb(len(latencies), top)
    chances = [math.comb(len(latencies) - 1 - place, top - 1) / draws for place in range(len(latencies) - top + 1)]
    return sum(p * latency for p, latency in zip(chances, latencies, strict=False)) / latencies[0]


def _latencies(own: Sequence[Record]) -> list[float]:
    return [record.latency for record in own if record.latency is not None]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path, nargs="?")
    parser.add_argument("--top", type=int, nargs="+", default=[1, 4, 8], metavar="N", help="how many are a few")
    options = parser.parse_args()
    records = records_of(options.database)
    print(f"{len(records)} candidates of {len({record.task for record in records})} kernels")
    for top, found in losses(records, options.top).items():
        if not found:
            raise SystemExit(f"no kernel has {FEWEST} candidates: run `eqfuse tune` with more trials")
        means = (geometric_mean([getattr(loss, name) for loss in found]) for name in ("learned", "estimates", "chance"))
        learned, estimates, chance = (f"{mean:.3f}" for mean in means)
        print(f"first {top} of {len(found)} kernels: learned {learned}, estimates {estimates}, by chance {chance}")


if __name__ == "__main__":
    main()
