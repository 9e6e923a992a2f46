"""A network for an accelerator: ``OperatorGraph, layers, device, batch -> DsaProgram`` (GraphTurbo, OSDI 2023).

All clusters run the same program in lockstep, each on its share of the samples, iterations one after another
(section 2.1). So one cluster's program is what is made, checked and timed, with its share of DDR.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ...costmodels.dsa_device import DsaDevice, single_cluster
from ...ir.graph import OperatorGraph
from .codegen.alternatives import Candidate, for_splitting, promising
from .codegen.generated import Generated
from .codegen.generator import Plan, written
from .codegen.instruction_order import rescheduled
from .errors import DsaError
from .network.batches import with_batch
from .network.constant_slices import ConstantSlice
from .network.deep_products import split_products
from .network.lookups import with_lookups_apart
from .network.subgraphs import Layer
from .program.validate import validate
from .schedule.clusters import Allocation, allocations
from .schedule.scheduler import OrderName, Schedule, schedule
from .schedule.variants import ALTERNATIVES, FULL, Variant
from .simulate.time_report import TimeReport, report
from .simulate.timing import Timeline, simulate_time

Observer = Callable[[str], None]
_THRESHOLDS = 200_000, 50, 1000
"""For Python's collector of cycles."""
_WORSE = 2
"""So many larger shares per cluster in a row that are no faster end the search."""


@dataclass(frozen=True)
class AcceleratorNetwork:
    """What is compiled. `element_size` is the bytes of a float on the accelerator; `slices` says which of the model's
    constants the others are parts of, by name."""

    graph: OperatorGraph
    layers: tuple[Layer, ...]
    element_size: int
    slices: Mapping[str, ConstantSlice]

    @cached_property
    def batch(self) -> int | None:
        """The samples that the graph is made for: the outermost extent of its inputs. None where they differ."""
        read = {v for operator in self.graph.operators for v in operator.inputs if v is not None}
        given = [self.graph.values[v] for v in sorted(read)]
        shapes = [v.extent.dimensions for v in given if v.producer is None and not v.is_constant]
        found = {shape[0] for shape in shapes if shape}
        return found.pop() if len(found) == 1 else None


@dataclass(frozen=True)
class Choices:
    """How to compile; `per_cluster` samples in each program, the fastest number where None. `order`: the variant's."""

    variant: Variant = FULL
    order: OrderName | None = None
    per_cluster: int | None = None


@dataclass(frozen=True)
class DsaProgram:
    """One cluster's program, how a batch is cut for it, and its simulated run."""

    device: DsaDevice
    allocation: Allocation
    choices: Choices
    generated: Generated
    timeline: Timeline

    @cached_property
    def kernels(self) -> dict[str, OperatorGraph]:
        """What each tile kernel of the program computes."""
        used = {use.tile for use in self.generated.uses.values()}
        return {name: graph for name, graph in self.generated.kernels.graphs.items() if name in used}

    @cached_property
    def report(self) -> TimeReport:
        """The figures of one run of one cluster's program."""
        return report(self.timeline)

    @property
    def cycles(self) -> float:
        """Of the whole batch."""
        return self.allocation.iterations * self.timeline.cycles

    @property
    def seconds(self) -> float:
        """Of the whole batch."""
        return self.cycles / self.device.clock

    def figures(self) -> dict[str, Any]:
        """The time report of the whole batch, for json.dumps; `cluster` is that of one run of the program."""
        return {
            "cycles": self.cycles,
            "seconds": self.seconds,
            "throughput": self.allocation.batch / self.seconds if self.seconds else 0.0,
            "instructions": len(self.generated.program.instructions),
            "cluster": self.report.as_json(),
        }


def accelerator_network(
    graph: OperatorGraph, layers: Sequence[Layer], device: DsaDevice, element_size: int
) -> AcceleratorNetwork:
    """A graph and its fused layers as the accelerator runs them. Raises DsaError for shapes that are not static."""
    _check_shapes(graph)
    if not graph.operators:
        raise DsaError("the model computes nothing from its inputs; there is nothing to schedule")
    apart = with_lookups_apart(graph, layers)
    split = split_products(graph, apart, single_cluster(device), element_size)
    return AcceleratorNetwork(split.graph, tuple(split.layers), element_size, split.slices)


def _check_shapes(graph: OperatorGraph) -> None:
    """Name the operator where the shape is lost, or the tensor that has none from the start."""
    for value in graph.values:
        if value.type is not None and value.type.is_static:
            continue
        if value.producer is not None:
            maker = graph.operators[value.producer]
            what = f"operator {maker.name!r} ({maker.op}): the shape of its result {value.name!r} is not known"
            raise DsaError(f"{what}, or depends on values of inputs, and an accelerator runs fixed sizes only")
        raise DsaError(f"tensor {value.name!r}: its shape is not static; give all shapes with --input-shapes")


def compile_network(
    network: AcceleratorNetwork,
    device: DsaDevice,
    batch: int | None = None,
    choices: Choices = Choices(),
    name: str = "network",
    observer: Observer = lambda line: None,
) -> DsaProgram:
    """The fastest program that was found for a batch (the model's own where None), checked.

    Raises DsaError: a batch that cannot be shared or followed, a tensor that fits nowhere; ProgramError for a program
    that breaks a rule of the device.
    """
    best: DsaProgram | None = None
    problem: DsaError | None = None
    worse = 0
    for allocation in _candidates(network, device, batch, choices.per_cluster):
        try:
            made = program_for(network, device, allocation, choices, name)
        except DsaError as error:  # another share of the batch may fit
            problem = error
            continue
        observer(f"{allocation.per_cluster} sample(s) per cluster: {made.seconds * 1e6:.1f} us")
        worse = 0 if best is None or made.seconds < best.seconds else worse + 1
        best = made if worse == 0 else best
        if worse == _WORSE:
            break
    if best is None:
        raise problem or DsaError(f"batch {batch}: cannot be shared over {device.clusters} clusters")
    validate(best.generated.program, single_cluster(device))
    return best


def _candidates(
    network: AcceleratorNetwork, device: DsaDevice, batch: int | None, per_cluster: int | None
) -> list[Allocation]:
    """Ways to cut the batch, the smallest programs first, as far as the graph can be made for so many samples.

    A graph whose batch cannot be followed is run as it is.
    """
    own = network.batch
    wanted = batch or own
    if wanted is None:
        return [Allocation(1, 1, 1)]
    found = sorted(allocations(wanted, device.clusters), key=lambda each: each.per_cluster)
    if per_cluster is not None and wanted % per_cluster == 0:
        found = [a for a in found if a.per_cluster == per_cluster] or [_alone(wanted, per_cluster)]
    elif per_cluster is not None:
        raise DsaError(f"batch {wanted}: is not divisible into programs of {per_cluster} samples")
    problems = [_obstacle(network, each.per_cluster) for each in found]
    possible = [each for each, problem in zip(found, problems, strict=True) if problem is None]
    if not possible and wanted == own:
        return [_alone(wanted, wanted)]
    if not possible:
        raise next(problem for problem in problems if problem is not None)
    return possible


def _alone(batch: int, per_cluster: int) -> Allocation:
    """One cluster does it all."""
    return Allocation(batch // per_cluster, 1, per_cluster)


def _obstacle(network: AcceleratorNetwork, samples: int) -> DsaError | None:
    """Why a graph cannot be made for so many samples."""
    if samples == network.batch:
        return None
    try:
        with_batch(network.graph, samples)
    except DsaError as error:
        return error
    return None


def program_for(
    network: AcceleratorNetwork, device: DsaDevice, allocation: Allocation, choices: Choices, name: str = "network"
) -> DsaProgram:
    """The program for one way to cut a batch, not checked; of several alternatives the fastest. Raises DsaError."""
    with _collecting_seldom():
        return _best(network, device, allocation, choices, name)


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Programs are millions of objects without cycles, which Python's collector would look through again and again."""
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _best(
    network: AcceleratorNetwork, device: DsaDevice, allocation: Allocation, choices: Choices, name: str
) -> DsaProgram:
    cluster, variants = single_cluster(device), ALTERNATIVES if choices.variant == FULL else (choices.variant,)
    schedules = _Schedules(network, cluster, allocation.per_cluster, choices.order)
    plans = promising([Candidate(variant, schedules.of(variant)) for variant in variants], cluster)
    made = [_program(plan, device, allocation, choices, name) for plan in plans]
    return min(made, key=lambda program: program.timeline.cycles)


@dataclass
class _Schedules:
    """Schedules of some samples of a network; the same for variants that are to fit the same."""

    network: AcceleratorNetwork
    cluster: DsaDevice
    samples: int
    order: OrderName | None
    known: dict[tuple[DsaDevice, OrderName, bool], Schedule] = field(default_factory=dict)

    def of(self, variant: Variant) -> Schedule:
        key = for_splitting(self.cluster, variant), self.order or variant.order, variant.instances
        if key not in self.known:
            self.known[key] = self._made(*key)
        return self.known[key]

    def _made(self, device: DsaDevice, order: OrderName, instances: bool) -> Schedule:
        network = self.network
        found = schedule(
            network.graph,
            network.layers,
            device,
            batch=self.samples if network.batch not in (None, self.samples) else None,
            element_size=network.element_size,
            order=order,
            instances=instances,
        )
        return replace(found, device=self.cluster)


def _program(plan: Plan, device: DsaDevice, allocation: Allocation, choices: Choices, name: str) -> DsaProgram:
    cluster, generated = single_cluster(device), written(plan, allocation.per_cluster, name)
    program = generated.program
    if plan.variant.overlap:
        program = rescheduled(program, cluster)
    timeline = simulate_time(program, cluster)
    return DsaProgram(device, allocation, choices, replace(generated, program=program), timeline)


def batch_axes(network: AcceleratorNetwork, outputs: Iterable[int], repeated: bool) -> dict[int, int | None]:
    """Per output, along which axis its samples lie; None for what is the same for all.

    Where the batch cannot be followed it is the outermost axis, as it is of inputs. Raises DsaError for an output of
    `repeated` runs whose outermost extent is not the batch.
    """
    try:
        larger = with_batch(network.graph, 2 * (network.batch or 1))
    except DsaError:
        return {value: _outermost(network, value) if repeated else None for value in outputs}
    return {value: _changed(network.graph, larger, value) for value in outputs}


def _outermost(network: AcceleratorNetwork, value: int) -> int:
    found = network.graph.values[value]
    if network.batch is None or found.extent.dimensions[:1] != (network.batch,):
        raise DsaError(
            f"output {found.name!r}: its batch cannot be told; export the model with the batch it is to have"
        )
    return 0


def _changed(graph: OperatorGraph, larger: OperatorGraph, value: int) -> int | None:
    pairs = zip(graph.values[value].extent.dimensions, larger.values[value].extent.dimensions, strict=True)
    return next((axis for axis, (a, b) in enumerate(pairs) if a != b), None)
