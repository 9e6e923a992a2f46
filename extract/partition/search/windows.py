"""Better partitions, window by window: each window is partitioned again, proven cheapest.

A window is some adjacent groups and their operators; the groups around it stay. Of its operators every set that may be
a group gets its cost (connected, convex, allowed, up to a size), and the cheapest acyclic cover by such sets is proven
(cover.py). The cost of a set is arbitrary: it need not be the sum of anything. The claim of a window is "optimal over
these sets within the window", not optimal over the whole graph; sweeps go on until no window can be improved.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from math import fsum, inf

from ....ir.graph import OperatorGraph
from ....support.bitsets import bits
from ....support.deadlines import is_over
from ..groups import Partition, partition_of
from .convex import Region, convex_sets, mask_of
from .cover import CoverProblem, cheapest_cover

Cost = Callable[[tuple[int, ...]], float]
"""The cost of a set of operators (ascending) as one sub-graph: finite, or infinite if no kernel can compute it."""

Allowed = Callable[[tuple[int, ...]], bool]
"""Whether a set of operators (ascending) may be a group, besides being connected and convex."""

Structure = Callable[[tuple[int, ...]], Hashable]
"""Everything about a window's operators, in the order given, on which costs and permissions depend."""


@dataclass(frozen=True)
class Limits:
    """The most groups and operators of a window, operators of a candidate set, and convex sets listed per window."""

    groups: int = 12
    operators: int = 40
    largest: int = 10
    sets: int = 20_000


@dataclass(frozen=True)
class Window:
    """A window that was solved. `operators` by index in the graph.

    `before` and `after` are its costs; `candidates` the sets whose cost was computed; `complete` says that they are all
    connected, convex and allowed sets up to the limit of size; `proven` that no acyclic cover by them is cheaper.
    """

    operators: tuple[int, ...]
    groups: int
    candidates: int
    before: float
    after: float
    complete: bool
    proven: bool


@dataclass(frozen=True)
class Improvement:
    """A partition that costs no more than the given one, and the windows that were solved, in order.

    `proven`: no window of the partition can be improved, over its candidates. `seconds` is the time it took.
    """

    partition: Partition
    windows: tuple[Window, ...]
    proven: bool
    seconds: float

    @property
    def saved(self) -> float:
        """By how much the sum of the groups' costs fell."""
        return sum(window.before - window.after for window in self.windows if window.after < window.before)


def improve(
    partition: Partition,
    cost: Cost,
    allowed: Allowed,
    time_limit: float = 10.0,
    limits: Limits = Limits(),
    structure: Structure | None = None,
    around: Collection[int] | None = None,
) -> Improvement:
    """Sweep windows over a partition until none can be improved, or for `time_limit` seconds.

    Windows are those around every operator, or `around` some of them.

    Existing groups stay possible whether allowed or not. Costs are asked for once per set. Windows that are
    equal in their costs are solved once; with `structure`, windows of equal structure do not even ask for costs again.
    """
    started = time.monotonic()
    seeds = range(len(partition.graph)) if around is None else sorted(around)
    sweeps = _Sweeps(partition.graph, cost, allowed, limits, structure, started + time_limit, seeds)
    windows: list[Window] = []
    is_final = False
    while not is_final and not is_over(sweeps.deadline):
        before = partition.group
        partition = sweeps.sweep(partition, windows)
        is_final = partition.group == before
    return Improvement(partition, tuple(windows), is_final and sweeps.is_proven, time.monotonic() - started)


@dataclass(frozen=True)
class _Region:
    """A window as a region: `operators[i]` is node i; `present` are the masks of its groups."""

    operators: tuple[int, ...]
    region: Region
    present: tuple[int, ...]

    def members(self, mask: int) -> tuple[int, ...]:
        """The operators of a set, ascending."""
        return tuple(sorted(self.operators[node] for node in bits(mask)))


@dataclass(frozen=True)
class _CheapestCover:
    """The cheapest cover of a window, as masks."""

    masks: tuple[int, ...]
    candidates: int
    complete: bool
    proven: bool


@dataclass
class _Sweeps:
    """Sweeps over partitions of one graph; `is_proven` says whether all covers of the last one are."""

    graph: OperatorGraph
    cost: Cost
    allowed: Allowed
    limits: Limits
    structure: Structure | None
    deadline: float
    seeds: Sequence[int]
    is_proven: bool = True
    costs: dict[tuple[int, ...], float] = field(default_factory=dict)
    permitted: dict[tuple[int, ...], bool] = field(default_factory=dict)
    by_region: dict[Hashable, _CheapestCover] = field(default_factory=dict)
    by_problem: dict[tuple[CoverProblem, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)
    final: set[_Region] = field(default_factory=set)

    def sweep(self, partition: Partition, windows: list[Window]) -> Partition:
        """Solve windows around the seeds once, in order; an operator is done when it and its neighbours were in one."""
        self.is_proven = True
        done = [False] * len(self.graph)
        for seed in self.seeds:
            if done[seed]:
                continue
            if is_over(self.deadline):
                self.is_proven = False
                break
            groups = _grow_window(partition, partition.group[seed], done, self.limits)
            window = _make_region(partition, groups)
            if len(window.operators) > 1 and window not in self.final:
                partition = self._solve(partition, window, windows)
            inside = set(window.operators)
            for operator in window.operators:
                near = (*self.graph.predecessors[operator], *self.graph.successors[operator])
                done[operator] = done[operator] or inside.issuperset(near)
            done[seed] = True
        return partition

    def _solve(self, partition: Partition, window: _Region, windows: list[Window]) -> Partition:
        cover = self._find_cover(window)
        self.is_proven = self.is_proven and cover.proven
        before, after = (
            fsum(self._cost(window.members(mask)) for mask in masks) for masks in (window.present, cover.masks)
        )
        operators, groups = tuple(sorted(window.operators)), len(window.present)
        outcome = cover.candidates, before, min(before, after), cover.complete, cover.proven
        windows.append(Window(operators, groups, *outcome))
        if after < before:
            return _regroup(partition, [window.members(mask) for mask in cover.masks])
        if cover.proven:
            self.final.add(window)
        return partition

    def _cost(self, members: tuple[int, ...]) -> float:
        if members not in self.costs:
            self.costs[members] = self.cost(members)
        return self.costs[members]

    def _is_allowed(self, members: tuple[int, ...]) -> bool:
        if members not in self.permitted:
            self.permitted[members] = self.allowed(members)
        return self.permitted[members]

    def _find_cover(self, window: _Region) -> _CheapestCover:
        content = window.operators if self.structure is None else self.structure(window.operators)
        key = (content, window.region, window.present)
        cover = self.by_region.get(key) or self._compute_cover(window)
        if cover.proven:
            self.by_region[key] = cover
        return cover

    def _compute_cover(self, window: _Region) -> _CheapestCover:
        convex = convex_sets(window.region, self.limits.largest, self.limits.sets)
        costs = {mask: self._cost(window.members(mask)) for mask in window.present}
        for mask in convex.masks:
            if is_over(self.deadline):
                return _CheapestCover(window.present, len(costs), False, False)
            members = window.members(mask)
            if mask not in costs and self._is_allowed(members) and (cost := self._cost(members)) < inf:
                costs[mask] = cost
        # An existing group that no kernel can compute costs more than all sets that one can.
        dear = 1.0 + sum(abs(cost) for cost in costs.values() if cost < inf)
        problem = CoverProblem(window.region, tuple(costs), tuple(min(cost, dear) for cost in costs.values()))
        present = tuple(range(len(window.present)))
        chosen = self.by_problem.get((problem, present))
        proven = chosen is not None
        if chosen is None:
            cover = cheapest_cover(problem, present, self.deadline)
            chosen, proven = cover.chosen, cover.proven
        if proven:
            self.by_problem[problem, present] = chosen
        return _CheapestCover(tuple(problem.sets[p] for p in chosen), len(costs), convex.complete, proven)


def _grow_window(partition: Partition, seed: int, done: Sequence[bool], limits: Limits) -> tuple[int, ...]:
    """Groups of a window, ascending: the seed, its neighbours, then theirs, those not done and near in number first."""
    graph = partition.graph
    chosen: set[int] = set()
    size = 0
    queue = [(False, False, 0, seed)]
    queued = {seed}
    while queue and len(chosen) < limits.groups:
        *_, group = heapq.heappop(queue)
        members = partition.members[group]
        if size + len(members) > limits.operators and chosen:
            continue
        chosen.add(group)
        size += len(members)
        near = {partition.group[o] for m in members for o in (*graph.predecessors[m], *graph.successors[m])}
        for other in near - queued:
            queued.add(other)
            is_done = all(done[member] for member in partition.members[other])
            heapq.heappush(queue, (group != seed, is_done, abs(other - seed), other))
    return tuple(sorted(chosen))


def _make_region(partition: Partition, groups: Sequence[int]) -> _Region:
    operators = tuple(member for group in groups for member in partition.members[group])
    node = {operator: position for position, operator in enumerate(operators)}
    edges = [(node[p], node[o]) for o in operators for p in partition.graph.predecessors[o] if p in node]
    detours = [(node[tail], node[head]) for tail, head in _find_detours(partition, groups)]
    present = tuple(mask_of(node[member] for member in partition.members[group]) for group in groups)
    return _Region(operators, Region(len(operators), tuple(sorted(edges)), tuple(sorted(detours))), present)


def _find_detours(partition: Partition, groups: Sequence[int]) -> set[tuple[int, int]]:
    """Pairs of operators of a window such that the second depends on the first through groups outside it."""
    group, successors = partition.group, partition.graph.successors
    window, last = set(groups), groups[-1]
    heads: dict[int, set[int]] = {}
    detours: set[tuple[int, int]] = set()
    for tail in (member for number in groups for member in partition.members[number]):
        for start in {group[reader] for reader in successors[tail]} - window:
            if start not in heads:
                heads[start] = set()
                queue, seen = [start], {start}
                while queue:  # no group after the last of the window leads back into it
                    for reader in (r for m in partition.members[queue.pop()] for r in successors[m]):
                        if group[reader] in window:
                            heads[start].add(reader)
                        elif group[reader] < last and group[reader] not in seen:
                            seen.add(group[reader])
                            queue.append(group[reader])
            detours.update((tail, head) for head in heads[start])
    return detours


def _regroup(partition: Partition, groups: Sequence[tuple[int, ...]]) -> Partition:
    """The partition with some operators grouped anew."""
    labels = list(partition.group)
    for position, members in enumerate(groups):
        for member in members:
            labels[member] = partition.count + position
    method = partition.method if partition.method.endswith("+windows") else f"{partition.method}+windows"
    return partition_of(partition.graph, labels, method)
