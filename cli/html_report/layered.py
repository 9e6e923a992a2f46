"""Drawing a directed acyclic graph in layers, from top to bottom: where each vertex goes, and where each edge.

The steps of Sugiyama, Tagawa and Toda (1981): layers by longest path, order within a layer by barycentres, then places
as near to the neighbours as the order allows (columns.py folds what is too tall). An edge over several layers passes
through a place of its own in each; edges from the same vertex share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ...support.directed_graphs import topological_order

Point = tuple[float, float]
Edge = tuple[int, int]

GAP_X, GAP_Y = 14.0, 24.0
_LANE = 8.0
_SWEEPS = 10
_LONGEST = 60
"""An edge over more layers than this takes no places: it would push everything else aside."""


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
        return self._found(self.passing.get(edge[0], {}), range(self.rank[edge[0]] + 1, self.rank[edge[1]]))

    def outwards(self, source: int) -> list[int]:
        """The vertices that an edge passes through from `source` to the lower border."""
        return self._found(self.passing.get(source, {}), range(self.rank[source] + 1, len(self.rows)))

    def inwards(self, edge: Edge) -> list[int]:
        """The vertices that an edge from outside passes through from the upper border to its target."""
        return self._found(self.coming.get(edge[0], {}), range(self.rank[edge[1]]))

    def _found(self, places: dict[int, int], between: range) -> list[int]:
        return [places[r] for r in between] if all(r in places for r in between) else []


def layers_of(
    sizes: Sequence[Point], edges: Iterable[Edge], leaving: Iterable[int] = (), entering: Iterable[Edge] = ()
) -> Layers:
    """Vertices of these sizes (width, height), layered, ordered and placed from left to right.

    What vertices `leaving` make is read outside, too; `entering` are edges from outside, whose sources have any number.
    """
    made = Layers(list(sizes), len(sizes))
    edges = sorted(set(edges))
    _rank(made, edges)
    made.up = [[] for _ in range(made.count)]
    made.down = [[] for _ in range(made.count)]
    for edge in edges:
        _pass_through(made, edge)
    for source in sorted(set(leaving)):
        _pass_out(made, source)
    for edge in sorted(set(entering)):
        _pass_in(made, edge)
    made.rows = [[] for _ in range(max(made.rank, default=-1) + 1)]
    for vertex, rank in enumerate(made.rank):
        made.rows[rank].append(vertex)
    for sweep in range(_SWEEPS):
        _order(made, downwards=sweep % 2 == 0)
    _place(made)
    return made


def _rank(made: Layers, edges: Sequence[Edge]) -> None:
    """Longest paths from the sources; then whoever has more readers than operands moves down to its first reader."""
    above: list[list[int]] = [[] for _ in range(made.count)]
    below: list[list[int]] = [[] for _ in range(made.count)]
    for source, target in edges:
        above[target].append(source)
        below[source].append(target)
    rank = [0] * made.count
    order = topological_order(dict(enumerate(below)), key=int)
    for vertex in order:
        rank[vertex] = max((rank[a] + 1 for a in above[vertex]), default=0)
    for vertex in reversed(order):
        if len(below[vertex]) > len(above[vertex]):
            rank[vertex] = min(rank[b] for b in below[vertex]) - 1
    made.rank = rank


def _pass_through(made: Layers, edge: Edge) -> None:
    source, target = edge
    if made.rank[target] - made.rank[source] <= _LONGEST:
        places = made.passing.setdefault(source, {})
        last = _chain(made, places, source, range(made.rank[source] + 1, made.rank[target]))
        _link(made, last, target)


def _pass_out(made: Layers, source: int) -> None:
    below = range(made.rank[source] + 1, max(made.rank[: made.count]) + 1)
    if len(below) <= _LONGEST:
        _chain(made, made.passing.setdefault(source, {}), source, below)


def _pass_in(made: Layers, edge: Edge) -> None:
    source, target = edge
    if 0 < made.rank[target] <= _LONGEST:
        last = _chain(made, made.coming.setdefault(source, {}), None, range(made.rank[target]))
        _link(made, last, target)


def _chain(made: Layers, places: dict[int, int], start: int | None, ranks: range) -> int:
    """Places in each of these layers, those that are there already and new ones; the last of them, or `start`."""
    last = -1 if start is None else start
    for rank in ranks:
        if rank not in places:
            places[rank] = _add_place(made, rank)
            if last >= 0:
                _link(made, last, places[rank])
        last = places[rank]
    return last


def _add_place(made: Layers, rank: int) -> int:
    made.sizes.append((_LANE, 0.0))
    made.rank.append(rank)
    made.up.append([])
    made.down.append([])
    return len(made.sizes) - 1


def _link(made: Layers, source: int, target: int) -> None:
    made.down[source].append(target)
    made.up[target].append(source)


def _order(made: Layers, *, downwards: bool) -> None:
    """Sort each layer by the mean position of its neighbours in the layer done before."""
    position = {v: i / max(1, len(row) - 1) for row in made.rows for i, v in enumerate(row)}
    for row in made.rows if downwards else reversed(made.rows):
        near = made.up if downwards else made.down
        key = {v: _mean((position[n] for n in near[v]), position[v]) for v in row}
        row.sort(key=key.__getitem__)
        position |= {v: i / max(1, len(row) - 1) for i, v in enumerate(row)}


def _mean(numbers: Iterable[float], default: float) -> float:
    found = list(numbers)
    return sum(found) / len(found) if found else default


def _place(made: Layers) -> None:
    made.center = [0.0] * len(made.sizes)
    for row in made.rows:
        _spread(made, row, [0.0] * len(row))
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        near = made.up if downwards else made.down
        for row in made.rows if downwards else reversed(made.rows):
            _spread(made, row, [_mean((made.center[n] for n in near[v]), made.center[v]) for v in row])


def _spread(made: Layers, row: Sequence[int], wanted: Sequence[float]) -> None:
    """The places nearest to those wanted, in squares, that keep order and distance: an isotonic regression."""
    offsets = list(_offsets(made, row))
    blocks: list[tuple[float, float, int]] = []  # weighted sum, weight, members
    for vertex, place, offset in zip(row, wanted, offsets, strict=True):
        weight = 4.0 if vertex >= made.count else 1.0  # an edge that passes is better straight
        block = ((place - offset) * weight, weight, 1)
        while blocks and blocks[-1][0] / blocks[-1][1] > block[0] / block[1]:
            last = blocks.pop()
            block = (last[0] + block[0], last[1] + block[1], last[2] + block[2])
        blocks.append(block)
    levels = [total / weight for total, weight, members in blocks for _ in range(members)]
    for vertex, level, offset in zip(row, levels, offsets, strict=True):
        made.center[vertex] = level + offset


def _offsets(made: Layers, row: Sequence[int]) -> Iterator[float]:
    """Centres of a layer packed from zero on."""
    edge = 0.0
    for vertex in row:
        width = made.sizes[vertex][0]
        yield edge + width / 2
        edge += width + GAP_X
