"""Drawing operators within the boxes of their kernels and sub-graphs: each box is drawn by itself, then as a vertex.

The quotient graphs are acyclic (extract/partition/partition.py), so boxes have layers as operators have, and no two
boxes overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .columns import Drawing, draw
from .layered import Edge, Point

PADDING = 8.0
TITLE = 18.0
_TALL = 560.0
"""A box taller than this, and than three times its width, is folded."""
_BOX_RATIO = 0.8


@dataclass(frozen=True)
class Box:
    """The frame of a sub-graph (level 0) or kernel (level 1)."""

    level: int
    label: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Compound:
    """A drawing with frames."""

    width: float
    height: float
    places: Mapping[int, Point]
    routes: Mapping[Edge, tuple[Point, ...]]
    boxes: tuple[Box, ...] = ()

    def moved(self, x: float, y: float) -> Compound:
        """The same elsewhere."""
        return Compound(
            self.width,
            self.height,
            {v: (a + x, b + y) for v, (a, b) in self.places.items()},
            {e: tuple((a + x, b + y) for a, b in points) for e, points in self.routes.items()},
            tuple(Box(b.level, b.label, b.x + x, b.y + y, b.width, b.height) for b in self.boxes),
        )


@dataclass(frozen=True)
class Arrangement:
    """What to draw: `labels` hold for each level, the outermost first, the box of every vertex."""

    sizes: Sequence[Point]
    edges: Sequence[Edge]
    labels: Sequence[Sequence[int]] = ()
    ratio: float = 1.0

    def draw(self) -> Compound:
        """The whole drawing."""
        return _Arranger(self).arrange(tuple(range(len(self.sizes))), self.edges, 0)


@dataclass
class _Arranger:
    task: Arrangement
    drawn: dict[int, Compound] = field(default_factory=dict)

    def arrange(self, members: tuple[int, ...], edges: Iterable[Edge], level: int) -> Compound:
        """Draw `members`, all in one box, and the edges between them."""
        if level == len(self.task.labels):
            return self._flat(members, edges, level)
        label = self.task.labels[level]
        inside: dict[int, list[int]] = {}
        for member in members:
            inside.setdefault(label[member], []).append(member)
        within: dict[int, list[Edge]] = {number: [] for number in inside}
        between: list[Edge] = []
        for edge in edges:
            same = label[edge[0]] == label[edge[1]]
            (within[label[edge[0]]] if same else between).append(edge)
        parts = [self._framed(n, tuple(m), within[n], level) for n, m in inside.items()]
        index = {number: position for position, number in enumerate(inside)}
        outer = {edge: (index[label[edge[0]]], index[label[edge[1]]]) for edge in between}
        drawing = self._fold([(p.width, p.height) for p in parts], outer.values(), level)
        return _joined(parts, drawing, outer)

    def _flat(self, members: tuple[int, ...], edges: Iterable[Edge], level: int) -> Compound:
        index = {member: position for position, member in enumerate(members)}
        local = {edge: (index[edge[0]], index[edge[1]]) for edge in edges}
        drawing = self._fold([self.task.sizes[m] for m in members], local.values(), level)
        places = dict(zip(members, drawing.places, strict=True))
        routes = {edge: drawing.routes[pair] for edge, pair in local.items()}
        return Compound(drawing.width, drawing.height, places, routes)

    def _fold(self, sizes: Sequence[Point], edges: Iterable[Edge], level: int) -> Drawing:
        edges = list(edges)
        if level == 0:
            return draw(sizes, edges, self.task.ratio)
        plain = draw(sizes, edges, None)
        tall = plain.height > max(_TALL, 3 * plain.width)
        return draw(sizes, edges, _BOX_RATIO) if tall else plain

    def _framed(self, number: int, members: tuple[int, ...], edges: list[Edge], level: int) -> Compound:
        content = self.arrange(members, edges, level + 1)
        if level > 0 and len(members) == 1:
            return content
        title = TITLE if level == 0 else 0.0
        width, height = content.width + 2 * PADDING, content.height + 2 * PADDING + title
        moved = content.moved(PADDING, PADDING + title)
        return Compound(
            width, height, moved.places, moved.routes, (Box(level, number, 0.0, 0.0, width, height), *moved.boxes)
        )


def _joined(parts: Sequence[Compound], drawing: Drawing, outer: Mapping[Edge, Edge]) -> Compound:
    moved = [part.moved(*place) for part, place in zip(parts, drawing.places, strict=True)]
    places = {v: place for part in moved for v, place in part.places.items()}
    routes = {edge: points for part in moved for edge, points in part.routes.items()}
    routes |= {edge: drawing.routes[pair] for edge, pair in outer.items()}
    return Compound(drawing.width, drawing.height, places, routes, tuple(b for part in moved for b in part.boxes))
