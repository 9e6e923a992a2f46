"""Kernels that are made up: the options of their sites, what they are estimated to cost, and what they really take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from eqfuse.lowering.base.decisions import DecisionSite, Trace
from eqfuse.lowering.tuning.cost_model import AnalyticModel, CostModel, Learner, features_of
from eqfuse.lowering.tuning.evolution import TaskSearch
from eqfuse.lowering.tuning.records import Record, RecordDatabase

FEATURES = {"operations": 1e6, "bytes": 2e5}
DEVICE, RUNNER, VERSIONS = "host/1", "local", "{}"
BATCH = 8


@dataclass(frozen=True)
class Landscape:
    """`effects`: by site and option, the logarithm of the factor of the latency; `estimates`: of its cost.

    `clashes`: (site, option, site, option, logarithm) for pairs that multiply it once more. `noise`: its deviation.
    """

    effects: Sequence[Sequence[float]]
    estimates: Sequence[Sequence[float]]
    clashes: Sequence[tuple[int, int, int, int, float]] = ()
    noise: float = 0.0
    scale: float = 1e-3

    def trace(self, decisions: Mapping[str, str]) -> tuple[DecisionSite, ...]:
        """What a rule with these sites does."""
        trace = Trace(decisions)
        for index, logarithms in enumerate(self.estimates):
            costs = [math.exp(logarithm) for logarithm in logarithms]
            trace.decide_number(f"s{index}", range(len(costs)), costs.__getitem__)
        return tuple(trace.sites)

    def latency(self, trace: Sequence[DecisionSite], random: Random | None = None) -> float:
        chosen = {site.name: int(site.option.label) for site in trace}
        taken = [chosen.get(f"s{index}", 0) for index in range(len(self.effects))]
        total = sum(effects[option] for effects, option in zip(self.effects, taken, strict=True))
        total += sum(cost for a, i, b, j, cost in self.clashes if taken[a] == i and taken[b] == j)
        return self.scale * math.exp(total + (random.gauss(0, self.noise) if random else 0.0))


def landscape(
    seed: int, sites: int = 6, options: int = 8, *, error: float = 0.4, clashes: int = 0, noise: float = 0.0
) -> Landscape:
    """One whose estimates are wrong by `error`; all options are within the limit for estimates."""
    random = Random(seed)
    effects = [[random.uniform(0, 0.8) for _ in range(options)] for _ in range(sites)]
    estimates = [[(1 - error) * own + error * random.uniform(0, 0.8) for own in row] for row in effects]
    pairs = [random.sample(range(sites), 2) for _ in range(clashes)]
    interactions = [
        (a, random.randrange(options), b, random.randrange(options), random.choice((-0.4, 0.8))) for a, b in pairs
    ]
    return Landscape(effects, estimates, interactions, noise)


def record(
    trace: Sequence[DecisionSite], decisions: Mapping[str, str], latency: float | None, task: str = "task"
) -> Record:
    return Record(task, DEVICE, RUNNER, VERSIONS, decisions, latency, features=features_of(FEATURES, trace))


def run_search(world: Landscape, trials: int, seed: int, model: CostModel | None = None) -> float:
    """The real latency of the best candidate of a search; it learns as it goes unless it is given a model."""
    random, learner, search = Random(seed), Learner(), TaskSearch(FEATURES)
    tried = 0
    while tried < trials:
        batch = search.propose(min(BATCH, trials - tried), model or learner.model, random)
        if not batch:
            break
        records = [measure(search, world, decisions, random) for decisions in batch]
        tried += len(records)
        if model is None:
            learner.learn(records)
    assert search.best is not None
    return world.latency(world.trace(search.best[0]))


def measure(search: TaskSearch, world: Landscape, decisions: Mapping[str, str], random: Random) -> Record:
    """Build and measure a candidate, and tell the search."""
    trace = world.trace(decisions)
    latency = world.latency(trace, random)
    search.observe(decisions, trace, latency)
    return record(trace, decisions, latency)


def resume(world: Landscape, database: RecordDatabase, batches: int, seed: int) -> list[Mapping[str, str]]:
    """Resume from the database, and keep every batch there; what was tried. The estimates are believed."""
    search, random = TaskSearch(FEATURES, database.of("task", DEVICE, RUNNER, VERSIONS)), Random(seed)
    wanted = search.wanted_trace
    if wanted is not None:
        search.observe_trace(wanted, world.trace(wanted))
    tried: list[Mapping[str, str]] = []
    for _ in range(batches):
        batch = search.propose(8, AnalyticModel(), random)
        database.add(*(measure(search, world, decisions, random) for decisions in batch))
        tried += batch
    return tried


def random_search(world: Landscape, trials: int, seed: int) -> float:
    """The real latency of the best of `trials` different candidates that are drawn; the analytic one is among them."""
    random = Random(seed)
    seen: dict[tuple[int, ...], float] = {}
    sites = world.trace({})
    candidates: list[Mapping[str, str]] = [{}]
    while len(seen) < trials:
        trace = world.trace(candidates.pop())
        seen.setdefault(tuple(site.chosen for site in trace), world.latency(trace, random))
        best = min(seen, key=seen.__getitem__)
        candidates.append({site.name: random.choice(site.options).label for site in sites})
    return world.latency([DecisionSite(s.name, s.options, k) for s, k in zip(sites, best, strict=True)])
