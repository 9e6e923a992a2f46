"""Drawing a directed acyclic graph in layers, from top to bottom: the place of each vertex and each edge.

The steps of Sugiyama, Tagawa and Toda (1981): layers by longest path, order within a layer by barycentres, then places
as near to the neighbours as the order allows. An edge over several layers passes through a place of its own in each;
edges from the same vertex share them. A drawing that is too tall is folded into columns, as a newspaper sets text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import log

from ...support.directed_graphs import topological_order

Point = tuple[float, float]
Edge = tuple[int, int]

GAP_X, GAP_Y = 14.0, 24.0
_LANE = 8.0
"""Pixels in a row for an edge that passes it."""
_SWEEPS = 10
"""Passes over the rows, alternately down and up, that reorder and then place them."""
_LONGEST = 60
"""An edge over more layers than this gets no places: it would push everything else aside."""


@dataclass
class Layers:
    """Vertices in layers: those given, then the places that long edges pass through, of size zero in height.

    `up` and `down` are the neighbours of each vertex in the layer above and below.
    """

    sizes: list[Point]
    count: int
    rank: list[int] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    up: list[list[int]] = field(default_factory=list)
    down: list[list[int]] = field(default_factory=list)
    center: list[float] = field(default_factory=list)
    passing: dict[int, dict[int, int]] = field(default_factory=dict)
    coming: dict[int, dict[int, int]] = field(default_factory=dict)

    def through(self, edge: Edge) -> list[int]:
        """The vertices that an edge passes through between its ends."""
        return self._chain_between(self.passing.get(edge[0], {}), range(self.rank[edge[0]] + 1, self.rank[edge[1]]))

    def outwards(self, source: int) -> list[int]:
        """The vertices that an edge passes through from `source` to the lower border."""
        return self._chain_between(self.passing.get(source, {}), range(self.rank[source] + 1, len(self.rows)))

    def inwards(self, edge: Edge) -> list[int]:
        """The vertices that an edge from outside passes through from the upper border to its target."""
        return self._chain_between(self.coming.get(edge[0], {}), range(self.rank[edge[1]]))

    def _chain_between(self, places: dict[int, int], between: range) -> list[int]:
        return [places[r] for r in between] if all(r in places for r in between) else []


def make_layers(
    sizes: Sequence[Point], edges: Iterable[Edge], leaving: Iterable[int] = (), entering: Iterable[Edge] = ()
) -> Layers:
    """Vertices of these sizes (width, height), layered, ordered and placed from left to right.

    Values of the vertices `leaving` are read outside, too; `entering` are edges from outside, whose sources have any
    number.
    """
    layers = Layers(list(sizes), len(sizes))
    edges = sorted(set(edges))
    _rank(layers, edges)
    layers.up = [[] for _ in range(layers.count)]
    layers.down = [[] for _ in range(layers.count)]
    for edge in edges:
        _pass_through(layers, edge)
    for source in sorted(set(leaving)):
        _pass_out(layers, source)
    for edge in sorted(set(entering)):
        _pass_in(layers, edge)
    layers.rows = [[] for _ in range(max(layers.rank, default=-1) + 1)]
    for vertex, rank in enumerate(layers.rank):
        layers.rows[rank].append(vertex)
    for sweep in range(_SWEEPS):
        _order(layers, downwards=sweep % 2 == 0)
    _place(layers)
    return layers


def _rank(layers: Layers, edges: Sequence[Edge]) -> None:
    """Rank by longest paths from the sources; then vertices with more readers than operands go down to a reader."""
    above: list[list[int]] = [[] for _ in range(layers.count)]
    below: list[list[int]] = [[] for _ in range(layers.count)]
    for source, target in edges:
        above[target].append(source)
        below[source].append(target)
    rank = [0] * layers.count
    order = topological_order(dict(enumerate(below)), key=int)
    for vertex in order:
        rank[vertex] = max((rank[a] + 1 for a in above[vertex]), default=0)
    for vertex in reversed(order):
        if len(below[vertex]) > len(above[vertex]):
            rank[vertex] = min(rank[b] for b in below[vertex]) - 1
    layers.rank = rank


def _pass_through(layers: Layers, edge: Edge) -> None:
    source, target = edge
    if layers.rank[target] - layers.rank[source] <= _LONGEST:
        places = layers.passing.setdefault(source, {})
        last = _chain(layers, places, source, range(layers.rank[source] + 1, layers.rank[target]))
        _link(layers, last, target)


def _pass_out(layers: Layers, source: int) -> None:
    below = range(layers.rank[source] + 1, max(layers.rank[: layers.count]) + 1)
    if len(below) <= _LONGEST:
        _chain(layers, layers.passing.setdefault(source, {}), source, below)


def _pass_in(layers: Layers, edge: Edge) -> None:
    source, target = edge
    if 0 < layers.rank[target] <= _LONGEST:
        last = _chain(layers, layers.coming.setdefault(source, {}), None, range(layers.rank[target]))
        _link(layers, last, target)


def _chain(layers: Layers, places: dict[int, int], start: int | None, ranks: range) -> int:
    """Places in each of these layers, existing and new ones; the last of them, or `start`."""
    last = -1 if start is None else start
    for rank in ranks:
        if rank not in places:
            places[rank] = _add_place(layers, rank)
            if last >= 0:
                _link(layers, last, places[rank])
        last = places[rank]
    return last


def _add_place(layers: Layers, rank: int) -> int:
    layers.sizes.append((_LANE, 0.0))
    layers.rank.append(rank)
    layers.up.append([])
    layers.down.append([])
    return len(layers.sizes) - 1


def _link(layers: Layers, source: int, target: int) -> None:
    layers.down[source].append(target)
    layers.up[target].append(source)


def _order(layers: Layers, *, downwards: bool) -> None:
    """Sort each layer by the mean position of its neighbours in the layer done before."""
    position = {v: i / max(1, len(row) - 1) for row in layers.rows for i, v in enumerate(row)}
    for row in layers.rows if downwards else reversed(layers.rows):
        near = layers.up if downwards else layers.down
        key = {v: _mean((position[n] for n in near[v]), position[v]) for v in row}
        row.sort(key=key.__getitem__)
        position |= {v: i / max(1, len(row) - 1) for i, v in enumerate(row)}


def _mean(numbers: Iterable[float], default: float) -> float:
    values = list(numbers)
    return sum(values) / len(values) if values else default


def _place(layers: Layers) -> None:
    layers.center = [0.0] * len(layers.sizes)
    for row in layers.rows:
        _spread(layers, row, [0.0] * len(row))
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        near = layers.up if downwards else layers.down
        for row in layers.rows if downwards else reversed(layers.rows):
            _spread(layers, row, [_mean((layers.center[n] for n in near[v]), layers.center[v]) for v in row])


def _spread(layers: Layers, row: Sequence[int], wanted: Sequence[float]) -> None:
    """The places nearest to the wanted ones, in squares, that keep order and distance: an isotonic regression."""
    offsets = list(_offsets(layers, row))
    blocks: list[tuple[float, float, int]] = []  # weighted sum, weight, members
    for vertex, place, offset in zip(row, wanted, offsets, strict=True):
        weight = 4.0 if vertex >= layers.count else 1.0  # an edge that passes is better straight
        block = ((place - offset) * weight, weight, 1)
        while blocks and blocks[-1][0] / blocks[-1][1] > block[0] / block[1]:
            last = blocks.pop()
            block = (last[0] + block[0], last[1] + block[1], last[2] + block[2])
        blocks.append(block)
    levels = [total / weight for total, weight, members in blocks for _ in range(members)]
    for vertex, level, offset in zip(row, levels, offsets, strict=True):
        layers.center[vertex] = level + offset


def _offsets(layers: Layers, row: Sequence[int]) -> Iterator[float]:
    """Centres of a layer packed from zero on."""
    edge = 0.0
    for vertex in row:
        width = layers.sizes[vertex][0]
        yield edge + width / 2
        edge += width + GAP_X


# --- columns

COLUMN_GAP = 56.0
"""Pixels between two columns."""
_MOST_COLUMNS = 30
"""The most columns that are tried."""
_TURN = 14.0
"""Pixels to either side that an edge takes to turn from one column to the next."""


@dataclass(frozen=True)
class Drawing:
    """The places of all parts. `places` are the upper left corners of the vertices; `routes` the points of each edge
    between its ends, `exits` those from a vertex to the lower border, `entries` those of an edge from the upper one."""

    width: float
    height: float
    places: tuple[Point, ...]
    routes: Mapping[Edge, tuple[Point, ...]]
    exits: Mapping[int, tuple[Point, ...]]
    entries: Mapping[Edge, tuple[Point, ...]]


@dataclass(frozen=True)
class Network:
    """What to draw: vertices of these sizes, the edges between them, and those that cross the border."""

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
    layers = make_layers(network.sizes, network.edges, network.leaving, network.entering)
    return _Assembly(layers, _fold(layers, ratio)).drawing(network)


def _fold(layers: Layers, ratio: float | None) -> list[_Column]:
    whole = [_column(layers, 0, len(layers.rows))]
    if ratio is None:
        return whole
    most = min(_MOST_COLUMNS, len(layers.rows))
    foldings = [whole, *(_cut_columns(layers, count) for count in range(2, most + 1))]
    return min(foldings, key=lambda columns: abs(log(_ratio(columns) / ratio)))


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


def _cut_columns(layers: Layers, count: int) -> list[_Column]:
    """`count` columns of about the same height, split where few vertices are read across the border."""
    crossing = [sum(bool(layers.down[v]) for v in row) for row in layers.rows]
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
