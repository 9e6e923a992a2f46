"""Tuning a compilation: search for its schedules, compile with them, and keep the faster of both bundles.

A `KernelPartition` has the kernels and the decisions of their schedules. Several partitions are timed in turns,
and the fastest part of each makes a new one: ``KernelPartition, KernelPartition -> KernelPartition``.

A kernel that is fast by itself may be slow behind another one, whose results are in another cache, and the gain of one
kernel over two is less than the noise that their times add. So parts are compared inside the running model:

    partitions {1}{2}{3 4} and {1 2}{3}{4}  =>  regions {1 2} and {3 4}  =>  {1 2}{3 4}, if that is the fastest of each

Operators are of one region if they are of one kernel in some partition, or if equal kernels have them, for these have
one schedule.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from ...costmodels.measuring.profile import ProfileDatabase
from ...ir.types import TensorType
from ...lowering.base.errors import TuningError
from ...lowering.base.ports import random_inputs
from ...lowering.base.target import Target
from ...lowering.base.weights import Weights
from ...lowering.bundle import bundle
from ...lowering.kernels.messages import Choices
from ...lowering.kernels.prim_funcs import DistinctKernels, ScheduleCheck
from ...lowering.kernels.variants import KernelPartition, Members
from ...lowering.plan.manifest import PLAN, TuningSummary
from ...lowering.plan.plan import Plan
from ...lowering.program.project import build_object
from ...lowering.running.emulated_model import open_emulated
from ...lowering.running.isolated_model import IsolatedModel, time_models
from ...lowering.running.turns import ratios
from ...lowering.tuning.cost_model import can_learn
from ...lowering.tuning.runners.measuring import KernelObject
from ...lowering.tuning.runners.rpc_runner import RpcRunner
from ...lowering.tuning.settings import Settings
from ...support.database import DatabaseError
from ...support.directed_graphs import connected_components
from ...support.errors import EqfuseError, VerificationError
from ...support.processor import available_cores
from ...support.scratch import scratch_folder
from ..optimize import Result
from .compilation import Built, Compilation
from .kernel_choice import Attempt, BundleBuilder, step_seconds
from .processor import RUN_SECONDS, Processor, ProcessorBundleBuilder

if TYPE_CHECKING:
    from ...costmodels.measuring.measurement import Measurement
    from ...lowering.running.kernel_times import CallTime
    from ...lowering.tuning.tuner import Tuned


CLEARLY = 0.99
"""Another partition of a region replaces the first one if it takes at most this share of its time."""

Times = Mapping[str, "CallTime"]


def combine_partitions(builder: BundleBuilder, partitions: Sequence[KernelPartition]) -> KernelPartition:
    """The partition of the fastest part of each; that of the first one if no other is clearly faster.

    Cuts differ in their kernels and in the decisions about these; all other choices are those of the first. Raises
    EqfuseError if one cannot be built, or does not run.
    """
    attempts = [builder.build(partition) for partition in partitions]
    return merge_fastest(attempts, builder.time(attempts))


def merge_fastest(attempts: Sequence[Attempt], times: Sequence[Times]) -> KernelPartition:
    """As `combine_partitions`, of partitions that were built and timed."""
    from ...lowering.tuning.joins import order_kernels

    first, *_ = attempts
    fastest = {region: _fastest(attempts, times, region) for region in list_regions(attempts)}
    kernels = [kernel for region, a in fastest.items() for kernel in a.partition.kernels if region.issuperset(kernel)]
    ordered = order_kernels(first.prepared.graph, kernels)
    if ordered is None:  # parts of different partitions wait for each other
        everything = frozenset(range(len(first.prepared.graph.operators)))
        return _fastest(attempts, times, everything).partition
    return KernelPartition(tuple(ordered), _choices(first.partition.choices, fastest))


def list_regions(attempts: Sequence[Attempt]) -> list[frozenset[int]]:
    """The least sets of operators such that no partition has a kernel across two of them, and no two share a kernel's
    code."""
    readers: dict[int, list[int]] = {place: [] for place in range(len(attempts[0].prepared.graph.operators))}
    users: dict[str, int] = {}
    for attempt in attempts:
        for kernel in attempt.partition.kernels:
            for member, other in pairwise(kernel):
                readers[member].append(other)
        for call in attempt.prepared.calls:
            readers[call.members[0]].append(users.setdefault(attempt.prepared.keys[call.symbol], call.members[0]))
    return [frozenset(component) for component in connected_components(readers)]


def _fastest(attempts: Sequence[Attempt], times: Sequence[Times], region: frozenset[int]) -> Attempt:
    seconds = [step_seconds(attempt, each, region) for attempt, each in zip(attempts, times, strict=True)]
    best = min(range(len(attempts)), key=seconds.__getitem__)
    return attempts[best if seconds[best] <= CLEARLY * seconds[0] else 0]


def _choices(first: Choices, fastest: Mapping[frozenset[int], Attempt]) -> Choices:
    """The decisions about the kernels of regions, each from the partition that the region is taken from."""
    decisions = {}
    for region, attempt in fastest.items():
        keys = {attempt.prepared.keys[c.symbol] for c in attempt.prepared.calls if region.issuperset(c.members)}
        decisions.update({key: made for key, made in attempt.partition.choices.decisions.items() if key in keys})
    return Choices(decisions, first.without, first.runtime, first.plain)


NOTICEABLE = 1.01
"""A tuned bundle is kept if it is at least this many times as fast: equal bundles differ by noise."""
ROUNDS = 31
"""The fewest pairs of runs, of the untuned bundle and the tuned one, that decide which is kept."""
SECONDS, MOST_ROUNDS = 4.0, 1001
"""A fast model has as many pairs as these seconds allow, at most this many: other processes disturb by the clock."""
KERNEL_ROUNDS = 101
"""The most runs of each bundle that decide which schedules are the fastest in the model."""


def tune_bundle(
    compilation: Compilation, processor: Processor, result: Result, built: Built, folder: Path, settings: Settings
) -> Built:
    """The bundle in `folder`, which was `built` without a search, or the tuned one in its place if that is faster.

    The tuning database keeps every measurement, so the same command continues a search that was stopped.
    """
    started = time.monotonic()
    search = _ScheduleSearch(compilation, processor, result, built, settings)
    with compilation.clock.phase("tune"):
        tuned = search.run()
    with scratch_folder("tuned") as scratch:
        candidate = Path(scratch) / "bundle"
        candidate.mkdir()
        other = search.compare(tuned, folder, candidate)
        if other.is_faster:
            shutil.rmtree(folder)
            shutil.copytree(candidate, folder)
    summary = TuningSummary(
        trials=tuned.trials, failed=tuned.failed, tasks=tuned.tasks, changed=len(other.partition.choices.decisions),
        joined=tuned.count_joined(other.partition.kernels), seconds=time.monotonic() - started, ratio=other.ratio,
        runner=settings.runner_for(is_library=processor.target.is_library),
        kept="tuned" if other.is_faster else "untuned", learned=can_learn(), problem=other.problem,
        curve=tuned.curve,
    )  # fmt: skip
    kept = other.built if other.is_faster and other.built is not None else built
    kept = replace(kept, manifest=replace(kept.manifest, tuning=summary))
    bundle.write_manifest(folder, kept.manifest)
    return kept


@dataclass(frozen=True)
class Contender:
    """The tuned bundle of a `partition`, `ratio` times as fast as the untuned one; or the `problem` with it."""

    partition: KernelPartition
    built: Built | None = None
    ratio: float = 0.0
    problem: str = ""

    @property
    def is_faster(self) -> bool:
        """Whether it is kept."""
        return self.ratio > NOTICEABLE


@dataclass(frozen=True)
class _ScheduleSearch:
    compilation: Compilation
    processor: Processor
    result: Result
    untuned: Built
    settings: Settings

    @property
    def partition(self) -> KernelPartition:
        """The partition of the untuned bundle."""
        assert self.untuned.partition is not None
        return self.untuned.partition

    def run(self) -> Tuned:
        """Search for the schedules of each distinct kernel.

        With dynamic dimensions these are the kernels for the first sizes that the user names, otherwise those for all
        sizes.
        """
        from ...lowering.tuning.measurement_setup import kernel_latencies, open_setup
        from ...lowering.tuning.tasks import TaskTable
        from ...lowering.tuning.tuner import Tuner

        clock, target = self.compilation.clock, self.processor.target
        graph, _ = self.compilation.kernels_of(self.result)
        weights = Weights(self.result.rewritten.model)
        functions = DistinctKernels.of(graph, self.partition.kernels, weights)
        special = self.compilation.options.sizes.list_special(graph, self.compilation.free)
        if special:
            at_sizes = graph.at_sizes(special[0])
            functions = DistinctKernels.of(at_sizes, self.partition.kernels, weights, last=functions.last)
        table = TaskTable(ScheduleCheck(functions, target))
        settings = replace(self.settings, intensive=self.settings.intensive and self.compilation.options.intensive)
        with open_setup(target, settings, available_cores()) as setup:
            tuner = Tuner(table, self.partition.kernels, setup, settings, lambda line: clock.tell("tune", line))
            tuned = tuner.run()
            self._keep_costs(kernel_latencies(tuner.kernels, table, setup))
        return tuned

    def _keep_costs(self, costs: Iterable[Measurement]) -> None:
        """Keep latencies for `--cost profile`. A failure must not lose the tuned bundle, so it is only told."""
        try:
            ProfileDatabase.open().add(*costs)
        except DatabaseError as error:
            self.compilation.clock.tell("tune", f"latencies are not kept: {error}")

    def compare(self, tuned: Tuned, untuned: Path, candidate: Path) -> Contender:
        """Compile the tuned bundle to a folder and time both. The untuned one stays if anything fails."""
        partition, *others = [self._tuned_partition(kernels, tuned) for kernels in tuned.partitions]
        try:
            if self.processor.target.is_library:
                partition = self._fastest_parts([self.partition, partition, *others])
            better = self.processor.build(self.compilation, self.result, candidate, partition)
            with self.compilation.clock.phase("confirm"):
                return Contender(partition, better, self._speed_up(untuned, candidate))
        except VerificationError as wrong:
            self.compilation.clock.tell("verify", str(wrong))
            return Contender(partition, problem="the tuned model failed verification")
        except EqfuseError as error:
            return Contender(partition, problem=f"the tuned model was not compared: {error}")

    def _tuned_partition(self, kernels: tuple[Members, ...], tuned: Tuned) -> KernelPartition:
        decisions = {**self.partition.choices.decisions, **tuned.decisions}
        return KernelPartition(kernels, replace(self.partition.choices, decisions=decisions))

    def _fastest_parts(self, partitions: Sequence[KernelPartition]) -> KernelPartition:
        """A partition that takes each part of the model from the one that is fastest there, in the running model."""
        with self.compilation.clock.phase("combine"), scratch_folder("combined") as scratch:
            builder = ProcessorBundleBuilder(
                self.processor, self.compilation, self.result, Path(scratch), SECONDS, KERNEL_ROUNDS
            )
            return combine_partitions(builder, partitions)

    def _speed_up(self, untuned: Path, candidate: Path) -> float:
        """How many times as fast the candidate is: by turns on this machine or on a device of the tracker, or by
        the emulated board's counts."""
        target, settings = self.processor.target, self.settings
        if target.is_library:
            return _speed_up_here(untuned, candidate, target.threads)
        if settings.tracker is not None and settings.device_key is not None:
            return _speed_up_on_device(settings.tracker, settings.device_key, target, untuned, candidate)
        before, after = (_cycles(folder) for folder in (untuned, candidate))
        return before / after


def _speed_up_here(untuned: Path, candidate: Path, threads: int) -> float:
    models = {"untuned": IsolatedModel(untuned, threads), "tuned": IsolatedModel(candidate, threads)}
    manifest = models["tuned"].manifest
    inputs = random_inputs(manifest.inputs, 0, manifest.typical_sizes)
    runs = time_models(models, inputs, ROUNDS, seconds=RUN_SECONDS * ROUNDS)
    rounds = min(int(ROUNDS * SECONDS / sum(sum(each.wall) for each in runs.values())), MOST_ROUNDS)
    if rounds > ROUNDS:
        runs = time_models(models, inputs, rounds, seconds=RUN_SECONDS * rounds)
    return ratios(runs, "tuned", "untuned", threads).median


def _cycles(folder: Path) -> float:
    from ...lowering.arm.counts import estimate_cycles

    with open_emulated(folder) as model:
        counted = model.count(random_inputs(model.inputs, 0))
        return estimate_cycles(counted.inference, model.target.device).cycles


_SECONDS = 75.0
"""Seconds for one model, a quarter of the time that both may take together: they have to get to the device, too."""


def _speed_up_on_device(tracker: str, device_key: str, target: Target, before: Path, after: Path) -> float:
    """How many times as fast the C project `after` is as `before`, on a device, in interleaved pairs.

    Raises ToolError without the cross compiler, TuningError if there is no device, or it does not run them.
    """
    with (
        scratch_folder("model") as scratch,
        closing(RpcRunner(tracker, device_key, target.triple, target.threads, _SECONDS, whole_models=True)) as runner,
    ):
        models = [_as_kernel(folder, target, Path(scratch), f"model_{i}") for i, folder in enumerate((before, after))]
        (pairs,) = runner.compare(models[0], models[1:])
    if not pairs:
        raise TuningError(f"{tracker}: no device with the key {device_key!r} ran the whole model in time")
    return median(old / new for old, new in pairs)


def _as_kernel(folder: Path, target: Target, scratch: Path, symbol: str) -> KernelObject:
    """A model as a function of its inputs and outputs."""
    object_file = scratch / f"{symbol}.o"
    build_object(folder, object_file, target.device, symbol, target.threads)
    plan = Plan.from_json((folder / PLAN).read_text(encoding="utf-8"))
    buffers = [plan.buffers[number] for number in (*plan.inputs, *plan.outputs)]
    types = tuple(TensorType(b.dtype, tuple(e if isinstance(e, int) else str(e) for e in b.shape)) for b in buffers)
    return KernelObject(symbol, object_file, types, len(plan.outputs))
