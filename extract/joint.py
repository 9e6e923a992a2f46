"""Rewriting and fusing together: extraction with fusion-aware prices, in turn with partition.

DNNFusion and AGO rewrite first, or not at all, and then fuse. Here each partition says what every operator costs inside
its kernel; extraction runs again with these prices (costmodels/fused.py), what it chooses is partitioned again, and so
on until nothing improves. The cheapest graph and partition seen are kept, so the result is at most the price of
rewriting and fusing in sequence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..costmodels.device import Device
from ..costmodels.fused import ArithmeticCost, CostKey, FusedCost, cost_key
from ..costmodels.model import CostModel, RooflineCost
from ..ir.graph import OperatorGraph
from ..support.deadlines import is_over, seconds_left
from .partition.groups import Partition, unfused
from .partition.kernels import KernelModel
from .partition.search.methods import Search, refined, search

_ROUNDS = 6
_ENOUGH = 1e-4
"""A round that saves a smaller part than this is the last."""

Chosen = TypeVar("Chosen")
"""Whatever the caller makes of an extraction: a model, say."""


@dataclass(frozen=True)
class Extracted(Generic[Chosen]):
    """What one extraction chose, and its graph of operators."""

    chosen: Chosen
    graph: OperatorGraph


@dataclass(frozen=True)
class JointPrices:
    """Seconds on the device: of the original, of rewriting only, of fusing only, of one after the other, of both
    together.

    `bound` is proven: no graph that the rules reach, however partitioned, costs less under the model of kernels.
    """

    original: float
    rewritten: float
    fused: float
    sequence: float
    joint: float
    bound: float
    rounds: int


@dataclass(frozen=True)
class Joint(Generic[Chosen]):
    """The cheapest graph and partition found; `complete` says whether the search ended before its time did."""

    chosen: Chosen
    search: Search
    prices: JointPrices
    model: KernelModel
    complete: bool


@dataclass
class _State(Generic[Chosen]):
    models: Callable[[OperatorGraph], KernelModel]
    deadline: float
    best: tuple[Extracted[Chosen], Search, KernelModel] | None = None
    seen: list[float] = field(default_factory=list)

    def consider(self, found: Extracted[Chosen]) -> Search:
        """Partition a graph, quickly, and keep it if it is the cheapest so far."""
        model = self.models(found.graph)
        result = search(found.graph, model, self.deadline)
        if self.best is None or result.price < self.best[1].price:
            self.best = found, result, model
        self.seen.append(result.price)
        return result


def joint(
    original: Extracted[Chosen],
    extract: Callable[[CostModel], Extracted[Chosen]],
    lower_bound: Callable[[CostModel], float],
    device: Device,
    time_limit: float,
    models: Callable[[OperatorGraph], KernelModel] | None = None,
) -> Joint[Chosen]:
    """Alternate extraction and partition.

    `extract` chooses a graph by a cost model, `lower_bound` proves what none can be below by one; after `time_limit`
    seconds neither another round nor another window begins; `models` makes the prices of a graph's kernels, by default
    those of the device.
    """
    deadline = time.monotonic() + time_limit
    state: _State[Chosen] = _State(models or (lambda graph: KernelModel(graph, device)), deadline)
    first = extract(RooflineCost(device))  # before all else, so that it has the time that it needs
    fused = state.consider(original)
    alone = unfused_price(original.graph, device)
    sequence = state.consider(first)
    observed: dict[CostKey, float] = {}
    for _ in range(_ROUNDS):
        if is_over(deadline):
            break
        before = state.best[1].price if state.best else 0.0
        state.consider(extract(FusedCost(device, observed)))
        assert state.best is not None
        if observed and state.best[1].price > before * (1 - _ENOUGH):
            break
        observed = observations(state.best[1].partition, state.best[2])
    chosen, found, model = state.best  # type: ignore[misc]
    least = 0.0 if is_over(deadline) else lower_bound(ArithmeticCost(device))
    final = refined(found, model, seconds_left(deadline))
    prices = JointPrices(
        original=alone,
        rewritten=unfused_price(first.graph, device),
        fused=fused.price,
        sequence=sequence.price,
        joint=final.price,
        bound=min(final.price, least + min(device.launch_overhead, device.view_overhead)),
        rounds=len(state.seen) - 2,
    )
    return Joint(chosen.chosen, final, prices, model, not is_over(deadline))


def unfused_price(graph: OperatorGraph, device: Device) -> float:
    """Seconds with a kernel for every operator."""
    return KernelModel(graph, device).partition(unfused(graph))


def observations(partition: Partition, model: KernelModel) -> dict[CostKey, float]:
    """What operators cost in the kernels of a partition, by their `cost_key`; the mean where several have the same."""
    found: dict[CostKey, list[float]] = {}
    for operation, share in zip(partition.graph.operations, model.shares(partition), strict=True):
        found.setdefault(cost_key(operation), []).append(share)
    return {name: _mean(shares) for name, shares in found.items()}


def _mean(shares: Iterable[float]) -> float:
    values = list(shares)
    return sum(values) / len(values)
