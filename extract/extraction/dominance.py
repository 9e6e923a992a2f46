"""Must-sets and dominated options.

The must-set of a class holds the classes that every acyclic extraction of it contains: itself, and those in the
must-sets of every option's children. Sets are Python integers used as bitsets, numbered children first so that they
stay short, and forgotten once their last reader is done. An option is dropped when

- a child's must-set holds the option's own class: every extraction through it is cyclic; or
- another option of the class never costs more. Its children cost nothing if they are forced or in the
  must-set of the replaced option, else they cost at most their bound: the cheapest tree.

A swap must not close a cycle. A child from the must-set of the replaced option is already below the class; any other
has to lie in another strongly connected component, from where no path leads back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...support.bitsets import bits
from ...support.deadlines import require_time
from .options import Graph, Option

_FIXED_POINT_CLASSES = 1000
_FIXED_POINT_ROUNDS = 20
"""A class counts as containing itself alone in a cyclic component of more classes, or that changes for more rounds."""


class _View(NamedTuple):
    """An option, its children as a bitset, and all that every extraction through it contains below its class."""

    option: Option
    children: int
    below: int


def drop_dominated_options(
    graph: Graph, connected: Sequence[Sequence[int]], forced: frozenset[int], deadline: float = math.inf
) -> tuple[Graph, frozenset[int]]:
    """Drop options once over the whole graph; connected components come children first.

    forced: classes known to be in every extraction, the roots at least; outside their own strongly connected
    component they are no one's children any more (see reduce.py). Returns the smaller graph and all forced classes.
    Every class keeps a finite extraction, but some may have become unreachable. Raises OutOfTime once the deadline
    (time.monotonic) has come.
    """
    state = _Sweep(connected, deadline)
    last_reader = _last_readers(graph, connected)
    kept: dict[int, tuple[Option, ...]] = {}
    required = 0
    for number, component in enumerate(connected):
        if len(component) > 1:
            state.compute_must_sets(component, graph)
        for member in component:
            kept[member] = state.reduce_options(member, graph[member])
            if member in forced:
                required |= state.must[member]
        for expired in last_reader.get(number, ()):
            state.must.pop(expired, None)
    return {number: kept[number] for number in graph}, forced.union(state.order[bit] for bit in bits(required))


def _last_readers(graph: Graph, connected: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    """For each position of a component, the classes that no later component reads."""
    last: dict[int, int] = {}
    for position, component in enumerate(connected):
        for member in component:
            last[member] = position
            for option in graph[member]:
                for child in option.children:
                    last[child] = position
    expired: dict[int, list[int]] = {}
    for number, position in last.items():
        expired.setdefault(position, []).append(number)
    return expired


class _Sweep:
    """The must-sets and bounds known so far, in one walk from the leaves up."""

    def __init__(self, connected: Sequence[Sequence[int]], deadline: float) -> None:
        self.deadline = deadline
        self.order = [member for component in connected for member in component]
        self.position = {member: position for position, member in enumerate(self.order)}
        self.home = {member: number for number, component in enumerate(connected) for member in component}
        self.everything = (1 << len(self.order)) - 1
        self.must: dict[int, int] = {}
        self.bound: dict[int, float] = {}

    def below(self, option: Option) -> int:
        """All that every extraction through the option contains below its class."""
        below = 0
        for child in option.children:
            below |= self.must[child]
        return below

    def compute_must_sets(self, component: Sequence[int], graph: Graph) -> None:
        """The must-sets of a cyclic component: the greatest fixed point, or the classes alone if that takes long."""
        for member in component:
            self.must[member] = self.everything
        for _ in range(_FIXED_POINT_ROUNDS if len(component) <= _FIXED_POINT_CLASSES else 0):
            changed = False
            for member in component:
                require_time(self.deadline)
                before = self.must[member]
                self.must[member] = self._common_to_options(member, graph[member])
                changed |= before != self.must[member]
            if not changed:
                return
        for member in component:
            self.must[member] = 1 << self.position[member]

    def _common_to_options(self, member: int, options: Sequence[Option]) -> int:
        """All that those options have in common that are not known to be cyclic."""
        position = self.position[member]
        common = self.everything
        for below in map(self.below, options):
            if not below >> position & 1 or below == self.everything:
                common &= below
        return common | 1 << position

    def reduce_options(self, member: int, options: Sequence[Option]) -> tuple[Option, ...]:
        """The options of a class to keep, in their order; notes the must-set and the bound of the class."""
        require_time(self.deadline)
        position = self.position[member]
        views = [
            _View(option, sum(1 << self.position[child] for child in option.children), self.below(option))
            for option in options
        ]
        cyclic = member in self.must
        if cyclic:
            views = [view for view in views if not view.below >> position & 1]
        if len(views) > 1:
            views = self._undominated_views(member, views)
        if not cyclic:
            common = views[0].below
            for view in views[1:]:
                common &= view.below
            self.must[member] = common | 1 << position
        self.bound[member] = min(self._tree_bound(member, view.option) for view in views)
        return tuple(view.option for view in views)

    def _undominated_views(self, member: int, views: Sequence[_View]) -> list[_View]:
        ranked = sorted(views, key=lambda view: (view.option.cost, len(view.option.children), view.option.candidate))
        kept: list[_View] = []
        children_kept: list[int] = []
        for view in ranked:  # the number of comparisons may grow with the square of that of the options
            require_time(self.deadline)
            missing = ~view.below
            if any(not children & missing for children in children_kept) or self._is_beaten(member, kept, view):
                continue
            kept.append(view)
            children_kept.append(view.children)
        return sorted(kept, key=lambda view: view.option.candidate)

    def _is_beaten(self, member: int, rivals: Sequence[_View], view: _View) -> bool:
        """Whether one of the rivals, cheapest first, costs less even with the classes that it must add."""
        option, home = view.option, self.home[member]
        for rival in rivals:
            if rival.option.cost >= option.cost:
                return False
            extra = [self.order[bit] for bit in bits(rival.children & ~view.below)]
            if any(self.home[child] == home for child in extra):
                continue
            cost = rival.option.cost + math.fsum(self.bound[child] for child in extra)
            if cost < option.cost or (cost == option.cost and rival.option.candidate < option.candidate):
                return True
        return False

    def _tree_bound(self, member: int, option: Option) -> float:
        """The most that the option costs on top of the forced classes; infinite if it might close a cycle."""
        home = self.home[member]
        total = option.cost
        for child in option.children:
            if self.home[child] == home:
                return math.inf
            total += self.bound[child]
        return total
