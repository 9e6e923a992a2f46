"""Greedy extraction: quick, acyclic, not always optimal.

Of a core three selections compete: the earliest choice everywhere (on equal cost it wins, so that nothing changes
without need), the greedy DAG (each class takes the choice whose closure is cheapest, shared classes counted once; it
closures that may be out of date, so it can end in a cycle), and the greedy tree (shared classes counted again; Knuth
1977), which is acyclic in any case.
"""

from __future__ import annotations

import heapq
import math
from collections import deque

from ...support.bitsets import bits
from ...support.deadlines import is_over
from ...support.directed_graphs import is_acyclic
from .cores import Answer, Core, Selection
from .problem import Problem, follow_choices, selected_children, selection_cost

_VISITS_PER_CLASS = 20
"""The greedy DAG looks at a class this often on average, then stops. A bound in steps, unlike one in time, gives the
same answer every time."""
_MORE_VISITS = 20_000
"""Visits of a large core beyond one to each class."""


def extract_greedily(core: Core, deadline: float = math.inf) -> Answer:
    """The best of the greedy selections; the greedy DAG is left as it is once the deadline (time.monotonic) comes.

    The bound is the cheapest choice of every required class.
    """
    tree = tree_selection(core)
    earliest = follow_choices(core, lambda number: 0)
    first = earliest if earliest is not None and is_acyclic(selected_children(core, earliest)) else tree
    bound = math.fsum(min(choice.cost for choice in core.classes[root]) for root in core.roots)
    answer = Answer(first, selection_cost(core, first), bound)
    return answer.improve(dag_selection(core, deadline), core).improve(tree, core)


def tree_selection(core: Core) -> Selection:
    """The choice with the cheapest tree, for every class (Knuth, "A generalization of Dijkstra's algorithm", 1977)."""
    readers: list[list[tuple[int, int]]] = [[] for _ in core.classes]
    missing: dict[tuple[int, int], int] = {}
    total: dict[tuple[int, int], float] = {}
    heap: list[tuple[float, int, int]] = []
    for number, choices in enumerate(core.classes):
        for position, choice in enumerate(choices):
            missing[number, position] = len(choice.children)
            total[number, position] = choice.cost
            if not choice.children:
                heap.append((choice.cost, position, number))
            for child in choice.children:
                readers[child].append((number, position))
    heapq.heapify(heap)
    best: dict[int, int] = {}
    while heap:
        cost, position, number = heapq.heappop(heap)
        if number in best:
            continue
        best[number] = position
        for reader in readers[number]:
            missing[reader] -= 1
            total[reader] += cost
            if not missing[reader] and reader[0] not in best:
                heapq.heappush(heap, (total[reader], reader[1], reader[0]))
    selection = follow_choices(core, best.get)
    assert selection is not None, "every class of a core has a finite extraction"
    return selection


def dag_selection(core: Core, deadline: float = math.inf) -> Selection | None:
    """The choice with the cheapest closure, for every class, improved until nothing changes, visits run out or the
    deadline (time.monotonic) comes; None if it comes before a choice is known for every class."""
    readers: list[list[int]] = [[] for _ in core.classes]
    for number, choices in enumerate(core.classes):
        for child in dict.fromkeys(child for choice in choices for child in choice.children):
            readers[child].append(number)
    closures = _Closures(core)
    queue = deque(reversed(range(len(core.classes))))
    waiting = set(queue)
    visits = min(_VISITS_PER_CLASS * len(core.classes), len(core.classes) + _MORE_VISITS)
    while queue and visits and not is_over(deadline):
        visits -= 1
        number = queue.popleft()
        waiting.discard(number)
        if closures.improve(number):
            fresh = [reader for reader in readers[number] if reader not in waiting]
            waiting.update(fresh)
            queue.extend(fresh)
    return follow_choices(core, closures.best.__getitem__)


class _Closures:
    """For every class the best choice so far, the classes below it (a bitset), their cost, and that of its own."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.best: list[int | None] = [None] * len(core.classes)
        self.members = [0] * len(core.classes)
        self.total = [math.inf] * len(core.classes)
        self.cost = [0.0] * len(core.classes)

    def improve(self, number: int) -> bool:
        """Take the cheapest choice of a class; returns whether that is an improvement."""
        before = self.total[number]
        for position, choice in enumerate(self.core.classes[number]):
            closure = self._closure(number, choice.children, self.total[number] - choice.cost)
            if closure is None:
                continue
            members, cost = closure
            if choice.cost + cost < self.total[number]:
                self.best[number], self.total[number], self.cost[number] = position, choice.cost + cost, choice.cost
                self.members[number] = members | 1 << number
        return self.total[number] < before

    def _closure(self, number: int, children: tuple[int, ...], limit: float) -> tuple[int, float] | None:
        """The classes below the children and their cost; None if not known, cyclic or not below the limit."""
        members = 0
        cost = 0.0
        for child in sorted(children, key=lambda child: -self.total[child]):
            if self.best[child] is None or self.members[child] >> number & 1:
                return None
            more = self.members[child] & ~members
            cost += sum(self.cost[other] for other in bits(more)) if members else self.total[child]
            members |= more
            if cost >= limit:
                return None
        return members, cost


def node_queue_selection(problem: Problem, deadline: float = math.inf) -> dict[int, int] | None:
    """The greedy DAG of a whole problem, e-node by e-node and without reductions, as the extraction gym's
    faster-greedy-dag: for each class that the roots need its candidate. None if the deadline (time.monotonic) comes
    first or the selection is cyclic.
    """
    readers: list[list[tuple[int, int]]] = [[] for _ in problem.classes]
    waiting: dict[tuple[int, int], None] = {}
    for number, candidates in enumerate(problem.classes):
        for index, candidate in enumerate(candidates):
            for child in dict.fromkeys(candidate.children):
                readers[child].append((number, index))
            if not candidate.children:
                waiting[number, index] = None
    closures: list[dict[int, float]] = [{} for _ in problem.classes]
    totals = [math.inf] * len(problem.classes)
    best: dict[int, int] = {}
    queue = deque(waiting)
    while queue:
        if is_over(deadline):
            return None
        number, index = queue.popleft()
        del waiting[number, index]
        candidate = problem.classes[number][index]
        below = [closures[child] for child in dict.fromkeys(candidate.children)]
        if not all(below) or any(number in closure for closure in below):
            continue
        closure = {c: cost for part in sorted(below, key=len, reverse=True) for c, cost in part.items()}
        closure[number] = candidate.cost
        total = math.fsum(closure.values())
        if total < totals[number]:
            closures[number], totals[number], best[number] = closure, total, index
            fresh = [reader for reader in readers[number] if reader not in waiting]
            waiting.update(dict.fromkeys(fresh))
            queue.extend(fresh)
    selection = follow_choices(problem, best.get)
    return selection if selection is not None and is_acyclic(selected_children(problem, selection)) else None
