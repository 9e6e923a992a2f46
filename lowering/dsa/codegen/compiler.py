"""A network for a cluster of an accelerator: ``OperatorGraph, layers, device, samples -> ClusterProgram`` (GraphTurbo,
OSDI 2023). The cluster has its share of DDR, as while others run the same program in lockstep.

Estimates of plans tell which of several ways to run a network are worth a program, for a program takes much longer to
write and to simulate than to plan. So alternatives with many times the steps of others are not planned, and only plans
that may be the fastest become programs.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import msgspec

from ....costmodels.dsa_device import DsaDevice, single_cluster
from ....ir.graph import OperatorGraph
from ...base.choices import OrderName, UpSampling
from ...base.errors import DsaError
from ..network.batches import is_batch_outermost, own_batch, with_batch
from ..network.excerpts import Excerpt
from ..network.graph import Network
from ..network.hidden_layers import split_hidden_layers
from ..network.lookups import with_lookups_apart
from ..network.results import with_results_apart
from ..network.rewriting import ConstantSlice
from ..network.subgraphs import Layer
from ..network.sums import with_products_first
from ..program.instructions import Level, Program
from ..schedule.scheduler import Grouping, Schedule, grouped
from ..schedule.variants import ALTERNATIVES, FULL, Variant
from ..simulate.timing import Timeline, simulate_time
from .estimates import Promise, estimate, least_loading
from .generated import Generated, KernelUse
from .generator import Plan, plan_program, write_program
from .residence import activation_room_of_global_buffer
from .running import running_order, step_count

_MOST_STEPS = 8
"""A way with more than this many times the steps of another is not planned: layers are short and wait often."""
_LOADING_SHARE = 0.5
"""If loading weights takes more than this share of the cycles, it is worth while to load them less often."""
_TOO_SLOW = 1.15
"""Plans whose estimates exceed the cycles of a program that there is by this factor do not become programs: those of
ResNet-50 on 64 KB of LB are within a tenth of what is simulated."""
_RESULT_SHARE = 4
"""A layer's results of other axes than the primary one may take this part of an LB (one divided by it)."""
_CLOSE = 1.06
"""Plans whose estimates exceed the least by up to this factor may lead to the fastest program. Of nine networks on
64 KB of LB the one with the least estimate does, but for MobileNet-v2 (1.01 times the least, 0.97 of the cycles) and a
Vision Transformer (1.05 times, 0.92 of the cycles)."""


class SlowerError(DsaError):
    """All plans are estimated to be slower than a program that there is."""


@dataclass(frozen=True)
class Candidate:
    """A schedule for a variant, which is made if it is asked for; it has `instances`, and no fewer steps."""

    variant: Variant
    instances: int
    make: Callable[[], Schedule]

    @cached_property
    def schedule(self) -> Schedule:
        """The instances and their order."""
        return self.make()

    @cached_property
    def order(self) -> tuple[tuple[int, Layer], ...]:
        """The steps of its program."""
        return tuple(running_order(self.schedule, self.variant))

    def is_like(self, other: Candidate) -> bool:
        """Whether both lead to the same program."""
        first, second = (replace(c.variant, abreast=False, split_for=Level.LB, room=1.0) for c in (self, other))
        cuts = ([(group.subgraph, group.split) for group in c.schedule.graph.groups] for c in (self, other))
        return first == second and self.order == other.order and next(cuts) == next(cuts)


def for_splitting(device: DsaDevice, variant: Variant) -> DsaDevice:
    """The device whose LBs instances are made to fit: with all of them or, as section 3.6 suggests, most of the GB."""
    room = device.activation_buffer
    if variant.split_for is Level.GB:
        room = max(room, activation_room_of_global_buffer(device) // device.cores)
    return replace(device, local_buffer=device.weight_buffer + max(1, int(variant.room * room)))


def promising_plans(candidates: Sequence[Candidate], device: DsaDevice, known: float = math.inf) -> list[Promise]:
    """The plans that are worth a program beside one that takes `known` cycles, the one that promises most first.

    Raises DsaError if none can be planned: that of the last; SlowerError if none is worth a program.
    """
    found: list[Promise] = []
    problem: DsaError | None = None
    least, fewest = None, math.inf

    def most() -> float:
        return _MOST_STEPS * fewest

    for candidate in _distinct(candidates, most):
        saves_loading = candidate.variant.abreast and candidate.variant.room == 1.0  # others leave room to maps, too
        if least is not None and saves_loading and least.loading <= _LOADING_SHARE * least.cycles:
            continue
        longest = math.inf if least is None else _CLOSE * least.cycles
        try:
            if least is not None and least_loading(candidate.schedule, candidate.order, device) > longest:
                continue
            plan = plan_program(candidate.schedule, candidate.variant, longest)
        except DsaError as error:  # another alternative may fit
            problem = error
            continue
        guess = estimate(plan, device)
        fewest = min(fewest, len(plan.residence.flow.steps))
        least = guess if least is None else min(least, guess, key=lambda each: each.cycles)
        found.append(Promise(plan, guess))
        found = [other for other in found if other.estimate.cycles <= _CLOSE * least.cycles]
        del plan  # plans are large
    if least is None:
        assert problem is not None
        raise problem
    if least.cycles > _TOO_SLOW * known:
        raise SlowerError(f"estimated at {least.cycles:.0f} cycles, where another share of the batch takes {known:.0f}")
    return sorted(found, key=lambda each: each.estimate.cycles)


def _distinct(candidates: Sequence[Candidate], most: Callable[[], float]) -> Iterator[Candidate]:
    """Those that lead to different programs and have at most `most()` steps, the one with the fewest steps first.

    No schedule is made if there are more instances than that: tens of thousands of them have millions of edges.
    """
    seen: list[Candidate] = []
    waiting = [(candidate.instances, number, False) for number, candidate in enumerate(candidates)]
    while waiting:
        steps, number, is_scheduled = waiting.pop(waiting.index(min(waiting)))
        candidate = candidates[number]
        if steps > most():
            return
        if not is_scheduled:
            try:
                waiting.append((step_count(candidate.schedule), number, True))
            except DsaError:
                yield candidate  # whoever asks for its schedule is told why
        elif not any(candidate.is_like(other) for other in seen):
            seen.append(candidate)
            yield candidate


_THRESHOLDS = 200_000, 50, 1000
"""Thresholds of Python's collector of cycles while programs are made, far above its own."""


@dataclass(frozen=True)
class AcceleratorNetwork:
    """The network to compile. `element_size` is the bytes of a float on the accelerator; `slices` says of which of the
    model's constants the others are parts, by name. Inputs have their samples along `batch_axis`; None if that cannot
    be followed, so that the network runs as it is. With an `excerpt` it is a part of another network."""

    graph: OperatorGraph
    layers: tuple[Layer, ...]
    element_size: int
    slices: Mapping[str, ConstantSlice]
    batch_axis: int | None = 0
    excerpt: Excerpt | None = None

    @cached_property
    def batch(self) -> int | None:
        """The samples that the graph is made for. None without a batch."""
        return None if self.batch_axis is None else own_batch(self.graph, self.batch_axis)

    def with_batch(self, batch: int) -> OperatorGraph:
        """The graph for another number of samples. Raises DsaError if the batch cannot be followed."""
        return with_batch(self.graph, batch, self.batch_axis or 0)

    def graph_of(self, samples: int) -> OperatorGraph:
        """The graph for some samples, which is its own if it has no batch. Raises DsaError as `with_batch` does."""
        return self.graph if self.batch in (None, samples) else self.with_batch(samples)


@dataclass(frozen=True)
class Choices:
    """How to compile; `per_cluster` samples in each program, the fastest number if None. `order`: the variant's."""

    variant: Variant = FULL
    order: OrderName | None = None
    per_cluster: int | None = None
    up_sampling: UpSampling = "detect"


@dataclass(frozen=True)
class Part:
    """What a cluster does in a program, and the names of its constants' buffers there. `slices` says of which of the
    model's constants its own are parts."""

    generated: Generated
    constants: Mapping[str, str]
    slices: Mapping[str, ConstantSlice]


@dataclass(frozen=True)
class ClusterProgram:
    """A cluster's program, and its simulated run while `working` clusters run it in lockstep."""

    working: int
    generated: Generated
    timeline: Timeline
    clusters = 1

    @property
    def program(self) -> Program:
        """Its instructions."""
        return self.generated.program

    @property
    def uses(self) -> Mapping[str, KernelUse]:
        """What the kernels of the program stand for."""
        return self.generated.uses

    @property
    def kernels(self) -> Mapping[str, OperatorGraph]:
        """The operators of each tile."""
        return self.generated.kernels

    @property
    def network(self) -> Network:
        """What it computes."""
        return self.generated.network

    @property
    def inputs(self) -> Mapping[str, int]:
        """The values of the network that are in its input buffers."""
        return self.generated.inputs

    @property
    def outputs(self) -> Mapping[str, int]:
        """The values of the network that are in its output buffers."""
        return self.generated.outputs

    @property
    def parts(self) -> tuple[Part, ...]:
        """What its only cluster does."""
        own = {name: name for name in (*self.generated.constants, *self.generated.tables)}
        return (Part(self.generated, own, {}),)


def accelerator_network(
    graph: OperatorGraph, layers: Sequence[Layer], device: DsaDevice, element_size: int, batch_axis: int | None = None
) -> AcceleratorNetwork:
    """A graph and its fused layers as the accelerator runs them. Samples lie along the outermost axis of inputs, if
    that can be followed to the results, or along a `batch_axis` that is given.

    Raises DsaError for shapes that are not static, and for inputs of different extents along the batch axis.
    """
    for value in graph.values:
        if value.type is not None and value.type.is_static:
            continue
        if value.producer is None:
            raise DsaError(f"tensor {value.name!r}: its shape is not static; give all shapes with --input-shapes")
        maker = graph.operators[value.producer]
        raise DsaError(
            f"operator {maker.name!r} ({maker.op}): the shape of its result {value.name!r} is not known, or depends on "
            "values of inputs, and an accelerator runs fixed sizes only"
        )
    if not graph.operators:
        raise DsaError("the model computes nothing from its inputs; there is nothing to schedule")
    split = split_hidden_layers(graph, with_lookups_apart(graph, layers))
    arrays = [min(unit.rows, unit.columns) for unit in device.units if unit.kind == "matrix"]
    columns, room = min(arrays, default=1), device.weight_buffer // 2
    network = Network(split.graph, element_size)
    apart = with_results_apart(network, split.layers, device.activation_buffer // _RESULT_SHARE)
    whole = with_products_first(network, apart, room, columns)
    if batch_axis is not None:
        own_batch(split.graph, batch_axis)
    elif is_batch_outermost(split.graph):
        batch_axis = 0
    return AcceleratorNetwork(split.graph, tuple(whole), element_size, split.slices, batch_axis)


def cluster_plans(
    network: AcceleratorNetwork, cluster: DsaDevice, samples: int, choices: Choices, known: float = math.inf
) -> list[Promise]:
    """The plans for some samples on a device of one cluster that may be the fastest, the one that promises most first.

    Raises DsaError; SlowerError if all are estimated to take longer than `known` cycles.
    """

    @cache  # variants whose instances are to fit the same have the same sub-graphs
    def sub_graphs(splitting: DsaDevice, instances: bool) -> Grouping:
        return grouped(
            network.graph, network.layers, splitting,
            batch=samples if network.batch not in (None, samples) else None, batch_axis=network.batch_axis or 0,
            element_size=network.element_size, instances=instances, up_sampling=choices.up_sampling,
            excerpt=network.excerpt,
        )  # fmt: skip

    @cache
    def make_schedule(splitting: DsaDevice, order: OrderName, instances: bool) -> Schedule:
        return replace(sub_graphs(splitting, instances).schedule(order), device=cluster)

    def candidate(variant: Variant) -> Candidate:
        splitting, order = for_splitting(cluster, variant), choices.order or variant.order
        make = partial(make_schedule, splitting, order, variant.instances)
        return Candidate(variant, sub_graphs(splitting, variant.instances).instances, make)

    variants = ALTERNATIVES if choices.variant == FULL else (choices.variant,)
    return promising_plans([candidate(variant) for variant in variants], cluster, known)


def cluster_program(
    network: AcceleratorNetwork, device: DsaDevice, samples: int, working: int, choices: Choices,
    name: str = "network", known: float = math.inf,
) -> ClusterProgram:
    """The program of one of the `working` clusters for some samples, not checked; of several alternatives the fastest.

    Raises DsaError; SlowerError if all are estimated to take longer than `known` cycles.
    """
    cluster = single_cluster(device, working)

    def make_program(plan: Plan, fastest: float) -> ClusterProgram | None:
        """None if it takes no less than `fastest` cycles even if kernels wait less for units than they have to."""
        generated = write_program(plan, samples, name)
        if plan.variant.overlap:
            free = simulate_time(generated.program, cluster, in_order=False)
            if free.cycles >= fastest:
                return None
            generated = replace(generated, program=order_by_start(free))
        timeline = simulate_time(generated.program, cluster)
        return ClusterProgram(working, generated, timeline) if timeline.cycles < fastest else None

    with collecting_seldom():
        promises = cluster_plans(network, cluster, samples, choices, known)[::-1]
        best: ClusterProgram | None = None
        while promises:  # each is forgotten once its program is made: both are large
            promise, fastest = promises.pop(), math.inf if best is None else best.timeline.cycles
            if promise.estimate.moving < fastest:
                best = make_program(promise.plan, fastest) or best
    assert best is not None
    return best


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Programs are millions of objects without cycles, which Python's collector would look through again and again."""
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def order_by_start(free: Timeline) -> Program:
    """Across-layer instruction scheduling (GraphTurbo, OSDI 2023, section 4.4): order a program by starting times.

    The generator writes layer after layer. Engines run their own instructions in the order of the program, so a unit
    that several kernels share, as the vector unit that ends both convolutions and depthwise ones, would keep the tiles
    of the second layer waiting for the last of the first. Instructions are put in the order in which they start in a
    `free` run, in which nobody waits for such a unit. Whatever an instruction has to follow still comes before it.
    """
    program, starts = free.program, free.starts
    order = sorted(range(len(starts)), key=starts.__getitem__)
    place = [0] * len(order)
    for new, old in enumerate(order):
        place[old] = new
    instructions = []
    for old in order:
        instruction = program.instructions[old]
        waits = tuple(sorted([place[wait] for wait in instruction.waits]))
        is_same = waits == instruction.waits
        instructions.append(instruction if is_same else msgspec.structs.replace(instruction, waits=waits))
    return msgspec.structs.replace(program, instructions=tuple(instructions))
