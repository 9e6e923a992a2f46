"""A layered drawing folded into columns, as a newspaper sets text, so that a deep graph fits a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import log

from .layered import GAP_Y, Edge, Layers, Point, layers_of

COLUMN_GAP = 56.0
_MOST_COLUMNS = 30
_TURN = 14.0


@dataclass(frozen=True)
class Drawing:
    """Where everything is. `places` are the upper left corners of the vertices; `routes` the points of each edge
    between its ends, `exits` those from a vertex to the lower border, `entries` those of an edge from the upper one."""

    width: float
    height: float
    places: tuple[Point, ...]
    routes: Mapping[Edge, tuple[Point, ...]]
    exits: Mapping[int, tuple[Point, ...]]
    entries: Mapping[Edge, tuple[Point, ...]]


@dataclass(frozen=True)
class Network:
    """What to draw: vertices of these sizes, the edges between them, and those that cross the border (layered.py)."""

    sizes: Sequence[Point]
    edges: frozenset[Edge]
    leaving: frozenset[int] = frozenset()
    entering: frozenset[Edge] = frozenset()


@dataclass(frozen=True)
class _Column:
    """Layers `first` to `last - 1`, from x = `left` to `right` before they are moved to x = 0."""

    first: int
    last: int
    left: float
    right: float
    height: float


def draw(network: Network, ratio: float | None) -> Drawing:
    """Draw a graph; with `ratio`, fold it to about this width by height."""
    if not network.sizes:
        return Drawing(0.0, 0.0, (), {}, {}, {})
    layers = layers_of(network.sizes, network.edges, network.leaving, network.entering)
    return _Assembly(layers, _folded(layers, ratio)).drawing(network)


def _folded(layers: Layers, ratio: float | None) -> list[_Column]:
    whole = [_column(layers, 0, len(layers.rows))]
    if ratio is None:
        return whole
    crossing = _crossings(layers)
    tried = [whole, *(_cut(layers, crossing, count) for count in range(2, min(_MOST_COLUMNS, len(layers.rows)) + 1))]
    return min(tried, key=lambda columns: abs(log(_ratio(columns) / ratio)))


def _ratio(columns: Sequence[_Column]) -> float:
    width = sum(c.right - c.left for c in columns) + COLUMN_GAP * (len(columns) - 1)
    return width / max(c.height for c in columns)


def _column(layers: Layers, first: int, last: int) -> _Column:
    vertices = [v for row in layers.rows[first:last] for v in row]
    left = min(layers.center[v] - layers.sizes[v][0] / 2 for v in vertices)
    right = max(layers.center[v] + layers.sizes[v][0] / 2 for v in vertices)
    heights = _heights(layers)[first:last]
    return _Column(first, last, left, right, sum(heights) + GAP_Y * (len(heights) - 1))


def _heights(layers: Layers) -> list[float]:
    return [max(layers.sizes[v][1] for v in row) for row in layers.rows]


def _crossings(layers: Layers) -> list[int]:
    """How many vertices are read across the lower border of each layer."""
    return [sum(bool(layers.down[v]) for v in row) for row in layers.rows]


def _cut(layers: Layers, crossing: Sequence[int], count: int) -> list[_Column]:
    """`count` columns of about the same height, cut where few edges cross."""
    heights = [h + GAP_Y for h in _heights(layers)]
    bottoms = list(accumulate(heights))
    step = bottoms[-1] / count
    borders = [0]
    for number in range(1, count):
        near = [i for i in range(borders[-1], len(heights) - 1) if abs(bottoms[i] - number * step) <= step / 4]
        if near:
            best = min(near, key=lambda i: (crossing[i], abs(bottoms[i] - number * step)))
            borders.append(best + 1)
    return [_column(layers, a, b) for a, b in zip(borders, [*borders[1:], len(heights)], strict=True)]


class _Assembly:
    """Layers moved into their columns."""

    def __init__(self, layers: Layers, columns: Sequence[_Column]) -> None:
        self.layers, self.columns = layers, columns
        self.height = max(c.height for c in columns)
        heights = _heights(layers)
        x = 0.0
        self.shift, self.column_of, self.row = list[float](), list[int](), list[float]()
        for number, column in enumerate(columns):
            self.shift.append(x - column.left)
            x += column.right - column.left + COLUMN_GAP
            y = 0.0
            for rank in range(column.first, column.last):
                self.row.append(y + heights[rank] / 2)
                self.column_of.append(number)
                y += heights[rank] + GAP_Y

    def drawing(self, network: Network) -> Drawing:
        layers, last = self.layers, self.columns[-1]
        corners = []
        for vertex, (width, height) in enumerate(network.sizes):
            x, y = self.middle(vertex)
            corners.append((x - width / 2, y - height / 2))
        return Drawing(
            last.right + self.shift[-1],
            self.height,
            tuple(corners),
            {e: self.route([e[0], *layers.through(e), e[1]])[1:-1] for e in network.edges},
            {v: self.route([v, *layers.outwards(v)])[1:] for v in network.leaving},
            {e: self.route([*layers.inwards(e), e[1]])[:-1] for e in network.entering},
        )

    def middle(self, vertex: int) -> Point:
        rank = self.layers.rank[vertex]
        return self.layers.center[vertex] + self.shift[self.column_of[rank]], self.row[rank]

    def route(self, path: Sequence[int]) -> tuple[Point, ...]:
        """The middles of these vertices; from one column to the next, round the lower end of the gutter between them,
        up, and round its upper end."""
        points = [self.middle(path[0])]
        for before, after in pairwise(path):
            first, second = (self.column_of[self.layers.rank[v]] for v in (before, after))
            if second == first + 1:
                x = self.shift[second] + self.columns[second].left - COLUMN_GAP / 2
                bottom = self.columns[first].height
                points += [(x - _TURN, bottom), (x, bottom), (x, 0.0), (x + _TURN, 0.0)]
            points.append(self.middle(after))
        return tuple(points)
