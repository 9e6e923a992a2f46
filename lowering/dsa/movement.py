"""Auxiliary operations between instances (GraphTurbo, OSDI 2023, section 3.5, Figs. 8 and 9).

Before an instance runs, the parts of each of its inputs are brought to it: parts of parts are cut out (section 3.6: the
opposite of concatenation, for up-sampling), copied to the scope and redistributed to the cores where it wants them,
and concatenated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from .binding import AxisMaps, Bindings
from .boxes import Box, shape_of
from .core_factors import Binding, plain_binding, smaller
from .instances import InstanceGraph, Transfer
from .scopes import Scope

Kind = Literal["split", "copy", "redistribute", "concat"]


@dataclass(frozen=True)
class Placement:
    """Where a tensor is, and how the cores share it."""

    scope: Scope
    binding: Binding


@dataclass(frozen=True)
class Movement:
    """One auxiliary operation for an instance, on the part `box` of a value.

    `producer` is the instance that made the part: None for inputs of the network, and for a concatenation, whose parts
    are those of all producers.
    """

    kind: Kind
    value: int
    producer: int | None
    box: Box
    source: Placement
    target: Placement


def movements(
    graph: InstanceGraph, bindings: Bindings, inputs: Mapping[int, Scope], cores: int
) -> tuple[tuple[Movement, ...], ...]:
    """Per instance, what brings its inputs to it, in order. `inputs`: where the inputs of the network are."""
    planner = _Planner(graph, AxisMaps(graph), bindings, inputs, cores)
    return tuple(tuple(planner.instance(index)) for index in range(len(graph)))


@dataclass(frozen=True)
class _Planner:
    graph: InstanceGraph
    axes: AxisMaps
    bindings: Bindings
    inputs: Mapping[int, Scope]
    cores: int

    def instance(self, index: int) -> Iterator[Movement]:
        instance = self.graph.instances[index]
        for value in self.graph.groups[instance.subgraph].subgraph.inputs:
            box = instance.needed.get(value)
            if box is not None:
                yield from self._operand(index, value, box)

    def _operand(self, index: int, value: int, box: Box) -> Iterator[Movement]:
        target = self._wanted(index, value, box)
        transfers = [t for t in self.graph.transfers[index] if t.value == value]
        if not transfers:
            source = Placement(self.inputs[value], target.binding)
            if source != target:
                yield Movement("copy", value, None, box, source, target)
            return
        for transfer in transfers:
            yield from self._part(transfer, target, is_alone=len(transfers) == 1)
        if len(transfers) > 1:
            yield Movement("concat", value, None, box, target, target)

    def _wanted(self, index: int, value: int, box: Box) -> Placement:
        """Where and how an instance wants an input, all parts together: at its own level, in step with its output."""
        subgraph = self.graph.instances[index].subgraph
        group = self.graph.groups[subgraph]
        own = self.bindings.binding[index, group.subgraph.primary]
        inferred = self.axes.inferred(subgraph, own, value, box)
        binding = inferred or plain_binding(shape_of(box), self.cores, self.axes.kept(value))
        return Placement(group.split.level, binding)

    def _part(self, transfer: Transfer, target: Placement, is_alone: bool) -> Iterator[Movement]:
        """Parts that are to be concatenated are given the smaller factors of both (Fig. 9), others the wanted ones."""
        tensor = transfer.producer, transfer.value
        now = Placement(self.bindings.scope[tensor], self.bindings.binding[tensor])
        if transfer.box != self.graph.instances[transfer.producer].written[transfer.value]:
            yield Movement("split", transfer.value, transfer.producer, transfer.box, now, now)
        if now.scope is not target.scope:
            after = Placement(target.scope, now.binding)
            yield Movement("copy", transfer.value, transfer.producer, transfer.box, now, after)
            now = after
        binding = target.binding if is_alone else smaller(now.binding, target.binding)
        if binding != now.binding:
            after = Placement(now.scope, binding)
            yield Movement("redistribute", transfer.value, transfer.producer, transfer.box, now, after)
