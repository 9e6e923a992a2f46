"""Weighted clustering of AGO (Xu et al., INFOCOM 2023, section IV.B, Algorithm 1): sub-graphs of any structure.

The heaviest candidate merges with the lightest node of its affix set (Definition 3: a node whose topological stage is
one more or one less) as long as the sum of the two weights stays below a threshold; a node that finds no partner is no
candidate any more. A merge makes a hyper node, and edges and stages are then those of the graph of hyper nodes.

Decisions that the paper leaves open:

- Affix nodes are taken from the nodes that an edge connects to v, not from all of UC_v, which in a connected graph is
  every node: so every sub-graph is connected, and every merge keeps a tensor inside of a sub-graph. (With any node of
  a neighbouring stage MobileViT would have 75 sub-graphs instead of 81, at an index of 0.90 instead of 0.87.)
- Of equally heavy candidates, and of equally light partners, the one of the lowest number goes first.
- Opaque operators merge with nothing.

Theorem 1 says that no cycle arises "if v and any nodes in AS_v cluster together". Its proof shows, and this file uses,
less: between **one** pair of nodes whose present stages differ by one (or are equal; an edge between the two is not
needed) there is no path with a node inside. Read more widely the theorem does not hold:

- Several nodes of AS_v at once: in ``a -> v -> c, a -> p -> c`` both a and c are in AS_v, but {a, v, c} and {p} read
  from each other.
- Several pairs at once: in ``a -> b, a -> d, c -> b, c -> d`` every edge joins affix nodes, but {a, b} and {c, d} read
  from each other.
- Stages that are not updated (line 12 of the algorithm): in ``u -> v, q -> v, u -> w, w -> x, v -> x`` the stages are
  u 1, q 1, v 2, w 2, x 3. When u and v have merged, at stage 2, that of w is 3 and that of x is 4; by the old ones x
  would be in the affix set of {u, v}, and {u, v, x} and {w} would read from each other.
- Definition 1 forbids only pairs of sub-graphs that reach each other by paths of the original graph; a cycle through
  three sub-graphs satisfies it: ``a -> b, c -> d, e -> f`` in {f, a}, {b, c}, {d, e}. Needed, and true
  here after every merge, is that the graph of hyper nodes has no cycle.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence

from ....ir.graph import OperatorGraph
from ..groups import Partition, PartitionError, partition_of
from .weights import COMPLEX, THRESHOLD
from .weights import weights as operator_weights


class Clustering:
    """The state of Algorithm 1: the graph of hyper nodes, their weights, and the candidates."""

    def __init__(
        self,
        graph: StagedGraph,
        weights: Sequence[float],
        threshold: float,
        fixed: frozenset[int] = frozenset(),
        is_complex: Sequence[bool] = (),
    ) -> None:
        """`fixed` nodes merge with none. Of the nodes that `is_complex` flags, no hyper node may hold two."""
        self.graph = graph
        self.threshold = threshold
        self.fixed = fixed
        self._weight = list(weights)
        self._is_complex = list(is_complex) or [False] * len(self._weight)
        self._into = list(range(len(self._weight)))
        self._candidates = [(-weight, node) for node, weight in enumerate(self._weight) if node not in fixed]
        heapq.heapify(self._candidates)

    @property
    def has_candidates(self) -> bool:
        """Whether the loop goes on (line 4)."""
        return bool(self._candidates)

    def run(self) -> None:
        """The loop, lines 4 to 13."""
        while self.has_candidates:
            self.step()

    def step(self) -> bool:
        """One turn of the loop, lines 5 to 12: whether the heaviest candidate merged."""
        negative, node = heapq.heappop(self._candidates)
        if self._into[node] != node or self._weight[node] != -negative:
            return False  # it has merged since
        partner = self._partner(node)
        if partner is None:
            return False
        merged = self.graph.merge(node, partner)
        gone = partner if merged == node else node
        self._into[gone] = merged
        self._weight[merged] += self._weight[gone]
        self._is_complex[merged] |= self._is_complex[gone]
        heapq.heappush(self._candidates, (-self._weight[merged], merged))
        return True

    def hyper_node(self, node: int) -> int:
        """The hyper node that holds `node`."""
        while self._into[node] != node:
            self._into[node] = node = self._into[self._into[node]]
        return node

    def _partner(self, node: int) -> int | None:
        """The lightest affix node that `node` may merge with."""
        weight = self._weight[node]
        able = (
            (self._weight[other], other)
            for other in self.graph.neighbours(node)
            if weight + self._weight[other] < self.threshold
            and other not in self.fixed
            and not (self._is_complex[node] and self._is_complex[other])
        )
        return min(able, default=(0.0, None))[1]


def cluster(graph: OperatorGraph, *, threshold: float = THRESHOLD, weights: Sequence[float] | None = None) -> Partition:
    """CLUSTER(G): the partition "ago", whose groups of two or more operators weigh less than `threshold`.

    `weights` replace those of Eq. (1). Raises PartitionError if there is not one of at least 0 for each operator.
    """
    weighed = operator_weights(graph) if weights is None else weights
    if len(weighed) != len(graph):
        raise PartitionError(f"{len(weighed)} weights given for {len(graph)} operators")
    for operator, weight in zip(graph.operators, weighed, strict=True):
        if not weight >= 0:
            raise PartitionError(f"{operator.name}: the weight must be at least 0, not {weight}")
    state = Clustering(StagedGraph(graph.predecessors), weighed, threshold, _opaque(graph, range(len(graph))))
    state.run()
    return partition_of(graph, [state.hyper_node(node) for node in range(len(graph))], "ago")


def split(graph: OperatorGraph, members: Sequence[int], threshold: float = THRESHOLD) -> tuple[tuple[int, ...], ...]:
    """SPLIT(S) of section V: mini-sub-graphs of at most one complex operator, in an order in which they can run.

    `members` is a group of a partition, ascending: so it is convex, and groups that are acyclic inside of it are
    acyclic outside. The paper says of SPLIT that it invokes CLUSTER; here with the one further condition that two hyper
    nodes that both hold a complex operator do not merge.
    """
    place = {member: position for position, member in enumerate(members)}
    inner = [[place[p] for p in graph.predecessors[member] if p in place] for member in members]
    staged = StagedGraph(inner)
    weights = operator_weights(graph, members)
    is_complex = [graph.operators[member].op in COMPLEX for member in members]
    state = Clustering(staged, weights, threshold, _opaque(graph, members), is_complex)
    state.run()
    parts: dict[int, list[int]] = {node: [] for level in staged.levels() for node in level}
    for member, position in place.items():
        parts[state.hyper_node(position)].append(member)
    return tuple(map(tuple, parts.values()))


def _opaque(graph: OperatorGraph, members: Sequence[int]) -> frozenset[int]:
    """Positions in `members` of opaque operators."""
    return frozenset(position for position, member in enumerate(members) if graph.operators[member].is_opaque)


# Topological stages (AGO, Xu et al., INFOCOM 2023, Definition 2) of a graph whose nodes are merged one by one.
#
# The stage of a node is the length of the longest path that ends in it, counted in nodes: 1 for a node without
# predecessors. A merge asks only whether two nodes have neighbouring stages, so the stages are kept without numbers,
# as a linked list of levels, each node pointing to that of its stage. When all nodes of a level move, all later levels
# move with them by the insertion or the removal of one link; only nodes whose stage changes against that of others in
# their level are touched. So a merge costs what lies beside it: a constant on a chain, however long, and the length of
# the branch on a branch that has others parallel to it. Two towers of n nodes each that meet at their ends remain
# quadratic.

class Level:
    """A stage: how many nodes have it, and the stages before and after."""

    __slots__ = ("following", "previous", "size")

    def __init__(self) -> None:
        self.size = 0
        self.previous: Level | None = None
        self.following: Level | None = None


class StagedGraph:
    """A directed acyclic graph of hyper nodes, with exact stages after every merge.

    Nodes are numbers; a hyper node goes by the number of one of its nodes. `predecessors` and `successors` hold the
    hyper nodes beside each hyper node. Invariant: a node's level comes after those of all its predecessors, directly
    after that of one of them; it is the first if there are none.
    """

    def __init__(self, predecessors: Sequence[Iterable[int]]) -> None:
        """`predecessors` of node i are all smaller than i."""
        self.predecessors = [set(sources) for sources in predecessors]
        self.successors: list[set[int]] = [set() for _ in self.predecessors]
        for node, sources in enumerate(self.predecessors):
            for source in sources:
                self.successors[source].add(node)
        self._first: Level | None = None
        self._nowhere = Level()
        self._level: list[Level] = [self._nowhere] * len(self.predecessors)
        self._assign_levels()

    def is_affix(self, first: int, second: int) -> bool:
        """Whether the stages of two hyper nodes differ by exactly one (Definition 3)."""
        one, other = self._level[first], self._level[second]
        return one.following is other or one.previous is other

    def neighbours(self, node: int) -> Iterator[int]:
        """The nodes that an edge connects to `node` and that are in its affix set."""
        level = self._level[node]
        yield from (source for source in self.predecessors[node] if self._level[source] is level.previous)
        yield from (user for user in self.successors[node] if self._level[user] is level.following)

    def levels(self) -> list[list[int]]:
        """The hyper nodes of stage 1, 2, ..., ascending."""
        stages: dict[Level, list[int]] = {}
        level = self._first
        while level is not None:
            stages[level] = []
            level = level.following
        for node, level in enumerate(self._level):
            if level is not self._nowhere:
                stages[level].append(node)
        return list(stages.values())

    def merge(self, first: int, second: int) -> int:
        """Make one hyper node of two, and return its number, that of the one with more edges.

        Raises ValueError unless their stages differ by exactly one: then no path between them has a node inside, so
        that the graph stays acyclic.
        """
        if not self.is_affix(first, second):
            raise ValueError(f"the stages of {first} and {second} do not differ by one")
        low, high = (first, second) if self._level[first].following is self._level[second] else (second, first)
        if any(self._level[p] is self._level[low] for p in self.predecessors[high] if p != low):
            self._lift(low, high)
        else:
            self._lower(high)
        keep, gone = (low, high) if self._degree(low) >= self._degree(high) else (high, low)
        self._redirect(gone, keep)
        return keep

    def _assign_levels(self) -> None:
        levels: list[Level] = []
        stages: list[int] = []
        for node, sources in enumerate(self.predecessors):
            stages.append(1 + max((stages[source] for source in sources), default=-1))
            if stages[node] == len(levels):
                levels.append(self._insert(levels[-1] if levels else None))
            self._place([node], levels[stages[node]])

    def _degree(self, node: int) -> int:
        return len(self.predecessors[node]) + len(self.successors[node])

    def _lift(self, low: int, high: int) -> None:
        """`low` goes up to `high`, which another predecessor keeps in place: users of `low` may have to go up."""
        level, rising = self._level[low], {low}
        while rising:
            above = level.following
            pushed = {u for n in rising for u in self.successors[n] if self._level[u] is above and u != high}
            if above is None or len(pushed) == above.size:
                # All of the level above goes up, and all later ones with it, as if a new level came in between.
                self._place(rising, self._insert(level))
                return
            self._place(rising, above)
            level, rising = above, pushed

    def _lower(self, high: int) -> None:
        """`high` comes down, since nothing but the node it merges with held it up: its users may come with it."""
        level, falling = self._level[high], {high}
        while falling:
            below, above, is_whole = level.previous, level.following, len(falling) == level.size
            assert below is not None  # that of the node `high` merges with, or one that nodes fell from
            self._place(falling, below)
            if is_whole:
                self._remove(level)
                return
            if above is None:
                return
            falling = self._nodes_to_lower(falling, level, above)
            level = above

    def _nodes_to_lower(self, fallen: set[int], level: Level, above: Level) -> set[int]:
        """Users of `fallen` nodes in the level above that no node of `level` holds up any more."""
        place = self._level.__getitem__
        users = {u for n in fallen for u in self.successors[n] if self._level[u] is above}
        return {u for u in users if level not in map(place, self.predecessors[u])}

    def _redirect(self, gone: int, keep: int) -> None:
        """Give the edges of one hyper node to another."""
        for sides, opposite in ((self.predecessors, self.successors), (self.successors, self.predecessors)):
            for node in sides[gone]:
                opposite[node].discard(gone)
                if node != keep:
                    opposite[node].add(keep)
                    sides[keep].add(node)
            sides[gone] = set()
        self._place([gone], self._nowhere)

    def _place(self, nodes: Collection[int], target: Level) -> None:
        for node in nodes:
            self._level[node].size -= 1
            self._level[node] = target
        target.size += len(nodes)

    def _insert(self, previous: Level | None) -> Level:
        """A new empty level after `previous`, or the first."""
        level = Level()
        level.previous = previous
        level.following = self._first if previous is None else previous.following
        if level.following is not None:
            level.following.previous = level
        if previous is None:
            self._first = level
        else:
            previous.following = level
        return level

    def _remove(self, level: Level) -> None:
        """Take an empty level out; it is not the first, since nodes fell from it to the one before."""
        assert level.previous is not None
        level.previous.following = level.following
        if level.following is not None:
            level.following.previous = level.previous
