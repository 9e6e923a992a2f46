"""A layered drawing folded into columns, as a newspaper sets text, so that a deep graph fits a screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import log

from .layered import GAP_Y, Edge, Layers, Point, layers_of

COLUMN_GAP = 56.0
_MOST_COLUMNS = 30


@dataclass(frozen=True)
class Drawing:
    """Where everything is. `places` are the upper left corners of the vertices; `routes` the points of each edge
    between its ends."""

    width: float
    height: float
    places: tuple[Point, ...]
    routes: Mapping[Edge, tuple[Point, ...]]


@dataclass(frozen=True)
class _Column:
    """Layers `first` to `last - 1`, from x = `left` to `right` before they are moved to x = 0."""

    first: int
    last: int
    left: float
    right: float
    height: float


def draw(sizes: Sequence[Point], edges: Iterable[Edge], ratio: float | None) -> Drawing:
    """Draw a graph whose vertices have these sizes; with `ratio`, fold it to about this width by height."""
    edges = set(edges)
    layers = layers_of(sizes, edges)
    if not sizes:
        return Drawing(0.0, 0.0, (), {})
    return _assemble(layers, _folded(layers, ratio), edges)


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


def _assemble(layers: Layers, columns: Sequence[_Column], edges: Iterable[Edge]) -> Drawing:
    tops, shift, column_of = _shifts(layers, columns)
    heights = _heights(layers)

    def middle(vertex: int) -> Point:
        rank = layers.rank[vertex]
        return layers.center[vertex] + shift[column_of[rank]], tops[rank] + heights[rank] / 2

    middles = [middle(v) for v in range(len(layers.sizes))]
    places = tuple(
        (x - w / 2, y - h / 2)
        for (x, y), (w, h) in zip(middles[: layers.count], layers.sizes[: layers.count], strict=True)
    )
    height = max(c.height for c in columns)
    gutters = [shift[i] + c.left - COLUMN_GAP / 2 for i, c in enumerate(columns)]
    routes = {}
    for edge in edges:
        path = [edge[0], *layers.through(edge), edge[1]]
        in_column = [column_of[layers.rank[v]] for v in path]
        routes[edge] = _route([middles[v] for v in path], in_column, gutters, height)
    last = columns[-1]
    return Drawing(last.right + shift[-1], height, places, routes)


def _shifts(layers: Layers, columns: Sequence[_Column]) -> tuple[list[float], list[float], list[int]]:
    """The upper border of each layer, how far each column moves to the right, and the column of each layer."""
    heights = _heights(layers)
    tops, shift, column_of = [], [], []
    x = 0.0
    for number, column in enumerate(columns):
        shift.append(x - column.left)
        x += column.right - column.left + COLUMN_GAP
        y = 0.0
        for rank in range(column.first, column.last):
            tops.append(y)
            column_of.append(number)
            y += heights[rank] + GAP_Y
    return tops, shift, column_of


def _route(path: Sequence[Point], columns: Sequence[int], gutters: Sequence[float], height: float) -> tuple[Point, ...]:
    """The points between the ends; from one column to the next, down to the gutter before it and up again."""
    points: list[Point] = []
    for index in range(1, len(path)):
        if columns[index] == columns[index - 1] + 1:
            x = gutters[columns[index]]
            points += [(x - 6, height), (x + 6, 0.0)]
        if index < len(path) - 1:
            points.append(path[index])
    return tuple(points)
