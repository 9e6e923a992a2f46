"""The order in which layers of instances run.

Instances run one after another, as the schedule orders them. Each of them then loads all weights of its sub-graph,
but for those that the GB keeps. Instances of one sub-graph that follow each other may run abreast instead: they take
turns after every few layers, which have no more weights than the GB keeps for the next instance. What these layers hand
on is live for all of the instances meanwhile, so as many run abreast as the GB has room for, and the LBs for the one
whose turn it is, if they are as large as instances. Layers without weights do not end a turn: what is between them, as
scores of attention are, is live for one instance at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, groupby

from ....costmodels.dsa_device import DsaDevice
from ..network.boxes import Box
from ..network.lookups import indexed_table
from ..network.subgraphs import Layer
from ..schedule.instances import InstanceGraph, Part
from ..schedule.scheduler import Schedule
from ..schedule.variants import Variant
from ..tiles.core_parts import layer_outputs
from .residence import activation_room_of_global_buffer, has_large_instances

_KEPT = 0.75
"""The share of the GB's room for weights that holds weights for the next instance; the rest is for what arrives."""

Steps = list[tuple[int, Layer]]
"""Instances, and the layers of them that run."""


def running_order(schedule: Schedule, variant: Variant) -> Iterator[tuple[int, Layer]]:
    """Instances one after another, or abreast. A layer of which an instance needs nothing does not run for it."""
    graph = schedule.graph
    room, device = activation_room_of_global_buffer(schedule.device), schedule.device
    if not has_large_instances(variant, device):
        room += device.cores * device.activation_buffer
    turns = _Turns(graph, device, schedule.order, room)
    for subgraph, run in groupby(schedule.order, key=lambda instance: graph.instances[instance].subgraph):
        layers, instances = graph.groups[subgraph].subgraph.layers, list(run)
        steps = turns.abreast(layers, instances) if variant.abreast else _in_turns([layers], instances)
        for instance, layer in steps:
            if layer_outputs(graph.network, layer, graph.instances[instance].needed):
                yield instance, layer


def step_count(schedule: Schedule) -> int:
    """How many steps run, whatever their order."""
    graph = schedule.graph
    layers = ((each, layer) for each in graph.instances for layer in graph.groups[each.subgraph].subgraph.layers)
    return sum(bool(layer_outputs(graph.network, layer, each.needed)) for each, layer in layers)


def _in_turns(turns: Sequence[Sequence[Layer]], instances: Sequence[int]) -> Steps:
    """Turn after turn, the layers of each for one instance after another."""
    return [(instance, layer) for layers in turns for instance in instances for layer in layers]


@dataclass(frozen=True)
class _Turns:
    graph: InstanceGraph
    device: DsaDevice
    order: Sequence[int]
    room: int
    """Bytes for results of layers that are live at once."""
    sizes: dict[Part, int] = field(default_factory=dict)
    uses: dict[tuple[int, Layer], tuple[tuple[Part, ...], tuple[Part, ...]]] = field(default_factory=dict)

    @cached_property
    def place(self) -> Mapping[int, int]:
        """Of each instance in the order."""
        return {instance: place for place, instance in enumerate(self.order)}

    def abreast(self, layers: Sequence[Layer], instances: Sequence[int]) -> Steps:
        """As many instances abreast as there is room for, evenly many at a time."""
        turns, kept = list(self._turns(layers)), self._kept(instances)
        for times in range(1, len(instances) + 1):
            count = -(-len(instances) // times)
            groups = [instances[first : first + count] for first in range(0, len(instances), count)]
            steps = [step for group in groups for step in _in_turns(turns, group)]
            if self._peak(steps, kept) <= self.room:
                return steps
        return _in_turns([layers], instances)

    def _turns(self, layers: Sequence[Layer]) -> Iterator[list[Layer]]:
        """Layers one after another, as many as have weights that the GB keeps."""
        room = _KEPT * (self.device.global_buffer - activation_room_of_global_buffer(self.device))
        turn: list[Layer] = []
        held = 0
        for layer in layers:
            weights = self._weights(layer)
            if turn and weights and held + weights > room:
                yield turn
                turn, held = [], 0
            turn.append(layer)
            held += weights
        yield turn

    def _weights(self, layer: Layer) -> int:
        """Bytes of a layer's weights; tables stay in DDR."""
        network = self.graph.network
        if indexed_table(network, layer) is not None:
            return 0
        operands = {v for index in layer for v in network.graph.operators[index].inputs if v is not None}
        return sum(network.bytes(v) for v in operands if network.graph.values[v].is_constant)

    def _peak(self, steps: Steps, kept: Collection[Part]) -> int:
        """The most bytes of results of layers that are live during some steps, with those of other instances. Parts
        that are `kept` are live to the end."""
        last = len(steps)
        first_use: dict[Part, int] = {}
        last_use: dict[Part, int] = {}
        for number, step in enumerate(steps):
            made, read = self._uses(step)
            for part in made:
                first_use.setdefault(part, number)
                last_use[part] = number
            for part in read:
                first_use.setdefault(part, 0)
                last_use[part] = number
        for part in kept:
            first_use.setdefault(part, 0)
            last_use[part] = last - 1
        changes = [0] * (last + 1)
        for part, first in first_use.items():
            changes[first] += self._bytes(part)
            changes[last_use[part] + 1] -= self._bytes(part)
        return max(accumulate(changes))

    def _kept(self, instances: Sequence[int]) -> list[Part]:
        """The parts that somebody reads after some instances."""
        end = max(self.place[instance] for instance in instances)
        return [part for part, last in self.last_readers.items() if self.place[part.instance] <= end < last]

    @cached_property
    def last_readers(self) -> Mapping[Part, int]:
        """Of each part that others read, the place of the last one in the order."""
        return {part: max(self.place[each] for each in readers) for part, readers in self.graph.readers.items()}

    def _bytes(self, part: Part) -> int:
        if part not in self.sizes:
            box = self.graph.instances[part.instance].needed[part.value]
            self.sizes[part] = self.graph.network.bytes(part.value, box)
        return self.sizes[part]

    def _uses(self, step: tuple[int, Layer]) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
        """The parts that a step makes and reads: many ways to take turns have it."""
        if step not in self.uses:
            instance, layer = step
            needed = self.graph.instances[instance].needed
            made = (Part(instance, value) for value in layer_outputs(self.graph.network, layer, needed))
            self.uses[step] = tuple(made), tuple(self._read(instance, layer, needed))
        return self.uses[step]

    def _read(self, instance: int, layer: Layer, needed: Mapping[int, Box]) -> Iterator[Part]:
        """The parts of others' results that a layer reads."""
        graph = self.graph.network.graph
        inside = {v for index in layer for v in graph.operators[index].outputs}
        operands = {v for index in layer for v in graph.operators[index].inputs if v is not None}
        for value in operands - inside:
            if value in needed and not graph.values[value].is_constant and graph.values[value].producer is not None:
                handed = [each.part for each in self.graph.transfers[instance] if each.value == value]
                yield from handed or [Part(instance, value)]
