"""The cheapest partition into kernels that can be found for one graph, and the partitions with which it is compared.

The candidates are the baselines (FuseOps, DNNFusion's plan, AGO's clusters), each divided into kernels, and the kernels
of the whole graph (templates/kernels.py). Kernels of which one reads from the other are merged while that is cheaper.
The cheapest candidate is partitioned again, window by window, with proofs (windows.py), and its kernels are merged once
more. So the result never costs more than any of the baselines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from ....engine.choices import PartitionMethod
from ....ir.graph import OperatorGraph
from ....support.deadlines import is_over, seconds_left
from ..baselines.clustering import cluster
from ..baselines.fuse_ops import DEFAULT_LIMITS, FuseOpsLimits, fuse_ops
from ..baselines.fusion_plan import fusion_plan
from ..contraction import Contraction
from ..groups import Partition, partition_of, unfused
from ..structure import structure
from ..templates.kernels import KernelModel
from .windows import Allowed, Improvement, Limits, improve

_WINDOW = Limits(groups=6, operators=24, largest=16, sets=2_000)


@dataclass(frozen=True)
class SearchResult:
    """A partition, its cost in seconds, the costs of the tried baselines, and the proofs of the windows.

    `bound` is proven too: no partition of this graph costs less under the model of kernels.
    """

    partition: Partition
    cost: float
    baselines: Mapping[str, float]
    improvement: Improvement | None
    bound: float


def partition_by(
    method: PartitionMethod,
    graph: OperatorGraph,
    model: KernelModel,
    time_limit: float = 10.0,
    limits: FuseOpsLimits = DEFAULT_LIMITS,
) -> Partition:
    """The partition of `graph` by one method; `time_limit` is for the search of ``joint``, `limits` for ``fuseops``."""
    if method == "fuseops":
        return fuse_ops(graph, limits)
    if method != "joint":
        return _BASELINES[method](graph, model)
    deadline = time.monotonic() + time_limit
    return refine_partition(search_partition(graph, model, deadline), model, seconds_left(deadline)).partition


def search_partition(graph: OperatorGraph, model: KernelModel, deadline: float = inf) -> SearchResult:
    """The cheapest of the baselines and of the kernels of the whole graph, each with kernels merged.

    After the deadline (time.monotonic) no further one is made, except FuseOps, which takes no time.
    """
    starts: dict[str, Partition] = {}
    candidates = []
    for name, method in {"kernels": _one_group, **_BASELINES}.items():
        if is_over(deadline):
            break
        starts[name] = method(graph, model)
        candidates.append(merge_groups(cut_into_kernels(starts[name], model, deadline), model, deadline))
    if is_over(deadline) and "fuseops" not in starts:
        starts["fuseops"] = fuse_ops(graph)
        candidates.append(cut_into_kernels(starts["fuseops"], model))
    best = min(candidates, key=model.partition)
    costs = {name: model.partition(partition) for name, partition in starts.items() if name in _BASELINES}
    return SearchResult(replace(best, method="joint"), model.partition(best), costs, None, model.bound())


def refine_partition(result: SearchResult, model: KernelModel, time_limit: float) -> SearchResult:
    """The partition improved window by window, if there is time; a group is then a kernel or a view."""
    start, improvement = result.partition, None
    best = start
    if time_limit > 0:
        deadline = time.monotonic() + time_limit
        improvement = improve_kernels(start, model, time_limit)
        best = min(start, merge_groups(improvement.partition, model, deadline), key=model.partition)
    best = replace(cut_into_kernels(best, model), method="joint")
    return replace(result, partition=best, cost=model.partition(best), improvement=improvement)


def improve_kernels(
    partition: Partition,
    model: KernelModel,
    time_limit: float,
    allowed: Allowed = lambda members: True,
    around: Collection[int] | None = None,
) -> Improvement:
    """Sweep windows over kernels; only over those `around` some operators, if they are given."""
    alike = partial(structure, partition.graph)
    return improve(partition, model.launched, allowed, time_limit, _WINDOW, alike, around)


def cut_into_kernels(partition: Partition, model: KernelModel, deadline: float = inf) -> Partition:
    """The finer partition whose groups are the kernels of each group, and the views, each by itself.

    After the deadline (time.monotonic) operators that no kernel has yet are kernels by themselves.
    """
    parts = (part for members in partition.members for part in model.kernels(members, deadline))
    labels = {member: number for number, part in enumerate(parts) for member in part}
    return partition_of(partition.graph, [labels[m] for m in range(len(labels))], partition.method)


def merge_groups(partition: Partition, model: KernelModel, deadline: float = inf) -> Partition:
    """Merge kernels that read from each other, those that share the most bytes first, as long as that costs no more and
    the deadline (time.monotonic) has not come. A view may become part of a group that it borders on."""
    graph = partition.graph
    groups = Contraction(graph.successors, partition.members)
    edges = [(-graph.output_bytes(p), p, m) for m in range(len(graph)) for p in graph.predecessors[m]]
    for _, source, reader in sorted(edges):
        if is_over(deadline):
            break
        first, second = groups.group(source), groups.group(reader)
        if first == second or not groups.can_merge(first, second):
            continue
        one, other = groups.members(first), groups.members(second)
        if model.launched(tuple(sorted(one + other))) <= model.launched(one) + model.launched(other):
            groups.merge(first, second)
    return partition_of(graph, groups.labels, partition.method)


def _one_group(graph: OperatorGraph, model: KernelModel) -> Partition:
    """The whole graph as one group."""
    return partition_of(graph, [0] * len(graph), "kernels")


_BASELINES: dict[str, Callable[[OperatorGraph, KernelModel], Partition]] = {
    "none": lambda graph, model: unfused(graph),
    "fuseops": lambda graph, model: fuse_ops(graph),
    "dnnfusion": lambda graph, model: fusion_plan(graph, model.device, model.launched),
    "ago": lambda graph, model: cluster(graph),
}
