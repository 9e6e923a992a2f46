"""`EGraph -> Selection -> Partition`: the chosen graph, partitioned into fused sub-graphs.

With ``joint`` extraction and partition take turns (extract/joint.py); with any other method the graph is extracted by
the cost model that was asked for, and then partitioned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from statistics import median

from ..costmodels.device import Device, load_device
from ..costmodels.measuring.profile import ProfileDatabase
from ..costmodels.model import CostModel, RooflineCost
from ..engine.choices import PartitionMethod
from ..engine.egraph.graph import Selection
from ..engine.onnx.model import Model
from ..engine.operator_graph import operator_graph
from ..engine.shapes.inference import Knowledge, infer
from ..engine.summary import knowledge_of_result
from ..extract.extraction.select import Criteria
from ..extract.joint import Extracted, JointCosts, joint
from ..extract.partition.annotations.annotate import read_partition
from ..extract.partition.annotations.certificate import certificate_of
from ..extract.partition.annotations.local_functions import inline_functions
from ..extract.partition.annotations.proof import Proof, UndecidedError, certify
from ..extract.partition.baselines.fuse_ops import FuseOpsLimits, fuse_ops
from ..extract.partition.baselines.fusion_plan import compared_sets
from ..extract.partition.canonical_key import subgraph_key
from ..extract.partition.groups import Partition, PartitionError, unfused
from ..extract.partition.search.confirmation import (
    Lowering,
    confirm_kernels,
    count_as_drawn,
    kernels_of_groups,
    within_groups,
)
from ..extract.partition.search.methods import cut_into_kernels, partition_by
from ..extract.partition.templates.kernels import KernelModel
from ..extract.partition.templates.operator_set import Members
from ..extract.partition.templates.savings import (
    index_mapped_operators,
    intermediate_bytes,
    removed_values,
    saved_bytes,
)
from ..ir.graph import OperatorGraph
from ..lowering.base.exact_pairs import device_for_weights
from ..lowering.base.weights import Weights
from ..support.deadlines import is_over, seconds_left
from ..support.options import part_of
from ..support.processor import available_cores
from .clock import Clock
from .extract import Choice, copy_model, criteria_for, extract_model
from .options import Options
from .saturate import Saturated
from .usage import runtime_for

CERTIFY_SECONDS = 60.0
"""Seconds that z3 has for a certificate that the user insists on."""
_STANDS_FOR_ALL = 0.1
"""The share of the estimated time of a graph's kernels that measured ones have before they scale the estimates of the
others: the plan of YOLO-V4 compares two Resizes and two small convolutions, which say nothing of the others."""
_LEAST_SECONDS = 0.1
"""The time limit of an extraction for which no time is left."""
DEFAULT_CERTIFY_SECONDS = 1.0
"""Seconds that z3 has otherwise: 600 operators take a tenth of a second, and nobody asked for a longer wait."""


@dataclass(frozen=True)
class ProfiledPairs:
    """The distinct kernels that DNNFusion's plan compares: how many the profile database had, how many were `measured`
    now, and how many have no measurement yet, for they do not compile or the time was over."""

    known: int
    measured: int
    missing: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.known} kernels known, {self.measured} measured in {self.seconds:.1f} s, {self.missing} without a "
            "measurement"
        )


@dataclass(frozen=True)
class Partitioned:
    """A graph partitioned into kernels and views; `costs` come with the method ``joint`` only.

    `before` is the operator graph of the original; `drawn` the groups of a method that forms them without asking
    whether a kernel can compute them; `proof` the answer of z3 on the certificate, if it came in time; `complete` says
    whether the search ended before the time limit did; `profiled` what was measured for the plan of DNNFusion.
    """

    before: OperatorGraph = field(repr=False)
    partition: Partition
    model: KernelModel = field(repr=False)
    drawn: Partition | None = None
    costs: JointCosts | None = field(default=None, repr=False)
    proof: Proof | None = None
    complete: bool = True
    profiled: ProfiledPairs | None = None

    @cached_property
    def kernels(self) -> tuple[Members, ...]:
        """The groups that are kernels, in the order they run; the others are views."""
        return tuple(members for members in self.partition.members if not self.model.is_view(members))

    @cached_property
    def as_drawn(self) -> int:
        """How many groups of the method are compiled unchanged."""
        return len(self.kernels) if self.drawn is None else count_as_drawn(self.drawn, self.partition, self.model)

    @property
    def seconds(self) -> float:
        """The predicted time of one run."""
        return self.model.partition(self.partition)

    @cached_property
    def index_maps(self) -> frozenset[int]:
        """Operators that only move data, and are indices inside a kernel."""
        return index_mapped_operators(self.partition, self.model)

    def figures(self) -> Mapping[str, float]:
        """Counts, bytes and seconds for tables and JSON. Intermediate bytes are those that leave a kernel."""
        return {
            "subgraphs": len(self.kernels) if self.drawn is None else self.drawn.count,
            "as_drawn": self.as_drawn,
            "kernels": len(self.kernels),
            "views": self.partition.count - len(self.kernels),
            "operators": len(self.partition.graph),
            "removed_values": len(removed_values(self.partition)),
            "intermediate_bytes_original": intermediate_bytes(unfused(self.before)),
            "intermediate_bytes_unfused": intermediate_bytes(unfused(self.partition.graph)),
            "intermediate_bytes": intermediate_bytes(self.partition),
            "index_maps": len(self.index_maps),
            "index_map_bytes": saved_bytes(self.partition.graph, self.index_maps),
            "seconds": self.seconds,
        }


def partition_model(
    saturated: Saturated, method: PartitionMethod, options: Options, clock: Clock, lowering: Lowering | None = None
) -> tuple[Choice, Partitioned]:
    """Choose a graph and partition it into kernels, which the `lowering` confirms. `saturated` is not changed."""
    models = _KernelModels.of(saturated.model, options, lowering)
    before = models.graph_of(saturated.model, saturated.knowledge, saturated.sizes)
    if method == "joint":
        is_compiled = lowering is not None
        chosen, result = _extract_and_cut_in_turns(saturated, before, models, options, clock, is_compiled)
    else:
        chosen, result = _extract_then_cut(saturated, before, models, method, options, clock)
    profiling = result.profiled.seconds if result.profiled is not None else 0.0
    limit = seconds_left(saturated.deadline + profiling)
    return chosen, _confirm_and_certify(result, chosen.model, limit, options, lowering, clock)


def compile_drawn(
    graph: OperatorGraph, drawn: Partition, model: Model, options: Options, lowering: Lowering, clock: Clock
) -> Partitioned:
    """The groups of a model's graph as kernels; a group that no kernel can compute is divided into some."""
    kernel_model = _KernelModels.of(model, options, lowering)(graph)
    with clock.phase("partition"):
        result = Partitioned(graph, kernels_of_groups(drawn, kernel_model, options.search_seconds), kernel_model, drawn)
    return _confirm_and_certify(result, model, options.search_seconds, options, lowering, clock)


def _confirm_and_certify(
    result: Partitioned, model: Model, time_limit: float, options: Options, lowering: Lowering | None, clock: Clock
) -> Partitioned:
    """The partition with kernels that the lowering confirms, and its proof if z3 finds one in time."""
    if lowering is not None and options.intensive:
        drawn, kernel_model = result.drawn, result.model
        allowed = (lambda members: True) if drawn is None else within_groups(drawn, kernel_model)
        with clock.phase("confirm"):
            kernels = confirm_kernels(result.partition, kernel_model, lowering.confirm(model), time_limit, allowed)
        result = replace(result, partition=kernels)
    with clock.phase("certify"):
        try:
            limit = CERTIFY_SECONDS if options.certify else DEFAULT_CERTIFY_SECONDS
            proof = certify(result.partition.graph, certificate_of(result.partition), limit)
        except UndecidedError:
            if options.certify:
                raise
            return result
    return replace(result, proof=proof)


def _extract_and_cut_in_turns(
    saturated: Saturated,
    before: OperatorGraph,
    models: _KernelModels,
    options: Options,
    clock: Clock,
    is_compiled: bool,
) -> tuple[Choice, Partitioned]:
    criteria = Criteria.of(RooflineCost(models.device), runtime_for(options))
    selections: list[Selection] = []

    def extract(model: CostModel) -> Extracted[Choice | None]:
        nonlocal criteria
        left = replace(options, time_limit=max(_LEAST_SECONDS, seconds_left(saturated.deadline)))
        choice = extract_model(saturated, replace(criteria, model=model), left, clock, is_compiled=is_compiled)
        criteria = choice.criteria  # those that let the file grow would do so again
        selections.append(choice.selection)
        return Extracted(choice, models.graph_of_choice(choice, saturated))

    def lower_bound(model: CostModel) -> float:
        return saturated.select(Criteria(model, 0.0, runtime=runtime_for(options)), options).lower_bound

    with clock.phase("partition"):
        original: Extracted[Choice | None] = Extracted(None, before)
        result = joint(original, extract, lower_bound, models.device, seconds_left(saturated.deadline), models)
    chosen = result.chosen or Choice(copy_model(saturated.model), selections[0], criteria)
    complete = result.complete and not any(selection.out_of_time for selection in selections)
    partition = result.search.partition
    return chosen, Partitioned(before, partition, result.model, costs=result.costs, complete=complete)


def _extract_then_cut(
    saturated: Saturated,
    before: OperatorGraph,
    models: _KernelModels,
    method: PartitionMethod,
    options: Options,
    clock: Clock,
) -> tuple[Choice, Partitioned]:
    choice = extract_model(saturated, criteria_for(options, saturated), options, clock)
    graph = models.graph_of_choice(choice, saturated)
    limit = seconds_left(saturated.deadline)
    model, profiled = models(graph), None
    if options.profile_pairs is not None:
        with clock.phase("profile"):
            seconds = min(options.profile_pairs, seconds_left(clock.deadline))
            model, profiled = _profile_pairs(graph, Weights(choice.model), models, seconds)
    with clock.phase("partition"):
        drawn = partition_by(method, graph, model, limits=part_of(FuseOpsLimits, options))
        kernels = kernels_of_groups(drawn, model, limit)
    return choice, Partitioned(before, kernels, model, drawn, profiled=profiled)


def _profile_pairs(
    graph: OperatorGraph, weights: Weights, models: _KernelModels, seconds: float
) -> tuple[KernelModel, ProfiledPairs]:
    """Measure what DNNFusion's plan compares and the database lacks, and plan again, until all is measured or the
    seconds are over (section 4.3.1 of the text). The model of kernels knows what was measured.

    Raises UsageError if this machine cannot run code for the device.
    """
    from ..lowering.base.target import check_runs_here, target_of
    from ..lowering.kernels.prim_funcs import DistinctKernels, ScheduleCheck
    from ..lowering.tuning.measurement_setup import measure_kernels, open_setup
    from ..lowering.tuning.settings import Settings
    from ..lowering.tuning.tasks import TaskTable

    assert models.database is not None, "the cost is profile"
    started = time.monotonic()
    deadline = started + seconds
    model, target = models(graph), target_of(models.device.name, threads=1)
    check_runs_here(target)
    plan = cut_into_kernels(partition_by("dnnfusion", graph, model), model)
    table = TaskTable(ScheduleCheck(DistinctKernels.of(graph, plan.members, weights), target))
    tried: set[str] = set()
    measured: set[str] = set()
    in_database = models.measured_seconds(graph)
    with open_setup(target, Settings(trials=1), available_cores()) as setup:
        while True:
            compared = _compared_kernels(graph, model)
            missing = {key: kernel for key, kernel in compared.items() if in_database(kernel) is None}
            wanted = tuple(kernel for key, kernel in missing.items() if key not in tried)
            if not wanted or is_over(deadline):
                break
            found = tuple(measure_kernels(wanted, table, setup, deadline))
            models.database.add(*found)
            tried.update(missing)
            measured.update(each.key for each in found)
            models.calibration = None
            model = models(graph)
    known = len(compared) - len(missing) - len(measured & compared.keys())
    return model, ProfiledPairs(known, len(measured), len(missing), time.monotonic() - started)


def _compared_kernels(graph: OperatorGraph, model: KernelModel) -> dict[str, Members]:
    """The distinct kernels that DNNFusion's plan compares, by their keys."""
    compared: dict[str, Members] = {}
    for members in compared_sets(graph, model.device, model.launched):
        for kernel in model.kernels(members) if model.launched(members) < inf else ():
            key = None if model.is_view(kernel) else subgraph_key(graph, kernel)
            if key is not None:
                compared.setdefault(key, kernel)
    return compared


@dataclass
class _KernelModels:
    """Makes the cost model of a graph's kernels: by the device file, with the cost "profile" by measurements too.

    The first graph calibrates the estimates for all graphs, so that their costs can be compared.
    """

    device: Device
    database: ProfileDatabase | None
    intensive: bool = True
    lowering: Lowering | None = None
    calibration: float | None = None

    @staticmethod
    def of(model: Model, options: Options, lowering: Lowering | None = None) -> _KernelModels:
        """With the profile database only if the cost is "profile" and something was measured, or will be."""
        device = device_for_weights(load_device(options.device), model)
        database = ProfileDatabase.open() if options.cost == "profile" else None
        used = database is not None and (options.profile_pairs is not None or bool(database.all(device=device.name)))
        return _KernelModels(device, database if used else None, options.intensive, lowering)

    def graph_of(self, model: Model, knowledge: Knowledge, sizes: Mapping[str, int]) -> OperatorGraph:
        """The graph to partition: with a lowering, that of the operators which run, else of the whole model."""
        return operator_graph(model, knowledge, sizes, for_kernels=self.lowering is not None)

    def graph_of_choice(self, choice: Choice, saturated: Saturated) -> OperatorGraph:
        """The graph of a model that the extraction chose."""
        return self.graph_of(choice.model, knowledge_of_result(choice.model, saturated.knowledge), saturated.sizes)

    def __call__(self, graph: OperatorGraph) -> KernelModel:
        model = KernelModel(graph, self.device, intensive=self.intensive)
        if (lowering := self.lowering) is not None:
            alone, apart = lowering.list_alone(graph), lowering.views_apart
            model = replace(model, threads=lowering.threads, alone=alone, views_apart=apart)
        if self.database is None:
            return model
        if self.calibration is None:
            self.calibration = self._calibration(model)
        factors, measured = self.database.factors(self.device.name), self.measured_seconds(graph)
        return replace(model, measured=measured, calibration=self.calibration, factors=factors)

    def measured_seconds(self, graph: OperatorGraph) -> Callable[[Members], float | None]:
        """The seconds of a kernel by the database, its launch apart; None for one that was never measured."""

        def seconds(members: Members) -> float | None:
            key = subgraph_key(graph, members)
            best = self.database.best(key, self.device.name) if self.database is not None and key is not None else None
            return None if best is None else max(0.0, best.latency - self.device.call_seconds)

        return seconds

    def _calibration(self, model: KernelModel) -> float:
        """How many times as long as estimated the measured conventional kernels of the graph take; 1 if they are too
        few to stand for the others."""
        measured = self.measured_seconds(model.graph)
        kernels = {k for members in fuse_ops(model.graph).members for k in model.kernels(members)}
        times = [(measured(kernel), model.kernel(kernel)) for kernel in kernels]
        known = [(seconds, estimate) for seconds, estimate in times if seconds is not None and estimate > 0.0]
        if sum(estimate for _, estimate in known) < _STANDS_FOR_ALL * sum(estimate for _, estimate in times):
            return 1.0
        return median(seconds / estimate for seconds, estimate in known) if known else 1.0


def certificate_text(model: Model) -> str:
    """The certificate of the partition that a model records, as `eqfuse inspect --certificate` reads it."""
    whole = inline_functions(model)
    graph = operator_graph(whole, infer(whole))
    partition = read_partition(whole, graph)
    if partition is None:
        raise PartitionError(f"{model.label}: records no partition; make one by --partition")
    return certificate_of(partition).to_json()
