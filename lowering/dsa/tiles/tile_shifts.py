"""Where a tile may lie elsewhere without being another tile.

An axis that all operators of a layer pass on element by element (the batch, mostly) has no border: what a tile computes
does not change when all its parts are moved along it. Axes of values are joined to such tracks where operators connect
them; any other use pins a track to its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....ir.graph import Operator
from ....ir.index_maps import Axis, Reduction, loops_of
from ..network.boxes import Box
from ..network.graph import Network
from ..network.operand_boxes import partial_maps

Parts = tuple[tuple[int, Box], ...]
_Axis = tuple[int, int]
"""A value and one of its axes."""


@dataclass
class Shifts:
    """The tracks of one layer: `track` gives the number of each axis of a value, None where it is pinned."""

    network: Network
    members: tuple[int, ...]
    _parents: dict[_Axis, _Axis] = field(default_factory=dict)
    _pinned: set[_Axis] = field(default_factory=set)
    _tracks: dict[int, tuple[int | None, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index in self.members:
            self._connect(self.network.graph.operators[index])

    def normal(self, inputs: Parts, outputs: Parts) -> tuple[Parts, Parts]:
        """The same tile, moved as near to the start of every track as it can be."""
        bases: dict[int, int] = {}
        for value, box in (*inputs, *outputs):
            for track, (start, _) in zip(self._track(value), box, strict=True):
                if track is not None and start < bases.get(track, start + 1):
                    bases[track] = start
        return self._moved(inputs, bases), self._moved(outputs, bases)

    def _moved(self, parts: Parts, bases: Mapping[int, int]) -> Parts:
        if not any(bases.values()):
            return parts
        return tuple(
            [
                (
                    value,
                    tuple(
                        [
                            i if t is None else (i[0] - bases[t], i[1] - bases[t])
                            for t, i in zip(self._tracks[value], box, strict=True)
                        ]
                    ),
                )
                for value, box in parts
            ]
        )

    def _track(self, value: int) -> tuple[int | None, ...]:
        if value not in self._tracks:
            numbers: dict[_Axis, int] = {root: n for n, root in enumerate(sorted(set(map(self._root, self._parents))))}
            pinned = set(map(self._root, self._pinned))
            roots = [self._root((value, axis)) for axis in range(len(self.network.shapes[value]))]
            self._tracks[value] = tuple(None if r in pinned or r not in numbers else numbers[r] for r in roots)
        return self._tracks[value]

    def _connect(self, operator: Operator) -> None:
        """Join the axes that an operator passes on; pin every one that it also reads or makes otherwise."""
        shapes = self.network.shapes
        links = _links(self.network, operator)
        read, made = {(link.operand, link.axis) for link in links}, {link.result_axis for link in links}
        for link in links:
            value = operator.inputs[link.operand]
            if value is not None:
                for result in operator.outputs:
                    self._join((value, link.axis), (result, link.result_axis))
        for number, value in enumerate(operator.inputs):
            if value is not None:
                self._pinned |= {(value, axis) for axis in range(len(shapes[value])) if (number, axis) not in read}
        for result in operator.outputs:
            self._pinned |= {(result, axis) for axis in range(len(shapes[result])) if axis not in made}

    def _root(self, axis: _Axis) -> _Axis:
        while self._parents.get(axis, axis) != axis:
            axis = self._parents[axis]
        return axis

    def _join(self, first: _Axis, second: _Axis) -> None:
        for axis in (first, second):
            self._parents.setdefault(axis, axis)
        self._parents[self._root(first)] = self._root(second)


@dataclass(frozen=True)
class _Link:
    """Element i of an axis of the result needs element i of an axis of an operand, and no other along it."""

    operand: int
    axis: int
    result_axis: int


def _links(network: Network, operator: Operator) -> frozenset[_Link]:
    """The links of axes of the result that every operand reads element by element, or not at all."""
    maps = partial_maps(operator, network.call(operator))
    if maps is None or (len(operator.outputs) > 1 and operator.op != "Split"):
        return frozenset()
    links: set[_Link] = set()
    fixed: set[int] = set()
    for number, (operand, shape) in enumerate(zip(maps.operands, maps.shapes, strict=True)):
        for axis, (index, extent) in enumerate(zip(operand or (), shape or (), strict=False)):
            if isinstance(index, Axis) and index.extent == extent:
                links.add(_Link(number, axis, index.number))
                continue
            fixed |= {loop.number for loop in loops_of(index) if isinstance(loop, Axis)}
            fixed |= {loop.beside.number for loop in loops_of(index) if isinstance(loop, Reduction) and loop.beside}
    return frozenset(link for link in links if link.result_axis not in fixed)
