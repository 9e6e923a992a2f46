"""Topological stages (AGO, Xu et al., INFOCOM 2023, Definition 2) of a graph whose nodes are merged one by one.

The stage of a node is the length of the longest path that ends in it, counted in nodes: 1 for a node without
predecessors. A merge asks only whether two nodes have neighbouring stages, so the stages are kept without numbers,
as a linked list of levels, each node pointing to that of its stage. When all nodes of a level move, all later levels
move with them by the insertion or the removal of one link; only nodes whose stage changes against that of others in
their level are touched. So a merge costs what lies beside it: a constant on a chain, however long, and the length of
the branch on a branch that has others parallel to it. Two towers of n nodes each that meet at their ends remain
quadratic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence


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
