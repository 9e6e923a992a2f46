"""Rewriting and fusing together: extraction with fusion-aware costs, in turn with partition.

DNNFusion and AGO rewrite first, or not at all, and then fuse. Here each partition gives the cost of every operator
inside its kernel; extraction runs again with these costs (costmodels/fused.py), its graph is partitioned again, and so
on until nothing improves. The cheapest graph and partition seen are kept, so the result costs at most as much as
rewriting and fusing in sequence.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..costmodels.device import Device
from ..costmodels.fused import ArithmeticCost, CostKey, FusedCost, cost_key
from ..costmodels.model import CostModel, RooflineCost
from ..costmodels.scheduled import VIEW_SECONDS
from ..ir.graph import OperatorGraph
from ..support.deadlines import is_over, seconds_left
from .partition.groups import Partition, unfused
from .partition.search.methods import SearchResult, refine_partition, search_partition
from .partition.templates.kernels import KernelModel

_ROUNDS = 6
"""The most rounds of extraction and partition."""
_ENOUGH = 1e-4
"""A round that saves a smaller part than this is the last."""

Chosen = TypeVar("Chosen")
"""The caller's form of an extraction: a model, for instance."""


@dataclass(frozen=True)
class Extracted(Generic[Chosen]):
    """The choice of one extraction, and its graph of operators."""

    chosen: Chosen
    graph: OperatorGraph


@dataclass(frozen=True)
class JointCosts:
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

    def by_name(self) -> list[tuple[str, float]]:
        """The seconds of each way to rewrite and fuse, by the name that people read."""
        return [
            ("original, unfused", self.original),
            ("rewritten only", self.rewritten),
            ("fused only", self.fused),
            ("rewritten, then fused", self.sequence),
            (f"together, after {self.rounds} rounds", self.joint),
            ("lower bound for any rewrite and partition", self.bound),
        ]


@dataclass(frozen=True)
class Joint(Generic[Chosen]):
    """The cheapest graph and partition found; `complete` says whether the search ended before its time did."""

    chosen: Chosen
    search: SearchResult
    costs: JointCosts
    model: KernelModel
    complete: bool


@dataclass(frozen=True)
class _Candidate(Generic[Chosen]):
    """An extraction with the partition of its graph, found quickly, and the model of its cost."""

    extracted: Extracted[Chosen]
    result: SearchResult
    model: KernelModel


def joint(
    original: Extracted[Chosen],
    extract: Callable[[CostModel], Extracted[Chosen]],
    lower_bound: Callable[[CostModel], float],
    device: Device,
    time_limit: float,
    models: Callable[[OperatorGraph], KernelModel] | None = None,
) -> Joint[Chosen]:
    """Alternate extraction and partition.

    `extract` chooses a graph by a cost model, `lower_bound` proves the least cost of any graph by one. After
    `time_limit` seconds neither another round nor another window begins. `models` makes the cost model of a graph's
    kernels, by default that of the device.
    """
    deadline = time.monotonic() + time_limit

    def consider(extracted: Extracted[Chosen]) -> _Candidate[Chosen]:
        model = models(extracted.graph) if models else KernelModel(extracted.graph, device)
        return _Candidate(extracted, search_partition(extracted.graph, model, deadline), model)

    first = extract(RooflineCost(device))  # before all else, so that it has the time that it needs
    candidates = [consider(original), consider(first)]
    best = min(candidates, key=lambda candidate: candidate.result.cost)
    observed: dict[CostKey, float] = {}
    for _ in range(_ROUNDS):
        if is_over(deadline):
            break
        before = best.result.cost
        candidates.append(consider(extract(FusedCost(device, observed))))
        best = min(candidates, key=lambda candidate: candidate.result.cost)
        if observed and best.result.cost > before * (1 - _ENOUGH):
            break
        observed = observe_shares(best.result.partition, best.model)
    least = 0.0 if is_over(deadline) else lower_bound(ArithmeticCost(device))
    final = refine_partition(best.result, best.model, seconds_left(deadline))
    costs = JointCosts(
        original=unfused_cost(original.graph, device),
        rewritten=unfused_cost(first.graph, device),
        fused=candidates[0].result.cost,
        sequence=candidates[1].result.cost,
        joint=final.cost,
        bound=min(final.cost, least + VIEW_SECONDS),
        rounds=len(candidates) - 2,
    )
    return Joint(best.extracted.chosen, final, costs, best.model, not is_over(deadline))


def unfused_cost(graph: OperatorGraph, device: Device) -> float:
    """Seconds with a kernel for every operator."""
    return KernelModel(graph, device).partition(unfused(graph))


def observe_shares(partition: Partition, model: KernelModel) -> dict[CostKey, float]:
    """The cost of operators in the kernels of a partition, by their `cost_key`; the mean if several have the same."""
    shares: dict[CostKey, list[float]] = {}
    for operation, share in zip(partition.graph.operations, model.shares(partition), strict=True):
        shares.setdefault(cost_key(operation), []).append(share)
    return {key: sum(values) / len(values) for key, values in shares.items()}
