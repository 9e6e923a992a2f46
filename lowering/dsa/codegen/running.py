"""The order in which layers of instances run.

Instances run one after another, as the schedule orders them. Each of them then loads all weights of its sub-graph,
but for those that the GB keeps. Instances of one sub-graph that follow each other may run abreast instead: they take
turns after every few layers, which have no more weights than the GB keeps for the next instance. What these layers hand
on is live for all of the instances meanwhile, so as many run abreast as the GB has room for. Layers without weights do
not end a turn: what is between them, as scores of attention are, is live for one instance at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from ....costmodels.dsa_device import DsaDevice
from ..network.boxes import Box
from ..network.lookups import indexed_table
from ..network.subgraphs import Layer
from ..schedule.instances import InstanceGraph, Part
from ..schedule.scheduler import Schedule
from ..schedule.variants import Variant
from ..tiles.core_parts import layer_outputs
from .residence import activation_room_of_global_buffer

_KEPT = 0.75
"""The share of the GB's room for weights that holds weights for the next instance; the rest is for what arrives."""

Steps = list[tuple[int, Layer]]
"""Instances, and the layers of them that run."""


def running_order(schedule: Schedule, variant: Variant) -> Iterator[tuple[int, Layer]]:
    """Instances one after another, or abreast. A layer of which an instance needs nothing does not run for it."""
    graph = schedule.graph
    turns = _Turns(graph, schedule.device, schedule.order)
    for subgraph, run in groupby(schedule.order, key=lambda instance: graph.instances[instance].subgraph):
        layers, instances = graph.groups[subgraph].subgraph.layers, list(run)
        steps = turns.abreast(layers, instances) if variant.abreast else _in_turns([layers], instances)
        for instance, layer in steps:
            if layer_outputs(graph.network, layer, graph.instances[instance].needed):
                yield instance, layer


def _in_turns(turns: Sequence[Sequence[Layer]], instances: Sequence[int]) -> Steps:
    """Turn after turn, the layers of each for one instance after another."""
    return [(instance, layer) for layers in turns for instance in instances for layer in layers]


@dataclass(frozen=True)
class _Turns:
    graph: InstanceGraph
    device: DsaDevice
    order: Sequence[int]

    @cached_property
    def place(self) -> Mapping[int, int]:
        """Of each instance in the order."""
        return {instance: place for place, instance in enumerate(self.order)}

    def abreast(self, layers: Sequence[Layer], instances: Sequence[int]) -> Steps:
        """As many instances abreast as the GB has room for, evenly many at a time."""
        turns = list(self._turns(layers))
        for times in range(1, len(instances) + 1):
            count = -(-len(instances) // times)
            groups = [instances[first : first + count] for first in range(0, len(instances), count)]
            steps = [step for group in groups for step in _in_turns(turns, group)]
            if self._peak(steps) <= activation_room_of_global_buffer(self.device):
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

    def _peak(self, steps: Steps) -> int:
        """The most bytes of results of layers that are live during some steps, with those of other instances."""
        network, last = self.graph.network, len(steps)
        first_use: dict[Part, int] = {}
        last_use: dict[Part, int] = {}
        for number, (instance, layer) in enumerate(steps):
            needed = self.graph.instances[instance].needed
            made = layer_outputs(network, layer, needed)
            for part in (*(Part(instance, value) for value in made), *self._read(instance, layer, needed)):
                first_use.setdefault(part, number if part.instance == instance and part.value in made else 0)
                last_use[part] = number
        end = max(self.place[instance] for instance, _ in steps)
        for part, readers in self.graph.readers.items():
            if self.place[part.instance] <= end < max(self.place[reader] for reader in readers):
                first_use.setdefault(part, 0)
                last_use[part] = last - 1
        changes = [0] * (last + 1)
        for part, first in first_use.items():
            box = self.graph.instances[part.instance].needed[part.value]
            changes[first] += network.bytes(part.value, box)
            changes[last_use[part] + 1] -= network.bytes(part.value, box)
        most = now = 0
        for change in changes:
            now += change
            most = max(most, now)
        return most

    def _read(self, instance: int, layer: Layer, needed: Mapping[int, Box]) -> Iterator[Part]:
        """The parts of others' results that a layer reads."""
        graph = self.graph.network.graph
        inside = {v for index in layer for v in graph.operators[index].outputs}
        operands = {v for index in layer for v in graph.operators[index].inputs if v is not None}
        for value in operands - inside:
            if value in needed and not graph.values[value].is_constant and graph.values[value].producer is not None:
                handed = [each.part for each in self.graph.transfers[instance] if each.value == value]
                yield from handed or [Part(instance, value)]
