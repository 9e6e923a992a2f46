"""Sub-graphs: layers that become one kernel per instance, and the bytes that an instance takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from .boxes import Box, shape_of
from .graph import Network

Layer = tuple[int, ...]
"""Operators that are fused into one loop nest, ascending."""


@dataclass(frozen=True)
class SubGraph:
    """Layers in an order in which they can run, with the values that cross their borders.

    `inputs` and `constants` come from outside; `outputs` are read outside, the primary one last: it has most elements
    of those made by the last layer. `intermediates` go from layer to layer, and only there; what stays in a layer is
    never stored as a whole.
    """

    layers: tuple[Layer, ...]
    inputs: tuple[int, ...]
    constants: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]

    @cached_property
    def members(self) -> tuple[int, ...]:
        """All operators, ascending."""
        return tuple(sorted(index for layer in self.layers for index in layer))

    @property
    def primary(self) -> int:
        """The output whose loops say how the sub-graph is split."""
        return self.outputs[-1]

    @cached_property
    def stored(self) -> tuple[int, ...]:
        """All values that an instance keeps in a buffer: inputs, intermediates, outputs."""
        return (*self.inputs, *self.intermediates, *self.outputs)


def sub_graph(network: Network, layers: Iterable[Layer]) -> SubGraph:
    """The sub-graph of these layers, given in an order in which they can run."""
    ordered = tuple(tuple(sorted(layer)) for layer in layers)
    graph = network.graph
    owner = {index: number for number, layer in enumerate(ordered) for index in layer}
    read = sorted({v for index in owner for v in graph.operators[index].inputs if v is not None})
    outside = [v for v in read if graph.values[v].producer not in owner]
    outputs, intermediates = [], []
    for index in sorted(owner):
        for value in graph.operators[index].outputs:
            readers = graph.consumers[value]
            if graph.values[value].is_output or not readers or not owner.keys() >= set(readers):
                outputs.append(value)
            elif any(owner[reader] != owner[index] for reader in readers):
                intermediates.append(value)
    is_constant = {v: graph.values[v].is_constant for v in outside}
    last = set(ordered[-1])
    outputs.sort(key=lambda v: (graph.values[v].producer in last, prod(network.shapes[v]), v))
    return SubGraph(
        ordered,
        tuple(v for v in outside if not is_constant[v]),
        tuple(v for v in outside if is_constant[v]),
        tuple(outputs),
        tuple(intermediates),
    )


def structure_of(network: Network, subgraph: SubGraph) -> object:
    """A key that is equal for sub-graphs of which one is the other with other numbers, as repeated blocks are."""
    graph, members = network.graph, subgraph.members
    place = {index: number for number, index in enumerate(members)}
    used = {v for index in members for v in (*graph.operators[index].inputs, *graph.operators[index].outputs)}
    number = {v: n for n, v in enumerate(sorted(v for v in used if v is not None))}

    def numbers(values: Iterable[int | None]) -> tuple[int | None, ...]:
        return tuple(None if value is None else number[value] for value in values)

    operators = (graph.operators[index] for index in members)
    return (
        tuple(
            (o.op, tuple(sorted(o.attributes.items())), o.is_opaque, numbers(o.inputs), numbers(o.outputs))
            for o in operators
        ),
        tuple((graph.values[v].type, network.shapes[v]) for v in number),
        tuple(tuple(place[index] for index in layer) for layer in subgraph.layers),
        *(numbers(v) for v in (subgraph.inputs, subgraph.constants, subgraph.outputs, subgraph.intermediates)),
    )


@dataclass(frozen=True)
class Lifetimes:
    """Per stored value, the first and the last layer of its sub-graph during which an instance keeps it.

    Inputs are there from the start, outputs until the end.
    """

    spans: Mapping[int, tuple[int, int]]
    count: int


def lifetimes(network: Network, subgraph: SubGraph) -> Lifetimes:
    """When an instance keeps each of its values, weights left out: they pass through a buffer of their own."""
    owner = {index: number for number, layer in enumerate(subgraph.layers) for index in layer}
    spans: dict[int, tuple[int, int]] = {}
    end = len(subgraph.layers) - 1
    for value in subgraph.stored:
        readers = [owner[r] for r in network.graph.consumers[value] if r in owner]
        producer = network.graph.values[value].producer
        start = 0 if producer is None else owner.get(producer, 0)
        spans[value] = (start, end if value in subgraph.outputs else max(readers, default=start))
    return Lifetimes(spans, end + 1)


def peak_bytes(network: Network, kept: Lifetimes, boxes: Mapping[int, Box]) -> int:
    """The most bytes that the parts `boxes` of stored values take at once, over the layers of a sub-graph."""
    changes = [0] * (kept.count + 1)
    for value, (start, stop) in kept.spans.items():
        if value in boxes:
            amount = network.bytes(value, boxes[value])
            changes[start] += amount
            changes[stop + 1] -= amount
    most = now = 0
    for change in changes:
        now += change
        most = max(most, now)
    return most


def moved_axis(network: Network, value: int, boxes: Sequence[Mapping[int, Box]]) -> int | None:
    """The one axis of `value` along which instances need different parts of it; None if it is not one.

    This is Algorithm 1's match_dim: `boxes` are what two or more instances need, which lie along one dimension of
    their sub-graph's output.
    """
    parts = [box[value] for box in boxes if value in box]
    if len(parts) < len(boxes) or not parts:
        return None
    axes = [axis for axis, intervals in enumerate(zip(*parts, strict=True)) if len(set(intervals)) > 1]
    if len(axes) != 1 or shape_of(parts[0])[axes[0]] >= network.shapes[value][axes[0]]:
        return None
    return axes[0]
