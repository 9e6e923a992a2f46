"""Operator graphs of a result with what each operator costs."""

from __future__ import annotations

from ...costmodels.device import Device, load_device
from ...driver.optimize import Result, Typed
from ...driver.options import Options
from ...driver.partition import Partitioned
from ...extract.partition.groups import unfused
from ...extract.partition.kernels import KernelModel
from ...extract.partition.operator_graph import operator_graph
from ...ir.graph import OperatorGraph
from .content import PricedGraph


def priced_graphs(result: Result, options: Options) -> tuple[PricedGraph, PricedGraph]:
    """The graph as it was read, a kernel for each operator, and the result, in sub-graphs where it was partitioned."""
    device = load_device(options.device)
    if result.partition is not None:
        return each_alone(result.partition.before, device), _in_groups(result.partition)
    return each_alone(_graph(result.original), device), each_alone(_graph(result.rewritten), device)


def _graph(typed: Typed) -> OperatorGraph:
    return operator_graph(typed.model, typed.knowledge)


def each_alone(graph: OperatorGraph, device: Device) -> PricedGraph:
    """Each operator a kernel of its own."""
    shares = KernelModel(graph, device).shares(unfused(graph))
    return PricedGraph(graph, shares, sum(shares))


def _in_groups(partitioned: Partitioned) -> PricedGraph:
    partition, pricing = partitioned.partition, partitioned.pricing
    return PricedGraph(
        partition.graph,
        pricing.shares(partition),
        pricing.partition(unfused(partition.graph)),
        partition,
        partitioned.kernels,
        tuple(map(pricing.kernel, partitioned.kernels)),
        tuple(map(pricing.group, partition.members)),
    )
