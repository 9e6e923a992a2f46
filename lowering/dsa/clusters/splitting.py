"""A program of several clusters that process the same samples: ``AcceleratorNetwork, device -> SplitProgram``.

The network is cut into segments (segments.py). Each cluster gets a network of its own (excerpts.py), for which a
program is made as for any other, and the programs are joined (joining.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Generic, TypeVar

from ....costmodels.dsa_device import DsaDevice, single_cluster
from ....ir.graph import OperatorGraph
from ...base.errors import DsaError
from ..codegen.compiler import AcceleratorNetwork, Choices, Part, cluster_plans, order_by_start
from ..codegen.generated import Generated, KernelUse
from ..codegen.generator import write_program
from ..network.boxes import Box
from ..network.graph import Network
from ..program.instructions import Program, Role
from ..schedule.clusters import Allocation, Job, Segment
from ..schedule.grouping import topological_order
from ..simulate.timing import Timeline, simulate_time
from .excerpts import Excerpted, excerpt_of
from .joining import Joined, SharedValue, join
from .segments import Segments

Content = TypeVar("Content")
_MOST_SAMPLES = 1
"""More samples for each cluster than these are not shared: the programs of all clusters are long, and gain less. Of
ResNet-50 with two samples for each cluster on 64 KB of LB the better of two takes 0.88 of the time, and both take 400
seconds to compile."""
_CUTS = 2
"""So many ways to cut become programs, those with the least estimates."""


@dataclass(frozen=True)
class _Member:
    """What one of the clusters runs, and the names in the joined program of its constants, its kernels and its tiles'
    graphs."""

    generated: Generated
    excerpted: Excerpted
    constants: Mapping[str, str]
    kernels: Mapping[str, str]
    tiles: Mapping[str, str]

    def shared(self, network: Network) -> dict[str, SharedValue]:
        """What its inputs, constants and outputs in DDR are in the network of all clusters."""
        values = {
            buffer: _shared(network, self.excerpted.origins[value])
            for buffers in (self.generated.inputs, self.generated.outputs)
            for buffer, value in buffers.items()
        }
        return values | {buffer: SharedValue(name, Role.CONSTANT) for buffer, name in self.constants.items()}


def _shared(network: Network, value: int) -> SharedValue:
    found = network.graph.values[value]
    if found.producer is None:
        return SharedValue(found.name, Role.INPUT)
    return SharedValue(found.name, Role.OUTPUT if found.is_output else Role.INTERMEDIATE)


@dataclass(frozen=True)
class SplitProgram:
    """A program of several clusters, and its simulated run while `working` such groups of clusters run it in lockstep.

    `network` is what all of them compute together.
    """

    working: int
    clusters: int
    network: Network
    members: tuple[_Member, ...]
    program: Program
    timeline: Timeline

    @property
    def generated(self) -> Generated:
        """What the first cluster does."""
        return self.members[0].generated

    @cached_property
    def uses(self) -> Mapping[str, KernelUse]:
        """What the kernels of the program stand for."""
        return {
            member.kernels[name]: use._replace(tile=member.tiles[use.tile])
            for member in self.members
            for name, use in member.generated.uses.items()
        }

    @cached_property
    def kernels(self) -> Mapping[str, OperatorGraph]:
        """The operators of each tile."""
        return {
            member.tiles[name]: graph for member in self.members for name, graph in member.generated.kernels.items()
        }

    @property
    def inputs(self) -> Mapping[str, int]:
        """The values of the network that are in its input buffers."""
        return self._buffers(Role.INPUT)

    @property
    def outputs(self) -> Mapping[str, int]:
        """The values of the network that are in its output buffers."""
        return self._buffers(Role.OUTPUT)

    def _buffers(self, role: Role) -> Mapping[str, int]:
        values = {value.name: number for number, value in enumerate(self.network.graph.values)}
        return {buffer.name: values[buffer.name] for buffer in self.program.buffers if buffer.role is role}

    @property
    def parts(self) -> tuple[Part, ...]:
        """What each cluster does."""
        return tuple(
            Part(member.generated, member.constants, member.excerpted.slices) for member in self.members
        )


def cluster_group(device: DsaDevice, clusters: int, working: int) -> DsaDevice:
    """The device of some clusters while `working` such groups run the same program in lockstep: its share of DDR."""
    return replace(single_cluster(device, working), clusters=clusters)


def promising_splits(
    network: AcceleratorNetwork, device: DsaDevice, samples: int, known: Allocation, cycles: float
) -> list[tuple[Segment, ...]]:
    """Ways to cut a network over all clusters, which may be faster than a `known` way to share the samples that takes
    some `cycles`; the one that promises most first."""
    if device.clusters == 1 or samples > _MOST_SAMPLES * device.clusters:
        return []
    graph = network.graph_of(samples)
    whole = Network(graph, network.element_size)
    segments = Segments(whole, topological_order(whole, network.layers), device, device.clusters)
    working = len(known.rounds[0].shares)
    return segments.faster_than(cycles / device.clock, working, known.iterations)[:_CUTS]


def split_program(
    network: AcceleratorNetwork, device: DsaDevice, job: Job, choices: Choices, name: str = "network"
) -> SplitProgram:
    """The program of some clusters that share samples, not checked. Raises DsaError."""
    graph = network.graph_of(job.samples)
    for own, value in zip(network.graph.values, graph.values, strict=True):
        if value.is_constant and value.type != own.type:
            raise DsaError(f"constant {value.name!r} has rows for each sample, which clusters do not share")
    group = cluster_group(device, job.clusters, job.working)
    return _Splitting(Network(graph, network.element_size), network, group, job, choices, name).program()


@dataclass
class _Splitting:
    whole: Network
    network: AcceleratorNetwork
    group: DsaDevice
    job: Job
    choices: Choices
    name: str

    def program(self) -> SplitProgram:
        """The clusters' programs, joined."""
        layers, clusters = topological_order(self.whole, self.network.layers), self.job.clusters
        members: list[_Member] = []
        kernels, tiles = _Names[KernelUse](), _Names[OperatorGraph]()
        constants = _Names[tuple[tuple[str, Box | None], ...]]()
        for cluster in range(clusters):
            excerpted = excerpt_of(self.whole, layers, self.job.segments, cluster, clusters)
            generated = self._generate(excerpted)
            tile_names = {name: tiles.add(name, graph) for name, graph in generated.kernels.items()}
            uses = {name: use._replace(tile=tile_names[use.tile]) for name, use in generated.uses.items()}
            kernel_names = {name: kernels.add(name, use) for name, use in uses.items()}
            own = {name: constants.add(name, content) for name, content in _constants(generated)}
            members.append(_Member(generated, excerpted, own, kernel_names, tile_names))
        joined = [Joined(each.generated.program, each.shared(self.whole), each.kernels) for each in members]
        program = join(joined, self.group.alignment)
        if self.choices.variant.overlap:
            program = order_by_start(simulate_time(program, self.group, in_order=False))
        timeline = simulate_time(program, self.group)
        return SplitProgram(self.job.working, clusters, self.whole, tuple(members), program, timeline)

    def _generate(self, excerpted: Excerpted) -> Generated:
        """A cluster's program, by the plan that promises most."""
        network = replace(
            self.network, graph=excerpted.graph, layers=excerpted.layers, batch_axis=None, excerpt=excerpted.excerpt
        )
        promises = cluster_plans(network, single_cluster(self.group), self.job.samples, self.choices)
        return write_program(promises[0].plan, self.job.samples, self.name)


def _constants(generated: Generated) -> Iterator[tuple[str, tuple[tuple[str, Box | None], ...]]]:
    """The buffers of a program's constants, and the parts of the model's constants in each; tables are whole."""
    values = generated.network.graph.values
    for name, blob in generated.constants.items():
        yield name, tuple((values[value].name, box) for value, box in blob)
    for name, table in generated.tables.items():
        yield name, ((values[table].name, None),)


class _Names(Generic[Content]):
    """Names for contents: equal contents that come with the same name share it."""

    def __init__(self) -> None:
        self.contents: dict[str, Content] = {}

    def add(self, name: str, content: Content) -> str:
        """The name of a content, which is the given one if that is free."""
        for number in count():
            found = f"{name}~{number}" if number else name
            if self.contents.setdefault(found, content) == content:
                return found
        raise AssertionError
