"""What the benchmark of the cost model says, on kernels whose times are made up."""

from __future__ import annotations

from itertools import combinations
from random import Random
from statistics import fmean

import pytest

from eqfuse.benchmarks.cost_model import FEWEST, _by_chance, losses
from eqfuse.lowering.tuning.records import Record

from ..lowering.tuning.landscapes import landscape, record


def measured(task: str, count: int, seed: int) -> list[Record]:
    """Candidates of one of several kernels that are alike, each measured once."""
    world, random = landscape(7, error=0.9), Random(seed)
    found: dict[str, Record] = {}
    while len(found) < count:
        trace = world.trace({f"s{site}": str(random.randrange(8)) for site in range(6)})
        decisions = {site.name: site.option.label for site in trace}
        found.setdefault(str(decisions), record(trace, decisions, world.latency(trace), task))
    return list(found.values())


def test_chance_is_the_mean_over_all_draws() -> None:
    own = measured("a", 6, 0)
    seconds = [each.latency for each in own if each.latency is not None]
    expected = fmean(min(drawn) for drawn in combinations(seconds, 3)) / min(seconds)
    assert _by_chance(own, 3) == pytest.approx(expected)


def test_trees_that_learned_from_kernels_alike_beat_estimates_that_are_wrong() -> None:
    records = [*measured("a", 60, 1), *measured("b", 60, 2), *measured("c", 60, 3)]
    (found,) = losses(records, [4]).values()
    assert len(found) == 3
    assert all(1.0 <= loss.learned < min(loss.estimates, loss.chance) for loss in found)


def test_kernels_with_few_candidates_are_not_judged() -> None:
    assert losses(measured("a", FEWEST - 1, 1), [1]) == {1: []}
