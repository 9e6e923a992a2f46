"""A batch for an accelerator: ``AcceleratorNetwork, device, batch -> DsaProgram``.

Clusters share the samples (GraphTurbo, OSDI 2023, section 2.1), iterations one after another. Clusters with as many
samples as each other run the same program, in lockstep: one of them is simulated, with its share of DDR. Otherwise all
are, and share DDR by what each needs of it at the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ....costmodels.dsa_device import DsaDevice, single_cluster
from ...base.errors import DsaError
from ..codegen.compiler import AcceleratorNetwork, Choices, ClusterProgram, SlowerError, cluster_program
from ..codegen.generated import Generated
from ..network.batches import own_batch
from ..network.boxes import whole
from ..network.graph import Network
from ..network.lookups import looked_up
from ..network.subgraphs import Layer
from ..program.placement import side_by_side
from ..program.validate import validate
from ..schedule.clusters import Allocation, Job, Round, allocation_of, allocations
from ..simulate.time_report import TimeReport, report
from ..simulate.timing import Timeline, simulate_time
from .splitting import SplitProgram, cluster_group, promising_splits, split_program

Observer = Callable[[str], None]
MadeProgram = ClusterProgram | SplitProgram
_DEFAULT = Choices()
_SLOWER_IN_A_ROW = 2
"""Stop after this many ways to share a batch in a row bring no gain."""
_ABOUT_EQUAL = 0.02
"""Ways that may be as fast as each other, but for this part, are tried in the order of their programs' sizes."""


@dataclass(frozen=True)
class _Candidate:
    """A way to share a batch, the seconds that DDR takes at the least, and those of all if units are never idle."""

    allocation: Allocation
    moving: float
    busy: float

    @property
    def order(self) -> tuple[int, int]:
        """Before which others to try it: what may be the fastest first, of these the smallest programs."""
        return round(math.log(self.busy) / _ABOUT_EQUAL), self.allocation.per_cluster


@dataclass(frozen=True)
class Run:
    """The simulated run of an iteration of a round, and the number of the program of each of its clusters.

    The timeline is of one cluster if all run the same program, else of all of them.
    """

    times: int
    numbers: tuple[int, ...]
    timeline: Timeline

    @property
    def cycles(self) -> float:
        """Cycles of all iterations."""
        return self.times * self.timeline.cycles


@dataclass(frozen=True)
class DsaProgram:
    """The programs of clusters, how a batch is shared among them, and their simulated run."""

    device: DsaDevice
    allocation: Allocation
    choices: Choices
    programs: tuple[MadeProgram, ...]
    runs: tuple[Run, ...]

    @cached_property
    def longest(self) -> Run:
        """The run that takes most of the time."""
        return max(self.runs, key=lambda run: run.cycles)

    @property
    def first(self) -> MadeProgram:
        """The program of the first share in the longest run."""
        return self.programs[self.longest.numbers[0]]

    @property
    def generated(self) -> Generated:
        """What the first cluster does in the longest run."""
        return self.first.generated

    @property
    def timeline(self) -> Timeline:
        """The longest run, once."""
        return self.longest.timeline

    @cached_property
    def report(self) -> TimeReport:
        """The figures of the longest run, once."""
        return report(self.timeline)

    @property
    def cycles(self) -> float:
        """Cycles of the whole batch."""
        return sum(run.cycles for run in self.runs)

    @property
    def seconds(self) -> float:
        """Seconds of the whole batch."""
        return self.cycles / self.device.clock

    def figures(self) -> dict[str, Any]:
        """The time report of the whole batch, for json.dumps; `cluster` is that of the longest run."""
        return {
            "cycles": self.cycles,
            "seconds": self.seconds,
            "throughput": self.allocation.batch / self.seconds if self.seconds else 0.0,
            "instructions": len(self.first.program.instructions),
            "cluster": self.report.as_json(),
        }


def compile_network(
    network: AcceleratorNetwork,
    device: DsaDevice,
    batch: int | None = None,
    choices: Choices = _DEFAULT,
    name: str = "network",
    observer: Observer = lambda line: None,
) -> DsaProgram:
    """The fastest program for a batch (the model's own if None) among some ways to share it, checked.

    Raises DsaError: a batch that cannot be followed, a tensor that fits nowhere; ProgramError for a program that breaks
    a rule of the device.
    """
    best: DsaProgram | None = None
    problem: DsaError | None = None
    slower = 0
    candidates = _candidates(network, device, batch, choices.per_cluster)
    programs = _Programs(network, device, choices, name)
    for number, candidate in enumerate(candidates):
        allocation, known = candidate.allocation, math.inf if best is None else best.cycles
        if best is not None and candidate.moving >= best.seconds:
            observer(f"{allocation}: at least {candidate.moving * 1e6:.1f} us")
            continue
        try:
            program = programs.shared(allocation, known)
            is_faster = best is None or program.seconds < best.seconds
            best = program if is_faster else best
            found = f"{program.seconds * 1e6:.1f} us"
        except SlowerError as error:
            is_faster, found = False, str(error)
        except DsaError as error:  # another share of the batch may fit
            problem = error
            continue
        finally:
            programs.keep([each.allocation for each in candidates[number + 1 :]])
        observer(f"{allocation}: {found}")
        slower = 0 if is_faster else slower + 1
        if slower == _SLOWER_IN_A_ROW:
            break
    if best is not None and choices.per_cluster is None:
        best = _split(programs, best, observer)
    if best is None:
        raise problem or DsaError(f"batch {batch}: cannot be shared over {device.clusters} clusters")
    for each in best.programs:
        validate(each.program, cluster_group(device, each.clusters, each.working))
    return best


def _split(programs: _Programs, best: DsaProgram, observer: Observer) -> DsaProgram:
    """The fastest program of clusters that process all samples together, if it is faster than the best without."""
    batch, clusters, known = best.allocation.batch, best.device.clusters, best
    for segments in promising_splits(programs.network, best.device, batch, known.allocation, known.cycles):
        allocation = Allocation((Round(1, (batch,), clusters, segments),))
        try:
            program = programs.shared(allocation)
        except DsaError as error:  # a layer that cannot be computed in parts
            observer(f"{allocation}: {error}")
            continue
        finally:
            programs.keep(())
        observer(f"{allocation}: {program.seconds * 1e6:.1f} us")
        best = min(best, program, key=lambda each: each.cycles)
    return best


def _candidates(
    network: AcceleratorNetwork, device: DsaDevice, batch: int | None, per_cluster: int | None
) -> list[_Candidate]:
    """Ways to share the batch, in the order to try them, as far as the graph can be made for each one's samples.

    A graph whose batch cannot be followed is run as it is.
    """

    own = network.batch
    wanted = batch or own or 1
    if own is None:
        if wanted != 1 and wanted != own_batch(network.graph, 0):
            network.with_batch(wanted)
        return [_candidate(network, device, Allocation.even(1, 1, wanted))]
    if per_cluster is None:
        candidates = list(allocations(wanted, device.clusters))
    else:
        candidates = [allocation_of(wanted, device.clusters, per_cluster)]
    possible: list[Allocation] = []
    problems: list[DsaError] = []
    for allocation in candidates:
        try:
            for job in allocation.jobs:
                if job.samples != own:
                    network.with_batch(job.samples)
            possible.append(allocation)
        except DsaError as error:
            problems.append(error)
    if not possible and wanted != own:
        raise problems[0]
    found = [_candidate(network, device, each) for each in possible or [Allocation.even(1, 1, wanted)]]
    return sorted(found, key=lambda each: each.order)


def _candidate(network: AcceleratorNetwork, device: DsaDevice, allocation: Allocation) -> _Candidate:
    """A way to share a batch. DDR moves what is read and written at least once; units do operations at their peak."""
    moving, busy = 0.0, 0.0
    for part in allocation.rounds:
        graphs = {share: Network(network.graph_of(share), network.element_size) for share in part.shares}
        moved = sum(_least_bytes(graphs[share], network.layers) for share in part.shares) / device.ddr_bandwidth
        computing = max(sum(graph.flops) for graph in graphs.values()) / (2 * device.peak_macs)
        moving, busy = moving + part.times * moved, busy + part.times * max(moved, computing)
    return _Candidate(allocation, moving, busy)


def _least_bytes(network: Network, layers: Sequence[Layer]) -> int:
    """Bytes of inputs and constants, but for tables, that a network needs, and of its results."""
    values = network.graph.values
    tables = looked_up(network, layers)
    results = {number: whole(network.shapes[number]) for number, value in enumerate(values) if value.is_output}
    needed = network.needs(range(len(network.graph)), results)
    outside = [v for v in needed if v in results or (values[v].producer is None and v not in tables)]
    return sum(network.bytes(value, needed[value]) for value in outside)


def program_for(
    network: AcceleratorNetwork, device: DsaDevice, allocation: Allocation, choices: Choices, name: str = "network"
) -> DsaProgram:
    """The programs for one way to share a batch, not checked. Raises DsaError."""
    return _Programs(network, device, choices, name).shared(allocation)


class _Programs:
    """Programs by what they are made for: ways to share a batch have some in common."""

    def __init__(self, network: AcceleratorNetwork, device: DsaDevice, choices: Choices, name: str) -> None:
        self.network, self.device, self.choices, self.name = network, device, choices, name
        self.made: dict[Job, MadeProgram] = {}

    def shared(self, allocation: Allocation, known: float = math.inf) -> DsaProgram:
        """The programs for one way to share a batch. Raises DsaError; SlowerError if it is estimated to take more than
        `known` cycles."""
        runs: list[Run] = []
        programs: dict[Job, MadeProgram] = {}
        left = known
        for part in allocation.rounds:
            if left <= 0:
                raise SlowerError(f"takes more than the {known:.0f} cycles of another share of the batch")
            for job in dict.fromkeys(part.jobs):
                programs[job] = self._program(job, left / part.times)
            runs.append(self._run(part, programs))
            left -= runs[-1].cycles
        return DsaProgram(self.device, allocation, self.choices, tuple(programs.values()), tuple(runs))

    def keep(self, later: Collection[Allocation]) -> None:
        """Forget programs, which are large, that no later way needs."""
        needed = {job for allocation in later for job in allocation.jobs}
        self.made = {job: program for job, program in self.made.items() if job in needed}

    def _program(self, job: Job, known: float) -> MadeProgram:
        if job not in self.made:
            if job.segments:
                self.made[job] = split_program(self.network, self.device, job, self.choices, self.name)
            else:
                self.made[job] = cluster_program(
                    self.network, self.device, job.samples, job.working, self.choices, self.name, known
                )
        return self.made[job]

    def _run(self, part: Round, programs: dict[Job, MadeProgram]) -> Run:
        places = list(programs)
        numbers = tuple(places.index(job) for job in part.jobs)
        each = [programs[job] for job in part.jobs]
        if len(set(numbers)) == 1:
            return Run(part.times, numbers, each[0].timeline)
        share = single_cluster(self.device, len(each)).ddr_capacity
        together = side_by_side([program.program for program in each], share)
        return Run(part.times, numbers, simulate_time(together, self.device))


def batch_axes(network: AcceleratorNetwork, outputs: Collection[int], repeated: bool) -> dict[int, int | None]:
    """Per output, the axis along which its samples lie; None for a value that is the same for all samples.

    Raises DsaError for an output of `repeated` runs if the batch cannot be followed.
    """
    values = network.graph.values
    try:
        larger = network.with_batch(2 * (network.batch or 1)).values
    except DsaError:
        if repeated:
            name = values[min(outputs)].name
            raise DsaError(
                f"output {name!r}: its batch cannot be told; export the model with the batch it is to have"
            ) from None
        return dict.fromkeys(outputs)

    def grown_axis(value: int) -> int | None:
        pairs = zip(values[value].extent.dimensions, larger[value].extent.dimensions, strict=True)
        return next((axis for axis, (before, after) in enumerate(pairs) if before != after), None)

    return {value: grown_axis(value) for value in outputs}
