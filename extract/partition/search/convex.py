"""The sets of operators of a region that may be one group: connected and convex, as bit masks.

Convex: no path leaves the set and comes back, neither through the region nor through what surrounds it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

from ....support.bitsets import bits


@dataclass(frozen=True)
class Region:
    """A small directed acyclic graph on 0 to ``size - 1``, in a topological order.

    `edges` are those of the graph; `detours` are pairs (i, j) such that j depends on i through groups outside the
    region, which stay unchanged: i and j are never in one set, and the set of i runs before that of j.
    """

    size: int
    edges: tuple[tuple[int, int], ...]
    detours: tuple[tuple[int, int], ...] = ()

    @cached_property
    def precedences(self) -> tuple[tuple[int, int], ...]:
        """Edges and detours: pairs (i, j) such that i's set is j's or runs before it."""
        return tuple(sorted({*self.edges, *self.detours}))

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """Per node, the mask of those that an edge joins to it."""
        masks = [0] * self.size
        for tail, head in self.edges:
            masks[tail] |= 1 << head
            masks[head] |= 1 << tail
        return tuple(masks)

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Per node, the mask of all that come before it."""
        masks = [0] * self.size
        for tail, head in sorted(self.precedences, key=lambda pair: pair[1]):
            masks[head] |= masks[tail] | 1 << tail
        return tuple(masks)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """Per node, the mask of all that come after it."""
        masks = [0] * self.size
        for tail, head in reversed(self.precedences):
            masks[tail] |= masks[head] | 1 << head
        return tuple(masks)

    def holds_detour(self, mask: int) -> bool:
        """Whether a path through the surroundings leads from the set back into it."""
        return any(mask >> tail & 1 and mask >> head & 1 for tail, head in self.detours)


@dataclass(frozen=True, slots=True)
class _GrowingSet:
    """A convex set with the unions of its members' ancestors, descendants and neighbours."""

    mask: int
    above: int
    below: int
    near: int


@dataclass(frozen=True)
class ConvexSets:
    """Masks, smaller sets mostly first; `complete` unless there were more than the caller wanted."""

    masks: tuple[int, ...]
    complete: bool


def convex_sets(region: Region, largest: int, most: int) -> ConvexSets:
    """Every connected convex set of up to `largest` nodes, up to `most` of them.

    A connected convex set is grown from any of its nodes by adding a neighbour and all nodes between: the closure
    stays within every convex set that holds both, so none is missed.
    """
    tables = zip(region.ancestors, region.descendants, region.neighbours, strict=True)
    queue = deque(_GrowingSet(1 << node, *masks) for node, masks in enumerate(tables))
    seen = {grown.mask: None for grown in queue}
    while queue:
        grown = queue.popleft()
        for node in bits(grown.near & ~grown.mask):
            mask = _closure(region, grown, node)
            if mask in seen or mask.bit_count() > largest or region.holds_detour(mask):
                continue
            if len(seen) >= most:
                return ConvexSets(tuple(seen), False)
            seen[mask] = None
            above, below = grown.above | region.ancestors[node], grown.below | region.descendants[node]
            near = reduce(or_, (region.neighbours[added] for added in bits(mask & ~grown.mask)), grown.near)
            queue.append(_GrowingSet(mask, above, below, near))
    return ConvexSets(tuple(seen), True)


def mask_of(nodes: Iterable[int]) -> int:
    """The mask of some nodes."""
    return sum(1 << node for node in nodes)


def _closure(region: Region, grown: _GrowingSet, node: int) -> int:
    """The convex set with one more node: nodes after one member and before another join it."""
    between = (grown.above | region.ancestors[node]) & (grown.below | region.descendants[node])
    return grown.mask | 1 << node | between
