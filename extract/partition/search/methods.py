"""The cheapest partition that can be found for one graph, and the partitions by which it is measured.

The candidates are the baselines (FuseOps, DNNFusion's plan, AGO's clusters) and the fused kernels of the whole graph
(kernels.py). Each is made coarser while that is cheaper: two groups of which one reads from the other become one where
the sum of their weights (AGO, Eq. 1) stays below the threshold and no third group lies between. The cheapest is cut
again, window by window, with proofs (windows.py), and made coarser once more. So the result is never dearer than any of
the baselines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from ....engine.choices import PartitionMethod
from ....ir.graph import OperatorGraph
from ....support.deadlines import is_over, seconds_left
from ..baselines.clustering import cluster
from ..baselines.fuse_ops import fuse_ops
from ..baselines.fusion_plan import fusion_plan
from ..contraction import Contraction
from ..groups import Partition, partition_of, unfused
from ..kernels import KernelModel
from .windows import Improvement, Limits, improve

_WINDOW = Limits(groups=6, operators=24, largest=16, sets=2_000)


@dataclass(frozen=True)
class SearchResult:
    """A partition, its price in seconds, those of the baselines looked at, and what the windows proved.

    `bound` is proven too: no partition of this graph costs less under the model of kernels.
    """

    partition: Partition
    price: float
    baselines: Mapping[str, float]
    improvement: Improvement | None
    bound: float


def partition_by(
    method: PartitionMethod, graph: OperatorGraph, model: KernelModel, time_limit: float = 10.0
) -> Partition:
    """The partition of `graph` by one method; `time_limit` is for the search of ``joint``."""
    if method != "joint":
        return _BASELINES[method](graph, model)
    deadline = time.monotonic() + time_limit
    return refine_partition(search_partition(graph, model, deadline), model, seconds_left(deadline)).partition


def search_partition(graph: OperatorGraph, model: KernelModel, deadline: float = inf) -> SearchResult:
    """The cheapest of the baselines and of the kernels of the whole graph, each made coarser.

    After the deadline (time.monotonic) no further one is made; FuseOps, which takes no time, where it is over already.
    """
    starts: dict[str, Partition] = {"fuseops": fuse_ops(graph)} if is_over(deadline) else {}
    candidates = list(starts.values())
    for name, method in {"kernels": _kernels, **_BASELINES}.items():
        if is_over(deadline):
            break
        starts[name] = method(graph, model)
        candidates.append(merge_groups(starts[name], model, deadline))
    best = min(candidates, key=model.partition)
    prices = {name: model.partition(partition) for name, partition in starts.items() if name in _BASELINES}
    return SearchResult(replace(best, method="joint"), model.partition(best), prices, None, model.bound())


def refine_partition(result: SearchResult, model: KernelModel, time_limit: float) -> SearchResult:
    """The partition cut again, window by window; the same with a `time_limit` of 0."""
    if time_limit <= 0:
        return result
    start = result.partition
    deadline = time.monotonic() + time_limit
    improvement = improve(start, model.group, model.is_allowed, time_limit, _WINDOW, partial(structure, start.graph))
    best = min(start, merge_groups(improvement.partition, model, deadline), key=model.partition)
    price = model.partition(best)
    return replace(result, partition=replace(best, method="joint"), price=price, improvement=improvement)


def merge_groups(partition: Partition, model: KernelModel, deadline: float = inf) -> Partition:
    """Merge groups that read from each other, those that share the most bytes first, as long as that is cheaper and the
    deadline (time.monotonic) has not come."""
    graph = partition.graph
    groups = Contraction(graph.successors, partition.members)
    edges = [(-graph.output_bytes(p), p, m) for m in range(len(graph)) for p in graph.predecessors[m]]
    for _, source, reader in sorted(edges):
        if is_over(deadline):
            break
        first, second = groups.group(source), groups.group(reader)
        if first == second:
            continue
        one, other = groups.members(first), groups.members(second)
        joined = tuple(sorted(one + other))
        if not model.is_allowed(joined) or not groups.can_merge(first, second):
            continue
        if model.group(joined) < model.group(one) + model.group(other):
            groups.merge(first, second)
    return partition_of(graph, groups.labels, partition.method)


def _kernels(graph: OperatorGraph, model: KernelModel) -> Partition:
    """Each fused kernel of the whole graph a group."""
    labels = {m: number for number, kernel in enumerate(model.kernels(tuple(range(len(graph))))) for m in kernel}
    return partition_of(graph, [labels[m] for m in range(len(graph))], "kernels")


def structure(graph: OperatorGraph, operators: tuple[int, ...]) -> Hashable:
    """Everything about operators, in the order given, but their names: equal where prices of any of their subsets are.

    Per operator its type, attributes, operands and results, values by their first appearance in the list. An opaque
    operator stands for itself alone: nothing tells what it does. Unlike the canonical key this keeps positions, so an
    answer for one list of operators can be carried over to another.
    """
    inside = set(operators)
    place: dict[int, int] = {}
    rows = []
    for index in operators:
        operator = graph.operators[index]
        values = [*operator.inputs, *operator.outputs]
        used = tuple(None if value is None else place.setdefault(value, len(place)) for value in values)
        attributes = tuple(sorted(operator.attributes.items()))
        alone = index if operator.is_opaque else None
        rows.append((operator.op, alone, attributes, len(operator.inputs), used))
    return tuple(rows), tuple(_outside(graph, value, inside) for value in place)


def _outside(graph: OperatorGraph, index: int, inside: set[int]) -> Hashable:
    """Of a value: its type, whether it is constant, made outside, and read outside."""
    value = graph.values[index]
    read = value.is_output or not inside.issuperset(graph.consumers[index])
    return value.type, value.is_constant, value.producer in inside, read


_BASELINES: dict[str, Callable[[OperatorGraph, KernelModel], Partition]] = {
    "none": lambda graph, model: unfused(graph),
    "fuseops": lambda graph, model: fuse_ops(graph),
    "dnnfusion": lambda graph, model: fusion_plan(graph, model.device, model.kernel_with_launch),
    "ago": lambda graph, model: cluster(graph),
}
