"""Optimising with a partition: the chosen graph, cut into fused sub-graphs.

With ``joint`` extraction and partition take turns (extract/joint.py); with any other method the graph is extracted by
the cost model that was asked for, and then cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from .costmodels.device import Device, load_device
from .costmodels.model import CostModel, RooflineCost
from .costmodels.profile import ProfileDatabase
from .engine.egraph import Selection
from .engine.inference import infer
from .engine.model import Model
from .engine.summary import knowledge_of_result
from .extract.joint import Extracted, JointPrices, joint
from .extract.partition.annotate import read_partition
from .extract.partition.canonical_key import subgraph_key
from .extract.partition.certificate import certificate_of
from .extract.partition.certify import Proof, certify
from .extract.partition.graph import OperatorGraph
from .extract.partition.index_map_fusion import index_mapped, saved_bytes
from .extract.partition.intermediate import intermediate_bytes, removed, unfused_intermediate_bytes
from .extract.partition.kernels import KernelModel, Measured, Members
from .extract.partition.layout_assignment import LayoutPlan, assign_layouts
from .extract.partition.local_functions import inlined
from .extract.partition.of_model import operator_graph
from .extract.partition.partition import Method, Partition, PartitionError, partition_of
from .extract.partition.search import partition_by
from .extract.select import Pricing
from .pipeline import Clock, Options, Saturated, extracted

Chosen = tuple[Model, Selection]


@dataclass(frozen=True)
class Partitioned:
    """A graph cut into sub-graphs; `prices` come with the method ``joint`` only.

    `before` is the operator graph of the model as it was read; `proof` what z3 said of the certificate, if asked.
    """

    before: OperatorGraph
    partition: Partition
    pricing: KernelModel
    prices: JointPrices | None = None
    proof: Proof | None = None

    @cached_property
    def kernels(self) -> tuple[Members, ...]:
        """The fused kernels of all sub-graphs, in the order they run."""
        return tuple(k for members in self.partition.members for k in self.pricing.kernels(members))

    @property
    def seconds(self) -> float:
        """The predicted time of one run."""
        return self.pricing.partition(self.partition)

    @cached_property
    def by_kernel(self) -> Partition:
        """The finer partition whose groups are the kernels."""
        label = {m: number for number, kernel in enumerate(self.kernels) for m in kernel}
        return partition_of(self.partition.graph, [label[m] for m in range(len(label))], "kernels")

    @cached_property
    def layouts(self) -> LayoutPlan:
        """In which layout of feature maps each sub-graph runs, and the conversions between them."""
        return assign_layouts(self.partition, self.pricing)

    @cached_property
    def index_maps(self) -> frozenset[int]:
        """Operators that only move data, and are indices inside a kernel."""
        return index_mapped(self.partition, self.pricing)

    def figures(self) -> Mapping[str, float]:
        """Counts, bytes and seconds for tables and JSON. Intermediate bytes are those that leave a kernel."""
        return {
            "subgraphs": self.partition.count,
            "kernels": len(self.kernels),
            "operators": len(self.partition.graph),
            "removed_values": len(removed(self.by_kernel)),
            "intermediate_bytes_original": unfused_intermediate_bytes(self.before),
            "intermediate_bytes_unfused": unfused_intermediate_bytes(self.partition.graph),
            "intermediate_bytes": intermediate_bytes(self.by_kernel),
            "index_maps": len(self.index_maps),
            "index_map_bytes": saved_bytes(self.partition.graph, self.index_maps),
            "layout_conversions": len(self.layouts.conversions),
            "layout_seconds": self.layouts.seconds,
            "seconds": self.seconds,
        }


def partitioned(known: Saturated, method: Method, options: Options, clock: Clock) -> tuple[Chosen, Partitioned]:
    """Choose a graph and cut it. Nothing in `known` is changed."""
    device = load_device(options.device)
    before = operator_graph(known.model, known.knowledge)
    profile = _Profile(device)
    if method == "joint":
        chosen, result = _joint(known, before, device, profile, options, clock)
    else:
        chosen, result = _in_sequence(known, before, device, profile, method, options, clock)
    if options.certify:
        with clock.phase("certify"):
            proof = certify(result.partition.graph, certificate_of(result.partition))
        result = replace(result, proof=proof)
    return chosen, result


def _joint(
    known: Saturated, before: OperatorGraph, device: Device, profile: _Profile, options: Options, clock: Clock
) -> tuple[Chosen, Partitioned]:
    pricing = Pricing.of(RooflineCost(device))
    selections: list[Selection] = []

    def extract(model: CostModel) -> Extracted[Chosen | None]:
        nonlocal pricing
        found = extracted(known, replace(pricing, model=model), options, clock)
        pricing = found.pricing  # what made files grow once will do so again
        selections.append(found.selection)
        return Extracted((found.model, found.selection), _graph(found.model, known))

    def lower_bound(model: CostModel) -> float:
        return known.select(Pricing(model, 0.0), options).lower_bound

    with clock.phase("partition"):
        original: Extracted[Chosen | None] = Extracted(None, before)
        found = joint(original, extract, lower_bound, device, options.time_limit, profile.of)
    chosen = found.chosen or (replace(known.model, ir=known.model.ir.clone(), path=None), selections[0])
    return chosen, Partitioned(before, found.search.partition, found.model, found.prices)


def _in_sequence(
    known: Saturated,
    before: OperatorGraph,
    device: Device,
    profile: _Profile,
    method: Method,
    options: Options,
    clock: Clock,
) -> tuple[Chosen, Partitioned]:
    found = extracted(known, Pricing.of(options.cost_model), options, clock)
    graph = _graph(found.model, known)
    model = KernelModel(graph, device, profile.of(graph))
    with clock.phase("partition"):
        partition = partition_by(method, graph, model)
    return (found.model, found.selection), Partitioned(before, partition, model)


def _graph(model: Model, known: Saturated) -> OperatorGraph:
    return operator_graph(model, knowledge_of_result(model, known.knowledge))


class _Profile:
    """Measured kernels of a device, from the profile database."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.database = ProfileDatabase.open()
        self.is_empty = not self.database.all(device=device.name)

    def of(self, graph: OperatorGraph) -> Measured | None:
        """What was measured of the kernels of a graph; None where nothing was."""
        return None if self.is_empty else self._of(graph)

    def _of(self, graph: OperatorGraph) -> Callable[[Members], float | None]:
        def seconds(members: Members) -> float | None:
            key = subgraph_key(graph, members)
            best = self.database.best(key, self.device.name) if key is not None else None
            return None if best is None else max(0.0, best.latency - self.device.launch_overhead)

        return seconds


def certificate_text(model: Model) -> str:
    """The certificate of the partition that a model records, as `eqfuse inspect --certificate` reads it."""
    whole = inlined(model)
    graph = operator_graph(whole, infer(whole))
    partition = read_partition(whole, graph)
    if partition is None:
        raise PartitionError(f"{model.label}: records no partition; make one by --partition")
    return certificate_of(partition).to_json()
