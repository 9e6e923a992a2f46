"""Drawing operators within the boxes of their kernels and sub-graphs: each box is drawn by itself, then as a vertex.

The quotient graphs are acyclic (extract/partition/groups.py), so boxes have layers as operators have, and no two
boxes overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .layered import Drawing, Edge, Network, Point, draw

PADDING = 8.0
TITLE = 18.0
_TALL = 900.0
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

    def move(self, x: float, y: float) -> Compound:
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


class _Arranger:
    def __init__(self, task: Arrangement) -> None:
        self.task = task

    def arrange(self, members: tuple[int, ...], edges: Iterable[Edge], level: int) -> Compound:
        """Draw `members`, all in one box; `edges` are all that have an end among them.

        The route of an edge that crosses the border is the part within the box.
        """
        inside = self._parts(members, level)
        part_of = {member: position for position, part in enumerate(inside) for member in part}
        touching: list[list[Edge]] = [[] for _ in inside]
        for edge in edges:
            for position in {part_of.get(edge[0], -1), part_of.get(edge[1], -1)} - {-1}:
                touching[position].append(edge)
        parts = [self._frame(m, e, level) for m, e in zip(inside, touching, strict=True)]
        return _join(parts, self._fold(_network(parts, edges, part_of), level), edges, part_of)

    def _parts(self, members: tuple[int, ...], level: int) -> list[tuple[int, ...]]:
        """The boxes of this level, or vertices below the last."""
        if level == len(self.task.labels):
            return [(m,) for m in members]
        boxes: dict[int, list[int]] = {}
        for member in members:
            boxes.setdefault(self.task.labels[level][member], []).append(member)
        return [tuple(box) for box in boxes.values()]

    def _fold(self, network: Network, level: int) -> Drawing:
        if level == 0:
            return draw(network, self.task.ratio)
        plain = draw(network, None)
        return draw(network, _BOX_RATIO) if plain.height > max(_TALL, 3 * plain.width) else plain

    def _frame(self, members: tuple[int, ...], edges: Iterable[Edge], level: int) -> Compound:
        if level == len(self.task.labels):
            width, height = self.task.sizes[members[0]]
            return Compound(width, height, {members[0]: (0.0, 0.0)}, {})
        content = self.arrange(members, edges, level + 1)
        if level > 0 and len(members) == 1:
            return content
        title = TITLE if level == 0 else 0.0
        width, height = content.width + 2 * PADDING, content.height + 2 * PADDING + title
        inner = content.move(PADDING, PADDING + title)
        frame = Box(level, self.task.labels[level][members[0]], 0.0, 0.0, width, height)
        return Compound(width, height, inner.places, inner.routes, (frame, *inner.boxes))


def _network(parts: Sequence[Compound], edges: Iterable[Edge], part_of: Mapping[int, int]) -> Network:
    """The quotient graph of the parts; an edge from outside is known by its source."""
    ends = [(a, part_of.get(a), part_of.get(b)) for a, b in edges]
    return Network(
        [(part.width, part.height) for part in parts],
        frozenset((a, b) for _, a, b in ends if a is not None and b is not None and a != b),
        frozenset(a for _, a, b in ends if a is not None and b is None),
        frozenset((source, b) for source, a, b in ends if a is None and b is not None),
    )


def _join(
    parts: Sequence[Compound], drawing: Drawing, edges: Iterable[Edge], part_of: Mapping[int, int]
) -> Compound:
    moved = [part.move(*place) for part, place in zip(parts, drawing.places, strict=True)]
    places = {v: place for part in moved for v, place in part.places.items()}
    routes: dict[Edge, tuple[Point, ...]] = {}
    for edge in edges:
        first, second = part_of.get(edge[0]), part_of.get(edge[1])
        out = moved[first].routes.get(edge, ()) if first is not None else ()
        into = moved[second].routes.get(edge, ()) if second is not None else ()
        if first is not None and first == second:
            routes[edge] = out
        elif first is None and second is not None:
            routes[edge] = drawing.entries[edge[0], second] + into
        elif first is not None:
            between = drawing.exits[first] if second is None else drawing.routes[first, second]
            routes[edge] = out + between + into
    return Compound(drawing.width, drawing.height, places, routes, tuple(b for part in moved for b in part.boxes))
