"""Sub-graph instances and their dependences (GraphTurbo, OSDI 2023, section 3.3 and Fig. 6).

Every instance of a consumer inherits an edge from every instance of a producer. Those between instances of which one
reads nothing that the other makes are redundant (the text says it the other way round, but draws it this way), and are
left out. `earlier`, which orders are made from, also leaves out those that longer paths imply.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import NamedTuple

from ...base.errors import DsaError
from ..network.boxes import Box, intersection
from ..network.graph import Network
from .grouping import Group
from .pieces import Pieces, Place


class Part(NamedTuple):
    """The part of a value that an instance makes."""

    instance: int
    value: int


MOST_TRANSFERS = 250_000
"""A plan takes some 16 KB of memory for each part that an instance reads of another's results. Networks of Table 2 have
up to 92,522 of them on 64 KB of LB."""
NETWORK = -1
"""Stands for an instance in parts that are whole inputs of the network."""


@dataclass(frozen=True)
class Transfer:
    """A part of a value that one instance makes and another reads."""

    value: int
    producer: int
    box: Box

    @property
    def part(self) -> Part:
        """All that the producer makes of the value."""
        return Part(self.producer, self.value)


@dataclass(frozen=True)
class Instance:
    """One part of a sub-graph: number `subgraph` in the graph of instances, at `place` along its output's axes.

    `written` are the parts of its outputs that it makes and no other instance does; `needed` those of all values that
    it reads or makes, so of its inputs what has to be at hand.
    """

    subgraph: int
    place: Place
    written: Mapping[int, Box]
    needed: Mapping[int, Box]


@dataclass(frozen=True)
class InstanceGraph:
    """Instances in an order in which they can run, sub-graph after sub-graph.

    `transfers` lists, per instance, what it reads that other instances make: for each of its inputs they cover the
    part that it needs, and do not overlap.
    """

    network: Network
    groups: tuple[Group, ...]
    instances: tuple[Instance, ...]
    transfers: tuple[tuple[Transfer, ...], ...]

    def __len__(self) -> int:
        return len(self.instances)

    @cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """Per instance, those that make what it reads, ascending: the black edges of Fig. 6."""
        return tuple(tuple(sorted({t.producer for t in transfers})) for transfers in self.transfers)

    @cached_property
    def readers(self) -> Mapping[Part, tuple[int, ...]]:
        """Per part, the instances that read some of it, ascending."""
        readers: dict[Part, list[int]] = {}
        for index, transfers in enumerate(self.transfers):
            for transfer in transfers:
                readers.setdefault(transfer.part, []).append(index)
        return {key: tuple(users) for key, users in readers.items()}

    @cached_property
    def earlier(self) -> tuple[tuple[int, ...], ...]:
        """`producers` without those that others of them wait for already (transitively)."""
        return tuple(_reduce_transitively(self.producers))

    @cached_property
    def later(self) -> tuple[tuple[int, ...], ...]:
        """`earlier` the other way round."""
        return _invert(self.earlier)


def instance_graph(network: Network, groups: Sequence[Group], most: int = MOST_TRANSFERS) -> InstanceGraph:
    """The instances of sub-graphs, which come in an order in which they can run.

    Raises DsaError if they read more than `most` parts of each other's results.
    """
    instances: list[Instance] = []
    parts_read = 0
    transfers: list[tuple[Transfer, ...]] = []
    grids: dict[int, _Grid] = {}
    for number, group in enumerate(groups):
        cut = Pieces(network, group.subgraph, group.split.factors)
        parts: dict[int, dict[int, Box]] = {}
        for place in cut.places:
            instance = Instance(number, place, cut.makes(place), cut.needs(place))
            for value, box in instance.written.items():
                parts.setdefault(value, {})[len(instances)] = box
            instances.append(instance)
            read = [value for value in group.subgraph.inputs if value in grids and value in instance.needed]
            transfers_in = (Transfer(v, *part) for v in read for part in grids[v].parts_in(instance.needed[v]))
            transfers.append(tuple(transfers_in))
            parts_read += len(transfers[-1])
            if parts_read > most:
                raise DsaError(
                    f"the {sum(prod(each.split.factors) for each in groups)} instances that fit the buffers read more "
                    f"than {most} parts of each other's results, which is too much for one program; use a device with "
                    "larger buffers, another variant, or fewer samples for each cluster"
                )
        grids |= {value: _Grid(boxes) for value, boxes in parts.items()}
    return InstanceGraph(network, tuple(groups), tuple(instances), tuple(transfers))


class _Grid:
    """The parts of one value, by instance. They are the cells of a grid, so those in a box are found at once."""

    def __init__(self, boxes: Mapping[int, Box]) -> None:
        self.boxes = boxes
        self.at = {tuple(start for start, _ in box): index for index, box in boxes.items()}
        self.starts = [sorted(set(column)) for column in zip(*self.at, strict=True)]

    def parts_in(self, wanted: Box) -> Iterator[tuple[int, Box]]:
        """The instances that make some of a box, ascending, and the part of the box that each makes."""
        ranges = (
            starts[bisect_right(starts, first) - 1 : bisect_left(starts, last)]
            for starts, (first, last) in zip(self.starts, wanted, strict=True)
        )
        for corner in product(*ranges):
            shared = intersection(self.boxes[self.at[corner]], wanted)
            if shared is not None:
                yield self.at[corner], shared


def _invert(edges: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Per node, those whose edges name it, ascending."""
    users: list[list[int]] = [[] for _ in edges]
    for index, sources in enumerate(edges):
        for source in sources:
            users[source].append(index)
    return tuple(map(tuple, users))


def _reduce_transitively(producers: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Leave out edges that a longer path implies."""
    above: list[int] = []  # bit sets of all that each instance waits for
    for sources in producers:
        seen = 0
        kept: list[int] = []
        for source in reversed(sources):
            if not seen >> source & 1:
                kept.append(source)
                seen |= above[source] | 1 << source
        above.append(seen)
        yield tuple(reversed(kept))
