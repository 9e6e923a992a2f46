"""Lower bounds of the cost of extracting a class, and the choices that can therefore be left out.

A class contains its must-set (see dominance.py), so the cheapest choices of that are a bound; so is the cheapest choice
of the class together with the best bound of a child, plus whatever of the other children's must-sets cannot be below
that child. Both hold if classes are shared, too, and both are far above the linear relaxation if the
answer is small beside the e-graph. From the roots down, the same sums along the cheapest path bound every selection
that contains a class. Choices whose two bounds together reach the cost of the answer at hand are dropped, as reduced
costs fix variables in integer programming.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

from ...support.bitsets import bits
from ...support.deadlines import require_time
from ...support.directed_graphs import connected_components, strongly_connected_components
from .cores import Core
from .options import Option, drop_unextractable
from .problem import TOLERANCE

_FIXED_POINT_ROUNDS = 50
"""Must-sets of classes on cycles that still change after this many rounds are not used: only a fixed point holds."""

Kept = Sequence[Sequence[int]]
"""For every class of a core the positions of the choices that are still in play."""


class Pick(NamedTuple):
    """A choice: its position, its cost, its children and all that every acyclic selection contains below it.

    Sets are integers used as bitsets of ranks.
    """

    position: int
    cost: float
    children: int
    below: int


class Space:
    """The choices in play of a core that the roots reach, and bounds on their cost.

    Classes are ranked so that children outside of a class's own cycle come before it. `picks`, `must`, `reach` (all
    that can be below), `loop` (the classes that are on a cycle with it; 0 if it is on none) and `floor` (the cost of
    the class with all below it, at least) are indexed by rank; `numbers` are the ranked classes of the core.
    `required` are the classes that every selection contains. They are paid for in any case, so they are children only
    of classes on a cycle with them, and the rest falls into independent `parts`, each the set of its required classes.
    Raises OutOfTime once the deadline (time.monotonic) has come.
    """

    def __init__(self, core: Core, kept: Kept, deadline: float) -> None:
        self.deadline = deadline
        components = reachable_components(core, kept)
        self.numbers = [number for component in components for number in component]
        rank_of = {number: position for position, number in enumerate(self.numbers)}
        self.picks = [
            [
                Pick(position, choice.cost, sum(1 << rank_of[child] for child in frozenset(choice.children)), 0)
                for position, choice in ((position, core.classes[number][position]) for position in kept[number])
                if number not in choice.children
            ]
            for number in self.numbers
        ]
        count = len(self.numbers)
        self.must, self.reach, self.loop, self.floor = [0] * count, [0] * count, [0] * count, [0.0] * count
        self.ranges = []
        start = 0
        for component in components:
            self.ranges.append(range(start, start + len(component)))
            start += len(component)
        for ranks in self.ranges:
            self._compute_must_sets(ranks)
        self.required = sum(1 << rank_of[root] for root in frozenset(core.roots))
        self.required |= self.must_contain(self.required)
        self.least = [min((pick.cost for pick in picks), default=math.inf) for picks in self.picks]
        self.costs: dict[int, float] = {}
        for ranks in self.ranges:
            # Required classes are no children of classes outside of their own strongly connected component.
            readable = ~self.required | sum(1 << rank for rank in ranks)
            for rank in ranks:
                self.picks[rank] = [pick._replace(children=pick.children & readable) for pick in self.picks[rank]]
            self._compute_must_sets(ranks)
            self._compute_tables(ranks)
        self.parts = self._find_parts()

    def _find_parts(self) -> list[int]:
        """The required classes of each set of connected classes that leaves something to decide.

        One on a cycle stays a child of the classes there, so it is paid for with them even if it has one choice.
        """
        children = {rank: [c for pick in picks for c in bits(pick.children)] for rank, picks in enumerate(self.picks)}
        for ranks in self.ranges:
            children[ranks.start] += ranks
        part_of = {rank: part for part, ranks in enumerate(connected_components(children)) for rank in ranks}
        parts: dict[int, int] = {}
        for rank in bits(self.required):
            if self.loop[rank] or len(self.picks[rank]) > 1 or self.picks[rank][0].children:
                parts[part_of[rank]] = parts.get(part_of[rank], 0) | 1 << rank
        return sorted(parts.values(), key=int.bit_count)

    def fixed_cost(self) -> float:
        """The cost of the required classes that leave nothing to decide."""
        return self.cost(self.required & ~sum(self.parts))

    def least_cost(self) -> float:
        """A lower bound of the cost of any selection."""
        return self.fixed_cost() + math.fsum(map(self.least_below, self.parts))

    def _compute_tables(self, ranks: range) -> None:
        """The tables of the classes of one strongly connected component, those before it being done."""
        require_time(self.deadline)
        members = sum(1 << rank for rank in ranks)
        reach = members
        for rank in ranks:
            for pick in self.picks[rank]:
                for child in bits(pick.children & ~members):
                    reach |= self.reach[child]
        for rank in ranks:
            self.reach[rank], self.loop[rank] = reach, members if len(ranks) > 1 else 0
        self._compute_floors(ranks, members)

    def _compute_floors(self, ranks: range, members: int) -> None:
        """The bounds of classes on a cycle are those of acyclic selections: the class with the least bound is final,
        for its readers cost no less (Knuth, "A generalization of Dijkstra's algorithm", 1977)."""
        waiting: dict[tuple[int, int], int] = {}
        readers: dict[int, list[tuple[int, int]]] = {}
        ready: list[tuple[int, int]] = []
        for rank in ranks:
            self.floor[rank] = math.inf
            for index, pick in enumerate(self.picks[rank]):
                inside = pick.children & members
                waiting[rank, index] = inside.bit_count()
                for child in bits(inside):
                    readers.setdefault(child, []).append((rank, index))
                if not inside:
                    ready.append((rank, index))
        heap: list[tuple[float, int]] = []
        while True:
            for rank, index in ready:
                require_time(self.deadline)
                pick = self.picks[rank][index]
                floor = max(self.cost(self.must[rank]), pick.cost + self.least_below(pick.children))
                heapq.heappush(heap, (floor, rank))
            while heap and self.floor[heap[0][1]] < math.inf:
                heapq.heappop(heap)
            if not heap:
                return
            floor, rank = heapq.heappop(heap)
            self.floor[rank] = floor
            ready = []
            for reader in readers.get(rank, ()):
                waiting[reader] -= 1
                if not waiting[reader] and self.floor[reader[0]] == math.inf:
                    ready.append(reader)

    def _compute_must_sets(self, ranks: range) -> None:
        """The must-sets: the greatest fixed point. Choices with which every selection is cyclic are dropped."""
        for rank in ranks:
            self.must[rank] = -1 if len(ranks) > 1 else 0
        for _ in range(_FIXED_POINT_ROUNDS):
            changed = False
            for rank in ranks:
                require_time(self.deadline)
                common = -1
                for pick in self.picks[rank]:
                    below = self.must_contain(pick.children)
                    if not below >> rank & 1:
                        common &= below
                common |= 1 << rank
                changed |= common != self.must[rank]
                self.must[rank] = common
            if not changed or len(ranks) == 1:
                break
        else:
            for rank in ranks:
                self.must[rank] = 1 << rank
        for rank in ranks:
            picks = [pick._replace(below=self.must_contain(pick.children)) for pick in self.picks[rank]]
            self.picks[rank] = [pick for pick in picks if not pick.below >> rank & 1]

    def must_contain(self, classes: int) -> int:
        """All that every acyclic selection of some classes contains."""
        required = 0
        for rank in bits(classes):
            required |= self.must[rank]
        return required

    def below(self, classes: int) -> int:
        """Some classes with all that can be below them."""
        below = 0
        for rank in bits(classes):
            below |= self.reach[rank]
        return below

    def cost(self, classes: int) -> float:
        """The cost of the cheapest choices of some classes, remembered."""
        cost = self.costs.get(classes)
        if cost is None:
            cost = self.costs[classes] = math.fsum(self.least[rank] for rank in bits(classes))
        return cost

    def least_below(self, classes: int) -> float:
        """A lower bound of the cost of some classes with everything below them."""
        required = self.must_contain(classes)
        least = self.cost(required)
        disjoint, reached = 0.0, 0
        for member in sorted(bits(classes), key=lambda member: -self.floor[member]):
            least = max(least, self.floor[member] + self.cost(required & ~self.reach[member]))
            if not self.reach[member] & reached:
                disjoint += self.floor[member]
                reached |= self.reach[member]
        return max(least, disjoint + self.cost(required & ~reached))

    def least_above(self) -> list[float]:
        """For every class, the least cost of its part in a selection with it, without the classes below it.

        Classes that lead to it are never below it. The must-set of a choice on the way, beside the next class, counts
        as far as it cannot reach the class.
        """
        above = [math.inf] * len(self.numbers)
        heap: list[tuple[float, int]] = []
        for part in self.parts:
            for rank in bits(part):
                above[rank] = self._beside(part, rank)
                heap.append((above[rank], rank))
        heapq.heapify(heap)
        while heap:
            cost, rank = heapq.heappop(heap)
            if cost > above[rank]:
                continue
            require_time(self.deadline)
            for pick in self.picks[rank]:
                for child in bits(pick.children):
                    if cost + pick.cost < above[child]:
                        total = cost + pick.cost + self._beside(pick.children, child)
                        if total < above[child]:
                            above[child] = total
                            heapq.heappush(heap, (total, child))
        return above

    def _beside(self, classes: int, one: int) -> float:
        """The cost of the classes that some classes must contain, without one of them and all that can be below it."""
        return self.cost(self.must_contain(classes & ~(1 << one)) & ~self.reach[one])

    def choices_below(self, core: Core, cost: float) -> list[list[int]]:
        """The choices that may be part of a selection below a cost: none of a root if there is no such selection."""
        above = self.least_above()
        least = self.least_cost()
        rest = [0.0] * len(self.numbers)
        for part in self.parts:
            elsewhere = least - self.least_below(part)
            for rank in bits(self.below(part)):
                rest[rank] = elsewhere
        kept: list[list[int]] = [[] for _ in core.classes]
        limit = cost * (1 - TOLERANCE)
        for rank, picks in enumerate(self.picks):
            require_time(self.deadline)
            number, free = self.numbers[rank], self.required >> rank & 1 and len(picks) == 1 and not picks[0].children
            for pick in picks:
                if free or rest[rank] + above[rank] + pick.cost + self.least_below(pick.children) < limit:
                    kept[number].append(pick.position)
        return drop_unextractable_choices(core, kept)


def reachable_components(core: Core, kept: Kept) -> list[list[int]]:
    """The strongly connected components of the classes that the roots reach, children first."""
    successors: dict[int, frozenset[int]] = {}
    stack = list(core.roots)
    while stack:
        number = stack.pop()
        if number not in successors:
            children = (core.classes[number][position].children for position in kept[number])
            successors[number] = frozenset().union(*children)
            stack.extend(successors[number])
    return strongly_connected_components(successors)


def drop_unextractable_choices(core: Core, kept: Kept) -> list[list[int]]:
    """Only choices whose classes all have an acyclic extraction."""
    options = {
        number: tuple(
            Option(position, 0.0, frozenset(core.classes[number][position].children)) for position in positions
        )
        for number, positions in enumerate(kept)
    }
    usable = drop_unextractable(options)
    return [[option.candidate for option in usable.get(number, ())] for number in options]
