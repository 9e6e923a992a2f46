"""The parts of a sub-graph's outputs that its instances make, and what each instance needs for its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from ..network.boxes import Box, Shape, piece
from ..network.graph import Network
from ..network.subgraphs import SubGraph, moved_axis

Place = tuple[int, ...]
"""Which instance: a number along each axis of the primary output."""


@dataclass(frozen=True)
class Pieces:
    """A sub-graph whose primary output is cut into `factors` along its axes, which divide its extents.

    Other outputs are cut along with it (section 3.6): along the axis that moves with the primary output's, else along
    the axis of the same number; if neither can be cut evenly, the first instance along that axis makes all of it.
    So every element of every output is made by one instance.
    """

    network: Network
    subgraph: SubGraph
    factors: tuple[int, ...]

    @property
    def shape(self) -> Shape:
        """The extents of the primary output."""
        return self.network.shapes[self.subgraph.primary]

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """All instances, row by row."""
        return tuple(product(*(range(factor) for factor in self.factors)))

    @cached_property
    def samples(self) -> tuple[Place, ...]:
        """Some instances that differ as much as any: along each axis at both ends, beside the first, in the middle."""
        middle = tuple(factor // 2 for factor in self.factors)
        samples = {middle: None}
        for axis, factor in enumerate(self.factors):
            for index in {0, min(1, factor - 1), factor - 1}:
                samples[(*middle[:axis], index, *middle[axis + 1 :])] = None
        return tuple(samples)

    def makes(self, place: Place) -> dict[int, Box]:
        """Per output, the part that an instance makes; outputs of which it makes nothing are left out."""
        boxes = {value: self._part(value, place) for value in self.subgraph.outputs}
        return {value: box for value, box in boxes.items() if box is not None}

    def needs(self, place: Place) -> dict[int, Box]:
        """Per value, the part that an instance reads or makes."""
        return self.network.needs(self.subgraph.members, self.makes(place))

    def _part(self, value: int, place: Place) -> Box | None:
        if value == self.subgraph.primary:
            return piece(self.shape, self.factors, place)
        shape = self.network.shapes[value]
        factors, own = [1] * len(shape), [0] * len(shape)
        for axis, target in self._cut_axes[value].items():
            if target is None and place[axis]:
                return None
            if target is not None:
                factors[target], own[target] = self.factors[axis], place[axis]
        return piece(shape, factors, own)

    @cached_property
    def _cut_axes(self) -> Mapping[int, Mapping[int, int | None]]:
        """For each other output, the axis of it that is cut with each cut axis of the primary one; None for no axis."""
        cut: dict[int, dict[int, int | None]] = {value: {} for value in self.subgraph.outputs[:-1]}
        for axis, factor in enumerate(self.factors):
            boxes = tuple(probes(self.network, self.subgraph, axis)) if factor > 1 and cut else ()
            for value, targets in cut.items() if factor > 1 else ():
                shape, moved = self.network.shapes[value], moved_axis(self.network, value, boxes)
                options = (a for a in (moved, axis) if a is not None and a < len(shape) and a not in targets.values())
                targets[axis] = next((a for a in options if shape[a] % factor == 0), None)
        return cut


def probes(network: Network, subgraph: SubGraph, axis: int) -> Iterator[Mapping[int, Box]]:
    """The needs of the smallest and the next part along an axis of the primary output: enough to see which parts
    move."""
    shape = network.shapes[subgraph.primary]
    extent = shape[axis]
    factors = [extent if a == axis else 1 for a in range(len(shape))]
    for index in dict.fromkeys((extent // 2, extent - 1, 0)):
        place = [index if a == axis else 0 for a in range(len(shape))]
        yield network.needs(subgraph.members, {subgraph.primary: piece(shape, factors, place)})
