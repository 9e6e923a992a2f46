"""Where to cut a network that several clusters run together: ``Network, layers, device -> segments``.

A segment is some layers that follow each other. Its results are divided over the clusters along one axis (samples,
rows, columns), or all made by the first cluster, and exchanged through DDR. Inside of a segment each cluster computes
all that its part of the results needs, so what windows overlap is computed twice, and weights that all parts need are
loaded by every cluster.

Times are estimates: the units of the busiest cluster, DDR's bandwidth for weights and exchanged values, and its latency
for each exchange. Weights arrive while earlier segments run, so the whole takes about the larger one of the two sums.
What promises most is sought by dynamic programming over the layers, with several weights for each sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ....costmodels.dsa_device import DsaDevice
from ....costmodels.dsa_work import unit_seconds
from ..network.boxes import Box, Shape, hull, size, whole
from ..network.graph import Network
from ..network.lookups import looked_up
from ..network.subgraphs import Layer
from ..schedule.clusters import Segment

_WEIGHTS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
"""Of the time of units against that of DDR, for each of which the best segments are found."""
_APART = 1 / 3
"""Of the shorter one of both times this part adds to the longer one."""
_WORTH = 0.95
"""A program is made if it is estimated to take less than this part of the time."""
_MOST_SLOWER = 4.0
"""Units are taken to be at most this many times slower than estimated."""
_LONGEST = 60
"""The most layers of a segment whose time is estimated."""
_FEW = 2
"""Of two clusters none is between others."""
_LATENCIES = 8
"""An exchange takes this many of DDR's latencies: a tile's result leaves, clusters wait for the last of them, and what
the next segment reads arrives."""


@dataclass(frozen=True)
class Time:
    """Seconds of the units of the busiest cluster, of DDR for all clusters, and of waits for others' results."""

    units: float = 0.0
    ddr: float = 0.0
    waits: float = 0.0

    def __add__(self, other: Time) -> Time:
        return Time(self.units + other.units, self.ddr + other.ddr, self.waits + other.waits)

    @property
    def seconds(self) -> float:
        """Of all, most of what units and DDR do at the same time."""
        computing = self.units + self.waits
        return max(computing, self.ddr) + _APART * min(computing, self.ddr)

    def slower(self, factor: float) -> Time:
        """The time with slower units."""
        return Time(self.units * factor, self.ddr, self.waits)

    def slowness(self, seconds: float) -> float:
        """How much slower units have to be for all to take some seconds."""
        if not self.units:
            return 1.0
        beside = (seconds - self.ddr) / (_APART * self.units)
        return beside if beside * self.units <= self.ddr else (seconds - _APART * self.ddr) / self.units

    def weighted(self, weight: float) -> float:
        """A sum of all."""
        return weight * (self.units + self.waits) + (1 - weight) * self.ddr


def part_of(shape: Shape, axis: int | None, cluster: int, clusters: int) -> Box | None:
    """The part of a result that a cluster makes; None if it makes nothing of it.

    What has one index along the axis is the first cluster's; of fewer indices than clusters each has a cluster.
    """
    if axis is None or axis >= len(shape) or shape[axis] == 1:
        return whole(shape) if cluster == 0 else None
    start, stop = (-(-shape[axis] * number // clusters) for number in (cluster, cluster + 1))
    return (*whole(shape[:axis]), (start, stop), *whole(shape[axis + 1 :])) if start < stop else None


class Segments:
    """The segments of a network, its `layers` in an order in which they can run, on some clusters of a device."""

    def __init__(self, network: Network, layers: Sequence[Layer], device: DsaDevice, clusters: int) -> None:
        self.network, self.layers, self.device, self.clusters = network, tuple(layers), device, clusters
        self.latency = _LATENCIES * device.dma_latency
        self.layer_of = {index: number for number, layer in enumerate(layers) for index in layer}

    @cached_property
    def unit_seconds(self) -> tuple[float, ...]:
        """Per operator, the time of a cluster's units for all of it."""
        return tuple(unit_seconds(operation, self.device) for operation in self.network.graph.operations)

    @cached_property
    def last_reader(self) -> tuple[float, ...]:
        """Per value, the last layer that reads it; infinity for results of the network."""
        graph = self.network.graph
        return tuple(
            math.inf if value.is_output else max((self.layer_of[r] for r in graph.consumers[index]), default=-1)
            for index, value in enumerate(graph.values)
        )

    @cached_property
    def tables(self) -> frozenset[int]:
        """Constants of which a few rows are read."""
        return looked_up(self.network, self.layers)

    @cached_property
    def alone(self) -> Time:
        """The time of one cluster that does everything."""
        return self._segment(0, len(self.layers), None)

    def faster_than(self, seconds: float, working: int, iterations: int) -> list[tuple[Segment, ...]]:
        """Ways to cut the network that may take less than some seconds, the best first.

        So long take clusters of which `working` share the samples, in some iterations; which tells how much longer
        units take than is estimated.
        """
        shared = Time(self.alone.units / working, self.alone.ddr * working * iterations)
        slower = min(max(1.0, shared.slowness(seconds)), _MOST_SLOWER)
        least = Time(self.alone.units / self.clusters, self.alone.ddr).slower(slower)
        if least.seconds > _WORTH * seconds:
            return []
        found = dict(self._best(weight, slower) for weight in _WEIGHTS)
        order = sorted(found, key=lambda segments: found[segments].seconds)
        return [s for s in order if found[s].seconds <= _WORTH * seconds and any(e.axis is not None for e in s)]

    def _best(self, weight: float, slower: float) -> tuple[tuple[Segment, ...], Time]:
        """The segments with the least weighted sum of times, and their time, with slower units."""
        best: list[tuple[tuple[Segment, ...], Time]] = [((), Time())]
        for last in range(1, len(self.layers) + 1):
            ways = []
            for segment, time in self._ending_at[last]:
                before, earlier = best[segment.first]
                stays = not before or (segment.axis is None and before[-1].axis is None)
                waits = 0.0 if stays else self.latency
                ways.append((earlier + time.slower(slower) + Time(waits=waits), before, segment))
            time, before, segment = min(ways, key=lambda way: way[0].weighted(weight))
            best.append((_with_segment(before, segment), time))
        return best[-1]

    @cached_property
    def _ending_at(self) -> tuple[list[tuple[Segment, Time]], ...]:
        """Per number of layers, the segments that end there, and their times."""
        return tuple(
            [each for axis in self._axes(last) for each in self._segments(last, axis)] if last else []
            for last in range(len(self.layers) + 1)
        )

    def _axes(self, last: int) -> Iterator[int | None]:
        """The axes along which the results of a layer can be divided."""
        yield None
        operators = self.network.graph.operators
        shapes = [self.network.shapes[v] for index in self.layers[last - 1] for v in operators[index].outputs]
        for axis in range(max(map(len, shapes))):
            if any(axis < len(shape) and shape[axis] > 1 for shape in shapes):
                yield axis

    def _segments(self, last: int, axis: int | None) -> Iterator[tuple[Segment, Time]]:
        """Segments of more and more layers before the last one, as long as it takes."""
        growing = self._growing(last, axis)
        for first in range(last - 1, max(-1, last - 1 - _LONGEST), -1):
            growing.add_layer(first)
            yield Segment(first, last, axis), self._time(growing, axis)

    def _segment(self, first: int, last: int, axis: int | None) -> Time:
        growing = self._growing(last, axis)
        for number in range(last - 1, first - 1, -1):
            growing.add_layer(number)
        return self._time(growing, axis)

    def _growing(self, last: int, axis: int | None) -> _Growing:
        """What a cluster does that has neighbours, if any has them; others do about the same."""
        return _Growing(self, axis, 0 if axis is None or self.clusters <= _FEW else 1, last)

    def _time(self, growing: _Growing, axis: int | None) -> Time:
        moved = (growing.weights + growing.written + growing.read) * growing.sharing
        return Time(growing.units, moved / self.device.ddr_bandwidth)


def _with_segment(before: tuple[Segment, ...], segment: Segment) -> tuple[Segment, ...]:
    """Segments that the first cluster computes are one, if they follow each other."""
    if before and before[-1].axis is None and segment.axis is None:
        return (*before[:-1], Segment(before[-1].first, segment.last, None))
    return (*before, segment)


class _Growing:
    """What a cluster does for a segment, to which layers are added from its end on."""

    def __init__(self, segments: Segments, axis: int | None, cluster: int, last: int) -> None:
        self.segments, self.axis, self.cluster, self.last = segments, axis, cluster, last
        self.needed: dict[int, Box] = {}
        self.units, self.weights, self.written = 0.0, 0, 0
        self.sharing = 1
        """The clusters that make results."""
        self._inputs: dict[int, int] = {}

    @property
    def read(self) -> int:
        """Bytes of what other segments make, or are inputs."""
        return sum(self._inputs.values())

    def add_layer(self, number: int) -> None:
        """Add a layer in front of the others."""
        network, segments = self.segments.network, self.segments
        for index in reversed(segments.layers[number]):
            operator = network.graph.operators[index]
            for result in operator.outputs:
                self._inputs.pop(result, None)
                if segments.last_reader[result] >= self.last:
                    part = self._part(network.shapes[result])
                    both = hull(self.needed.get(result), part)
                    self.written += network.bytes(result, part)
                    self.needed[result] = both or part
                if result in self.needed:
                    self._operator(index, result, self.needed[result])

    def _part(self, shape: Shape) -> Box:
        """The part of a result; of what is too short for all clusters that of the first one."""
        if self.axis is not None and self.axis < len(shape):
            self.sharing = max(self.sharing, min(shape[self.axis], self.segments.clusters))
        of_first = part_of(shape, self.axis, 0, self.segments.clusters)
        return part_of(shape, self.axis, self.cluster, self.segments.clusters) or of_first or whole(shape)

    def _operator(self, index: int, result: int, box: Box) -> None:
        network, segments = self.segments.network, self.segments
        share = size(box) / max(1, size(whole(network.shapes[result])))
        self.units += segments.unit_seconds[index] * share / len(network.graph.operators[index].outputs)
        operands = network.operands(index, result, box)
        for value, needed in zip(network.graph.operators[index].inputs, operands, strict=True):
            if value is None or needed is None:
                continue
            if value in segments.tables:
                self.weights += network.bytes(result, box)
            elif network.graph.values[value].is_constant:
                self.weights += network.bytes(value, needed)
            else:
                self.needed[value] = hull(self.needed.get(value), needed) or needed
                self._inputs[value] = network.bytes(value, self.needed[value])
